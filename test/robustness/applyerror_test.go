package robustness

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"trireme/internal/api"
	"trireme/internal/base/config"
	"trireme/internal/ops/demo"
	"trireme/lab/needs"
	"trireme/lab/testkit"
	"trireme/lab/verify"
)

// What a server writes with innodb_native_foreign_keys=OFF and no replica can apply (docs/mysql.md).
var cascades = map[string][]string{
	"a trigger on the parent": {
		"CREATE TABLE DB.parent(id1 INT PRIMARY KEY, id2 INT)",
		"CREATE TABLE DB.child(idd1 INT PRIMARY KEY, idd2 INT, FOREIGN KEY(idd2) REFERENCES DB.parent(id1) ON UPDATE CASCADE ON DELETE CASCADE)",
		"INSERT INTO DB.parent VALUES(10,10),(20,20)", "INSERT INTO DB.child VALUES(20,20)",
		"CREATE TRIGGER DB.t BEFORE UPDATE ON DB.parent FOR EACH ROW UPDATE DB.child SET idd1=NEW.id1+10 WHERE idd1=OLD.id1",
		"UPDATE DB.parent SET id1=40 WHERE id1=20"},
	"two tables that refer to each other": {
		"CREATE TABLE DB.a(id INT PRIMARY KEY, b INT)",
		"CREATE TABLE DB.b(id INT PRIMARY KEY, a INT, FOREIGN KEY(a) REFERENCES DB.a(id) ON DELETE CASCADE)",
		"ALTER TABLE DB.a ADD FOREIGN KEY(b) REFERENCES DB.b(id) ON DELETE CASCADE",
		"INSERT INTO DB.a VALUES(1,NULL),(2,NULL)", "INSERT INTO DB.b VALUES(1,1),(2,2)", "UPDATE DB.a SET b=3-id",
		"DELETE FROM DB.a WHERE id=1"},
	"a table that refers to itself": {
		"CREATE TABLE DB.s(id INT PRIMARY KEY, up INT, FOREIGN KEY(up) REFERENCES DB.s(id) ON DELETE CASCADE)",
		"INSERT INTO DB.s VALUES(1,NULL),(2,1),(3,2),(4,3)", "UPDATE DB.s SET up=4 WHERE id=1",
		"DELETE FROM DB.s WHERE id=2"},
}

// inDB runs statements in a new database.
func (s *session) inDB(db string, statements []string) {
	s.c.t.Helper()
	s.exec("DROP DATABASE IF EXISTS "+db, "CREATE DATABASE "+db)
	for _, q := range statements {
		s.exec(strings.ReplaceAll(q, "DB.", db+"."))
	}
}

// applyErrors are the events of nodes that gave their data up for what they could not apply.
func (c *cluster) applyErrors() (out []api.Event) {
	c.t.Helper()
	events, err := c.History(c.t.Context(), c.leader())
	must(c.t, err)
	for _, e := range events {
		if e.Kind == "apply-error" {
			out = append(out, e)
		}
	}
	return out
}

// TestCascadesReachFollowers: cascades that the server, left to itself, would write so that no replica can apply them.
func TestCascadesReachFollowers(t *testing.T) {
	t.Parallel()
	c := lease(t)
	leader := c.healthy()
	before := len(c.applyErrors())
	s := c.session(leader)
	for what, statements := range cascades {
		t.Log(what)
		s.inDB("cascades", statements)
		c.caughtUp()
		c.equal()
	}
	if more := c.applyErrors(); len(more) > before {
		t.Errorf("followers could not apply it: %+v", more[before:])
	}
}

// undone counts rows that the last statement of a case takes away.
var undone = map[string]string{
	"a trigger on the parent":             "SELECT COUNT(*) FROM DB.parent WHERE id1=20",
	"two tables that refer to each other": "SELECT COUNT(*) FROM DB.a WHERE id=1",
	"a table that refers to itself":       "SELECT COUNT(*) FROM DB.s WHERE id=2",
}

