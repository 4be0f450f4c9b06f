package robustness

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"trireme/internal/api"
	"trireme/internal/base/config"
	"trireme/internal/ops/demo"
	"trireme/lab/needs"
	"trireme/lab/testkit"
	"trireme/lab/verify"
)

// through opens a connection through a node's router, on its read-write or its read-only port.
func (c *cluster) through(n *demo.Node, readOnly bool) (*session, error) {
	c.t.Helper()
	port := n.Ports.RW
	if readOnly {
		port = n.Ports.RO
	}
	l := c.Direct(n)
	l.Addr, l.StatementTimeout = verify.Fixed(fmt.Sprintf("127.0.0.1:%d", port)), sqlLimit
	db, err := l.Open("")
	must(c.t, err)
	conn, err := db.Conn(c.t.Context())
	if err != nil {
		return nil, errors.Join(err, db.Close())
	}
	s := &session{c: c, db: db, conn: conn}
	c.t.Cleanup(s.close)
	return s, nil
}

// leftBehind waits until a node has ended because it was given up, without a mysqld, and gives the lines of its log
// that say so, which each end adds to.
func (c *cluster) leftBehind(n *demo.Node) (said string) {
	c.t.Helper()
	const why = "was given up by force-quorum"
	c.ends(n, why)
	if pid := n.MySQLPID(); pid != 0 {
		c.t.Errorf("%s has mysqld %d", n.Name, pid)
	}
	b, err := os.ReadFile(c.LogFile(n))
	must(c.t, err)
	for l := range strings.Lines(string(b)) {
		if strings.Contains(l, why) {
			said += l
		}
	}
	return said
}

// forceReport is what a force-quorum would do.
func (c *cluster) forceReport(n *demo.Node, voters ...string) api.ForceReport {
	c.t.Helper()
	cl := c.Client(n)
	defer cl.Close()
	rep, err := api.ForceQuorum.Ask(c.t.Context(), cl, api.ForceRequest{Voters: voters})
	must(c.t, err)
	return rep
}

