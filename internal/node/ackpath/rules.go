package ackpath

import (
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"trireme/internal/api"
	"trireme/internal/base/config"
	"trireme/internal/core/consensus"
	"trireme/internal/core/ha"
	"trireme/internal/core/raftlog"
)

// whyAfter is how long a commit has waited for a rule when status says for whose log.
const whyAfter = time.Second

// Kinds of changes of a rule.
const (
	RuleOff = "rule-off"
	RuleOn  = "rule-on"
)

// rules holds the acknowledgements of commits that do not meet must_ack or commit_zones yet. The gate says which; here
// are its lock, its clock and its words. Without a rule the commit path looks at on and at nothing else.
type rules struct {
	on atomic.Bool
	of *config.Cluster // whose rules are set; only TickRules uses it

	mu        sync.Mutex // never held over anything that waits, nor over a call of the host
	gate      ha.Gate[held]
	names     map[uint64]string                    // of members
	suspended map[ha.CommitRule]api.CommitRuleView // since when and why
	told      struct {                             // by the newest leader known, this node or another
		term uint64
		view *api.CommitRulesView
	}
}

// holdForRules takes a committed entry and gives the OKs that the rules allow.
func (p *Path) holdForRules(index, term uint64, m *raftlog.Meta) {
	if uint64(m.Node) != p.self || p.host.Raft().Status().Term != term {
		return // never to be acknowledged
	}
	r := &p.rules
	r.mu.Lock()
	if term >= r.gate.Term() {
		r.beginLocked(term, index)
		r.gate.Add(index, p.clock.Now(), holdBack(term, m))
	}
	r.mu.Unlock()
	p.release()
}

// OnMatch is told what the voters have on disk.
func (p *Path) OnMatch(m consensus.Matches) {
	commit := p.host.Raft().Status().Commit
	p.rules.mu.Lock()
	p.rules.matchLocked(m, commit)
	p.rules.mu.Unlock()
	p.release()
}

// release gives the OKs that the rules allow.
func (p *Path) release() {
	p.rules.mu.Lock()
	h, ok := p.rules.gate.Release()
	p.rules.mu.Unlock()
	if ok {
		p.acknowledgeSoon(h.term, &h.meta)
	}
}