// TestCascadesWhileTheLeaderDies: the same, with the leader's mysqld or daemon killed while the statement runs.
func TestCascadesWhileTheLeaderDies(t *testing.T) {
	needs.Long(t)
	t.Parallel()
	c := lease(t)
	before := len(c.applyErrors())
	c.cascadesWhileTheLeaderDies(rounds(t, 6, 50), func(b *api.BlockedView) {
		t.Fatalf("an entry blocks the cluster: %+v", b)
	})
	if more := c.applyErrors(); len(more) > before {
		t.Errorf("followers could not apply it: %+v", more[before:])
	}
}

// TestCascadesOffWhileTheLeaderDies: the same where the operator has chosen what no replica can apply. Nodes that lack
// the entry copy from one that has it; if none has, `trireme force-apply` ends it, and nothing is lost.
func TestCascadesOffWhileTheLeaderDies(t *testing.T) {
	needs.Long(t)
	t.Parallel()
	c := createShape(t, shape{nodes: 3, tune: func(n *config.Node) { nativeForeignKeys(n, "OFF") }})
	c.cascadesWhileTheLeaderDies(rounds(t, 3, 50), func(b *api.BlockedView) {
		cl := c.Client(c.Nodes()[0])
		defer cl.Close()
		_, err := api.ForceApply.Ask(t.Context(), cl, api.VoidRequest{GTID: b.GTID})
		t.Logf("force-apply %s, error %d: %v", b.GTID, b.Number, err)
	})
}

// cascadesWhileTheLeaderDies runs the cases in turns, and kills the leader's mysqld and its daemon in turns. The nodes
// must be equal after each, and have what was answered OK. An entry that blocks the cluster is ended by unblock, which
// may fail.
func (c *cluster) cascadesWhileTheLeaderDies(rounds int, unblock func(*api.BlockedView)) {
	t := c.t
	names, outcomes := slices.Sorted(maps.Keys(cascades)), map[string]int{}
	for round := range rounds {
		leader := c.healthy()
		term := c.view().Term
		name, daemon := names[round%len(names)], round%2 == 1
		statements := cascades[name]
		last := len(statements) - 1
		s := c.session(leader)
		s.inDB("dying", statements[:last])
		c.caughtUp()
		answer := make(chan error, 1)
		go func() { answer <- s.try(strings.ReplaceAll(statements[last], "DB.", "dying.")) }()
		<-time.After(time.Duration(rand.IntN(12)) * time.Millisecond)
		if daemon {
			c.KillDaemon(leader)
		} else {
			c.crash(leader)
		}
		ok := <-answer == nil
		s.close()
		if daemon {
			c.start(leader)
		}
		outcome := c.settle(term, unblock)
		c.caughtUp()
		c.equal()
		rows := c.session(c.leader()).value(strings.ReplaceAll(undone[name], "DB.", "dying."))
		if ok && rows != "0" {
			t.Errorf("round %d, %s: it was answered OK, and is not there", round, name)
		}
		killed := map[bool]string{true: "daemon", false: "mysqld"}[daemon]
		outcome = fmt.Sprintf("%s killed, OK %t, done %t, %s", killed, ok, rows == "0", outcome)
		t.Logf("round %d, %s: %s", round, name, outcome)
		outcomes[outcome]++
	}
	t.Logf("%d rounds: %v", rounds, outcomes)
}

// TestCascadesOff: the operator may have it otherwise, and is told.
func TestCascadesOff(t *testing.T) {
	needs.Long(t)
	t.Parallel()
	c := createShape(t, shape{nodes: 3, tune: func(n *config.Node) { nativeForeignKeys(n, "OFF") }})
	leader := c.healthy()
	for _, m := range c.view().Members {
		if !slices.ContainsFunc(m.Warnings,
			func(w string) bool { return strings.Contains(w, "innodb_native_foreign_keys") }) {
			t.Errorf("%s does not warn: %v", m.Name, m.Warnings)
		}
	}
	s := c.session(leader)
	// one after the other, without a pause: nodes that heal again and again wait longer each time
	for what, statements := range cascades {
		t.Log(what)
		s.inDB("cascades", statements)
	}
	c.healed("cascades", 2)
	c.equal()
}

