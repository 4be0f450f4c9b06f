package robustness

import (
	"fmt"
	"strings"
	"syscall"
	"testing"
	"time"

	"trireme/internal/api"
	"trireme/internal/verify"
)

// TestCascade: a learner gets its entries from its upstream, from the leader when that is killed or stopped, and from the upstream again when it
// is back; all the time it gets on.
func TestCascade(t *testing.T) {
	t.Parallel()
	c := createShape(t, shape{nodes: 1, loggers: 2, learners: 1})
	leader, up, learner := c.healthy(), c.Node("l2"), c.Node("r1")
	w := c.load(verify.Config{Writers: 1})
	follows := func(followed bool) {
		t.Helper()
		c.shows(leader, learner.Name, fmt.Sprintf("follows its upstream: %t", followed), func(m api.MemberView) bool {
			return m.Upstream != nil && m.Upstream.Name == up.Name && m.Upstream.Followed == followed
		})
		to := c.view().CommitIndex
		c.shows(leader, learner.Name, "gets on", func(m api.MemberView) bool { return m.Raft.Applied >= to })
	}
	before := c.view()
	for change, want := range map[string]api.Kind{
		"upstream.l1=n1": api.KindInvalid,
		"upstream.r1=r1": api.KindInvalid,
		"upstream.r1=r9": api.KindNotFound,
		"upstream.r9=n1": api.KindNotFound,
	} {
		c.refused(learner, want, "config edit "+change)
	}
	c.refused(learner, api.KindInvalid, "add r2 --role voter --upstream l2")
	c.refused(learner, api.KindNotFound, "add r2 --role learner --upstream l9", "l9")
	c.stays(before)
	c.says(learner, 0, "config edit upstream.r1=l2")
	c.says(leader, 0, "config show", `upstream.r1 = "l2"`)
	follows(true)

	at := time.Now()
	c.KillDaemon(up)
	follows(false)
	t.Logf("its upstream was killed: it follows the leader and has got on after %v", time.Since(at).Round(time.Millisecond))
	c.says(leader, 0, "status", "r1", "l2") // as text
	c.start(up)
	follows(true)

	at = time.Now()
	must(t, c.Signal(up, syscall.SIGSTOP))
	follows(false)
	t.Logf("its upstream was stopped: it follows the leader and has got on after %v", time.Since(at).Round(time.Millisecond))
	must(t, c.Signal(up, syscall.SIGCONT))
	follows(true)

	// What follows a node that is removed follows the leader.
	c.says(leader, 0, "remove l2", "l2")
	c.shows(leader, learner.Name, "has no upstream", func(m api.MemberView) bool { return m.Upstream == nil })
	if out := c.says(leader, 0, "config show"); !strings.Contains(out, `upstream.r1 = "none"`) {
		t.Error(out)
	}
	c.ends(up, "l2")
	c.Forget(up)
	t.Logf("%s", c.check(w))
}
