package node

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"trireme/internal/api"
	"trireme/internal/config"
	"trireme/internal/consensus"
	"trireme/internal/ha"
	"trireme/internal/raftlog"
)

// How a switchover treats commits that wait for a rule.
const (
	ruleSlow = drainPatience / 2 // one that has waited for so long: writes would perhaps not be drained in time
	rulePoll = 5 * time.Millisecond
)

// Kinds of events.
const (
	eventRuleOff = "rule-off"
	eventRuleOn  = "rule-on"
)

// commitRules holds the acknowledgements of commits that do not meet must_ack or commit_zones yet. The gate says which; here are its
// lock, its clock and its words. Without a rule the commit path looks at on and at nothing else.
type commitRules struct {
	on atomic.Bool
	of *config.Cluster // whose rules are set; only the loop uses it

	mu        sync.Mutex // never held over anything that waits, nor while n.mu is asked for
	gate      ha.Gate[heldAck]
	names     map[uint64]string                    // of members
	zones     map[uint64]string                    // of members that have one
	suspended map[ha.CommitRule]api.CommitRuleView // since when and why
	told      struct {                             // by the newest leader known, this node or another
		term uint64
		view *api.CommitRulesView
	}
}

// heldAck is what acknowledge needs. It holds nothing of the entry itself.
type heldAck struct {
	term uint64
	meta raftlog.Meta
}

// holdAck takes a committed entry of this node's mysqld and gives the OKs that the rules allow.
func (n *Node) holdAck(index, term uint64, m *raftlog.Meta) {
	if uint64(m.Node) != n.id.ID || n.cons.Status().Term != term {
		return // never to be acknowledged
	}
	r := &n.rules
	r.mu.Lock()
	if term >= r.gate.Term() {
		r.beginLocked(term, index)
		r.gate.Add(index, now(), heldAck{term, raftlog.Meta{Node: m.Node, Incarnation: m.Incarnation, End: m.End}})
	}
	r.mu.Unlock()
	n.releaseAcks()
}

// noteMatches is told what the voters have on disk.
func (n *Node) noteMatches(m consensus.Matches) {
	commit := n.cons.Status().Commit
	n.rules.mu.Lock()
	n.rules.matchLocked(m, commit)
	n.rules.mu.Unlock()
	n.releaseAcks()
}

// releaseAcks gives the OKs that may be given. acknowledge reads anew whether this is still the leader that proposed them (S1).
func (n *Node) releaseAcks() {
	n.rules.mu.Lock()
	h, ok := n.rules.gate.Release()
	n.rules.mu.Unlock()
	if ok {
		n.acknowledgeSoon(h.term, &h.meta)
	}
}

func (r *commitRules) matchLocked(m consensus.Matches, commit uint64) {
	if m.Term < r.gate.Term() {
		return
	}
	r.beginLocked(m.Term, commit)
	match := make(map[uint64]uint64, len(m.Voters))
	for _, v := range m.Voters {
		match[v.ID] = v.Index
	}
	r.gate.Match(match)
}

// beginLocked starts a leadership of this node. What the leader before had suspended stays so until it is met again: commits do not wait
// for the grace anew after every failover.
func (r *commitRules) beginLocked(term, commit uint64) {
	if term == r.gate.Term() {
		return
	}
	r.suspended = map[ha.CommitRule]api.CommitRuleView{}
	r.gate.Begin(term, commit, func(c ha.CommitRule) bool {
		if r.told.view != nil {
			for _, v := range r.told.view.Rules {
				// Without Since OKs waited for it, and only what had its OK before did not meet it yet.
				if v.Suspended && v.Since != nil && v.Rule == r.nameLocked(c) {
					r.suspended[c] = v
				}
			}
		}
		_, still := r.suspended[c]
		return still
	})
}

func (r *commitRules) nameLocked(c ha.CommitRule) string {
	if c.Member != 0 {
		return "must_ack." + r.names[c.Member]
	}
	return fmt.Sprintf("commit_zones=%d", c.Zones)
}

// heard takes what another leader tells.
func (r *commitRules) heard(term uint64, v *api.CommitRulesView) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if term >= r.told.term {
		r.told.term, r.told.view = term, v
	}
}