func nativeForeignKeys(n *config.Node, value string) {
	setOption(n, "innodb_native_foreign_keys", value)
}

func setOption(n *config.Node, name, value string) {
	options := map[string]string{name: value}
	for k, v := range n.MySQL.Options {
		options[k] = v
	}
	n.MySQL.Options = options
}

// unappliable is written by any account on any version with CHECK constraints: the applier computes with its own
// session variables.
func unappliable(s *session, db string) {
	s.inDB(db, []string{"CREATE TABLE DB.t(a DECIMAL(20,10), b INT PRIMARY KEY, CHECK (a = b/3))",
		"SET div_precision_increment=8", "INSERT INTO DB.t VALUES (0.33333333,1)"})
}

// healed waits until followers have given their data up and are healthy, and checks that they did it one at a time.
func (c *cluster) healed(what string, followers int) {
	c.t.Helper()
	before, at := len(c.applyErrors()), time.Now()
	eventually(c.t, 3*healLimit, what+": followers heal", func() error {
		v, err := c.View(c.t.Context())
		if err != nil {
			return err
		}
		var seeding, sick []string
		for _, m := range v.Members {
			if m.Seed != nil {
				seeding = append(seeding, m.Name)
			}
			if m.State != api.StateHealthy || m.ApplyError != nil {
				sick = append(sick, m.Name+": "+m.State+": "+m.Reason)
			}
		}
		if len(seeding) > 1 {
			c.t.Fatalf("%v are seeded at the same time", seeding)
		}
		if len(sick) > 0 {
			return errors.New(strings.Join(sick, "; "))
		}
		if n := len(c.applyErrors()) - before; n < followers {
			return fmt.Errorf("%d nodes have given their data up", n)
		}
		return nil
	})
	c.t.Logf("%s: healed after %v", what, time.Since(at).Round(100*time.Millisecond))
}

// TestFollowersHeal: what followers cannot apply stops them for the time of a copy, one after the other, and says what
// it was.
func TestFollowersHeal(t *testing.T) {
	t.Parallel()
	c := create(t, 3, 0)
	leader := c.healthy()
	w := c.load(verify.Config{Writers: 2, Rate: 20})
	term := c.view().Term
	unappliable(c.session(leader), "unappliable")
	c.healed("a constraint that depends on the session", 2)
	events := c.applyErrors()
	if len(events) != 2 || events[0].Node == events[1].Node || events[0].GTIDs == "" ||
		events[0].GTIDs != events[1].GTIDs ||
		events[0].Index == 0 || !strings.Contains(events[0].Message, "insert unappliable.t") ||
		!strings.Contains(events[0].Message, "3819") {
		t.Errorf("%+v", events)
	}
	if v := c.view(); v.Leader != leader.Name || v.Term != term {
		t.Errorf("leadership moved: %s in term %d", v.Leader, v.Term)
	}
	for _, n := range c.others(leader) {
		if got := c.metric(n, "trireme_apply_heals_total"); got != 1 {
			t.Errorf("%s: %v heals", n.Name, got)
		}
	}
	t.Log(c.check(w))
}

