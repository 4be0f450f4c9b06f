package rivals

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"testing"
	"time"
)

// TestGalera: nodes that begin with equal data need no copies of each other, what one writes all have, and nothing runs
// on after Stop.
func TestGalera(t *testing.T) {
	l := newLab(t)
	if err := galeraSystem.Missing(l); err != nil {
		t.Skip(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	i := slices.IndexFunc(galeraSystem.Variants, func(v Variant) bool { return v.Options[galeraProvider] != "" })
	late := galeraSystem.Variants[i]
	running, err := galeraSystem.Start(ctx, l, Shape{Dir: t.TempDir(), Variant: late})
	if err != nil {
		t.Fatal(err)
	}
	g := running.(*galera)
	stopped := false
	defer func() {
		if !stopped {
			_ = g.Stop()
		}
	}()
	if err := g.servers[0].exec(ctx, "CREATE TABLE sbtest.t (a INT PRIMARY KEY)", "INSERT INTO sbtest.t VALUES (7)"); err != nil {
		t.Fatal(err)
	}
	err = poll(ctx, time.Minute, "the row everywhere", func(ctx context.Context) error {
		if behind, err := g.Behind(ctx); err != nil || behind != 0 {
			return errors.Join(err, errors.New("write sets are missing"))
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, h := range g.Hosts() {
		var a int
		if err := g.DB(h.Name).QueryRowContext(ctx, "SELECT a FROM sbtest.t").Scan(&a); err != nil || a != 7 {
			t.Errorf("%s: %d %v", h.Name, a, err)
		}
	}
	var limit string
	if err := g.DB("n2").QueryRowContext(ctx, "SELECT @@wsrep_provider_options LIKE '%gcs.fc_limit = 1024;%'").Scan(&limit); err != nil || limit != "1" {
		t.Errorf("the variant's provider options: %q %v", limit, err)
	}
	if err := g.Settle(ctx); err != nil {
		t.Error(err)
	}
	if _, err := g.Targets(VIP); !errors.Is(err, ErrNotHere) {
		t.Errorf("by a virtual address: %v", err)
	}
	hosts := g.Hosts()
	stopped = true
	if err := g.Stop(); err != nil {
		t.Fatal(err)
	}
	for _, h := range hosts {
		if _, err := os.Stat(filepath.Join("/proc", strconv.Itoa(h.MySQL))); err == nil {
			t.Errorf("%s still runs", h.Name)
		}
	}
}
