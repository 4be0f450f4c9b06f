package robustness

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"trireme/internal/api"
	"trireme/internal/ops/demo"
	"trireme/lab/needs"
)

// TestCheckGoesOn: a check that was interrupted goes on where it was; one whose leader changes meanwhile, by a
// switchover and by a crash, compares with the next leader; rows that a prepared XA transaction keeps locked are said
// to be not checked, if there is reason to look at them; and --every finds what has changed between two rounds. It
// takes about a minute.
func TestCheckGoesOn(t *testing.T) {
	needs.Long(t)
	c := lease(t)
	c.healthy()
	began := time.Now()
	step := func(what string) { t.Logf("%s: after %v", what, time.Since(began).Round(100*time.Millisecond)) }
	c.write(checkedTables...)
	w := &writer{c: c}
	leader := c.healthy()
	victim := c.others(leader)[0]
	const damaged = 13 // not in the range that comes first
	damage := func(v string) { c.behindTheLog(victim, "UPDATE checked.big SET v = "+v+" WHERE "+bigRow(damaged)) }
	whole := fmt.Sprintf("REPEAT('v', %d)", damaged)
	finds := func(out checkOutput) {
		t.Helper()
		if len(out.NotChecked) > 0 || len(out.Differences) != 1 ||
			!slices.Equal(out.Differences[0].Wrong, []string{victim.Name}) ||
			len(out.Differences[0].Rows) != 1 || out.Differences[0].Rows[0].Key != fmt.Sprintf("'Straße %d', %d, '2024-02-29'",
			damaged%7, damaged) {
			t.Errorf("not the row of %s that is damaged: %+v", victim.Name, out)
		}
	}

	// Interrupted after its first range, which is saved at once.
	state := filepath.Join(t.TempDir(), "state")
	k := c.checking("--table", "checked.big", "--state", state, "--share", "0.0001", "--json")
	eventually(t, healLimit, "a state", func() error {
		if k.hasEnded() {
			t.Fatalf("it has ended: %s", k.said())
		}
		_, err := os.Stat(state)
		return err
	})
	k.interrupt(1)
	stopped, err := os.ReadFile(k.out)
	must(t, err)
	must(t, failedAs(1, stopped, api.KindInterrupted, "check"))
	damage("'wrong'")
	k = c.checking("--table", "checked.big", "--state", state, "--json")
	k.end(1)
	out := k.results()
	if len(out) != 1 || out[0].Rows != 3996 || !strings.Contains(k.said(), "1000") {
		t.Fatalf("%+v %s", out, k.said())
	}
	finds(out[0])
	if _, err := os.Stat(state); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a state is left: %v", err)
	}
	step("it goes on")

	// The check waits for a leader with less to do when leadership moves.
	for what, move := range map[string]func(*demo.Node){
		"a switchover": func(leader *demo.Node) {
			c.lead(c.others(leader)[slices.IndexFunc(c.others(leader), func(n *demo.Node) bool { return n != victim })])
		},
		"a crash": func(leader *demo.Node) {
			term := c.view().Term
			c.crash(leader)
			c.failedOver(term)
		},
	} {
		old := c.healthy()
		leave := c.crowded(old, 20)
		k := c.checking("--table", "checked.big", "--max-running", "15", "--json")
		k.says("--max-running")
		move(old)
		leave()
		k.end(1)
		out := k.results()
		if len(out) != 1 || out[0].Leader == old.Name {
			t.Fatalf("%s: %+v %s", what, out, k.said())
		}
		finds(out[0])
		c.healthy()
		step(what)
	}

	damage(whole)
	w.prepare("checked", "UPDATE checked.big SET v = 'prepared' WHERE "+bigRow(damaged-7))
	if out := c.checked(0, "--table", "checked.big"); !out.OK {
		t.Errorf("%+v", out)
	}
	damage("'wrong'")
	code, stdout, stderr := c.checkVerb("--table", "checked.big", "--json")
	var locked checkOutput
	must(t, json.Unmarshal([]byte(stdout), &locked))
	if code != 1 || len(locked.Differences) > 0 || len(locked.NotChecked) != 1 ||
		locked.NotChecked[0].What != "checked.big" ||
		!strings.Contains(locked.NotChecked[0].Why, "XA RECOVER") {
		t.Errorf("exit code %d: %s %s", code, stdout, stderr)
	}
	step("rows that are locked")
	w.try(func(s *session) error {
		// it is not there any more
		if err := s.try("XA ROLLBACK 'checked'"); err != nil && !strings.Contains(err.Error(), "1397") {
			return err
		}
		return nil
	})

	k = c.checking("--table", "checked.big", "--every", "1s", "--json")
	k.round(func(out checkOutput) bool { return !out.OK })
	damage(whole)
	k.round(func(out checkOutput) bool { return out.OK })
	k.interrupt(0)
	out = k.results()
	finds(out[0])
	step(fmt.Sprintf("%d rounds", len(out)))
	c.write("DROP DATABASE IF EXISTS checked")
}

