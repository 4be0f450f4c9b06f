package ha

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// A walk is a small cluster in which every node asks Decide and random things happen: actions end well or badly,
// mysqlds and daemons die, nodes are cut off, leadership moves. Raft is reduced to "one node at most is leader of a
// term"; what Decide is told is what package node would tell it. After the faults the cluster must settle.

type walkNode struct {
	id       uint64
	data     bool
	weight   int
	alive    bool // daemon
	cut      bool // from all others
	deaf     bool // never takes over when leadership is handed to it
	srv      ServerState
	stuck    bool
	applied  uint64
	retryAt  time.Duration
	serving  Serving
	term     uint64 // as this node knows it
	leader   uint64
	lease    time.Duration
	asked    bool
	tried    uint64
	triedAt  time.Duration
	triedTo  uint64
	transfer uint64 // under way
	stopping bool
	op       Action        // the one action on mysqld that is under way
	hand     Action        // the hand-over under way
	since    time.Duration // since when it has been reachable and ready; 0: it is not
	elected  time.Duration
	handed   map[uint64]int
}

type walk struct {
	t      *rapid.T
	now    time.Duration
	term   uint64
	leader uint64
	commit uint64
	nodes  []*walkNode
	moves  int // hand-overs by nodes that could have led
	paused bool
	// lastOpen is the node of the newest barrier, failback the setting.
	lastOpen uint64
	failback time.Duration
	trace    []string
}

func (w *walk) node(id uint64) *walkNode { return w.nodes[id-1] }

func (w *walk) log(format string, args ...any) {
	w.trace = append(w.trace, fmt.Sprintf("%6v term %d: ", w.now, w.term)+fmt.Sprintf(format, args...))
}

func (w *walk) fail(format string, args ...any) {
	w.t.Helper()
	from := max(0, len(w.trace)-60)
	for _, line := range w.trace[from:] {
		w.t.Log(line)
	}
	w.t.Fatalf(format, args...)
}

func (w *walk) quorum() bool {
	n := 0
	for _, x := range w.nodes {
		if x.alive && !x.cut {
			n++
		}
	}
	return n > len(w.nodes)/2
}

// sync tells every connected node who leads, and gives the leader of a quorum its lease.
func (w *walk) sync() {
	quorum := w.quorum()
	if l := w.leader; l != 0 && (!w.node(l).alive || w.node(l).cut || !quorum) {
		w.leader = 0
	}
	for _, n := range w.nodes {
		if !n.alive || n.cut || n.srv != ServerReady || n.stuck {
			n.since = 0
		} else if n.since == 0 {
			n.since = w.now
		}
		switch {
		case !n.alive:
		case !n.cut && quorum:
			n.term, n.leader = w.term, w.leader
			if w.leader == n.id && n.transfer == 0 {
				n.lease = w.now + 800*time.Millisecond
			}
		case n.leader == n.id && w.now > n.lease+200*time.Millisecond:
			n.leader = 0 // CheckQuorum
		case n.leader != n.id:
			n.leader = 0
		}
	}
}

// leasesOver reports whether voters would vote: none does as long as a leader that was cut off, and does not know it,
// may have a lease (S10).
func (w *walk) leasesOver() bool {
	return !slices.ContainsFunc(w.nodes, func(n *walkNode) bool { return n.alive && n.leader == n.id && w.now <= n.lease })
}

func (w *walk) elect(id uint64, asked bool) {
	w.term++
	w.leader = id
	w.node(id).asked, w.node(id).elected = asked, w.now
	w.log("node %d is elected, asked %t", id, asked)
	w.sync()
}