func (r *rules) matchLocked(m consensus.Matches, commit uint64) {
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

// beginLocked starts a leadership of this node. What the leader before had suspended stays so until it is met again:
// commits do not wait for the grace once more after every failover.
func (r *rules) beginLocked(term, commit uint64) {
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

func (r *rules) nameLocked(c ha.CommitRule) string {
	if c.Member != 0 {
		return "must_ack." + r.names[c.Member]
	}
	return fmt.Sprintf("commit_zones=%d", c.Zones)
}

// HeardRules takes what another leader tells.
func (p *Path) HeardRules(term uint64, v *api.CommitRulesView) {
	r := &p.rules
	r.mu.Lock()
	defer r.mu.Unlock()
	if term >= r.told.term {
		r.told.term, r.told.view = term, v
	}
}

// Rules is what the newest leader known has told, nil without a rule.
func (p *Path) Rules() *api.CommitRulesView {
	r := &p.rules
	if !r.on.Load() {
		return nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.told.view
}

// RulesOf are the rules of the cluster settings, and what members are called.
func RulesOf(c *config.Cluster) (r ha.CommitRules, names map[uint64]string) {
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

// TickRules takes the cluster settings, suspends rules that commits have waited for too long, brings them back when
// they are met, and tells the host of it.
func (p *Path) TickRules(c *config.Cluster) {
	r := &p.rules
	if c == r.of && !r.on.Load() {
		return
	}
	commit := p.host.Raft().Status().Commit
	m, leads := p.host.Raft().Matches()
	var changed []ha.RuleState
	if c != r.of {
		changed = p.setRules(c, m, leads, commit)
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
	changed = append(changed, r.gate.Tick(p.clock.Now(), commit)...)
	states := r.gate.States(p.clock.Now(), commit)
	r.mu.Unlock()
	p.release()
	for _, s := range changed {
		p.tellRule(s, m, commit)
	}
	p.showRules(states, m, commit)
}

// setRules puts the rules of new settings in force. What waits for a rule that is gone is acknowledged.
func (p *Path) setRules(c *config.Cluster, m consensus.Matches, leads bool, commit uint64) (late []ha.RuleState) {
	r := &p.rules
	rules, names := RulesOf(c)
	r.of = c
	r.mu.Lock()
	r.names = names
	if leads && !r.on.Load() {
		r.matchLocked(m, commit)
	}
	late = r.gate.Set(rules, commit)
	if !rules.Any() {
		r.told.view = nil
	}
	r.on.Store(rules.Any())
	r.mu.Unlock()
	p.host.Raft().WatchMatches(rules.Any())
	p.release()
	return late
}

// tellRule words that a rule was suspended or is back.
func (p *Path) tellRule(s ha.RuleState, m consensus.Matches, commit uint64) {
	why := p.host.WhyUnmet(s.CommitRule, m, commit)
	r := &p.rules
	r.mu.Lock()
	name := r.nameLocked(s.CommitRule)
	before, was := r.suspended[s.CommitRule]
	if s.Suspended {
		at := p.clock.Wall()
		r.suspended[s.CommitRule] = api.CommitRuleView{Rule: name, Suspended: true, Since: &at, Why: why, Waiting: s.Waiting,
			WaitingSeconds: s.Waited.Seconds()}
	} else {
		delete(r.suspended, s.CommitRule)
	}
	r.mu.Unlock()
	text, kind := name+" is in force", RuleOn
	switch {
	case s.Suspended && s.Waiting > 0:
		kind = RuleOff
		text =
			fmt.Sprintf("%s is suspended: %s waited for %.1f s (%s); OKs are given by plain majority until it is met again",
				name,
				commits(s.Waiting), s.Waited.Seconds(), why)
	case s.Suspended:
		kind = RuleOff
		text = fmt.Sprintf("%s is set and not in force yet (%s); OKs are given by plain majority until it is met", name, why)
	case was:
		text += fmt.Sprintf(" again after %.1f s", p.clock.Wall().Sub(*before.Since).Seconds())
	}
	p.host.RuleChanged(kind, m.Term, commit, text)
}

// commits describes held ones: the log has one or many in an entry.
func commits(entries int) string {
	if entries == 1 {
		return "commits in 1 entry"
	}
	return fmt.Sprintf("commits in %d entries", entries)
}

// showRules puts together what status tells.
func (p *Path) showRules(states []ha.RuleState, m consensus.Matches, commit uint64) {
	r := &p.rules
	whys := make([]string, len(states))
	for i, s := range states {
		if s.Waited >= whyAfter {
			whys[i] = p.host.WhyUnmet(s.CommitRule, m, commit)
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	v := &api.CommitRulesView{GraceSeconds: r.of.CommitGrace().Seconds(), Rules: []api.CommitRuleView{}}
	for i, s := range states {
		one := api.CommitRuleView{Rule: r.nameLocked(s.CommitRule), Waiting: s.Waiting, WaitingSeconds: s.Waited.Seconds(),
			Why: whys[i]}
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

// Wait is the rule in force that has kept commits waiting for longest. The zero value: none does.
type Wait struct {
	Rule    string
	Entries int           // of the log, that wait
	For     time.Duration // the oldest of them
	Grace   time.Duration // until the rule is suspended
}

func (w Wait) String() string {
	return fmt.Sprintf("%s wait for %s, the oldest for %.1f s; after %v the rule is suspended", commits(w.Entries), w.Rule,
		w.For.Seconds(), w.Grace)
}

// LongestWait is what keeps commits waiting now.
func (p *Path) LongestWait() (w Wait) {
	r := &p.rules
	if !r.on.Load() {
		return w
	}
	commit := p.host.Raft().Status().Commit
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, s := range r.gate.States(p.clock.Now(), commit) {
		if s.Waited > w.For {
			w = Wait{r.nameLocked(s.CommitRule), s.Waiting, s.Waited, r.gate.Grace()}
		}
	}
	return w
}

// InForce leaves out of the rules what is suspended.
func (p *Path) InForce(rules ha.CommitRules) (mustAck []uint64, zones int) {
	off := p.Rules().Suspended()
	r := &p.rules
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
