package ha

import (
	"math"
	"slices"
	"time"
)

// CommitRules are what the OK of a commit needs beyond Raft's majority. They delay the OK only: Raft's commit index,
// elections and the lease know nothing of them.
type CommitRules struct {
	MustAck []uint64          // raft ids of members that must have it on disk
	Zones   int               // in how many zones a voter must have it on disk; below 2: no such rule
	ZoneOf  map[uint64]string // of members; one without a zone counts in none
	Grace   time.Duration     // how long a commit waits for a rule that is not met
}

// Any reports whether there is any rule.
func (r CommitRules) Any() bool { return len(r.MustAck) > 0 || r.Zones > 1 }

// CommitRule is one of them: a member that must have the commit, or a number of zones. A wish for three zones is two
// rules, so that with one zone lost two are still asked for.
type CommitRule struct {
	Member uint64 // 0: a rule about zones
	Zones  int
}

// list of the single rules.
func (r CommitRules) list() []CommitRule {
	var out []CommitRule
	for _, id := range r.MustAck {
		out = append(out, CommitRule{Member: id})
	}
	for z := 2; z <= r.Zones; z++ {
		out = append(out, CommitRule{Zones: z})
	}
	return out
}

// RuleState is a rule as it is now.
type RuleState struct {
	CommitRule
	Suspended bool          // OKs do not wait for it, or some given before they did do not meet it yet
	Behind    uint64        // committed entries that do not meet it
	Waiting   int           // commits that wait for it; 0 when none has to
	Waited    time.Duration // the oldest of them
}

// Limits of Gate.
const (
	maxHeld      = 8192        // commits held one by one; above it neighbours are acknowledged together
	startBehind  = 1024        // by how many entries a new rule may lag and still be in force at once
	maxRuleDelay = time.Second // after the commit, for a suspended rule to come back; at most half the grace
)

// Gate decides up to which commit a leader may give its OK. It is told of committed entries in order (Add), of the
// voters' logs (Match) and of time (Tick). It holds what T says about a commit until that commit meets every rule in
// force (Release). OKs are cumulative, so only the newest is returned. A rule that keeps a commit waiting for the grace
// is suspended. It comes back when the log that meets it is close to the commit index again, so no commit waits for a
// member that lags far. A rule is in force once OKs wait for it and everything that had its OK before meets it too.
// Gate is pure, and not safe for concurrent use.
type Gate[T any] struct {
	rules  []*ruleSlot
	grace  time.Duration
	zoneOf map[uint64]string
	term   uint64
	match  map[uint64]uint64
	held   []heldCommit[T]
}

type ruleSlot struct {
	CommitRule
	suspended bool          // OKs do not wait for it
	from      uint64        // commit index when they began to: below, some were given without it
	news      bool          // that it is in force
	lookedAt  time.Duration // at a suspended rule
	mark      uint64        // commit index then
}

type heldCommit[T any] struct {
	index uint64
	at    time.Duration
	of    T
}

// Set takes new rules at once. A rule that is new and far from being met begins suspended; those are returned.
func (g *Gate[T]) Set(r CommitRules, commit uint64) (late []RuleState) {
	before := g.rules
	g.rules, g.grace, g.zoneOf = nil, r.Grace, r.ZoneOf
	for _, c := range r.list() {
		i := slices.IndexFunc(before, func(s *ruleSlot) bool { return s.CommitRule == c })
		if i >= 0 {
			g.rules = append(g.rules, before[i])
			continue
		}
		s := &ruleSlot{CommitRule: c, from: commit, news: true}
		g.rules = append(g.rules, s)
		if g.term != 0 && g.cover(c)+startBehind < commit {
			s.suspended = true
			late = append(late, g.state(s, 0, commit))
		}
	}
	return late
}

// Term is the one of the leadership that Begin was told of.
func (g *Gate[T]) Term() uint64 { return g.term }

// Grace is how long a commit waits for a rule that is not met.
func (g *Gate[T]) Grace() time.Duration { return g.grace }

// Begin starts a leadership: nothing is held, nothing is known of the others. Rules that the leader before had
// suspended stay so.
func (g *Gate[T]) Begin(term, commit uint64, suspended func(CommitRule) bool) {
	g.term, g.match, g.held = term, map[uint64]uint64{}, nil
	for _, s := range g.rules {
		*s = ruleSlot{CommitRule: s.CommitRule, suspended: suspended(s.CommitRule), from: commit}
	}
}