func (w *walk) view(n *walkNode) View {
	v := View{Now: w.now, Self: n.id, Weight: n.weight, Voter: true,
		Raft: Raft{Term: n.term, Leader: n.leader, IsLeader: n.leader == n.id, Commit: w.commit, LeaseUntil: n.lease,
			Transferee: n.transfer, Asked: n.asked, Since: n.elected, Voters: len(w.nodes)},
		Server:  Server{State: n.srv, Applied: n.applied, RetryAt: n.retryAt},
		Serving: n.serving, HandoverTriedTerm: n.tried, HandoverAt: n.triedAt, HandoverTo: n.triedTo, Stopping: n.stopping,
		Paused: w.paused, LastOpen: w.lastOpen, FailbackAfter: w.failback}
	if n.stuck {
		v.Server.Stuck = "stuck"
	}
	for _, p := range w.nodes {
		if p != n {
			v.Peers = append(v.Peers, Peer{ID: p.id, Name: fmt.Sprint("n", p.id), Voter: true, Data: p.data, Live: p.alive &&
				!p.cut && !n.cut, Heard: p.alive && !p.cut && !n.cut,
				Ready: p.srv == ServerReady && !p.stuck && !p.stopping, Applied: p.applied, Weight: p.weight, Since: p.since})
		}
	}
	return v
}

// ask lets a node look at the world and begin what it decides.
func (w *walk) ask(n *walkNode) bool {
	if !n.alive {
		return false
	}
	v := w.view(n)
	st, acts := Decide(v)
	if why := brokenRule(v, st, acts); why != "" {
		w.fail("node %d: %s: %v %v", n.id, why, st, acts)
	}
	if len(acts) == 0 {
		return false
	}
	a := acts[0]
	w.log("node %d: %s: %s", n.id, st.Why, a)
	under := &n.op
	if a.Kind == HandOver {
		under = &n.hand
	}
	if under.Kind != 0 && a.Kind != Fence {
		w.fail("node %d begins %v while %v is under way", n.id, a, *under)
	}
	*under = a
	switch a.Kind {
	case StartServer:
		n.srv = ServerStarting
	case Judge:
		n.srv = ServerJudging
	case Promote:
		n.serving = Serving{Phase: PhasePromoting, Term: a.Term}
	case Fence:
		n.serving.Phase = PhaseFencing
	case HandOver:
		n.tried, n.triedAt, n.triedTo, n.transfer = a.Term, w.now, a.To, a.To
		if whyUnfit(v) == "" {
			w.moves++
			if n.handed[a.Term]++; n.handed[a.Term] > 1 {
				w.fail("node %d can lead and handed over twice in term %d", n.id, a.Term)
			}
		}
	case Switchover:
		n.tried, n.triedAt, n.triedTo = a.Term, w.now, a.To
		n.serving.Phase = PhaseHandover
	case Seed:
		n.srv = ServerSeeding
	}
	return true
}

// finish ends the action that is under way at n.
func (w *walk) finish(n *walkNode, ok bool) {
	if n.hand.Kind != 0 {
		a := n.hand
		n.hand = Action{}
		w.move(n, a, ok)
	}
	if n.op.Kind == 0 {
		return
	}
	a := n.op
	w.log("node %d: %s ends, ok %t", n.id, a.Kind, ok)
	switch a.Kind {
	case StartServer:
		n.op = Action{}
		n.srv = ServerUp
		if !ok {
			n.srv, n.retryAt = ServerOff, w.now+2*time.Second
		}
	case Judge:
		n.op = Action{}
		n.srv = ServerReady
		if !ok {
			n.srv, n.retryAt = ServerUp, w.now+time.Second
		}
	case Promote:
		if n.leader != n.id || n.term != a.Term || w.now > n.lease {
			return // its barrier is not committed; the fence ends it
		}
		n.op, w.lastOpen = Action{}, n.id
		n.serving.Phase = PhaseOpen
		if !ok {
			n.serving = Serving{}
			n.retryAt = w.now + time.Second
		}
		if n.serving.Phase == PhaseOpen {
			w.onlyLeader(n)
		}
	case Fence:
		n.op = Action{}
		n.serving = Serving{}
		if n.srv == ServerReady && (!ok || n.stuck) { // not drained: killed
			n.srv, n.stuck = ServerOff, false
		}
	case Switchover:
		if !n.serving.Drained {
			n.serving.Drained = true
			return
		}
		n.op = Action{}
		if w.move(n, a, ok); n.leader != n.id || n.term != a.Term {
			n.serving = Serving{}
			return
		}
		n.serving.Drained, n.serving.Phase = false, PhaseOpen
	case Seed:
		n.op = Action{}
		n.srv, n.applied = ServerOff, w.commit
		if !ok {
			n.srv, n.retryAt = ServerBehind, w.now+time.Second
		}
	}
}

