package robustness

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"trireme/internal/api"
	"trireme/internal/ops/demo"
	"trireme/lab/verify"
)

// TestCommitRules lets must_ack and commit_zones keep commits waiting: no OK before the rule is met or its grace is
// over, which is told; the leader is not taken for stuck meanwhile; the rule comes back by itself; and a change of
// settings acts on what waits already.
func TestCommitRules(t *testing.T) {
	t.Parallel()
	c := create(t, 2, 1)
	leader := c.healthy()
	other := c.others(leader)[0]
	logger := c.Nodes()[2]
	before := c.view()
	w := c.load(verify.Config{Writers: 8, Rate: steady()})
	edit := func(set string) { c.says(leader, 0, "config edit "+set) }

	for set, why := range map[string]api.Kind{
		"must_ack.nobody=true": api.KindNotFound,
		"commit_zones=2":       api.KindConflict,
		"commit_zones=2 zone." + leader.Name + "=a zone." + other.Name + "=a": api.KindConflict,
	} {
		c.refused(leader, why, "config edit "+set)
	}

	// A member that must have it is frozen, for longer than a stuck mysqld would be waited for.
	const grace = 12 * time.Second
	edit(fmt.Sprintf("commit_grace=%v must_ack.%s=true must_ack.%s=true", grace, logger.Name, leader.Name))
	for _, n := range []*demo.Node{logger, leader} {
		c.refused(leader, api.KindConflict, "remove "+n.Name, "must_ack."+n.Name)
	}
	c.stays(before)
	c.writesMore(w, loadBeforeKill)
	held := c.hold(w, logger)
	eventually(t, grace, "status says what commits wait for", func() error {
		return c.cliSays(other, "status", "must_ack."+logger.Name)
	})
	if res := result[api.SwitchoverResult](c, leader, 1, "switchover --dry-run"); res.ProblemKind != api.KindNotReady ||
		!strings.Contains(res.Problem, "must_ack."+logger.Name) {
		t.Errorf("%+v", res)
	}
	c.refused(leader, api.KindCannotLead, "switchover --on-open-trx kill", "must_ack."+logger.Name)
	c.writesMore(w, 10)
	if gap := w.Meter().LongestGap(held).Length(); gap < grace-time.Second || gap > 2*grace {
		t.Errorf("commits waited for %v, the grace is %v", gap, grace)
	}
	if now := c.view(); now.Leader != before.Leader || now.Term != before.Term {
		t.Errorf("%s leads term %d: commits that wait for a rule are no fault of %s", now.Leader, now.Term, before.Leader)
	}
	rule := c.rule("must_ack." + logger.Name)
	if !rule.Suspended || rule.Since == nil || !strings.Contains(rule.Why, logger.Name) ||
		rule.WaitingSeconds < grace.Seconds() {
		t.Errorf("%+v", rule)
	}
	c.says(other, 0, "status", "must_ack."+logger.Name, "SUSPENDED") // as text
	eventually(t, steerLimit, "the history tells of the suspension", func() error {
		return c.cliSays(other, "history", "rule-off must_ack."+logger.Name)
	})
	c.writesMore(w, loadBeforeKill)
	must(t, c.Signal(logger, syscall.SIGCONT))
	eventually(t, healLimit, "the rule is back", func() error {
		if r := c.rule("must_ack." + logger.Name); r.Suspended {
			return fmt.Errorf("%+v", r)
		}
		return nil
	})
	eventually(t, steerLimit, "the history tells of its end", func() error {
		return c.cliSays(other, "history", "rule-on must_ack."+logger.Name)
	})

	// The leader's zone is a majority; the rest of the world is frozen. Taking the rule away frees what waits.
	edit(fmt.Sprintf("must_ack.%s=false commit_zones=2 zone.%s=a zone.%s=a zone.%s=b", logger.Name, leader.Name,
		logger.Name, other.Name))
	eventually(t, healLimit, "status says what the loss of a zone means", func() error {
		v := result[api.ClusterView](c, leader, 0, "status")
		if !slices.ContainsFunc(v.Zones,
			func(z api.ZoneView) bool { return z.Zone == "a" && z.Voters == 2 && z.Warning && !z.Quorum && z.Kept }) {
			return fmt.Errorf("%+v", v.Zones)
		}
		return nil
	})
	c.writesMore(w, loadBeforeKill)
	held = c.hold(w, other)
	edit("commit_zones=1")
	c.writesMore(w, 1)
	if took := time.Since(held); took > grace {
		t.Errorf("commits waited for %v although the rule was taken away, the grace is %v", took, grace)
	}
	must(t, c.Signal(other, syscall.SIGCONT))
	c.healthy()

	// The leader's zone is lost while commits wait: a client that had an OK finds its data in the other zone.
	edit("commit_zones=2")
	c.refused(leader, api.KindConflict, "demote "+other.Name, "commit_zones")
	c.writesMore(w, loadBeforeKill)
	c.hold(w, other)
	term := c.view().Term
	c.KillDaemon(leader)
	c.KillDaemon(logger)
	must(t, c.Signal(other, syscall.SIGCONT))
	c.start(logger)
	c.writesAfter(w, term)
	c.start(leader)
	t.Log(c.check(w))
}

// hold freezes a node's daemon and waits until no commit is acknowledged any more. It returns when it froze it.
func (c *cluster) hold(w *verify.Workload, n *demo.Node) time.Time {
	c.t.Helper()
	c.writesMore(w, 1)
	at := time.Now()
	must(c.t, c.Signal(n, syscall.SIGSTOP))
	last, since := int64(-1), at
	eventually(c.t, healLimit, "commits wait for "+n.Name, func() error {
		if acked := w.Log().Counts().Acked; acked != last {
			last, since = acked, time.Now()
		}
		if time.Since(since) < 1500*time.Millisecond {
			return errors.New("they do not")
		}
		return nil
	})
	return at
}

// rule as the cluster shows it.
func (c *cluster) rule(name string) api.CommitRuleView {
	c.t.Helper()
	if v := c.view(); v.CommitRules != nil {
		if i := slices.IndexFunc(v.CommitRules.Rules, func(r api.CommitRuleView) bool { return r.Rule == name }); i >= 0 {
			return v.CommitRules.Rules[i]
		}
	}
	c.t.Fatalf("no rule %s in %+v", name, c.view().CommitRules)
	return api.CommitRuleView{}
}

// cliSays looks for a text in what the command line prints, however it is wrapped.
func (c *cluster) cliSays(n *demo.Node, verb, want string) error {
	_, out := c.trireme(n, verb)
	if !strings.Contains(strings.Join(strings.Fields(out), " "), want) {
		return fmt.Errorf("%s does not say %q: %s", verb, want, out)
	}
	return nil
}
