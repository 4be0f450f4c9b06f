package ha

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// gateTest drives a Gate step by step: node 1 leads, and committed entries are at the index that their mark names.
type gateTest struct {
	Gate[uint64]
	t      *testing.T
	commit uint64
	match  map[uint64]uint64
	acked  uint64
}

func newGateTest(t *testing.T, r CommitRules) *gateTest {
	g := &gateTest{t: t, match: map[uint64]uint64{}}
	g.Set(r, 0)
	g.Begin(7, 0, func(CommitRule) bool { return false })
	return g
}

func (g *gateTest) commits(at time.Duration, indexes ...uint64) {
	for _, i := range indexes {
		g.commit = i
		g.Add(i, at, i)
	}
}

// has tells that members 1, 2, … have so much on disk.
func (g *gateTest) has(indexes ...uint64) {
	g.match = map[uint64]uint64{}
	for i, index := range indexes {
		g.match[uint64(i+1)] = index
	}
	g.Match(g.match)
}

func (g *gateTest) ok(want uint64) {
	g.t.Helper()
	if got, ok := g.Release(); ok {
		if got <= g.acked {
			g.t.Fatalf("OK for %d after %d", got, g.acked)
		}
		g.acked = got
	}
	if g.acked != want {
		g.t.Fatalf("OK up to %d, want %d", g.acked, want)
	}
}

func (g *gateTest) tick(now time.Duration, want string) {
	g.t.Helper()
	got := ""
	for _, c := range g.Tick(now, g.commit) {
		got += fmt.Sprintf("member %d zones %d suspended %t waiting %d for %v behind %d; ", c.Member, c.Zones, c.Suspended,
			c.Waiting, c.Waited, c.Behind)
	}
	if got != want {
		g.t.Fatalf("at %v: %q, want %q", now, got, want)
	}
}

const sec = time.Second

func TestMustAckHoldsUntilTheGrace(t *testing.T) {
	g := newGateTest(t, CommitRules{MustAck: []uint64{3}, Grace: 10 * sec})
	g.commits(1*sec, 11, 12, 13)
	g.has(13, 13, 0)
	g.ok(0)
	g.has(13, 13, 12)
	g.ok(12)
	g.commits(5*sec, 14)
	g.has(14, 14, 12)
	g.tick(10*sec, "")
	g.ok(12)
	// 13 has waited for 10 s since it was committed, 14 for less: both go on.
	g.tick(11*sec, "member 3 zones 0 suspended true waiting 2 for 10s behind 2; ")
	g.ok(14)
	// Lags far: no commit waits for it.
	g.commits(12*sec, 5000)
	g.has(5000, 5000, 15)
	g.tick(12*sec, "")
	g.ok(5000)
	g.tick(13*sec, "")
	// It has what was committed at the last look: OKs wait for it again, and once it has all that had one it is in force.
	g.commits(13*sec, 5010)
	g.ok(5010)
	g.has(5020, 5020, 5005)
	g.commits(13500*time.Millisecond, 5020)
	g.tick(14*sec, "")
	g.ok(5010)
	g.has(5020, 5020, 5019)
	g.ok(5010)
	g.tick(14250*time.Millisecond, "")
	g.has(5020, 5020, 5020)
	g.ok(5020)
	g.tick(14500*time.Millisecond, "member 3 zones 0 suspended false waiting 0 for 0s behind 0; ")
}

// Every commit waits for the grace at most, also when several rules fail one after the other.
func TestGraceBoundsAllRulesTogether(t *testing.T) {
	g := newGateTest(t, CommitRules{MustAck: []uint64{2, 3}, Grace: 10 * sec})
	g.commits(0, 5)
	g.has(5, 0, 0, 5, 5)
	g.tick(9*sec, "")
	g.tick(10*sec,
		"member 2 zones 0 suspended true waiting 1 for 10s behind 5; member 3 zones 0 suspended true waiting 1 for 10s behind 5; ")
	g.ok(5)
}

func TestZones(t *testing.T) {
	zones := map[uint64]string{1: "a", 2: "a", 3: "b", 4: "c"}
	g := newGateTest(t, CommitRules{Zones: 2, ZoneOf: zones, Grace: 10 * sec})
	g.commits(1*sec, 5)
	g.has(5, 5, 4, 0) // a majority of the leader's own zone
	g.ok(0)
	g.has(0, 5, 4, 5) // a and c; the leader's own disk is slow
	g.ok(5)
	// Voters without a zone count in none.
	g.commits(2*sec, 6)
	g.has(6, 6, 5, 5, 6, 6, 6)
	g.ok(5)
	g.has(6, 6, 6)
	g.ok(6)
}

// With three zones asked for and one lost, two are still asked for.
func TestZonesAreSuspendedOneByOne(t *testing.T) {
	g := newGateTest(t, CommitRules{Zones: 3, ZoneOf: map[uint64]string{1: "a", 2: "b", 3: "c"}, Grace: 10 * sec})
	g.commits(1*sec, 5)
	g.has(5, 5, 4)
	g.ok(0)
	g.tick(11*sec, "member 0 zones 3 suspended true waiting 1 for 10s behind 1; ")
	g.ok(5)
	g.commits(12*sec, 6)
	g.has(6, 5, 4)
	g.ok(5)
	g.has(6, 6, 4)
	g.ok(6)
}