// TestApplierWaitsForResources: an error that says nothing of the data is waited out, and shown.
func TestApplierWaitsForResources(t *testing.T) {
	needs.Long(t)
	t.Parallel()
	c := createShape(t, shape{nodes: 3, tune: func(n *config.Node) {
		setOption(n, "innodb_lock_wait_timeout", "1")
	}})
	leader := c.healthy()
	s := c.session(leader)
	s.inDB("resources", []string{"CREATE TABLE DB.t(id INT PRIMARY KEY, n INT)", "INSERT INTO DB.t VALUES(1,1)"})
	c.caughtUp()
	follower := c.others(leader)[0]
	holder := c.admin(follower)
	holder.exec("SET GLOBAL replica_transaction_retries = 0", "BEGIN", "SELECT * FROM resources.t WHERE id=1 FOR SHARE")
	s.exec("UPDATE resources.t SET n=2")
	m := c.shows(leader, follower.Name, "waits for the lock", func(m api.MemberView) bool { return m.ApplyError != nil })
	if e := m.ApplyError; !e.Resources || e.Number != 1205 || m.State != api.StateCatchingUp {
		t.Errorf("%s: %+v", m.State, e)
	}
	if got := c.metric(follower, "trireme_apply_stopped"); got != 1 {
		t.Errorf("apply_stopped is %v", got)
	}
	holder.exec("ROLLBACK")
	c.shows(leader, follower.Name, "applies again",
		func(m api.MemberView) bool { return m.ApplyError == nil && m.State == api.StateHealthy })
	if e := c.applyErrors(); len(e) > 0 {
		t.Errorf("a node gave its data up for it: %+v", e)
	}
	c.equal()
}

// blocks leads a cluster to where a committed entry has an effect nowhere: the leader dies once it is committed and
// before its mysqld has it. Of the statements the last makes the entry. It returns who led.
func (c *cluster) blocks(statements ...string) *demo.Node {
	c.t.Helper()
	leader := c.healthy()
	s := c.session(leader)
	last := len(statements) - 1
	s.exec(statements[:last]...)
	c.caughtUp()
	c.command(leader, "arm ack.before=kill")
	if err := s.try(statements[last]); err == nil {
		c.t.Fatal("it was acknowledged by a daemon that was to die before")
	}
	eventually(c.t, healLimit, "the leader's daemon is killed", func() error {
		if leader.DaemonPID() != 0 {
			return errors.New("it runs")
		}
		return nil
	})
	c.start(leader)
	return leader
}

// shown waits until all nodes say that an entry blocks all of them, and returns it.
func (c *cluster) shown(number int, wants func(*api.BlockedView) bool) *api.BlockedView {
	c.t.Helper()
	return c.shownBy(c.Nodes(), func(b *api.BlockedView) bool {
		return len(b.Nodes) == 3 && len(b.Unknown) == 0 && b.Number == number && wants(b)
	})
}

// shownBy waits until some nodes say that an entry blocks them, and returns it. It asks all that run, as the one that
// decides about the entry may hear of the others later than they of it.
func (c *cluster) shownBy(nodes []*demo.Node, wants func(*api.BlockedView) bool) (b *api.BlockedView) {
	c.t.Helper()
	eventually(c.t, 2*healLimit, "nodes say that an entry blocks them", func() error {
		for _, n := range nodes {
			v, err := c.seen(n)
			if err != nil {
				return err
			}
			if b = v.Blocked; b == nil || !wants(b) {
				return fmt.Errorf("%s shows %+v", n.Name, b)
			}
			if got := c.metric(n, "trireme_apply_blocked"); got != 1 {
				return fmt.Errorf("%s: apply_blocked is %v", n.Name, got)
			}
		}
		return nil
	})
	return b
}

// unheard are statements that no applier can carry out, as its session has another div_precision_increment. The last
// one blocks.
var unheard = []string{"DROP DATABASE IF EXISTS unappliable", "CREATE DATABASE unappliable",
	"CREATE TABLE unappliable.t(a DECIMAL(20,10), b INT PRIMARY KEY, CHECK (a = b/3))",
	"CREATE TABLE unappliable.fine(id INT PRIMARY KEY)", "INSERT INTO unappliable.fine VALUES(1)",
	"SET div_precision_increment=8", "INSERT INTO unappliable.t VALUES (0.33333333,1)"}

