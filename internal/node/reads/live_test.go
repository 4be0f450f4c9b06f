package reads

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"trireme/internal/api"
	"trireme/internal/core/consensus"
	"trireme/internal/node/gossip"
)

func sorted(ids []uint64) []uint64 {
	slices.Sort(ids)
	return ids
}

// A node that is not heard of any more is not told of at once, and waited for until no router that was told of it reads
// it.
func TestLiveDrop(t *testing.T) {
	var l liveSet
	at := time.Hour
	if !l.lead(4, at) || l.lead(3, at) {
		t.Fatal("terms")
	}
	at += liveGrace // of the one before
	for id := range uint64(3) {
		if !l.look(at, id+1, true, 10, 10) {
			t.Errorf("%d serves and is current", id+1)
		}
	}
	if got := sorted(l.tell(at)); !slices.Equal(got, []uint64{1, 2, 3}) {
		t.Errorf("told %d", got)
	}
	told := at
	at += 300 * time.Millisecond
	if !l.look(at, 3, false, 10, 20) || l.look(at, 3, false, 10, 20) {
		t.Error("changes")
	}
	if got := sorted(l.tell(at)); !slices.Equal(got, []uint64{1, 2}) {
		t.Errorf("told %d", got)
	}
	members := []uint64{1, 2, 3}
	if got := sorted(l.wait(told+liveGrace-1, members)); !slices.Equal(got, []uint64{1, 2, 3}) {
		t.Errorf("who may be read still is not waited for: %d", got)
	}
	if got := sorted(l.wait(told+liveGrace, members)); !slices.Equal(got, []uint64{1, 2}) {
		t.Errorf("dropped, and waited for: %d", got)
	}
	// No router was told of it: writes need not wait at all.
	at = told + 10*liveGrace
	l.look(at, 2, false, 10, 20)
	if got := sorted(l.wait(at, members)); !slices.Equal(got, []uint64{1}) {
		t.Errorf("dropped, never told of lately, and waited for: %d", got)
	}
}

// A node that routers are told of is waited for from then on, however long ago the last one was told.
func TestLiveIsWaitedFor(t *testing.T) {
	var l liveSet
	l.lead(1, 0)
	l.look(liveGrace, 1, true, 5, 5)
	if got := l.wait(time.Hour, []uint64{1}); !slices.Equal(got, []uint64{1}) {
		t.Errorf("%d: a live node is read by those who ask for no more than EVENTUAL", got)
	}
}

// What an earlier leader has told is not known: all members are waited for.
func TestLiveNewLeader(t *testing.T) {
	var l liveSet
	l.lead(1, 0)
	members := []uint64{1, 2}
	l.look(0, 1, true, 5, 5)
	for _, term := range []uint64{1, 2} {
		began := time.Duration(term) * time.Hour
		if term == 1 {
			began = 0
		}
		l.lead(term, began)
		l.look(began, 2, false, 0, 5)
		if got := sorted(l.wait(began+liveGrace-1, members)); !slices.Equal(got, members) {
			t.Errorf("term %d: waits for %d", term, got)
		}
		if got := l.wait(began+liveGrace, members); slices.Contains(got, 2) {
			t.Errorf("term %d: 2 is dead and waited for", term)
		}
	}
	if got := l.tell(2 * time.Hour); len(got) > 0 {
		t.Errorf("%d was live in an earlier term", got)
	}
}

// A node that was dropped is taken back when it keeps up with what is committed.
func TestLiveRound(t *testing.T) {
	var l liveSet
	l.lead(1, 0)
	at := time.Minute
	if l.look(at, 2, true, 100, 1000) || l.look(at+liveRound, 2, true, 999, 1500) {
		t.Error("it has not applied what was committed when it was heard of")
	}
	// It took longer than a round for that: more has come meanwhile.
	at += liveRound + time.Millisecond
	if l.look(at, 2, true, 1000, 2000) || l.look(at+liveRound, 2, true, 1999, 2100) {
		t.Error("it does not keep up")
	}
	if !l.look(at+liveRound, 2, true, 2000, 2100) {
		t.Error("it keeps up")
	}
	if l.look(at+liveRound, 2, true, 2000, 9000) {
		t.Error("a slow one is waited for, not dropped")
	}
	if !l.look(at, 2, false, 9000, 9000) || !l.look(at, 2, true, 9000, 9000) {
		t.Error("it is current at once")
	}
}

