package robustness

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"trireme/internal/api"
	"trireme/internal/base/config"
	"trireme/lab/needs"
	"trireme/lab/testkit"
)

// TestForceApplyAndADelayedLearner: a delayed learner comes to the entry long after all others were made to apply it,
// over restarts. It does as they did, and applies what comes after it as strictly as before.
func TestForceApplyAndADelayedLearner(t *testing.T) {
	needs.Long(t)
	t.Parallel()
	c := createShape(t, shape{nodes: 3, learners: 1, binary: testkit.Program(t, testkit.Failpoints),
		tune: func(n *config.Node) { nativeForeignKeys(n, "OFF") }})
	leader, late := c.healthy(), c.Node("r1")
	statements := cascades["a trigger on the parent"]
	last := len(statements) - 1
	c.session(leader).inDB("trig", statements[:last])
	c.caughtUp()
	c.says(leader, 0, "config edit apply_delay.r1=1h")
	delayed := func(what string, ok func(v *api.DelayView) bool) {
		t.Helper()
		c.shows(c.leader(), late.Name, what, func(m api.MemberView) bool {
			return m.State == api.StateHealthy && m.Delay != nil && ok(m.Delay)
		})
	}
	delayed("is delayed", func(v *api.DelayView) bool { return true })

	c.blocks(strings.ReplaceAll(statements[last], "DB.", "trig."))
	entry := c.shown(1452, func(*api.BlockedView) bool { return true })
	if rep := result[api.VoidReport](c, c.Nodes()[0], 0, "force-apply --gtid "+entry.GTID); !rep.Done {
		t.Errorf("%+v", rep)
	}
	leader = c.healthy()
	c.session(leader).exec("INSERT INTO trig.parent VALUES(50,50)")
	const rows = "SELECT CONCAT((SELECT GROUP_CONCAT(id1 ORDER BY id1) FROM trig.parent), ';', " +
		"(SELECT GROUP_CONCAT(idd1, ',', idd2) FROM trig.child))"
	has := func(what, want string) {
		t.Helper()
		s := c.session(late)
		defer s.close()
		if got := s.value(rows); got != want {
			t.Errorf("%s: the learner has %s, want %s", what, got, want)
		}
	}
	delayed("waits before the entry", func(v *api.DelayView) bool { return v.Next == entry.GTID })
	has("the entry is not due", "10,20;20,20")
	c.crash(late)
	delayed("waits before the entry again", func(v *api.DelayView) bool { return v.Next == entry.GTID })
	c.KillDaemon(late)
	c.start(late)
	delayed("waits before the entry once more", func(v *api.DelayView) bool { return v.Next == entry.GTID })

	c.says(c.leader(), 0, "delay r1 --stop-after "+entry.GTID)
	delayed("has stopped after the entry", func(v *api.DelayView) bool { return v.Stopped })
	has("the entry is applied", "10,40;50,40")
	c.says(c.leader(), 0, "delay r1 --now")
	c.caughtUp()
	c.everywhere(rows, "10,40,50;50,40")
	c.everywhere("SELECT @@GLOBAL.replica_exec_mode", "STRICT")
	c.says(c.leader(), 0, "config edit apply_delay.r1=none")
	c.equal()
	if e := c.applyErrors(); len(e) > 0 {
		t.Errorf("a node gave its data up: %+v", e)
	}
}

