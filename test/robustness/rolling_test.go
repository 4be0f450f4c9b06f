package robustness

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"trireme/internal/api"
	"trireme/internal/rolling"
	"trireme/internal/verify"
)

// TestRollingUpgrade: three nodes get another build of Trireme, one after the other, while a workload writes. The leader is last and hands over;
// nothing acknowledged is lost, and leadership moves once.
func TestRollingUpgrade(t *testing.T) {
	needMySQL(t)
	dir := t.TempDir()
	installed, next := filepath.Join(dir, "trireme"), filepath.Join(dir, "next")
	must(t, os.Symlink(binary, installed))
	if out, err := exec.Command("go", "build", "-ldflags", "-X main.version=9.9.9", "-o", next, "trireme/cmd/trireme").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	c := createShape(t, shape{nodes: 3, binary: installed})
	leader := c.healthy()
	term := c.view().Term
	w := c.load(verify.Config{Writers: 4, Rate: 20})
	c.writesMore(w, 50)
	must(t, os.Remove(installed))
	must(t, os.Symlink(next, installed))
	ctx, cancel := context.WithTimeout(t.Context(), 3*healLimit)
	defer cancel()
	res, err := rolling.Run(ctx, rolling.Options{Upgrade: true, Patience: healLimit, Poll: 100 * time.Millisecond, View: c.View, Say: t.Logf,
		Switchover: func(ctx context.Context, req api.SwitchoverRequest) (api.SwitchoverResult, error) {
			cl := c.Client(leader)
			defer cl.Close()
			return cl.Switchover(ctx, req)
		},
		Act: func(_ context.Context, m api.MemberView) error {
			n := c.Node(m.Name)
			if !c.StopDaemon(n) {
				return fmt.Errorf("the daemon of %s does not end", n.Name)
			}
			c.writesMore(w, 20) // the others can do without it
			return c.Start(n)
		}})
	must(t, err)
	if len(res.Steps) != 3 || res.Steps[2].Node != leader.Name || res.Steps[2].To == "" {
		t.Errorf("%s led and is not the last: %+v", leader.Name, res)
	}
	for _, s := range res.Steps {
		if s.After.Trireme != "9.9.9" || s.Before.Trireme == "9.9.9" {
			t.Errorf("%+v", s)
		}
	}
	if now := c.view().Term; now != term+1 {
		t.Errorf("term %d before, %d now: leadership moved more than once", term, now)
	}
	c.writesMore(w, 50)
	c.check(w)
}
