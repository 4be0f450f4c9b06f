package robustness

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"trireme/internal/api"
	"trireme/internal/ops/demo"
	"trireme/lab/testkit"
	"trireme/lab/verify"
)

// TestClonedNode: a copy of a node's folder that is started next to the original, as a cloned machine is, ends for
// good and says why; the original stays a healthy member, each peer tells of it, and no write is lost. It waits for
// servers to start.
func TestClonedNode(t *testing.T) {
	t.Parallel()
	c := lease(t)
	leader := c.healthy()
	victim := c.others(leader)[0]
	w := c.load(verify.Config{Writers: 4, Rate: steady()})
	c.writesMore(w, 50)

	c.StopDaemon(victim)
	dir := filepath.Join(t.TempDir(), "clone")
	started := filepath.Join("mysql", "mysqld.started")
	copied := func(what string) {
		t.Helper()
		out, err := exec.CommandContext(t.Context(), "cp", "-aT", filepath.Join(victim.Dir, what), filepath.Join(dir, what)).
			CombinedOutput()
		if err != nil {
			t.Fatalf("%v: %s", err, out)
		}
	}
	copied("")
	c.start(victim)
	c.healthy()
	copied(started) // as of a folder that was copied while the original ran: it names a mysqld that is not the copy's
	pid, mysqld, term := victim.DaemonPID(), victim.MySQLPID(), c.view().Term

	// It says that it is where the original is, and only listens elsewhere: on another machine it would have the same
	// configuration.
	file := filepath.Join(dir, "trireme.toml")
	b, err := os.ReadFile(file)
	must(t, err)
	base, err := demo.FreePortBase(1)
	must(t, err)
	text := strings.ReplaceAll(string(b), victim.Dir, dir)
	p := victim.Ports
	for i, port := range []int{p.MySQL, p.Peer, p.API, p.RW, p.RO, p.Split, p.Stream} {
		lines := strings.Split(text, "\n")
		for j, line := range lines {
			if !strings.Contains(line, "advertise") {
				lines[j] = strings.ReplaceAll(line, fmt.Sprint(port), fmt.Sprint(base+i))
			}
		}
		text = strings.Join(lines, "\n")
	}
	must(t, os.WriteFile(file, []byte(text), 0o600))
	ctx, cancel := context.WithTimeout(t.Context(), healLimit)
	defer cancel()
	clone := exec.CommandContext(ctx, testkit.Program(t, testkit.Trireme), "node", "--config", file)
	out, err := clone.CombinedOutput()
	if code := clone.ProcessState.ExitCode(); code != api.ExitCode(api.Errorf(api.KindFinal, "")) ||
		!strings.Contains(string(out), dir) {
		t.Errorf("the copy of %s ended with code %d, %v:\n%s", victim.Name, code, err, out)
	}
	if ctx.Err() != nil {
		t.Fatal(errors.Join(ctx.Err(), err))
	}

	c.healthy()
	if victim.DaemonPID() != pid {
		t.Errorf("the original's daemon was process %d and is %d", pid, victim.DaemonPID())
	}
	if now := victim.MySQLPID(); now != mysqld {
		t.Errorf("the original's mysqld was process %d and is %d", mysqld, now)
	}
	for _, n := range c.Nodes() {
		eventually(t, healLimit, n.Name+" tells of it", func() error { return c.told(n, "twin", victim.Name, victim.Name) })
	}
	if now := c.view().Term; now != term {
		t.Logf("the term was %d and is %d", term, now)
	}
	c.writesMore(w, 50)
	t.Logf("%s", c.check(w))
}