// TestForceQuorum loses a majority of five voters. The survivors serve reads, refuse writes and go on by themselves
// when one is back; then the majority is lost for good, with writes that no other node has, and an operator makes a
// cluster of the two that are left. Nothing that they had is lost, and the others, started again, fence themselves and
// name what they hold.
func TestForceQuorum(t *testing.T) {
	t.Parallel()
	c := create(t, 2, 3)
	leader := c.healthy()
	other := c.others(leader)[0]
	loggers := slices.DeleteFunc(slices.Clone(c.Nodes()),
		func(n *demo.Node) bool { return slices.Contains(c.DataNodes(), n) })
	// The leader goes last: before, the others would elect another one, whose mysqld would not survive its fence.
	witness, lost := loggers[0], append(loggers[1:], leader)
	s := c.session(leader)
	s.exec("CREATE DATABASE fq", "CREATE TABLE fq.t (id INT PRIMARY KEY)", "INSERT INTO fq.t VALUES (1)")
	s.close()
	c.caughtUp()
	if rep := result[api.ForceReport](c, witness, 1, "force-quorum --dry-run"); rep.ProblemKind != api.KindAlready {
		t.Fatalf("with a leader: %+v", rep)
	}

	for _, n := range lost {
		c.KillDaemon(n)
	}
	eventually(t, healLimit, "reads through the survivors, writes refused", func() error {
		ro, err := c.through(other, true)
		if err != nil {
			return err
		}
		defer ro.close()
		if got := ro.value("SELECT COUNT(*) FROM fq.t"); got != "1" {
			t.Fatalf("%s rows", got)
		}
		rw, err := c.through(witness, false)
		if err == nil {
			err = rw.try("INSERT INTO fq.t VALUES (99)")
			rw.close()
		}
		if err == nil {
			t.Fatal("a write was taken without a quorum")
		}
		if !refusesWrites(err) {
			return err
		}
		return nil
	})
	c.refused(other, api.KindNoLeader, "switchover")
	c.start(lost[0])
	c.failedOver(0) // by itself
	c.start(lost[1:]...)
	leader = c.healthy()
	if leader == other { // the rest of the test loses the leader
		_, err := c.Switchover(t.Context(), "")
		must(t, err)
		leader = c.healthy()
	}
	other = c.others(leader)[0]
	lost[2] = leader

	c.KillDaemon(other)
	c.KillDaemon(witness)
	s = c.session(leader)
	s.exec("INSERT INTO fq.t VALUES (2)") // acknowledged by the three that are lost now
	s.close()
	for _, n := range lost {
		c.KillDaemon(n)
	}
	c.start(other, witness)
	eventually(t, healLimit, "the survivors answer", func() error {
		if code, out := c.trireme(witness, "force-quorum", "--dry-run"); code != 0 {
			return errors.New(out)
		}
		return nil
	})
	c.refuses(witness, other)
	// Two operators at once: one of them does it.
	rep := c.forceReport(witness)
	term, kept := fmt.Sprint(rep.Term), rep.LastIndex
	codes, outs := make([]int, 2), make([][]byte, 2)
	began := time.Now()
	var wg sync.WaitGroup
	for i, n := range []*demo.Node{witness, other} {
		wg.Go(func() { codes[i], outs[i] = c.inJSON(n, "force-quorum --confirm-term "+term) })
	}
	wg.Wait()
	t.Logf("%v until writes\n%d %s\n%d %s", time.Since(began).Round(10*time.Millisecond), codes[0], outs[0], codes[1],
		outs[1])
	if (codes[0] == 0) == (codes[1] == 0) {
		t.Fatal(codes)
	}
	var done api.ForceReport
	must(t, json.Unmarshal(outs[slices.Index(codes, 0)], &done))
	if !done.Done || done.Certain || done.Loss == "" || done.NewGeneration != 2 {
		t.Fatalf("%+v", done)
	}
	if got := c.leader(); got != other {
		t.Fatalf("%s leads", got.Name)
	}
	s = c.session(other)
	if got := s.value("SELECT GROUP_CONCAT(id) FROM fq.t"); got != "1" {
		t.Errorf("rows %s", got)
	}
	s.exec("INSERT INTO fq.t VALUES (3)")

	// The lost ones are back, a majority of the old voters, and cannot reach a survivor: they take writes. Once they
	// can, they end.
	for _, n := range []*demo.Node{other, witness} {
		must(t, c.SignalHost(n, syscall.SIGSTOP))
	}
	c.start(lost...)
	eventually(t, healLimit, leader.Name+" leads the old majority", func() error {
		v, err := c.seen(leader)
		if err == nil && (v.Leader != leader.Name || v.Generation != 1) {
			err = fmt.Errorf("leader %q of generation %d", v.Leader, v.Generation)
		}
		return err
	})
	split := c.session(leader)
	split.exec("INSERT INTO fq.t VALUES (98)")
	incarnation := split.value("SELECT @@server_uuid")
	split.close()
	for _, n := range []*demo.Node{other, witness} {
		must(t, c.SignalHost(n, syscall.SIGCONT))
	}
	for _, n := range lost {
		why := c.leftBehind(n)
		if n == leader && !strings.Contains(why, incarnation+":") {
			t.Errorf("%s: %s", n.Name, why)
		}
		dump := exec.CommandContext(t.Context(), testkit.Program(t, testkit.Trireme), "log", "dump", "--json",
			"--from", fmt.Sprint(kept+1), n.Dir)
		if code, out := runCommand(t, dump); code != 0 || n == leader && !strings.Contains(string(out), incarnation+":") {
			t.Errorf("log dump of %s: %d %s", n.Name, code, out)
		}
		c.start(n)
		if again := c.leftBehind(n); len(again) <= len(why) {
			t.Errorf("%s: %s, and started again: %s", n.Name, why, again)
		}
	}
	c.leader()
	s.close()
	s = c.session(other)
	s.exec("INSERT INTO fq.t VALUES (4)")
	if got := s.value("SELECT GROUP_CONCAT(id ORDER BY id) FROM fq.t"); got != "1,3,4" {
		t.Errorf("rows %s", got)
	}
	s.close()
	kinds := map[string]bool{}
	for _, e := range result[[]api.Event](c, other, 0, "history") {
		kinds[e.Kind] = true
	}
	if !kinds["force-quorum"] || !kinds["left-behind"] {
		t.Errorf("history: %v", kinds)
	}
	var audit []byte
	for _, n := range []*demo.Node{other, witness} {
		b, _ := os.ReadFile(filepath.Join(n.Dir, "audit.log"))
		audit = append(audit, b...)
	}
	if strings.Count(string(audit), `"plan":`) != 2 || !strings.Contains(string(audit), `"state":"asked"`) ||
		!strings.Contains(string(audit), `"state":"decided"`) {
		t.Errorf("audit.log: %s", audit)
	}
	// A crash of everything afterwards is one like any other.
	c.KillDaemon(other)
	c.KillDaemon(witness)
	c.start(other, witness)
	if got := c.leader(); got != other {
		t.Errorf("%s leads", got.Name)
	}
	for _, n := range lost {
		c.Forget(n)
	}
	_, err := c.Add(t.Context(), "l9", config.RoleLogger) // a new node is of the new generation from the start
	must(t, err)
	c.healthy()
	if v := c.view(); v.Generation != 2 || len(v.Members) != 3 {
		t.Errorf("generation %d, %d members", v.Generation, len(v.Members))
	}
}

