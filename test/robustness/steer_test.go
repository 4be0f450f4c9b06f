package robustness

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os/exec"
	"reflect"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"trireme/internal/api"
	"trireme/internal/core/ha"
	"trireme/internal/ops/demo"
	"trireme/lab/testkit"
	"trireme/lab/verify"
)

// steerLimit bounds what should take a few seconds.
const steerLimit = 30 * time.Second

// trireme runs the command line against a node, as an operator does, and returns its exit code and what it printed.
func (c *cluster) trireme(n *demo.Node, args ...string) (int, string) {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(c.t.Context(), healLimit)
	defer cancel()
	cmd := exec.CommandContext(ctx, testkit.Program(c.t, testkit.Trireme),
		append(args, "--api", fmt.Sprintf("127.0.0.1:%d", n.Ports.API),
			"--token-file", kit.Credential(c.Cluster))...)
	out, err := cmd.CombinedOutput()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		c.t.Fatal(err)
	}
	return cmd.ProcessState.ExitCode(), string(out)
}

// says runs the command line and checks its exit code and that it says everything that it should.
func (c *cluster) says(n *demo.Node, code int, args string, want ...string) string {
	c.t.Helper()
	got, out := c.trireme(n, strings.Fields(args)...)
	if got != code {
		c.t.Fatalf("trireme %s: exit code %d, want %d: %s", args, got, code, out)
	}
	for _, w := range want {
		if !strings.Contains(out, w) {
			c.t.Fatalf("trireme %s does not say %q: %s", args, w, out)
		}
	}
	return out
}

// stays checks that a command changed nothing: the same node leads in the same term. In one term there is no other
// leader, but a node that was stopped until now has not heard of it again, and a switchover that has failed opens
// writes in a moment.
func (c *cluster) stays(before api.ClusterView) {
	c.t.Helper()
	eventually(c.t, steerLimit, before.Leader+" leads", func() error {
		now := c.view()
		if now.Term != before.Term {
			c.t.Fatalf("%s leads term %d, before it was %s in term %d", now.Leader, now.Term, before.Leader, before.Term)
		}
		if now.Leader != before.Leader {
			return fmt.Errorf("%q leads term %d", now.Leader, now.Term)
		}
		return nil
	})
}

// TestWeights: weight 0 never leads, why-not and switchover give the same reason, and the preferred node gets
// leadership by itself once it has been healthy for a time.
func TestWeights(t *testing.T) {
	t.Parallel()
	c := lease(t)
	leader := c.healthy()
	others := c.others(leader)
	x, y := others[0], others[1]
	before := c.view()
	if v := result[api.WhyNotView](c, x, 0, "why-not "+leader.Name); !v.Leads {
		t.Errorf("%+v", v)
	}
	if v := result[api.WhyNotView](c, x, 0, "why-not "+x.Name); v.Leads || !v.CanLead || v.Leader != leader.Name {
		t.Errorf("%+v", v)
	}
	c.says(x, 0, "why-not "+x.Name, x.Name, leader.Name) // as text
	c.refused(x, api.KindNotFound, "why-not nobody", "nobody")
	c.says(x, 0, "config edit weight."+x.Name+"=0 failback_after=3s")
	defer func() {
		set := "failback_after=60s"
		for _, n := range c.DataNodes() {
			set += " weight." + n.Name + "=100"
		}
		if code, out := c.trireme(c.leader(), strings.Fields("config edit "+set)...); code != 0 {
			t.Error(out)
		}
	}()
	if v := result[api.WhyNotView](c, y, 0, "why-not "+x.Name); v.CanLead ||
		!slices.Contains(c.reasons(y, x.Name), string(ha.ZeroWeight)) {
		t.Errorf("%+v", v)
	}
	c.refused(y, api.KindCannotLead, "switchover --to "+x.Name, x.Name)
	c.refused(y, api.KindNotFound, "config edit weight.nobody=3", "nobody")
	c.stays(before)

	// The preferred node.
	at := time.Now()
	c.says(y, 0, "config edit weight."+y.Name+"=200")
	c.failedOver(before.Term)
	if now := c.healthy(); now != y {
		t.Fatalf("%s leads, %s is preferred", now.Name, y.Name)
	}
	t.Logf("%s got leadership %v after its weight was raised", y.Name, time.Since(at).Round(100*time.Millisecond))
	eventually(t, healLimit, "the old leader has stepped down and could lead", func() error {
		if v := result[api.WhyNotView](c, leader, 0, "why-not "+leader.Name); !v.CanLead || v.Leader != y.Name {
			return fmt.Errorf("%+v", v)
		}
		return nil
	})

	// It dies: another one leads, never the one of weight 0, and it gets leadership back once it was healthy for 3 s.
	term := c.view().Term
	c.crash(y)
	if now := c.failedOver(term); now != leader && now != y {
		t.Fatalf("%s leads with weight 0", now.Name)
	}
	eventually(t, healLimit, "the preferred node leads again", func() error {
		if now := c.leader(); now != y {
			return errors.New(now.Name + " leads")
		}
		return nil
	})
	c.healthy()

	// A leader whose weight becomes 0 leaves at once.
	term = c.view().Term
	c.says(leader, 0, "config edit weight."+y.Name+"=0")
	if now := c.failedOver(term); now != leader {
		t.Fatalf("%s leads", now.Name)
	}
}