// A member that was removed is waited for as long as it may be read, and forgotten then.
func TestLiveRemoved(t *testing.T) {
	var l liveSet
	l.lead(1, 0)
	at := time.Minute
	l.look(at, 2, true, 5, 5)
	n, _ := newTestReads()
	n.live.term, n.live.nodes = 1, l.nodes
	l.tell(at)
	if !n.MayBeRead(1, 2) || !n.MayBeRead(2, 2) {
		t.Error("its record must stay")
	}
	l.look(at, 2, false, 5, 5)
	if got := l.wait(at+liveGrace-1, []uint64{1}); !slices.Equal(got, []uint64{2}) {
		t.Errorf("waits for %d", got)
	}
	if got := l.wait(at+liveGrace, []uint64{1}); len(got) > 0 || l.nodes[2] != nil {
		t.Errorf("waits for %d", got)
	}
	if n.MayBeRead(1, 2) {
		t.Error("its record may go") // CLOCK_BOOTTIME of the machine is beyond a minute
	}
}

// Only a leader that can prove it, and has applied an entry of its own term, says who counts as live.
func TestLiveHere(t *testing.T) {
	for name, c := range map[string]struct {
		role         consensus.Role
		settled      uint64
		lease, known bool
	}{
		"leader":      {consensus.Leader, 4, true, true},
		"follower":    {consensus.Follower, 4, true, false},
		"not settled": {consensus.Leader, 3, true, false},
		"no lease":    {consensus.Leader, 4, false, false},
	} {
		r, h := newTestReads()
		h.status.Role, h.status.Term, h.status.Commit, h.settled, h.lease = c.role, 4, 7, c.settled, c.lease
		r.LookAtLive()
		for kind, want := range map[byte][]uint64{liveTell: {2}, liveWait: {1, 2}} {
			commit, ids, err := r.liveHere(kind)
			if slices.Sort(ids); c.known && (err != nil || !slices.Equal(ids, want) || commit != 7) || !c.known &&
				!errors.Is(err, errNotSure) {
				t.Errorf("%s, question %d: %d at %d, %v", name, kind, ids, commit, err)
			}
		}
	}
}

// Followers that are heard of and serve count as live once they keep up; one that is removed, or has said nothing for
// long, does not.
func TestLookAtLive(t *testing.T) {
	r, h := newTestReads()
	h.status.Role, h.status.Term, h.status.Commit = consensus.Leader, 4, 7
	good := gossip.Peer{Up: true, At: now(), Status: gossip.Status{Ready: true}}
	good.Member.Raft.Applied = 7
	look := func(p gossip.Peer) bool {
		h.peers = gossip.Peers{1: &p}
		r.LookAtLive()
		return r.live.of(1).live
	}
	for _, change := range []func(*gossip.Peer){func(p *gossip.Peer) { p.Up = false },
		func(p *gossip.Peer) { p.At -= liveHeard },
		func(p *gossip.Peer) { p.Ready = false }} {
		bad := good
		change(&bad)
		if look(bad) || !look(good) || look(bad) {
			t.Errorf("%+v", bad)
		}
	}
	h.settings.Members[0].Removing = true
	if look(good) {
		t.Error("it is being removed")
	}
}

// TestLiveRandom plays leaders, routers and servers against each other: clocks that differ by up to a fifth, messages
// that take their time, servers that stand still, die and come back with less, and leaders that change. No read at
// AFTER misses a write that was answered at AFTER before it began.
func TestLiveRandom(t *testing.T) {
	reads, refused := 0, 0
	for seed := range uint64(300) {
		w := newLiveWorld(seed)
		if err := w.run(4000); err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		reads, refused = reads+w.reads, refused+w.refused
	}
	if reads < 10_000 || refused < 10_000 {
		t.Errorf("%d reads, %d refused: too few to tell", reads, refused)
	}
}

const liveServers = 3

// liveWorld moves in steps of 1 to 40 ms. Node 0 to 2 have a clock, a server, a router and, one at a time, the
// leadership each.
type liveWorld struct {
	rnd    *rand.Rand
	at     time.Duration // by no clock
	term   uint64
	leader int
	commit uint64
	nodes  [liveServers]*liveWorldNode
	writes []liveWrite

	answered       uint64 // highest index of a write that was answered
	reads, refused int
}

// worldTold is what a router knows, as in package router.
type worldTold struct {
	asked time.Duration
	index uint64
	ids   []uint64
}

func (t *worldTold) holds(now time.Duration, id uint64) bool {
	return now < t.asked+api.LiveFor && slices.Contains(t.ids, id)
}

type liveWorldNode struct {
	rate    float64
	set     liveSet
	cut     time.Duration // no one hears of it until then
	life    int
	applied uint64
	told    worldTold
	links   [liveServers]liveWorldLink // of its router
}

// liveWorldLink is a connection to a server.
type liveWorldLink struct {
	open, asked bool
	life        int
	applied     uint64
}

type liveWrite struct {
	index uint64
	whom  []uint64 // nil: not asked yet
	done  map[uint64]bool
}

