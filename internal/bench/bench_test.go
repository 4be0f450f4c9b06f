package bench

import (
	"context"
	"errors"
	"os"
	"testing"
	"time"

	"trireme/internal/mysqld"
)

// needServers skips a test that starts real servers, unless they are required.
func needServers(t *testing.T) {
	t.Helper()
	if testing.Short() {
		t.Skip("starts real servers")
	}
	if err := lookSysbench(); err != nil {
		t.Skip(err)
	}
	if _, err := mysqld.Find(t.Context(), ""); err != nil {
		if os.Getenv("TRIREME_REQUIRE_MYSQL") != "" || !errors.Is(err, mysqld.ErrNotFound) {
			t.Fatal(err)
		}
		t.Skip(err)
	}
}

// TestRivals runs both rivals once, with short runs, and checks that their figures make sense.
func TestRivals(t *testing.T) {
	needServers(t)
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	dir := t.TempDir()
	e, err := newEnvironment(ctx, "", "", dir)
	if err != nil {
		t.Fatal(err)
	}
	o := QuickOptions{Threads: []int{8}, Warmup: time.Second, Time: 2 * time.Second, Say: testWriter{t}}
	o, err = o.withDefaults()
	if err != nil {
		t.Fatal(err)
	}
	for _, k := range systemKinds[:2] {
		cells, idle, err := runSystem(ctx, e, o, k, dir+"/"+k.name)
		if err != nil {
			t.Fatalf("%s: %v", k.title, err)
		}
		if len(cells) != len(k.variants) {
			t.Fatalf("%s: %d cells, want %d", k.title, len(cells), len(k.variants))
		}
		for _, c := range cells {
			if c.TPS <= 0 || c.SustainedTPS > c.TPS || c.SysbenchCPUus <= 0 || c.LeaderRelativeCPU <= 0 || c.RelativeCPU < c.LeaderRelativeCPU {
				t.Errorf("%s: figures make no sense: %+v", k.title, c)
			}
			if k.name == "semisync" && (len(c.Hosts) != 3 || c.Hosts[1].MySQLus <= 0 || c.Hosts[2].MySQLus <= 0) {
				t.Errorf("semi-sync replicas did no work: %+v", c.Hosts)
			}
		}
		if len(idle.Hosts) == 0 {
			t.Errorf("%s: no idle figures", k.title)
		}
	}
}

type testWriter struct{ t *testing.T }

func (w testWriter) Write(b []byte) (int, error) {
	w.t.Logf("%s", b)
	return len(b), nil
}