// TestPause: leadership stays where it is although the leader's daemon dies, a switchover works, fences go on, and the
// end of the pause lets another node lead.
func TestPause(t *testing.T) {
	t.Parallel()
	c := lease(t)
	leader := c.healthy()
	x := c.others(leader)[0]
	if p := result[api.PauseResult](c, x, 0, "pause"); p.Pause == nil || p.Pause.Until != nil {
		t.Errorf("%+v", p)
	}
	defer c.trireme(c.Nodes()[0], "resume")
	if v := result[api.ClusterView](c, x, 0, "status"); v.Pause == nil || v.Failover.To != "" || v.Failover.Problem == "" {
		t.Errorf("%+v", v)
	}
	if codes := c.reasons(x, x.Name); !slices.Contains(codes, string(ha.PausedCode)) {
		t.Errorf("%v", codes)
	}

	// Its mysqld dies: it is fenced, started again, and leads again. No other node does.
	pid := leader.MySQLPID()
	c.crash(leader)
	if now := c.healthy(); now != leader || now.MySQLPID() == pid {
		t.Fatalf("%s leads with mysqld %d (before: %s with %d)", now.Name, now.MySQLPID(), leader.Name, pid)
	}

	// Its daemon dies: another node is elected and keeps writes closed, until the leader is back.
	term := c.view().Term
	c.KillDaemon(leader)
	eventually(t, steerLimit, "another node is elected and says why it does not lead", func() error {
		v, err := c.View(t.Context())
		if err != nil {
			return err
		}
		for _, m := range v.Members {
			if m.Raft.Term > term && m.Raft.State == "leader" && v.Leader == "" &&
				slices.Contains(c.reasons(x, m.Name), string(ha.PausedCode)) {
				return nil
			}
		}
		return fmt.Errorf("leader %q of term %d", v.Leader, v.Term)
	})
	c.refused(x, api.KindNoLeader, "switchover --to "+x.Name)
	c.start(leader)
	if now := c.failedOver(term); now != leader {
		t.Fatalf("%s leads after a pause in which %s was away", now.Name, leader.Name)
	}
	c.healthy()

	// On purpose it moves.
	if res := result[api.SwitchoverResult](c, leader, 0, "switchover --to "+x.Name); res.From != leader.Name ||
		res.To != x.Name {
		t.Errorf("%+v", res)
	}

	// The end of the pause while the leader is away.
	term = c.view().Term
	c.KillDaemon(x)
	eventually(t, steerLimit, "resume", func() error {
		if code, out := c.trireme(leader, "resume"); code != 0 {
			return errors.New(out)
		}
		return nil
	})
	if now := c.failedOver(term); now == x {
		t.Fatalf("%s leads although its daemon was killed", x.Name)
	}
	c.start(x)
	c.healthy()

	// A pause that ends by itself.
	if p := result[api.PauseResult](c, x, 0, "pause --for 3s"); p.Pause == nil || p.Pause.Until == nil {
		t.Errorf("%+v", p)
	}
	eventually(t, steerLimit, "the pause is seen", func() error {
		if c.view().Pause == nil {
			return errors.New("not paused")
		}
		return nil
	})
	eventually(t, steerLimit, "the end of the pause", func() error {
		if c.view().Pause != nil {
			return errors.New("still paused")
		}
		return nil
	})
	if p := result[api.PauseResult](c, x, 0, "resume"); p.Pause != nil {
		t.Errorf("%+v", p)
	}
}