// TestBlockedEntry: such an entry is told, by all nodes, with what it does and who wrote it. An operator declares it
// void: all nodes go on without it, and are equal, also after a restart of their mysqlds.
func TestBlockedEntry(t *testing.T) {
	t.Parallel()
	c := leaseTagged(t)
	leader := c.blocks(unheard...)
	entry := c.shown(3819, func(b *api.BlockedView) bool {
		return b.Node == leader.Name && len(b.Changes) == 1 && b.Changes[0] == api.ChangeView{Table: "unappliable.t",
			Operation: "insert", Events: 1}
	})
	if e := c.history(); slices.ContainsFunc(e, func(e api.Event) bool { return e.Kind == "apply-error" }) {
		t.Errorf("a node gave its data up although no other has the entry")
	}
	c.refused(leader, api.KindConflict, "force-apply --gtid "+entry.GTID, "make it applicable")
	c.refused(leader, api.KindChanged, "void --gtid "+strings.Replace(entry.GTID, ":", ":9", 1))
	if rep := result[api.VoidReport](c, leader, 0, "void --dry-run"); rep.Done || rep.Problem != "" ||
		rep.Entry.GTID != entry.GTID || rep.Loss == "" {
		t.Errorf("%+v", rep)
	}
	if c.view().Blocked == nil {
		t.Error("a dry run changed something")
	}
	if rep := result[api.VoidReport](c, leader, 0, "void --gtid "+entry.GTID); !rep.Done {
		t.Errorf("%+v", rep)
	}
	c.healthy()
	c.refused(leader, api.KindAlready, "void --dry-run")
	c.audited("void", entry.GTID)
	c.everywhere("SELECT CONCAT((SELECT COUNT(*) FROM unappliable.t), (SELECT COUNT(*) FROM unappliable.fine))", "01")
	c.session(c.leader()).exec("INSERT INTO unappliable.fine VALUES(2)")
	c.caughtUp()
	c.equal()
	for _, n := range c.Nodes() { // each is judged again: what is void is executed, and did nothing
		c.crash(n)
		c.healthy()
	}
	c.caughtUp()
	c.equal()
	if e := c.applyErrors(); len(e) > 0 {
		t.Errorf("a node gave its data up: %+v", e)
	}
}