// Match takes the highest index that each voter is known to have on disk.
func (g *Gate[T]) Match(voters map[uint64]uint64) { g.match = voters }

// Add takes the next committed entry whose proposer waits for an OK. at is when it was committed.
func (g *Gate[T]) Add(index uint64, at time.Duration, of T) {
	g.held = append(g.held, heldCommit[T]{index, at, of})
	if len(g.held) <= maxHeld {
		return
	}
	// The OK of a pair is given with that of its later one; the time of its earlier one counts.
	out := g.held[:0]
	for i := 0; i+1 < len(g.held); i += 2 {
		pair := g.held[i+1]
		pair.at = g.held[i].at
		out = append(out, pair)
	}
	if len(g.held)%2 == 1 {
		out = append(out, g.held[len(g.held)-1])
	}
	clear(g.held[len(out):])
	g.held = out
}

// Release gives the newest commit whose OK may be given now; it and all before it are not held any more.
func (g *Gate[T]) Release() (of T, ok bool) {
	if len(g.held) == 0 {
		return of, false
	}
	n, limit := 0, g.limit()
	for n < len(g.held) && g.held[n].index <= limit {
		n++
	}
	if n == 0 {
		return of, false
	}
	of = g.held[n-1].of
	g.held = slices.Delete(g.held, 0, n)
	return of, true
}

// limit is the highest index that meets every rule in force.
func (g *Gate[T]) limit() uint64 {
	limit := uint64(math.MaxUint64)
	for _, s := range g.rules {
		if !s.suspended {
			limit = min(limit, g.cover(s.CommitRule))
		}
	}
	return limit
}

// cover is the highest index that meets a rule.
func (g *Gate[T]) cover(c CommitRule) uint64 {
	if c.Member != 0 {
		return g.match[c.Member]
	}
	best := map[string]uint64{}
	for id, index := range g.match {
		if z := g.zoneOf[id]; z != "" {
			best[z] = max(best[z], index)
		}
	}
	if len(best) < c.Zones {
		return 0
	}
	var all []uint64
	for _, index := range best {
		all = append(all, index)
	}
	slices.Sort(all)
	return all[len(all)-c.Zones]
}

// Tick suspends the rules for which a commit has waited too long and brings back those that are met again. It returns
// the rules that changed.
func (g *Gate[T]) Tick(now time.Duration, commit uint64) (changed []RuleState) {
	for _, s := range g.rules {
		if st := g.state(s, now, commit); st.Waiting > 0 && st.Waited >= g.grace {
			*s = ruleSlot{CommitRule: s.CommitRule, suspended: true}
			st.Suspended = true
			changed = append(changed, st)
			continue
		}
		if s.suspended && g.isBack(s, now, commit) {
			*s = ruleSlot{CommitRule: s.CommitRule, from: commit, news: true}
		}
		if st := g.state(s, now, commit); s.news && !st.Suspended {
			s.news = false
			changed = append(changed, st)
		}
	}
	return changed
}

// isBack: what was committed at the last look, a moment ago, meets the rule now.
func (g *Gate[T]) isBack(s *ruleSlot, now time.Duration, commit uint64) bool {
	if s.lookedAt != 0 && now < s.lookedAt+min(maxRuleDelay, g.grace/2) {
		return false
	}
	back := s.lookedAt != 0 && g.cover(s.CommitRule) >= s.mark
	s.lookedAt, s.mark = now, commit
	return back
}

// States are all rules as they are now.
func (g *Gate[T]) States(now time.Duration, commit uint64) []RuleState {
	var out []RuleState
	for _, s := range g.rules {
		out = append(out, g.state(s, now, commit))
	}
	return out
}

func (g *Gate[T]) state(s *ruleSlot, now time.Duration, commit uint64) RuleState {
	cover := g.cover(s.CommitRule)
	st := RuleState{CommitRule: s.CommitRule, Suspended: s.suspended || cover < s.from,
		Behind: commit - min(cover, commit)}
	if s.suspended {
		return st
	}
	first := slices.IndexFunc(g.held, func(h heldCommit[T]) bool { return h.index > cover })
	if first >= 0 {
		st.Waiting, st.Waited = len(g.held)-first, now-g.held[first].at
	}
	return st
}