// TestSteeringMistakes: wrong names, targets that hang or are dead, and a cluster without a quorum get a clear answer
// and the right exit code, and nothing changes.
func TestSteeringMistakes(t *testing.T) {
	t.Parallel()
	c := lease(t)
	leader := c.healthy()
	x := c.others(leader)[0]
	before := c.view()
	c.refused(leader, api.KindNotFound, "switchover --to nobody", "nobody", leader.Name)
	c.refused(leader, api.KindAlready, "switchover --to "+leader.Name, leader.Name)
	c.stays(before)

	// A target whose daemon hangs, which was not noticed yet: the old leader goes on, and no client was cut.
	session := c.session(leader)
	must(t, c.Signal(x, syscall.SIGSTOP))
	c.refused(leader, api.KindCannotLead, "switchover --to "+x.Name, x.Name)
	must(t, c.Signal(x, syscall.SIGCONT))
	c.stays(before)
	if got := session.value("SELECT @@super_read_only"); got != "0" {
		t.Errorf("super_read_only is %s on the leader", got)
	}
	leader = c.healthy()
	x, y := c.others(leader)[0], c.others(leader)[1]

	// A dead target.
	before = c.view()
	c.KillDaemon(x)
	eventually(t, steerLimit, "the death is seen", func() error {
		if codes := c.reasons(leader, x.Name); !slices.Contains(codes, string(ha.Unreachable)) {
			return fmt.Errorf("%v", codes)
		}
		return nil
	})
	c.refused(leader, api.KindCannotLead, "switchover --to "+x.Name, x.Name)
	c.stays(before)
	if f := result[api.ClusterView](c, leader, 0, "status").Failover; f.To != "" || f.Problem == "" {
		t.Errorf("%+v", f)
	}

	// No quorum: every verb that changes something says so, in bounded time.
	c.KillDaemon(y)
	eventually(t, steerLimit, "the loss of the quorum is seen", func() error {
		if code, out := c.trireme(leader, "status"); code != 3 {
			return fmt.Errorf("exit code %d: %s", code, out)
		}
		return nil
	})
	for _, args := range []string{"switchover", "switchover --to " + y.Name, "pause", "config edit failback_after=5s"} {
		c.refused(leader, api.KindNoLeader, args)
	}
	if codes := c.reasons(leader, leader.Name); !slices.Contains(codes, string(ha.NoQuorum)) {
		t.Errorf("%v", codes)
	}
	c.start(x, y)
	c.healthy()
	v := c.view()
	if v.Pause != nil {
		t.Error("a pause that was refused is in force")
	}
	c.says(leader, 0, "config show", `failback_after = "1m"`)
}