// move is the end of a transfer of leadership.
func (w *walk) move(n *walkNode, a Action, ok bool) {
	n.transfer = 0
	to := w.node(a.To)
	w.log("transfer from node %d to node %d, ok %t", n.id, to.id, ok && !to.deaf)
	if ok && w.leader == n.id && w.term == a.Term && to.alive && !to.cut && !to.deaf {
		n.leader = 0
		w.elect(a.To, true)
	}
	w.sync()
}

// onlyLeader checks that no two nodes serve writes with a lease.
func (w *walk) onlyLeader(n *walkNode) {
	for _, p := range w.nodes {
		if p != n && p.alive && p.serving.Phase == PhaseOpen && p.leader == p.id && w.now <= p.lease {
			w.fail("nodes %d and %d both serve", p.id, n.id)
		}
	}
}

func (w *walk) kill(n *walkNode) {
	w.log("mysqld of node %d dies", n.id)
	if n.data && n.srv != ServerOff && n.srv < ServerBroken {
		n.srv, n.stuck = ServerOff, false
		if k := n.op.Kind; k == StartServer || k == Judge {
			n.op = Action{}
		}
		n.applied -= min(n.applied, 400) // a shorter prefix
	}
}

func (w *walk) killDaemon(n *walkNode) {
	w.log("daemon of node %d dies", n.id)
	w.kill(n)
	if n.srv == ServerSeeding {
		n.srv = ServerBehind // a copy that is not complete is begun again
	}
	*n = walkNode{id: n.id, data: n.data, weight: n.weight, deaf: n.deaf, srv: n.srv, applied: n.applied, term: n.term,
		handed: n.handed}
	w.sync()
}

// calm lets time pass without faults until nothing has happened for 3 s; it fails after two minutes of it.
func (w *walk) calm() {
	quiet := 0
	for deadline := w.now + 2*time.Minute; quiet < 60; quiet++ {
		if w.now > deadline {
			w.fail("the cluster does not settle")
		}
		w.now += 50 * time.Millisecond
		w.sync()
		if w.leader == 0 && w.quorum() {
			w.elect(w.firstToCampaign(), false)
			quiet = 0
		}
		for _, n := range w.nodes {
			if n.applied < w.commit && n.srv == ServerReady {
				n.applied = min(w.commit, n.applied+100)
			}
			if w.ask(n) {
				quiet = 0
			}
			w.finish(n, true)
		}
	}
}

func (w *walk) firstToCampaign() uint64 {
	best, at := uint64(0), time.Hour
	for _, n := range w.nodes {
		if n.alive && !n.cut {
			if d := CampaignDelay(w.view(n), 0); d < at {
				best, at = n.id, d
			}
		}
	}
	return best
}

func newWalk(t *rapid.T) *walk {
	w := &walk{t: t, now: time.Minute, commit: 5000, failback: rapid.SampledFrom([]time.Duration{0, time.Second}).
		Draw(t, "failback")}
	size := rapid.Uint64Range(1, 5).Draw(t, "nodes")
	for id := uint64(1); id <= size; id++ {
		n := &walkNode{id: id, alive: true, data: id == 1 || rapid.IntRange(0, 4).Draw(t, "kind") > 0,
			handed: map[uint64]int{},
			weight: rapid.SampledFrom([]int{100, 100, 50, 0}).Draw(t, "weight"), applied: rapid.Uint64Range(4000, 5000).
				Draw(t, "applied")}
		n.srv = ServerOff
		if !n.data {
			n.srv, n.weight = ServerAbsent, 0
		}
		w.nodes = append(w.nodes, n)
	}
	return w
}