// TestDecidedTooLate: all nodes have applied an entry in the moment in which an operator decided about it. Each says
// so, writes stay closed, and docs/ops/failures.md says how to keep what they have.
func TestDecidedTooLate(t *testing.T) {
	needs.Long(t)
	t.Parallel()
	selfref := []string{"CREATE DATABASE selfref"}
	for _, q := range cascades["a table that refers to itself"] {
		selfref = append(selfref, strings.ReplaceAll(q, "DB.", "selfref."))
	}
	for _, f := range []struct {
		verb, mark string
		decide     api.Verb[api.VoidRequest, api.VoidReport]
		statements []string
		number     int
		set        string
		rows, want string
	}{
		{"void", "", api.Void, unheard, 3819, "SET GLOBAL div_precision_increment = 8",
			"SELECT COUNT(*) FROM unappliable.t", "1"},
		{"force-apply", config.TolerantMark, api.ForceApply, selfref, 1032,
			"SET GLOBAL replica_exec_mode = IDEMPOTENT", "SELECT COUNT(*) FROM selfref.s", "0"},
	} {
		t.Run(f.verb, func(t *testing.T) {
			c := createShape(t, shape{nodes: 3, binary: testkit.Program(t, testkit.Failpoints),
				tune: func(n *config.Node) { nativeForeignKeys(n, "OFF") }})
			c.blocks(f.statements...)
			entry := c.shown(f.number, func(*api.BlockedView) bool { return true })

			// The decision is committed, and no node has heard of it when the appliers go on.
			const point = "raft.before-apply"
			for _, n := range c.Nodes() {
				c.command(n, "arm "+point+"=pause")
			}
			decided := make(chan error, 1)
			go func() {
				cl := c.Client(c.Nodes()[0])
				defer cl.Close()
				_, err := f.decide.Ask(t.Context(), cl, api.VoidRequest{GTID: entry.GTID})
				decided <- err
			}()
			for _, n := range c.Nodes() {
				eventually(t, healLimit, n.Name+" is about to hear of the decision", func() error {
					fired, err := os.ReadFile(filepath.Join(n.Dir, "failpoints.fired"))
					if err == nil && !strings.Contains(string(fired), point) {
						err = fmt.Errorf("met: %s", fired)
					}
					return err
				})
			}
			for _, n := range c.Nodes() {
				c.admin(n).exec(f.set, "STOP REPLICA SQL_THREAD", "START REPLICA SQL_THREAD")
			}
			c.everywhere(f.rows, f.want)
			for _, n := range c.Nodes() {
				c.admin(n).exec("FLUSH NO_WRITE_TO_BINLOG ENGINE LOGS") // a server that dies may roll its last commits back
				c.command(n, "release "+point)
			}
			must(t, <-decided)
			eventually(t, healLimit, "all nodes say that they have what was decided about", func() error {
				v, err := c.View(t.Context())
				for _, m := range v.Members {
					if !strings.Contains(m.Reason, "an operator has decided about since") {
						err = errors.Join(err, fmt.Errorf("%s: %s: %s", m.Name, m.State, m.Reason))
					}
				}
				return err
			})

			for _, n := range c.Nodes() {
				c.StopDaemon(n)
			}
			for _, n := range c.Nodes() {
				addVoid(t, filepath.Join(n.Dir, "node.json"), entry.GTID+f.mark)
			}
			c.start(c.Nodes()...)
			leader := c.healthy()
			c.session(leader).exec("CREATE DATABASE goes_on")
			c.caughtUp()
			c.everywhere(f.rows, f.want)
			c.equal()
			if out := c.checked(0); !out.OK {
				t.Errorf("%+v", out)
			}
			c.everywhere("SELECT CONCAT(@@GLOBAL.replica_exec_mode, @@GLOBAL.div_precision_increment)", "STRICT4")
			if e := c.applyErrors(); len(e) > 0 {
				t.Errorf("a node gave its data up: %+v", e)
			}
		})
	}
}

// addVoid does what docs/ops/failures.md says.
func addVoid(t *testing.T, file, mark string) {
	t.Helper()
	b, err := os.ReadFile(file)
	must(t, err)
	state := map[string]json.RawMessage{}
	must(t, json.Unmarshal(b, &state))
	var voids []string
	if had := state["voids"]; had != nil {
		must(t, json.Unmarshal(had, &voids))
	}
	state["voids"], err = json.Marshal(append(voids, mark))
	must(t, err)
	b, err = json.Marshal(state)
	must(t, err)
	must(t, os.WriteFile(file, b, 0o600))
}