// TestOpenTransactions: a dry run shows what is open and changes nothing; a switchover waits for open transactions as
// long as it was told, refuses a second one meanwhile, and says what it rolled back.
func TestOpenTransactions(t *testing.T) {
	t.Parallel()
	c := lease(t)
	leader := c.healthy()
	x, y := c.others(leader)[0], c.others(leader)[1]
	setup := c.session(leader)
	for _, q := range []string{"CREATE DATABASE IF NOT EXISTS steer", "DROP TABLE IF EXISTS steer.t",
		"CREATE TABLE steer.t (a INT PRIMARY KEY)"} {
		setup.exec(q)
	}
	idle := c.session(leader)
	idle.exec("BEGIN")
	idle.exec("INSERT INTO steer.t VALUES (1)")
	before := c.view()
	const insert = "INSERT INTO steer.t VALUES (1)"
	res := result[api.SwitchoverResult](c, leader, 0, "switchover --dry-run --to "+x.Name)
	if !res.DryRun || res.From != leader.Name || res.To != x.Name || res.WriteGapMS <= 0 || res.OpenCount != 1 ||
		!rolledBack(res, 1, insert) {
		t.Errorf("%+v", res)
	}
	c.says(leader, 0, "switchover --dry-run --to "+x.Name, leader.Name, x.Name, insert) // as text
	c.refused(x, api.KindChanged, fmt.Sprintf("switchover --to %s --if-term %d", x.Name, before.Term-1),
		fmt.Sprint(before.Term))
	c.says(x, 2, "switchover --on-open-trx forever")
	c.stays(before)

	// The idle one does not end: it is waited for, but not longer. Another terminal is refused meanwhile, and writes go
	// on.
	type answer struct {
		code int
		out  []byte
		took time.Duration
	}
	done := make(chan answer, 1)
	go func() {
		at := time.Now()
		code, out := c.inJSON(leader, "switchover --on-open-trx wait=3s --to "+x.Name)
		done <- answer{code, out, time.Since(at)}
	}()
	eventually(t, steerLimit, "the second switchover is refused", func() error {
		_, out := c.inJSON(y, "switchover --dry-run --to "+y.Name)
		return refusedDry(out, api.KindBusy)
	})
	c.refused(y, api.KindBusy, "switchover --to "+y.Name)
	setup.exec("INSERT INTO steer.t VALUES (2)")
	a := <-done
	res = api.SwitchoverResult{}
	if err := json.Unmarshal(a.out, &res); err != nil || a.code != 0 || res.To != x.Name || res.OpenCount != 1 ||
		!rolledBack(res, 1, insert) {
		t.Fatalf("exit code %d: %s", a.code, a.out)
	}
	waited := a.took
	if waited < 3*time.Second {
		t.Errorf("it was not waited for: %v", waited)
	}
	if err := idle.try("COMMIT"); err == nil {
		t.Error("COMMIT of a transaction that was rolled back succeeds")
	}
	if now := c.healthy(); now != x {
		t.Fatalf("%s leads", now.Name)
	}
	if got := c.session(x).value("SELECT GROUP_CONCAT(a) FROM steer.t"); got != "2" {
		t.Errorf("rows %s, want 2", got)
	}

	// One that ends is not rolled back, and is not waited for after its end.
	short := c.session(x)
	short.exec("BEGIN")
	short.exec("INSERT INTO steer.t VALUES (3)")
	go func() {
		code, out := c.inJSON(leader, "switchover --on-open-trx wait=30s --to "+leader.Name)
		done <- answer{code: code, out: out}
	}()
	eventually(t, steerLimit, "the switchover waits", func() error {
		_, out := c.inJSON(y, "switchover --dry-run")
		return refusedDry(out, api.KindBusy)
	})
	short.exec("COMMIT")
	a, res = <-done, api.SwitchoverResult{}
	if err := json.Unmarshal(a.out, &res); err != nil || a.code != 0 || res.OpenCount != 0 {
		t.Fatalf("exit code %d: %s", a.code, a.out)
	}
	c.healthy()
	if got := c.session(leader).value("SELECT GROUP_CONCAT(a ORDER BY a) FROM steer.t"); got != "2,3" {
		t.Errorf("rows %s, want 2,3", got)
	}

	// kill does not wait.
	idle = c.session(leader)
	idle.exec("BEGIN")
	idle.exec("DELETE FROM steer.t")
	at := time.Now()
	res = result[api.SwitchoverResult](c, leader, 0, "switchover --on-open-trx kill --to "+x.Name)
	if took := time.Since(at); took > waited {
		t.Errorf("kill took %v, a switchover that waits for 3 s %v", took, waited)
	}
	if !rolledBack(res, 2, "DELETE FROM steer.t") {
		t.Errorf("%+v", res)
	}
	c.healthy()
}

// change waits until a node's history has a change of leaders in a term, and its leader before has said what it rolled
// back.
func (c *cluster) change(n *demo.Node, term uint64) api.Event {
	c.t.Helper()
	var found api.Event
	eventually(c.t, steerLimit, fmt.Sprintf("%s tells of term %d", n.Name, term), func() error {
		events, err := c.History(c.t.Context(), n)
		if err != nil {
			return err
		}
		for _, e := range events {
			if e.Term == term && e.To != "" && (e.RolledBack == nil || e.RolledBack.Known) {
				found = e
				return nil
			}
		}
		return fmt.Errorf("not among %d events", len(events))
	})
	return found
}