// step is one thing that happens.
func (w *walk) step() {
	n := w.nodes[rapid.IntRange(0, len(w.nodes)-1).Draw(w.t, "node")]
	switch rapid.IntRange(0, 14).Draw(w.t, "what") {
	case 0, 1, 2, 3:
		w.ask(n)
	case 4, 5, 6:
		w.finish(n, true)
	case 7:
		w.finish(n, false)
	case 8:
		w.now += rapid.SampledFrom([]time.Duration{10, 100, 900, 2000}).Draw(w.t, "ms") * time.Millisecond
	case 9:
		if w.leader == 0 && w.quorum() && n.alive && !n.cut && w.leasesOver() {
			w.elect(n.id, false)
		}
	case 10:
		w.kill(n)
	case 11:
		if n.alive {
			w.killDaemon(n)
		} else {
			n.alive = true
		}
	case 12:
		n.cut = !n.cut
	case 13:
		if rapid.Bool().Draw(w.t, "sick") {
			n.stuck = n.srv == ServerReady
		} else if n.srv == ServerJudging && rapid.IntRange(0, 3).Draw(w.t, "broken") == 0 {
			n.srv, n.op = rapid.SampledFrom([]ServerState{ServerBroken, ServerBehind}).Draw(w.t, "how"), Action{}
		}
	case 14:
		w.paused = !w.paused
	}
	w.commit++
	w.sync()
}

// TestWalkSettles: whatever happened, once it stops a node that can lead serves within two minutes of steps, and then
// nothing more is done. Leadership is not passed back and forth, and ends at the preferred node. In a pause the last
// leader serves, if it can lead.
func TestWalkSettles(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := newWalk(t)
		for range rapid.IntRange(0, 150).Draw(t, "steps") {
			w.step()
		}
		for _, n := range w.nodes {
			n.alive, n.cut, n.stuck = true, false, false
		}
		canLead := func(n *walkNode) bool {
			return n.data && n.weight > 0 && n.srv != ServerBroken && !(w.paused && n.srv == ServerBehind) && !n.deaf
		}
		// A node that never takes over must not keep another from it.
		deaf := w.node(uint64(rapid.IntRange(1, len(w.nodes)).Draw(t, "deaf")))
		deaf.deaf = rapid.Bool().Draw(t, "one is deaf")
		if !slices.ContainsFunc(w.nodes, canLead) {
			deaf.deaf = false
		}
		w.paused = w.paused && !deaf.deaf
		if deaf.deaf {
			w.failback = 0 // it would be tried for ever
		}
		able := slices.ContainsFunc(w.nodes, canLead)
		w.log("calm begins")
		w.moves = 0
		w.calm()
		var open []uint64
		for _, n := range w.nodes {
			if n.serving.Phase == PhaseOpen {
				open = append(open, n.id)
			}
			if n.data && n.srv != ServerBroken && n.srv != ServerReady && !(w.paused && n.srv == ServerBehind) {
				w.fail("mysqld of node %d stays %v", n.id, n.srv)
			}
		}
		if w.paused && w.lastOpen != 0 {
			able = canLead(w.node(w.lastOpen))
		}
		if len(open) > 1 || able && len(open) == 0 {
			w.fail("nodes that serve: %v", open)
		}
		for _, n := range w.nodes {
			if !w.paused && w.failback > 0 && len(open) == 1 && canLead(n) && n.weight > w.node(open[0]).weight {
				w.fail("node %d serves, node %d is preferred", open[0], n.id)
			}
		}
		if w.moves > len(w.nodes) {
			w.fail("%d hand-overs by nodes that could lead", w.moves)
		}
	})
}

// TestWalkStops: a leader that is told to stop gives leadership away when somebody else can lead.
func TestWalkStops(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := newWalk(t)
		w.calm()
		if w.leader == 0 {
			w.fail("no leader")
		}
		old := w.node(w.leader)
		other := slices.ContainsFunc(w.nodes, func(n *walkNode) bool { return n != old && n.data && n.weight > 0 })
		old.stopping = true
		w.log("node %d is told to stop", old.id)
		// It never comes to rest while no node can take over: it keeps trying.
		for range 200 {
			w.now += 50 * time.Millisecond
			w.sync()
			for _, n := range w.nodes {
				w.ask(n)
				w.finish(n, true)
			}
		}
		if other && (w.leader == old.id || w.node(w.leader).serving.Phase != PhaseOpen) {
			w.fail("node %d leads", w.leader)
		}
	})
}