func newLiveWorld(seed uint64) *liveWorld {
	w := &liveWorld{rnd: rand.New(rand.NewPCG(seed, 7)), commit: 1}
	for i := range w.nodes {
		w.nodes[i] = &liveWorldNode{rate: 0.9 + 0.2*w.rnd.Float64(), life: 1, applied: 1} // at most 1.1/0.9 < 1.25
	}
	w.elect(0)
	return w
}

// clock of a node.
func (w *liveWorld) clock(i int) time.Duration {
	return time.Hour*time.Duration(i+1) + time.Duration(float64(w.at)*w.nodes[i].rate)
}

func (w *liveWorld) reached(a, b int) bool {
	return a == b || w.nodes[a].cut < w.at && w.nodes[b].cut < w.at
}

func (w *liveWorld) elect(i int) {
	w.term, w.leader = w.term+1, i
	w.nodes[i].set.lead(w.term, w.clock(i))
}

func (w *liveWorld) run(steps int) error {
	for range steps {
		w.at += time.Duration(1+w.rnd.IntN(40)) * time.Millisecond
		i := w.rnd.IntN(liveServers)
		switch n := w.nodes[i]; w.rnd.IntN(12) {
		case 0:
			if w.rnd.IntN(20) == 0 {
				n.cut = w.at + time.Duration(w.rnd.IntN(5000))*time.Millisecond
			}
		case 1:
			if w.rnd.IntN(40) == 0 { // it comes back with less
				n.life, n.applied = n.life+1, n.applied-min(n.applied-1, uint64(w.rnd.IntN(4)))
			}
		case 2:
			if w.rnd.IntN(20) == 0 && w.nodes[i].cut < w.at {
				w.elect(i)
			}
		case 3, 4:
			w.commit++
			w.writes = append(w.writes, liveWrite{index: w.commit, done: map[uint64]bool{}})
		case 5, 6, 7:
			w.apply()
		case 8, 9:
			w.wait()
		default:
			for range 3 {
				if err := w.read(i, w.rnd.IntN(liveServers)); err != nil {
					return err
				}
			}
		}
		w.look()
	}
	return nil
}

// apply gets servers on; the leader's at once.
func (w *liveWorld) apply() {
	for i, n := range w.nodes {
		if i == w.leader {
			n.applied = w.commit
		} else if w.reached(i, w.leader) && n.applied < w.commit && w.rnd.IntN(3) > 0 {
			n.applied++
		}
	}
}

func (w *liveWorld) look() {
	l := w.nodes[w.leader]
	for i, n := range w.nodes {
		l.set.look(w.clock(w.leader), uint64(i), w.reached(i, w.leader), n.applied, w.commit)
	}
}

// wait is what the routers of the writes do.
func (w *liveWorld) wait() {
	l := w.nodes[w.leader]
	kept := w.writes[:0]
	for _, x := range w.writes {
		if x.whom == nil || w.rnd.IntN(4) == 0 {
			x.whom = l.set.wait(w.clock(w.leader), []uint64{0, 1, 2})
		}
		for i, n := range w.nodes {
			x.done[uint64(i)] = x.done[uint64(i)] || w.reached(i, w.leader) && n.applied >= x.index
		}
		if slices.ContainsFunc(x.whom, func(id uint64) bool { return !x.done[id] }) {
			kept = append(kept, x)
			continue
		}
		w.answered = max(w.answered, x.index)
	}
	w.writes = kept
}

// read is a statement at AFTER, that begins now, through the router of node i on server k.
func (w *liveWorld) read(i, k int) error {
	began, n, server := w.answered, w.nodes[i], w.nodes[k]
	link := &n.links[k]
	if !link.open || link.life != server.life || w.rnd.IntN(50) == 0 {
		*link = liveWorldLink{open: true, life: server.life}
	}
	if !link.asked || !n.told.holds(w.clock(i), uint64(k)) {
		if !w.reached(i, w.leader) {
			w.refused++
			return nil
		}
		told := worldTold{asked: w.clock(i)}
		w.at += time.Duration(w.rnd.IntN(30)) * time.Millisecond // on its way there
		told.ids = w.nodes[w.leader].set.tell(w.clock(w.leader))
		told.index = w.commit
		w.at += time.Duration(w.rnd.IntN(30)) * time.Millisecond // and back
		n.told, link.asked = told, true
		if !told.holds(w.clock(i), uint64(k)) {
			w.refused++
			return nil
		}
	}
	if link.applied < n.told.index {
		if !w.reached(i, k) || server.applied < n.told.index {
			w.refused++
			return nil
		}
		link.applied = n.told.index
	}
	w.reads++
	if server.applied < began {
		return fmt.Errorf("at %v write %d was answered, and server %d in its life %d shows %d only, through %d which was told %v ago of %d at %d in term %d",
			w.at, began, k, server.life, server.applied, i, w.clock(i)-n.told.asked, n.told.ids, n.told.index, w.term)
	}
	return nil
}