// TestHistory: every node tells the same of each change of leaders, with its cause, phases, and what was rolled back,
// also after a restart of all.
func TestHistory(t *testing.T) {
	t.Parallel()
	c := lease(t)
	leader := c.healthy()
	x := c.others(leader)[0]
	setup := c.session(leader)
	setup.exec("CREATE DATABASE IF NOT EXISTS history", "DROP TABLE IF EXISTS history.t",
		"CREATE TABLE history.t (a INT PRIMARY KEY)")
	check := func(e api.Event, kind string, from, to *demo.Node) {
		t.Helper()
		p := e.Phases
		t.Logf("%s: %.0f ms, %+v, %s", e.Kind, e.GapMS, p, e.Message)
		if e.Kind != kind || e.From != from.Name || e.To != to.Name || e.Cause == "" || e.Node != to.Name {
			t.Errorf("%+v, want a %s from %s to %s", e, kind, from.Name, to.Name)
		}
		if sum := p.DetectMS + p.CloseMS + p.VoteMS + p.ApplyMS + p.OpenMS; e.GapMS <= 0 || sum < e.GapMS-1 ||
			sum > e.GapMS+1 {
			t.Errorf("gap %v ms, the phases are %v ms together", e.GapMS, sum)
		}
	}

	// A switchover.
	c.says(leader, 0, "switchover --to "+x.Name)
	c.healthy()
	e := c.change(leader, c.view().Term)
	check(e, "switchover", leader, x)
	if e.By != "operator" {
		t.Errorf("ordered by %q", e.By)
	}
	terms := []uint64{e.Term}

	// A leader whose daemon is stopped while a transaction waits, and dies: it is rolled back, and every node says so.
	leader = x
	s, admin := c.session(leader), c.admin(leader)
	before := c.view()
	must(t, c.Signal(leader, syscall.SIGSTOP))
	committed := make(chan error, 1)
	go func() { committed <- s.try("INSERT INTO history.t VALUES (1)") }()
	eventually(t, steerLimit, "the transaction waits", func() error {
		rows, err := admin.rows("SHOW GLOBAL STATUS LIKE 'Rpl_semi_sync_source_wait_sessions'")
		if err == nil && !strings.HasSuffix(rows[0], " 1") {
			return errors.New(rows[0])
		}
		return nil // or the guard has killed mysqld already
	})
	c.KillDaemon(leader)
	if err := <-committed; err == nil {
		t.Error("a commit that no node acknowledged was answered OK")
	}
	to := c.failedOver(before.Term)
	c.start(leader)
	c.healthy()
	e = c.change(to, c.view().Term)
	check(e, "failover", leader, to)
	if e.RolledBack.Count != 1 || e.RolledBack.GTIDs == "" {
		t.Errorf("rolled back %+v, want 1 transaction", e.RolledBack)
	}
	c.says(leader, 0, "history", leader.Name, e.RolledBack.GTIDs) // as text
	terms = append(terms, e.Term)

	// A leader whose mysqld dies.
	leader, before = to, c.view()
	c.crash(leader)
	to = c.failedOver(before.Term)
	c.healthy()
	e = c.change(leader, c.view().Term)
	check(e, "failover", leader, to)
	terms = append(terms, e.Term)

	// A leader whose daemon dies.
	leader, before = to, c.view()
	c.KillDaemon(leader)
	to = c.failedOver(before.Term)
	c.start(leader)
	c.healthy()
	e = c.change(leader, c.view().Term)
	check(e, "failover", leader, to)
	terms = append(terms, e.Term)

	// All restart.
	same := func() error {
		var first []api.Event
		for i, n := range c.Nodes() {
			events, err := c.History(t.Context(), n)
			if err != nil {
				return err
			}
			if i == 0 {
				first = events
			} else if !reflect.DeepEqual(events, first) {
				return fmt.Errorf("%s knows %d events, %s %d", n.Name, len(events), c.Nodes()[0].Name, len(first))
			}
		}
		return nil
	}
	eventually(t, steerLimit, "all nodes tell the same", same)
	c.KillAll()
	must(t, c.StartAll())
	c.healthy()
	eventually(t, steerLimit, "all nodes tell the same after a restart", same)
	for _, n := range c.Nodes() {
		for _, term := range terms {
			c.change(n, term)
		}
	}
	if e := c.change(to, c.view().Term); e.Kind != "failover" || e.From != to.Name || e.GapMS <= 0 || e.Cause == "" {
		t.Errorf("a cold start is told as %+v", e)
	}
}