// current is what the newest leader known has told, nil without a rule.
func (r *commitRules) current() *api.CommitRulesView {
	if !r.on.Load() {
		return nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.told.view
}

// rulesOf are the rules of the cluster settings.
func rulesOf(c *config.Cluster) (r ha.CommitRules, names map[uint64]string) {
	r = ha.CommitRules{Zones: c.CommitZones, ZoneOf: map[uint64]string{}, Grace: c.CommitGrace()}
	names = map[uint64]string{}
	for _, m := range c.Members {
		names[m.ID] = m.Name
		if m.Zone != "" {
			r.ZoneOf[m.ID] = m.Zone
		}
		if m.MustAck && !m.Leaving() {
			r.MustAck = append(r.MustAck, m.ID)
		}
	}
	return r, names
}

// newlyUnmet says why a change of the settings would leave a commit rule that can never be met, nil if it does not.
func newlyUnmet(before, after *config.Cluster) error {
	if err := after.CheckRules(); err != nil && before.CheckRules() == nil {
		return api.Errorf(api.KindConflict, "%v", err).With("nothing is changed; see `trireme config show`")
	}
	return nil
}

// tendRules is the loop's part: it takes new settings, suspends and brings back rules, and tells of it.
func (n *Node) tendRules() {
	r := &n.rules
	n.mu.Lock()
	c := n.cluster
	n.mu.Unlock()
	if c == r.of && !r.on.Load() {
		return
	}
	commit := n.cons.Status().Commit
	m, leads := n.cons.Matches()
	var changed []ha.RuleState
	if c != r.of {
		changed = n.setRules(c, m, leads, commit)
	}
	if !r.on.Load() || !leads {
		return
	}
	r.mu.Lock()
	if r.gate.Term() < m.Term {
		r.matchLocked(m, commit)
	}
	if r.gate.Term() != m.Term {
		r.mu.Unlock()
		return // leadership has moved
	}
	changed = append(changed, r.gate.Tick(now(), commit)...)
	states := r.gate.States(now(), commit)
	r.mu.Unlock()
	n.releaseAcks()
	for _, s := range changed {
		n.tellRule(s, m, commit)
	}
	n.showRules(states, m, commit)
}

// setRules puts the rules of new settings in force. What waits for a rule that is gone is acknowledged.
func (n *Node) setRules(c *config.Cluster, m consensus.Matches, leads bool, commit uint64) (late []ha.RuleState) {
	r := &n.rules
	rules, names := rulesOf(c)
	r.of = c
	r.mu.Lock()
	r.names, r.zones = names, rules.ZoneOf
	if leads && !r.on.Load() {
		r.matchLocked(m, commit)
	}
	late = r.gate.Set(rules, commit)
	if !rules.Any() {
		r.told.view = nil
	}
	r.on.Store(rules.Any())
	r.mu.Unlock()
	n.cons.WatchMatches(rules.Any())
	n.releaseAcks()
	return late
}

// tellRule logs and records that a rule was suspended or is back.
func (n *Node) tellRule(s ha.RuleState, m consensus.Matches, commit uint64) {
	why := n.ruleWhy(s.CommitRule, m, commit)
	r := &n.rules
	r.mu.Lock()
	name := r.nameLocked(s.CommitRule)
	before, was := r.suspended[s.CommitRule]
	if s.Suspended {
		at := time.Now()
		r.suspended[s.CommitRule] = api.CommitRuleView{Rule: name, Suspended: true, Since: &at, Why: why, Waiting: s.Waiting,
			WaitingSeconds: s.Waited.Seconds()}
	} else {
		delete(r.suspended, s.CommitRule)
	}
	r.mu.Unlock()
	text, kind := name+" is in force", eventRuleOn
	switch {
	case s.Suspended && s.Waiting > 0:
		kind = eventRuleOff
		text = fmt.Sprintf("%s is suspended: %s waited for %.1f s (%s); OKs are given by plain majority until it is met again", name,
			commits(s.Waiting), s.Waited.Seconds(), why)
	case s.Suspended:
		kind = eventRuleOff
		text = fmt.Sprintf("%s is set and not in force yet (%s); OKs are given by plain majority until it is met", name, why)
	case was:
		text += fmt.Sprintf(" again after %.1f s", time.Since(*before.Since).Seconds())
	}
	n.log.Warn(text, "term", m.Term, "index", commit)
	n.history.add(n.event(kind, commit, text))
	n.mu.Lock()
	n.publishNow = true
	n.mu.Unlock()
}

// commits describes held ones: the log has one or many in an entry.
func commits(entries int) string {
	if entries == 1 {
		return "commits in 1 entry"
	}
	return fmt.Sprintf("commits in %d entries", entries)
}

// ruleWhy says whose log a rule waits for.
func (n *Node) ruleWhy(c ha.CommitRule, m consensus.Matches, commit uint64) string {
	n.mu.Lock()
	defer n.mu.Unlock()
	var late []string
	for _, v := range m.Voters {
		member, _ := n.cluster.MemberByID(v.ID)
		if v.Index >= commit || c.Member != 0 && c.Member != v.ID || c.Member == 0 && member.Zone == "" {
			continue
		}
		text := fmt.Sprintf("%s: %d entries behind", member.Name, commit-v.Index)
		if p := n.peers[v.ID]; v.ID != n.id.ID && (p == nil || !p.fresh()) {
			text = member.Name + ": " + silenceText(p)
		}
		if c.Member == 0 {
			text += " in zone " + member.Zone
		}
		late = append(late, text)
	}
	if len(late) == 0 {
		return "no voter can meet it"
	}
	return strings.Join(late, ", ")
}

// showRules puts together what status tells.
func (n *Node) showRules(states []ha.RuleState, m consensus.Matches, commit uint64) {
	r := &n.rules
	whys := make([]string, len(states))
	for i, s := range states {
		if s.Waited >= ruleSlow {
			whys[i] = n.ruleWhy(s.CommitRule, m, commit)
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	v := &api.CommitRulesView{GraceSeconds: r.of.CommitGrace().Seconds(), Rules: []api.CommitRuleView{}}
	for i, s := range states {
		one := api.CommitRuleView{Rule: r.nameLocked(s.CommitRule), Waiting: s.Waiting, WaitingSeconds: s.Waited.Seconds(), Why: whys[i]}
		if before, ok := r.suspended[s.CommitRule]; ok && s.Suspended {
			one = before
		}
		one.Suspended, one.Behind = s.Suspended, s.Behind
		v.Rules = append(v.Rules, one)
	}
	if m.Term >= r.told.term {
		r.told.term, r.told.view = m.Term, v
	}
}

// slowest is the rule in force that has kept a commit waiting for longest.
func (r *commitRules) slowest(commit uint64) (name string, s ha.RuleState, grace time.Duration) {
	if !r.on.Load() {
		return "", s, 0
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, one := range r.gate.States(now(), commit) {
		if one.Waited > s.Waited {
			s = one
		}
	}
	return r.nameLocked(s.CommitRule), s, r.gate.Grace()
}

// waitsForRule says which rule keeps commits waiting for too long to close writes now, nil if none does.
func (n *Node) waitsForRule() error {
	name, s, grace := n.rules.slowest(n.cons.Status().Commit)
	if s.Waited < ruleSlow {
		return nil
	}
	return fmt.Errorf("%s wait for %s, the oldest for %.1f s; after %v the rule is suspended", commits(s.Waiting), name, s.Waited.Seconds(),
		grace)
}

// awaitRules lets commits that wait for a rule get on before writes are closed: closed, they could only be drained or lost.
func (n *Node) awaitRules(ctx context.Context, patience time.Duration) error {
	deadline := now() + patience
	for {
		err := n.waitsForRule()
		if err == nil || now() > deadline {
			return err
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(rulePoll):
		}
	}
}

// zoneViews says what the loss of each zone would mean.
func (n *Node) zoneViews(v ha.View) []api.ZoneView {
	r := &n.rules
	n.mu.Lock()
	rules, _ := rulesOf(n.cluster)
	n.mu.Unlock()
	if len(rules.ZoneOf) == 0 {
		return nil
	}
	mustAck, zones := r.inForce(rules)
	var out []api.ZoneView
	for _, l := range ha.ZoneLosses(v, rules.ZoneOf, mustAck, zones) {
		z := api.ZoneView{Zone: l.Zone, Voters: l.Voters, Leader: l.Leads, Quorum: l.Quorum, Kept: l.Kept, Waits: l.Waits,
			Warning: 2*l.Voters > v.Raft.Voters}
		if l.To != 0 {
			z.To = n.memberName(l.To)
		}
		z.Text = zoneText(z, v.Raft.Voters, rules.Grace)
		out = append(out, z)
	}
	return out
}

// zoneText says it in a line.
func zoneText(z api.ZoneView, voters int, grace time.Duration) string {
	text := fmt.Sprintf("loss of zone %s (%d of %d voters): ", z.Zone, z.Voters, voters)
	switch {
	case !z.Quorum:
		text += "NO QUORUM, writes stop"
	case z.Leader && z.To == "":
		text += "no other node could lead"
	case z.Leader:
		text += z.To + " would lead"
	default:
		text += "writes go on"
	}
	if z.Quorum && z.Waits {
		text += fmt.Sprintf(", OKs wait for %v first", grace)
	}
	if z.Kept {
		return text + "; nothing acknowledged is lost"
	}
	return text + "; what is on disk there alone is lost, commit_zones=2 would prevent that"
}

// inForce leaves out what is suspended.
func (r *commitRules) inForce(rules ha.CommitRules) (mustAck []uint64, zones int) {
	off := r.current().Suspended()
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, id := range rules.MustAck {
		if !slices.Contains(off, r.nameLocked(ha.CommitRule{Member: id})) {
			mustAck = append(mustAck, id)
		}
	}
	for zones = max(1, rules.Zones); zones > 1 && slices.Contains(off, r.nameLocked(ha.CommitRule{Zones: zones})); zones-- {
	}
	return mustAck, zones
}