func TestRulesChangeAtOnce(t *testing.T) {
	g := newGateTest(t, CommitRules{})
	g.commits(1*sec, 2000)
	g.has(2000, 2000, 0)
	g.ok(2000)
	// New, and far from being met: it begins suspended, and no commit waits.
	late := g.Set(CommitRules{MustAck: []uint64{3}, Grace: 10 * sec}, g.commit)
	if len(late) != 1 || !late[0].Suspended || late[0].Member != 3 {
		t.Fatalf("%+v", late)
	}
	g.commits(1*sec, 2001)
	g.ok(2001)
	// New and nearly met: in force.
	if late := g.Set(CommitRules{MustAck: []uint64{2, 3}, Grace: 10 * sec}, g.commit); late != nil {
		t.Fatalf("%+v", late)
	}
	g.commits(1*sec, 2002)
	g.ok(2001)
	// A shorter grace counts for what waits already.
	g.Set(CommitRules{MustAck: []uint64{2, 3}, Grace: 2 * sec}, g.commit)
	g.tick(3*sec, "member 2 zones 0 suspended true waiting 1 for 2s behind 2; ")
	g.ok(2002)
	// Taken away: what waits is free.
	g.Set(CommitRules{MustAck: []uint64{1}, Grace: 10 * sec}, g.commit)
	g.commits(3*sec, 2003)
	g.ok(2002)
	g.Set(CommitRules{}, g.commit)
	g.ok(2003)
}

// A new leader goes on with what the one before had suspended, and holds nothing of an older term.
func TestGateBeginsATerm(t *testing.T) {
	g := newGateTest(t, CommitRules{MustAck: []uint64{2, 3}, Grace: 10 * sec})
	g.commits(1*sec, 5)
	g.Begin(8, 5, func(r CommitRule) bool { return r.Member == 3 })
	g.has(9, 9, 9)
	g.ok(0)
	g.commits(2*sec, 10)
	g.has(10, 10, 5)
	g.ok(10)
	if g.Term() != 8 {
		t.Error(g.Term())
	}
}

// Whatever comes in which order: an OK never goes back and waits for the grace at most; what is said to be in force
// covers every OK.
func TestGateProperties(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		grace := 3 * sec
		rules := func() CommitRules {
			r := CommitRules{Zones: rapid.IntRange(0, 3).Draw(t, "zones"), Grace: grace,
				ZoneOf: map[uint64]string{1: "a", 2: "b", 3: "c"}}
			for id := uint64(1); id <= 3; id++ {
				if rapid.Bool().Draw(t, "must") {
					r.MustAck = append(r.MustAck, id)
				}
			}
			return r
		}
		var g Gate[uint64]
		g.Set(rules(), 0)
		g.Begin(1, 0, func(CommitRule) bool { return false })
		match, addedAt := map[uint64]uint64{}, map[uint64]time.Duration{}
		var now time.Duration
		var commit, acked uint64
		for range rapid.IntRange(1, 300).Draw(t, "steps") {
			switch rapid.IntRange(0, 3).Draw(t, "what") {
			case 0:
				commit += uint64(rapid.IntRange(1, 3).Draw(t, "entries"))
				g.Add(commit, now, commit)
				addedAt[commit] = now
			case 1:
				id := uint64(rapid.IntRange(1, 3).Draw(t, "id"))
				match[id] = min(commit, match[id]+uint64(rapid.IntRange(0, 5).Draw(t, "grows")))
				g.Match(match)
			case 2:
				now += time.Duration(rapid.IntRange(0, 1000).Draw(t, "ms")) * time.Millisecond
				g.Tick(now, commit)
			case 3:
				g.Set(rules(), commit)
			}
			if got, ok := g.Release(); ok {
				if got <= acked {
					t.Fatalf("OK for %d after %d", got, acked)
				}
				acked = got
			}
			for _, s := range g.States(now, commit) {
				if !s.Suspended && commit-s.Behind < acked {
					t.Fatalf("OK up to %d, and a rule is said to be in force: %+v", acked, s)
				}
			}
			for index, at := range addedAt {
				if index > acked && now >= at+grace+sec {
					t.Fatalf("%d has waited for %v", index, now-at)
				}
			}
		}
	})
}

// The bound on what is held costs granularity, never an early or a lost OK.
func TestGateIsBounded(t *testing.T) {
	g := newGateTest(t, CommitRules{MustAck: []uint64{2}, Grace: 10 * sec})
	for i := uint64(1); i <= 5*maxHeld; i++ {
		g.commits(time.Duration(i), i)
	}
	if len(g.held) > maxHeld {
		t.Fatalf("%d are held", len(g.held))
	}
	if g.held[0].at != 1 ||
		!slices.IsSortedFunc(g.held, func(a, b heldCommit[uint64]) int { return int(a.index) - int(b.index) }) {
		t.Fatal("out of order, or the oldest is younger than it is")
	}
	g.has(5*maxHeld, 5*maxHeld)
	g.ok(5 * maxHeld)
}