// TestForceApply: what foreign keys and missing rows keep all nodes from applying is applied without looking at them,
// on an operator's word: nothing of it is lost, all nodes are equal, and what comes after it is applied as strictly as
// before. A restoration from a backup does the same, and leaves out what was declared void. (It takes 20 s: no follower
// of the default settings stops at such an entry, so the cluster is one of its own.)
func TestForceApply(t *testing.T) {
	t.Parallel()
	c := createShape(t, shape{nodes: 3, binary: testkit.Program(t, testkit.Failpoints), tune: func(n *config.Node) {
		nativeForeignKeys(n, "OFF")
		n.Raft.ChunkSize = 64 * config.KiB
	}})
	restores := func() {}
	if needs.IsLong() {
		restores = c.archived()
	}
	in := func(db, what string) []string {
		out := []string{"CREATE DATABASE " + db}
		for _, q := range cascades[what] {
			out = append(out, strings.ReplaceAll(q, "DB.", db+"."))
		}
		return out
	}
	forced := func(number int) {
		entry := c.shown(number, func(*api.BlockedView) bool { return true })
		asked := c.Nodes()[0]
		if rep := result[api.VoidReport](c, asked, 0, "force-apply --dry-run"); rep.Done || rep.Problem != "" ||
			rep.Entry.GTID != entry.GTID || rep.Loss == "" {
			t.Errorf("%+v", rep)
		}
		if rep := result[api.VoidReport](c, asked, 0, "force-apply --gtid "+entry.GTID); !rep.Done {
			t.Errorf("%+v", rep)
		}
		c.healthy()
		c.refused(asked, api.KindAlready, "force-apply --dry-run")
		c.audited("force-apply", entry.GTID)
	}
	c.admin(c.healthy()).exec("SET GLOBAL binlog_transaction_compression = ON") // of sessions from now on
	c.blocks(in("trig", "a trigger on the parent")...)
	forced(1452)
	c.everywhere("SELECT CONCAT((SELECT GROUP_CONCAT(id1 ORDER BY id1) FROM trig.parent), ';', (SELECT GROUP_CONCAT(idd1, ',', idd2) FROM trig.child))",
		"10,40;50,40")
	// The same in a transaction that travels in pieces.
	pieces := in("pieces", "a trigger on the parent")
	last := len(pieces) - 1
	c.blocks(append(pieces[:last:last], "CREATE TABLE pieces.large(id INT AUTO_INCREMENT PRIMARY KEY, v VARBINARY(1000))",
		"BEGIN",
		"INSERT INTO pieces.large(v) WITH RECURSIVE n(k) AS (SELECT 1 UNION ALL SELECT k+1 FROM n WHERE k<300) SELECT RANDOM_BYTES(1000) FROM n", pieces[last], "COMMIT")...)
	forced(1452)
	c.everywhere(
		"SELECT CONCAT((SELECT COUNT(*) FROM pieces.large), ';', (SELECT GROUP_CONCAT(id1 ORDER BY id1) FROM pieces.parent))",
		"300;10,40")
	c.blocks(in("selfref", "a table that refers to itself")...)
	forced(1032)
	c.everywhere("SELECT COUNT(*) FROM selfref.s", "0")

	c.session(c.leader()).exec("INSERT INTO selfref.s VALUES(9,NULL)")
	c.caughtUp()
	restores()
	c.everywhere("SELECT @@GLOBAL.replica_exec_mode", "STRICT")
	c.crash(c.leader()) // it is judged again
	c.healthy()
	c.caughtUp()
	c.equal()
	if out := c.checked(0); !out.OK {
		t.Errorf("%+v", out)
	}
	if e := c.applyErrors(); len(e) > 0 {
		t.Errorf("a node gave its data up: %+v", e)
	}
}

// archived makes a backup. What it returns has an entry declared void, restores, and looks at the result.
func (c *cluster) archived() (restores func()) {
	t := c.t
	base, err := demo.FreePortBase(2)
	must(t, err)
	a := &adopted{t: t, dir: t.TempDir(), base: base, procs: map[string]*demo.Process{}}
	dir, to := filepath.Join(a.dir, "backup"), filepath.Join(a.dir, "restored")
	take := []string{"backup", "--to", dir, "--config", filepath.Join(c.others(c.healthy())[0].Dir, config.NodeFileName)}
	a.done(take...)
	return func() {
		c.blocks(unheard...)
		entry := c.shown(3819, func(*api.BlockedView) bool { return true })
		if rep := result[api.VoidReport](c, c.Nodes()[0], 0, "void --gtid "+entry.GTID); !rep.Done {
			t.Errorf("%+v", rep)
		}
		c.session(c.healthy()).exec("INSERT INTO unappliable.fine VALUES(2)")
		c.caughtUp()
		last := c.view().CommitIndex
		f := &archiving{t: t, args: append(slices.Clone(take), "--follow")}
		f.start()
		eventually(t, healLimit, "the archive has it", func() error {
			f.keep()
			names, err := filepath.Glob(filepath.Join(dir, "log", "*-*.seg"))
			if err != nil || len(names) == 0 || lastEntry(t, slices.Max(names)) < last {
				return fmt.Errorf("%v, %w", names, err)
			}
			return nil
		})
		f.stop()
		a.done("restore", "--from", dir, "--data", to, "--port", fmt.Sprint(a.base))
		const rows = "SELECT CONCAT((SELECT GROUP_CONCAT(id1 ORDER BY id1) FROM trig.parent), ';', (SELECT GROUP_CONCAT(idd1, ',', idd2) FROM trig.child)," +
			" ';', (SELECT COUNT(*) FROM selfref.s), (SELECT COUNT(*) FROM unappliable.t), (SELECT COUNT(*) FROM unappliable.fine))"
		want := "10,40;50,40;102"
		c.everywhere(rows, want)
		db, _ := a.opened(to)
		if got := get1(t, db, rows); got != want {
			t.Errorf("restored: %s, want %s", got, want)
		}
	}
}

