package robustness

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"trireme/internal/api"
	"trireme/internal/core/ha"
	"trireme/internal/ops/demo"
	"trireme/lab/needs"
	"trireme/lab/verify"
)

// TestDelayedLearner: a learner with apply_delay shows a commit late and never early, no client reads it or waits for
// it, and an operator can stop it just before a wrong DELETE: its rows stay there while everybody else goes on, over a
// restart of the daemon and the death of mysqld. Afterwards it catches up and nothing is lost. It takes half a minute.
func TestDelayedLearner(t *testing.T) {
	needs.Long(t)
	const rows, delay = 500, 3 * time.Second
	c := createShape(t, shape{nodes: 2, loggers: 1, learners: 1})
	leader, late := c.healthy(), c.Node("r1")
	c.refused(leader, api.KindInvalid, "config edit apply_delay."+leader.Name+"=1h", leader.Name)
	c.refused(leader, api.KindConflict, "delay r1 --hold", "r1")
	s := c.session(leader)
	s.exec("CREATE DATABASE late", "CREATE TABLE late.t (id INT PRIMARY KEY)",
		"CREATE TABLE late.mark (id INT PRIMARY KEY)")
	c.caughtUp()
	c.says(leader, 0, fmt.Sprintf("config edit apply_delay.r1=%v", delay))
	delayed := func(what string, ok func(v *api.DelayView) bool) {
		t.Helper()
		c.shows(leader, late.Name, what,
			func(m api.MemberView) bool { return m.State == api.StateHealthy && m.Delay != nil && ok(m.Delay) })
	}
	delayed("is delayed", func(v *api.DelayView) bool { return v.Seconds == delay.Seconds() })

	// Late, and not early: one clock here tells both times.
	before := time.Now()
	s.exec("INSERT INTO late.mark VALUES (1)")
	c.awaitRows(late, "late.mark", 1)
	if took := time.Since(before); took < delay {
		t.Errorf("a commit was shown after %v", took)
	}
	c.refused(leader, api.KindConflict, "promote r1", "3s", "apply_delay.r1=none")
	c.refused(leader, api.KindCannotLead, "switchover --to r1", "r1")
	if codes := c.reasons(leader, "r1"); !slices.Contains(codes, string(ha.IsDelayed)) {
		t.Errorf("%v", codes)
	}
	for _, path := range []string{"/replica", "/read-only", "/replica?lag=1h"} {
		if ok, h, err := c.Client(late).Check(t.Context(), path); ok || err != nil || !strings.Contains(h.Delayed, "3s") {
			t.Errorf("%s: %t %v %s", path, ok, err, h.Reason)
		}
	}
	if ok, h, err := c.Client(late).Check(t.Context(), "/health"); !ok || err != nil {
		t.Errorf("/health: %v %+v", err, h)
	}

	// The wrong DELETE. What goes before it is due or not: it is applied all the same.
	if d := result[api.DelayResult](c, leader, 0, "delay r1 --hold"); d.Name != "r1" || d.Seconds != delay.Seconds() {
		t.Errorf("%+v", d)
	}
	var values []string
	for i := range rows {
		values = append(values, fmt.Sprintf("(%d)", i))
	}
	s.exec("INSERT INTO late.t VALUES " + strings.Join(values, ","))
	inserted := c.lastGTID(s.conn)
	s.exec("DELETE FROM late.t")
	deleted := c.lastGTID(s.conn)
	c.refused(leader, api.KindNotFound, "delay r1 --stop-before aaaaaaaa-aaaa-aaaa-aaaa-aaaaaaaaaaaa:7", "aaaaaaaaaaaa:7")
	if d := result[api.DelayResult](c, leader, 0, "delay r1 --stop-before "+deleted); d.Order != api.OrderStopBefore ||
		d.GTID != deleted {
		t.Errorf("%+v", d)
	}
	stopped := func(v *api.DelayView) bool { return v.Stopped && v.GTID == deleted }
	delayed("has stopped before the DELETE", stopped)
	c.awaitRows(late, "late.t", rows)
	c.refused(leader, api.KindConflict, "delay r1 --stop-before "+inserted, inserted)
	c.says(leader, 0, "status", "r1", "STOPPED") // as text

	w := c.load(verify.Config{Writers: 2})
	c.writesMore(w, 100)
	// Nothing waits for it: what routers wait for with AFTER comes, and a commit and a switchover do.
	if _, err := c.Client(leader).Applied(t.Context(), api.AppliedQuery{Index: c.view().CommitIndex, Everywhere: true},
		10*time.Second); err != nil {
		t.Errorf("AFTER waits for a delayed learner: %v", err)
	}
	c.says(leader, 0, "switchover")
	s.close()
	leader = c.healthy()
	for what, hit := range map[string]func(){
		"the death of mysqld":       func() { c.crash(late) },
		"a restart of its daemon":   func() { c.KillDaemon(late); c.start(late) },
		"a daemon stopped politely": func() { c.StopDaemon(late); c.start(late) },
	} {
		hit()
		c.writesMore(w, 50)
		delayed("has stopped there after "+what, stopped)
		c.awaitRows(late, "late.t", rows)
	}
	if m := c.member(late); m.MySQL.LagSeconds == nil || *m.MySQL.LagSeconds != 0 {
		t.Errorf("what is held back on purpose counts as lag: %+v", m.MySQL)
	}

	c.says(leader, 0, "delay r1 --stop-after "+deleted)
	delayed("has stopped after the DELETE",
		func(v *api.DelayView) bool { return v.Stopped && v.Order == api.OrderStopAfter })
	c.awaitRows(late, "late.t", 0)
	c.says(leader, 0, "delay r1 --resume", "r1", "3s") // as text
	delayed("goes on",
		func(v *api.DelayView) bool { return v.Order == "" && !v.Stopped && v.BehindSeconds < 10 && v.CaughtUp })
	c.says(leader, 0, "delay r1 --now", "r1")
	c.says(leader, 0, "config edit apply_delay.r1=none")
	c.shows(leader, late.Name, "is not delayed", func(m api.MemberView) bool { return m.Delay == nil })
	c.refused(leader, api.KindConflict, "delay r1 --hold", "r1")
	t.Logf("%s", c.check(w))
	c.equal()
}

// awaitRows waits until a table on a node's mysqld has so many rows.
func (c *cluster) awaitRows(n *demo.Node, table string, want int) {
	c.t.Helper()
	eventually(c.t, healLimit, fmt.Sprintf("%d rows in %s on %s", want, table, n.Name), func() error {
		db, err := c.Direct(n).Open("")
		if err != nil {
			return err
		}
		defer db.Close()
		var rows int
		if err := db.QueryRowContext(c.t.Context(), "SELECT COUNT(*) FROM "+table).Scan(&rows); err != nil {
			return err
		}
		if rows != want {
			return fmt.Errorf("there are %d", rows)
		}
		return nil
	})
}