// TestForcedFailover: a forced failover moves leadership without the leader's help, from a leader that is well only
// with --force, and opens writes in a pause.
func TestForcedFailover(t *testing.T) {
	t.Parallel()
	c := lease(t)
	leader := c.healthy()
	x, y := c.others(leader)[0], c.others(leader)[1]
	before := c.view()
	c.refused(y, api.KindConflict, "failover --yes", leader.Name, "trireme switchover")
	c.refused(y, api.KindNotFound, "failover --yes --to nobody", "nobody")
	c.refused(y, api.KindAlready, "failover --yes --force --to "+leader.Name, leader.Name)
	c.refused(y, api.KindChanged, fmt.Sprintf("failover --yes --force --if-term %d", before.Term-1),
		fmt.Sprint(before.Term))
	c.refused(y, api.KindUsage, "failover --force")
	c.stays(before)

	// By force, asked of a third node, from a leader that takes writes all the time.
	w := c.load(verify.Config{Writers: 2, Rate: steady()})
	c.writesMore(w, 20)
	// The third node may have led for a moment: a write needs one follower only, and only a node that has them all can
	// be elected. If it takes writes before it hears of the order, that is what the command says, and an operator asks
	// again.
	force := "failover --yes --force --to " + x.Name
	code, out := c.trireme(y, strings.Fields(force)...)
	if code == 1 && c.view().Leader == y.Name && strings.Contains(out, y.Name+" leads now") {
		code, out = c.trireme(y, strings.Fields(force)...)
	}
	if code != 0 || !strings.Contains(out, x.Name) {
		t.Fatalf("trireme %s: exit code %d: %s", force, code, out)
	}
	t.Log(strings.TrimSpace(out)) // as text
	c.writesAfter(w, before.Term)
	if e := c.change(y, c.view().Term); e.Kind != "failover" || e.From != leader.Name && e.From != y.Name ||
		e.To != x.Name {
		t.Errorf("told as %+v", e)
	}
	if now := c.healthy(); now != x {
		t.Fatalf("%s leads", now.Name)
	}
	if !slices.ContainsFunc(result[[]api.Event](c, y, 0, "history"), func(e api.Event) bool {
		return e.Kind == "forced" && e.By == "operator" && e.Node == y.Name && strings.Contains(e.Message, x.Name)
	}) {
		t.Error("the history does not say who forced it")
	}

	// Gone in a pause. No node opens writes but the one that an operator chooses; asked of it, and of the one that was
	// elected.
	for _, to := range []*demo.Node{y, leader} {
		old := c.healthy()
		c.says(old, 0, "pause")
		before = c.view()
		c.KillDaemon(old)
		eventually(t, steerLimit, "somebody is elected and keeps writes closed", func() error {
			v, err := c.seen(to)
			if err != nil || v.Leader != "" || v.Term == before.Term {
				return fmt.Errorf("%q leads term %d, %v", v.Leader, v.Term, err)
			}
			return nil
		})
		c.refused(to, api.KindCannotLead, "failover --yes --to "+old.Name, old.Name)
		if res := result[api.FailoverResult](c, to, 0, "failover --yes --to "+to.Name); res.From != old.Name ||
			res.To != to.Name {
			t.Errorf("%+v", res)
		}
		c.writesAfter(w, before.Term)
		c.start(old)
		if now := c.healthy(); now != to {
			t.Fatalf("%s leads, %s was chosen", now.Name, to.Name)
		}
		if c.view().Pause == nil {
			t.Error("the pause has ended")
		}
		c.says(old, 0, "resume")
	}
	t.Logf("%s", c.check(w))
	leader = c.healthy()
	others := c.others(leader)
	c.KillDaemon(others[0])
	c.KillDaemon(others[1])
	eventually(t, steerLimit, "no quorum", func() error {
		if code, out := c.trireme(leader, "failover", "--yes", "--force"); code != 3 {
			return fmt.Errorf("exit code %d: %s", code, out)
		}
		return nil
	})
	c.start(others...)
	c.healthy()
}