// audited checks that some node's audit log has a verb with a word of its request.
func (c *cluster) audited(verb, word string) {
	c.t.Helper()
	for _, n := range c.Nodes() {
		b, err := os.ReadFile(filepath.Join(n.Dir, "audit.log"))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			c.t.Fatal(err)
		}
		for line := range strings.Lines(string(b)) {
			if strings.Contains(line, `"what":"`+verb+`"`) && strings.Contains(line, `"state":"done"`) &&
				strings.Contains(line, word) {
				return
			}
		}
	}
	c.t.Errorf("no audit log has %s of %s", verb, word)
}

// TestVoidOfWhatANodeHas: the only node that has what an entry did is down. Without it being named nothing is declared
// void; then it is, and the node, which was told OK for it, comes back as a copy of the others.
func TestVoidOfWhatANodeHas(t *testing.T) {
	t.Parallel()
	c := create(t, 3, 0)
	leader := c.healthy()
	asked := c.others(leader)[0]
	s := c.session(leader)
	c.says(leader, 0, "pause") // no follower copies it
	unappliable(s, "void")
	s.close()
	c.admin(leader).exec("FLUSH NO_WRITE_TO_BINLOG ENGINE LOGS") // a server that dies may roll its last commits back
	c.KillDaemon(leader)
	eventually(t, healLimit, "the next leader of raft ends the pause", func() error {
		code, out := c.trireme(asked, "resume")
		if code != 0 {
			return fmt.Errorf("exit code %d: %s", code, out)
		}
		return nil
	})
	gtid := c.shownBy(c.others(leader), func(b *api.BlockedView) bool {
		return len(b.Nodes) == 2 && slices.Equal(b.Unknown, []string{leader.Name})
	}).GTID
	c.refused(asked, api.KindNotReady, "void --gtid "+gtid, leader.Name)
	c.refused(asked, api.KindInvalid, "void --without "+leader.Name+","+asked.Name+" --gtid "+gtid, asked.Name)
	if rep := result[api.VoidReport](c, asked, 0, "void --without "+leader.Name+" --gtid "+gtid); !rep.Done {
		t.Errorf("%+v", rep)
	}
	c.session(c.leader()).exec("CREATE TABLE void.fine(id INT PRIMARY KEY)", "INSERT INTO void.fine VALUES(1)")
	c.start(leader)
	c.healthy()
	c.caughtUp()
	c.everywhere("SELECT CONCAT((SELECT COUNT(*) FROM void.t), (SELECT COUNT(*) FROM void.fine))", "01")
	c.equal()
	if !slices.ContainsFunc(c.history(), func(e api.Event) bool { return e.Kind == "seeded" && e.Node == leader.Name }) {
		t.Errorf("%s came back with what is void", leader.Name)
	}
}

// TestUnappliableWhileTheLeaderDies: the leader's mysqld is killed while it writes what followers cannot apply.
// Whatever is left of it, the nodes are equal in the end, and what was answered OK is there: nodes that lack it copy
// from one that has it, or all are made able to apply it.
func TestUnappliableWhileTheLeaderDies(t *testing.T) {
	needs.Long(t)
	t.Parallel()
	c := create(t, 3, 0)
	outcomes := map[string]int{}
	for range rounds(t, 2, 20) {
		leader := c.healthy()
		term := c.view().Term
		s := c.session(leader)
		s.inDB("unappliable", []string{"CREATE TABLE DB.t(a DECIMAL(20,10), b INT PRIMARY KEY, CHECK (a = b/3))",
			"SET div_precision_increment=8"})
		c.caughtUp()
		answer := make(chan error, 1)
		go func() { answer <- s.try("INSERT INTO unappliable.t VALUES (0.33333333,1)") }()
		<-time.After(time.Duration(rand.IntN(12)) * time.Millisecond)
		c.crash(leader)
		ok := <-answer == nil
		s.close()
		divided := false
		outcome := c.settle(term, func(*api.BlockedView) { c.divide(8); divided = true })
		if divided {
			c.divide(4)
			c.healthy()
		}
		if rows := c.session(c.leader()).value("SELECT COUNT(*) FROM unappliable.t"); ok && rows != "1" {
			t.Errorf("%s rows of what was answered OK", rows)
		}
		outcomes[fmt.Sprintf("OK %t, %s", ok, outcome)]++
		c.equal()
	}
	t.Log(outcomes)
}