// crowded has a node's mysqld run so many threads until leave is called.
func (c *cluster) crowded(n *demo.Node, threads int) (leave func()) {
	c.t.Helper()
	l := c.Direct(n)
	l.StatementTimeout = checkLimit
	db, err := l.Open("")
	must(c.t, err)
	db.SetMaxOpenConns(threads)
	c.t.Cleanup(func() { _ = db.Close() })
	for range threads {
		go func() { _, _ = db.Exec("DO SLEEP(120)") }() // the error is that of the connection that ends
	}
	killer := c.admin(n)
	return func() {
		ids, err := killer.rows("SELECT ID FROM performance_schema.processlist WHERE INFO = 'DO SLEEP(120)'")
		if err != nil { // its mysqld has ended, and the threads with it
			return
		}
		for _, id := range ids {
			_ = killer.try("KILL " + id)
		}
	}
}

// checking is a trireme check that is under way.
type checking struct {
	t        *testing.T
	cmd      *exec.Cmd
	out, err string // files
	ended    chan struct{}
}

func (c *cluster) checking(args ...string) *checking {
	c.t.Helper()
	dir := c.t.TempDir()
	k := &checking{t: c.t, cmd: c.checkCommand(c.t.Context(), args...), out: filepath.Join(dir, "out"),
		err: filepath.Join(dir, "err"), ended: make(chan struct{})}
	out, err := os.Create(k.out)
	must(c.t, err)
	defer out.Close()
	said, err := os.Create(k.err)
	must(c.t, err)
	defer said.Close()
	k.cmd.Stdout, k.cmd.Stderr = out, said
	must(c.t, k.cmd.Start())
	go func() {
		defer close(k.ended)
		_ = k.cmd.Wait()
	}()
	c.t.Cleanup(func() {
		_ = k.cmd.Process.Kill()
		<-k.ended
	})
	return k
}

func (k *checking) hasEnded() bool {
	select {
	case <-k.ended:
		return true
	default:
		return false
	}
}

// said is what it has told people.
func (k *checking) said() string {
	k.t.Helper()
	b, err := os.ReadFile(k.err)
	must(k.t, err)
	return string(b)
}

// says waits until it has said something.
func (k *checking) says(what string) {
	k.t.Helper()
	eventually(k.t, healLimit, "the check says "+what, func() error {
		if said := k.said(); !strings.Contains(said, what) {
			if k.hasEnded() {
				k.t.Fatalf("it has ended: %s", said)
			}
			return errors.New(said)
		}
		return nil
	})
}

// results are the documents that it has printed so far.
func (k *checking) results() (all []checkOutput) {
	k.t.Helper()
	f, err := os.Open(k.out)
	must(k.t, err)
	defer f.Close()
	for d := json.NewDecoder(f); ; {
		var out checkOutput
		err := d.Decode(&out)
		if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) { // the last one is being printed
			return all
		}
		must(k.t, err)
		all = append(all, out)
	}
}

// round waits until the last result is as it should be.
func (k *checking) round(ok func(checkOutput) bool) {
	k.t.Helper()
	eventually(k.t, healLimit, "a round", func() error {
		all := k.results()
		if len(all) == 0 || !ok(all[len(all)-1]) {
			return fmt.Errorf("%+v %s", all, k.said())
		}
		return nil
	})
}

// interrupt ends it as Ctrl-C does.
func (k *checking) interrupt(code int) {
	k.t.Helper()
	must(k.t, k.cmd.Process.Signal(syscall.SIGINT))
	k.end(code)
}

// end waits for its end.
func (k *checking) end(code int) {
	k.t.Helper()
	select {
	case <-k.ended:
	case <-time.After(2 * healLimit):
		k.t.Fatalf("it does not end: %s", k.said())
	}
	if got := k.cmd.ProcessState.ExitCode(); got != code {
		k.t.Fatalf("exit code %d, not %d: %s", got, code, k.said())
	}
}