// refuses tries what must not be done: nothing changes.
func (c *cluster) refuses(witness, other *demo.Node) {
	c.t.Helper()
	for _, x := range []struct {
		args  string
		kind  api.Kind
		names string
	}{
		{"--voters nobody --confirm-term 1", api.KindNotFound, "nobody"},
		{"--voters " + other.Name + " --confirm-term 1", api.KindNeeded, witness.Name},
		{"--confirm-term 1", api.KindChanged, "1"},
		{"", api.KindUsage, "--confirm-term"},
	} {
		c.refused(witness, x.kind, "force-quorum "+x.args, x.names)
	}
	c.says(witness, 2, "force-quorum") // the term is asked for, and standard input is empty
	if v, err := c.seen(witness); err != nil || v.Generation != 1 {
		c.t.Fatalf("generation %d, %v", v.Generation, err)
	}
}

// TestForceQuorumOfLearners loses a region with all voters; the learners of another one become the cluster.
func TestForceQuorumOfLearners(t *testing.T) {
	needs.Long(t)
	t.Parallel()
	c := create(t, 1, 2)
	voters := slices.Clone(c.Nodes())
	var region []*demo.Node
	for _, name := range []string{"n8", "n9"} {
		n, err := c.Add(t.Context(), name, config.RoleLearner)
		must(t, err)
		must(t, c.WaitMember(t.Context(), n))
		region = append(region, n)
	}
	leader := c.healthy()
	s := c.session(leader)
	s.exec("CREATE DATABASE fq", "CREATE TABLE fq.t (id INT PRIMARY KEY)", "INSERT INTO fq.t VALUES (1)")
	s.close()
	c.caughtUp()
	for _, n := range voters {
		c.KillDaemon(n)
	}
	eventually(t, healLimit, "the learners know that they have no leader", func() error {
		code, out := c.trireme(region[0], "force-quorum", "--voters", "n8,n9", "--dry-run")
		if code != 0 {
			return errors.New(out)
		}
		return nil
	})
	if rep := result[api.ForceReport](c, region[0], 1, "force-quorum --dry-run"); rep.ProblemKind != api.KindNotReady ||
		!strings.Contains(rep.Advice, "n8,n9") {
		t.Errorf("without --voters: %+v", rep)
	}
	// Both daemons are killed as soon as it is decided. What is left to do they do when they start.
	cl := c.Client(region[0])
	defer cl.Close()
	rep, err := api.ForceQuorum.Ask(t.Context(), cl, api.ForceRequest{Voters: []string{"n8", "n9"},
		Confirm: c.forceReport(region[0], "n8", "n9").Term, By: "a test"})
	must(t, err)
	for _, n := range region {
		c.KillDaemon(n)
	}
	if !rep.Done || rep.NewGeneration != 2 {
		t.Fatalf("%+v", rep)
	}
	c.start(region...)
	s = c.session(c.leader())
	s.exec("INSERT INTO fq.t VALUES (2)")
	if got := s.value("SELECT GROUP_CONCAT(id ORDER BY id) FROM fq.t"); got != "1,2" {
		t.Errorf("rows %s", got)
	}
	s.close()
	for _, n := range voters {
		c.Forget(n)
	}
	c.healthy()
	c.equal()

	// One of the two is lost, and nothing with it: they are no majority without each other.
	c.KillDaemon(region[1])
	eventually(t, healLimit, "n8 knows that it is alone", func() error {
		if rep := c.forceReport(region[0]); rep.Problem != "" || !rep.Certain {
			return fmt.Errorf("%+v", rep)
		}
		return nil
	})
	rep = result[api.ForceReport](c, region[0], 0, fmt.Sprintf("force-quorum --confirm-term %d", c.forceReport(region[0]).
		Term))
	if !rep.Certain || rep.NewGeneration != 3 {
		t.Errorf("%+v", rep)
	}
	c.start(region[1])
	if why := c.leftBehind(region[1]); !strings.Contains(why, " 3 ") { // the generation
		t.Error(why)
	}
	s = c.session(region[0])
	s.exec("INSERT INTO fq.t VALUES (3)")
	s.close()
}