// settle waits until all nodes are healthy after a term, as an operator would who reads the status: a node that waits
// before it is seeded again is not waited for, and an entry that no node has is ended by unblock. It returns what had
// to be done.
func (c *cluster) settle(term uint64, unblock func(*api.BlockedView)) string {
	c.t.Helper()
	outcome, asked := "no trace", map[string]time.Time{}
	again := func(what string, every time.Duration) bool {
		if time.Since(asked[what]) < every {
			return false
		}
		asked[what] = time.Now()
		return true
	}
	eventually(c.t, 4*healLimit, "all nodes are healthy", func() error {
		v, err := c.View(c.t.Context())
		if err != nil {
			return err
		}
		if b := v.Blocked; b != nil && len(b.Unknown) == 0 && again(b.GTID, 10*time.Second) {
			outcome = "blocked"
			unblock(b)
		}
		sick := ""
		for _, m := range v.Members {
			if m.ApplyError != nil && v.Blocked == nil {
				outcome = cmp.Or(map[bool]string{true: "copied"}[outcome == "no trace"], outcome)
				if m.Seed == nil && time.Since(m.ApplyError.Since) > 5*time.Second && again(m.Name, 5*time.Second) {
					cl := c.Client(c.Node(m.Name))
					_, err := api.Reinit.Ask(c.t.Context(), cl, api.MemberRequest{Name: m.Name})
					cl.Close()
					c.t.Logf("reinit %s: %v", m.Name, err)
				}
			}
			if m.State != api.StateHealthy || m.ApplyError != nil {
				sick += m.Name + ": " + m.State + ": " + m.Reason + "; "
			}
		}
		if sick != "" || v.Leader == "" || v.Term <= term {
			return fmt.Errorf("%q leads in term %d; %s", v.Leader, v.Term, sick)
		}
		return nil
	})
	return outcome
}

// divide sets div_precision_increment for all appliers.
func (c *cluster) divide(digits int) {
	c.t.Helper()
	for _, n := range c.DataNodes() {
		a := c.admin(n)
		a.exec(fmt.Sprintf("SET GLOBAL div_precision_increment = %d", digits), "STOP REPLICA SQL_THREAD",
			"START REPLICA SQL_THREAD")
		a.close()
	}
}

// history as any node tells it, also without a leader.
func (c *cluster) history() []api.Event {
	c.t.Helper()
	events, err := c.History(c.t.Context(), c.Nodes()[0])
	must(c.t, err)
	return events
}

// metric reads one that has no labels from a node.
func (c *cluster) metric(n *demo.Node, name string) float64 {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(c.t.Context(), sqlLimit)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, fmt.Sprintf("http://127.0.0.1:%d/metrics", n.Ports.API),
		nil)
	must(c.t, err)
	res, err := http.DefaultClient.Do(req)
	must(c.t, err)
	defer res.Body.Close()
	in := bufio.NewScanner(res.Body)
	for in.Scan() {
		if v, ok := strings.CutPrefix(in.Text(), name+" "); ok {
			f, err := strconv.ParseFloat(v, 64)
			must(c.t, err)
			return f
		}
	}
	c.t.Fatalf("%s shows no %s", n.Name, name)
	return 0
}
