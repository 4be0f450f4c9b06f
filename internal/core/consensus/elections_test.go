package consensus

import (
	"container/heap"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"go.etcd.io/raft/v3/raftpb"

	"trireme/internal/core/ha"
	"trireme/lab/needs"
)

var (
	electionSeeds = flag.Int("elections.seeds", 1000,
		"elections that TestElections simulates; in its short form a third of them")
	electionTrace = flag.Int("elections.trace", -1, "seed of TestElections to show step by step")
	electionTable = flag.String("elections.table", "", "page whose table TestElections writes again")
)

const (
	simTimeout = time.Second    // election timeout: 10 ticks of 100 ms, as package node has it by default
	simLimit   = 3 * simTimeout // of all but two in a thousand: candidates may split the votes once more
	simWorst   = 5 * simTimeout
)

// TestElections loses the leader in many ways, in simulated groups of 3 to 9 voters, and measures in simulated time how
// long it takes until a majority follows another leader that goes on, and does not hand over. Cores, elections and ha's
// policy are the real ones; clock, network, disks and what is told of each mysqld come from the seed. Raft draws its
// own election timeouts from elsewhere, so a seed repeats the faults, not the whole run.
func TestElections(t *testing.T) {
	needs.NoRace(t)
	took := map[fault][]time.Duration{}
	var all []time.Duration
	late, count := 0, *electionSeeds
	if !needs.IsLong() && *electionTable == "" {
		count = (count + 2) / 3
	}
	for seed := range count {
		if *electionTrace >= 0 && seed != *electionTrace {
			continue
		}
		s := newElectionSim(t, uint64(seed))
		d := s.run()
		took[s.fault] = append(took[s.fault], d)
		all = append(all, d)
		if d > simLimit {
			late++
			t.Logf("seed %d: %s: %.2f election timeouts", seed, s, d.Seconds()/simTimeout.Seconds())
		}
		if d > simWorst || 500*late > max(1000, count) {
			t.Fatalf("%d of %d took longer than 3 election timeouts, the last one %.2f", late, len(all),
				d.Seconds()/simTimeout.Seconds())
		}
	}
	var table strings.Builder
	fmt.Fprintf(&table, "| the leader is lost | runs | p50 | p90 | p99 | max |\n|-|-|-|-|-|-|\n")
	for f := range faults {
		table.WriteString(distribution(faultNames[f], took[f]))
	}
	table.WriteString(distribution("all", all))
	t.Logf("in election timeouts:\n%s", table.String())
	if *electionTable != "" {
		page, err := os.ReadFile(*electionTable)
		if err != nil {
			t.Fatal(err)
		}
		before, rest, _ := strings.Cut(string(page), "| the leader")
		_, after, _ := strings.Cut(rest, "\n\n")
		if err := os.WriteFile(*electionTable, []byte(before+table.String()+"\n"+after), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// distribution is a line of the table; times are election timeouts.
func distribution(name string, ds []time.Duration) string {
	if len(ds) == 0 {
		return ""
	}
	slices.Sort(ds)
	line := fmt.Sprintf("| %s | %d |", name, len(ds))
	for _, q := range []float64{.5, .9, .99, 1} {
		i := max(0, int(q*float64(len(ds))+.999)-1)
		line += fmt.Sprintf(" %.2f |", ds[i].Seconds()/simTimeout.Seconds())
	}
	return line + "\n"
}

// fault is how the leader is lost.
type fault int

const (
	processDies fault = iota // its peers learn it by refused connections
	hostSilent               // it is gone, or stopped
	cutOff                   // it runs, and nothing passes in either direction
	deaf                     // what it sends arrives, it hears nothing
	mute                     // it hears, and nothing of it arrives
	// so does the best of the others, by the same cause; or, of three, it comes back 200 ms later
	twoDie
	twoSilent     // likewise
	successorDies // the one that is elected goes silent while it is; counted from there
	faults
)

var faultNames = [...]string{"its process dies", "its host goes silent", "it is cut off", "it sends and does not hear",
	"it hears and does not send",
	"its process and another voter's die", "its host and another voter's go silent",
	"the successor goes silent as well, while being elected"}

// electionSim is one run.
type electionSim struct {
	*chaos
	seed     uint64
	fault    fault
	delay    time.Duration // of a message, at most; the round trip is up to twice that, a third of the election timeout
	loss     float64
	queue    events
	order    int
	arrival  map[[2]uint64]int64 // of the last message between two
	deafTo   map[uint64]bool     // hears nothing
	muteTo   map[uint64]bool     // is not heard
	told     map[[2]uint64]bool  // the first knows that the second's process is dead
	nodes    map[uint64]*simNode
	start    int64
	lastOpen uint64
}

// simNode is what ha is told of a member besides raft's state.
type simNode struct {
	data, ready bool
	weight      int
	lag         uint64
	handTerm    uint64
	handAt      time.Duration
	handTo      uint64
	term        uint64 // in which it was elected last, and since when
	since       time.Duration
	asked       uint64 // term for which it was handed leadership
	opens       uint64 // term for which it has decided to open writes
}

type event struct {
	at    int64
	order int
	do    func()
}

type events []event

func (q events) Len() int { return len(q) }
func (q events) Less(i, j int) bool {
	return q[i].at < q[j].at || q[i].at == q[j].at && q[i].order < q[j].order
}
func (q events) Swap(i, j int) { q[i], q[j] = q[j], q[i] }
func (q *events) Push(x any)   { *q = append(*q, x.(event)) }
func (q *events) Pop() any {
	last := (*q)[len(*q)-1]
	*q = (*q)[:len(*q)-1]
	return last
}

func newElectionSim(t testing.TB, seed uint64) *electionSim {
	rnd := rand.New(rand.NewPCG(seed, 2))
	s := &electionSim{chaos: &chaos{env: newEnv(t), rnd: rnd, committed: map[uint64]*raftpb.Entry{},
		leaders: map[uint64]uint64{}, applied: map[uint64]uint64{}}, seed: seed, arrival: map[[2]uint64]int64{},
		deafTo: map[uint64]bool{},
		muteTo: map[uint64]bool{}, told: map[[2]uint64]bool{}, nodes: map[uint64]*simNode{}}
	s.fault = fault(seed % uint64(faults))
	s.delay = []time.Duration{time.Millisecond, 20 * time.Millisecond, simTimeout / 10, simTimeout / 6}[rnd.IntN(4)]
	s.loss = []float64{0, .01, .03}[rnd.IntN(3)]
	n := []int{3, 5, 7, 9}[rnd.IntN(4)]
	var voters []uint64
	for id := 1; id <= n; id++ {
		voters = append(voters, uint64(id))
	}
	s.confs = []confAt{{0, &raftpb.ConfState{Voters: voters}}}
	equal := rnd.IntN(2) == 0
	for i, id := range voters {
		x := &simNode{data: i < 2 || i == 2 && n > 3 || rnd.IntN(3) > 0, ready: true, weight: 100}
		if !equal {
			x.weight, x.lag, x.ready = 50+50*rnd.IntN(3), uint64(rnd.IntN(2)*rnd.IntN(1000)), i < 2 || i == 2 && n > 3 ||
				rnd.IntN(5) > 0
		}
		s.nodes[id] = x
		if err := s.env.start(id, newMemStore(voters...), nil); err != nil {
			t.Fatal(err)
		}
		m := s.members[id]
		m.diskHeld = true
		m.cfg.HeartbeatTicks = 1
		m.cfg.CampaignDelay = func(lost uint64) time.Duration { return ha.CampaignDelay(s.view(m), lost) }
	}
	return s
}

func (s *electionSim) String() string {
	loggers := 0
	for _, x := range s.nodes {
		if !x.data {
			loggers++
		}
	}
	return fmt.Sprintf("%s, %d voters (%d loggers), delay <= %v, loss %.0f %%", faultNames[s.fault], len(s.nodes), loggers,
		s.delay, 100*s.loss)
}

// in makes something happen later.
func (s *electionSim) in(d time.Duration, f func()) {
	s.order++
	heap.Push(&s.queue, event{s.now + int64(d), s.order, f})
}

func (s *electionSim) between(low, high time.Duration) time.Duration {
	return low + time.Duration(s.rnd.Int64N(int64(high-low)+1))
}

// until lets time pass until a condition holds, for a limit at most.
func (s *electionSim) until(limit time.Duration, ok func() bool) bool {
	for end := s.now + int64(limit); !ok(); {
		if len(s.queue) == 0 || s.queue[0].at > end {
			return false
		}
		e := heap.Pop(&s.queue).(event)
		s.now = e.at
		e.do()
	}
	return true
}

// act lets a member do what it can, and sends what it has to say.
func (s *electionSim) act(m *member) {
	if m.down {
		return
	}
	for m.turn() {
	}
	if len(m.appends) > 0 {
		s.in(s.between(0, 5*time.Millisecond), func() { // one fsync
			if m.down {
				return
			}
			m.diskHeld = false
			m.disk()
			m.diskHeld = true
			s.act(m)
		})
	}
	s.decide(m)
	msgs := s.net
	s.net = nil
	for _, msg := range msgs {
		s.send(msg)
	}
	s.trace()
}

// trace shows what happened since the last call, when that is asked for.
func (s *electionSim) trace() {
	if s.out.Len() > 0 && uint64(*electionTrace) == s.seed && s.start != 0 {
		for line := range strings.Lines(s.out.String()) {
			s.t.Logf("%6.3f  %s", time.Duration(s.now-s.start).Seconds(), strings.TrimSuffix(line, "\n"))
		}
	}
	s.out.Reset()
}

func (s *electionSim) send(msg *raftpb.Message) {
	if s.rnd.Float64() < s.loss {
		return
	}
	pair := [2]uint64{msg.GetFrom(), msg.GetTo()}
	at := max(s.now+int64(s.between(s.delay/10, s.delay)), s.arrival[pair]) // a connection keeps the order
	s.arrival[pair] = at
	s.in(time.Duration(at-s.now), func() {
		to, from := s.members[msg.GetTo()], s.members[msg.GetFrom()]
		if to.down || from.down || s.deafTo[to.id] || s.muteTo[from.id] {
			return
		}
		s.show(msg, false)
		if msg.GetType() == raftpb.MsgTimeoutNow {
			s.nodes[to.id].asked = msg.GetTerm() + 1
		}
		to.core.receive(msg)
		s.act(to)
	})
}

func (s *electionSim) tickFor(m *member) {
	s.in(m.cfg.TickInterval, func() {
		if !m.down {
			m.core.tick()
			s.act(m)
		}
		s.tickFor(m)
	})
}

// view is what ha would see. What the others report is known, even of members that have died without a sign.
func (s *electionSim) view(m *member) ha.View {
	st, me := m.pub.state.Load(), s.nodes[m.id]
	commit := m.pub.commit.Load()
	v := ha.View{Now: time.Duration(s.now), Self: m.id, Weight: me.weight, Voter: true,
		HandoverTriedTerm: me.handTerm, HandoverAt: me.handAt, HandoverTo: me.handTo,
		Raft: ha.Raft{Term: st.Term, Leader: st.Leader, IsLeader: st.Role == Leader, Commit: commit,
			LeaseUntil: time.Duration(m.pub.lease.Load()), Transferee: st.Transferee, Voters: len(s.nodes), Since: me.since,
			Asked: me.asked == st.Term}, LastOpen: s.lastOpen,
		Server: ha.Server{State: ha.ServerReady, Applied: 10000 - me.lag}}
	if !me.data {
		v.Server.State = ha.ServerAbsent
	} else if !me.ready {
		v.Server.State = ha.ServerStarting
	}
	for _, id := range s.ids() {
		if x := s.nodes[id]; id != m.id {
			v.Peers = append(v.Peers, ha.Peer{ID: id, Voter: true, Heard: st.Members[id].Answered,
				Live: !s.told[[2]uint64{m.id, id}],
				Data: x.data, Ready: x.ready, Applied: 10000 - x.lag, Weight: x.weight})
		}
	}
	return v
}

// decide carries out ha's policy for a leader that has not opened writes.
func (s *electionSim) decide(m *member) {
	x := s.nodes[m.id]
	if m.core.state.Role != Leader || x.opens == m.core.state.Term {
		return
	}
	if x.term != m.core.state.Term {
		x.term, x.since = m.core.state.Term, time.Duration(s.now)
	}
	m.core.publish()
	_, acts := ha.Decide(s.view(m))
	for _, a := range acts {
		switch a.Kind {
		case ha.HandOver:
			s.printf("%d: %s", m.id, a)
			x.handTerm, x.handAt, x.handTo = a.Term, time.Duration(s.now), a.To
			m.transfer(a.To)
			for m.turn() {
			}
		case ha.Promote:
			x.opens, s.lastOpen = a.Term, m.id
		}
	}
}

// leader is a member that a majority follows and that goes on, in a term above the one given.
func (s *electionSim) leader(above uint64) *member {
	for _, id := range s.ids() {
		m := s.members[id]
		st := m.core.stateNow()
		if m.down || st.Role != Leader || st.Term <= above || s.nodes[id].opens != st.Term {
			continue
		}
		follow := 0
		for _, o := range s.members {
			if ost := o.core.stateNow(); !o.down && ost.Leader == id && ost.Term == st.Term {
				follow++
			}
		}
		if 2*follow > len(s.members) {
			return m
		}
	}
	return nil
}

func (s *electionSim) run() time.Duration {
	for _, id := range s.ids() {
		m := s.members[id]
		s.in(s.between(0, m.cfg.TickInterval), func() { s.tickFor(m) })
	}
	s.members[1].core.campaign() // raft's own timeouts would not be the seed's
	s.act(s.members[1])
	if !s.until(20*simTimeout, func() bool { return s.leader(0) != nil }) {
		s.t.Fatalf("seed %d: %s: no first leader", s.seed, s)
	}
	s.load()
	s.until(s.between(2*simTimeout, 4*simTimeout), func() bool { return false })
	old := s.leader(0)
	if old == nil { // the network is as bad as that: the election to come is what is measured
		s.until(20*simTimeout, func() bool { old = s.leader(0); return old != nil })
	}
	s.start = s.now
	s.printf("leader %d is lost: %s", old.id, s)
	term := s.inject(old)
	began := s.now
	s.start = began
	if !s.until(20*simTimeout, func() bool { return s.leader(term) != nil }) {
		s.t.Fatalf("seed %d: %s: no leader within 20 election timeouts", s.seed, s)
	}
	took := time.Duration(s.now - began)
	s.settled(s.leader(term))
	return took
}

// load keeps the logs growing, and differing.
func (s *electionSim) load() {
	s.in(s.between(0, 60*time.Millisecond), func() {
		s.propose()
		for _, id := range s.ids() {
			s.act(s.members[id])
		}
		s.load()
	})
}

// inject loses the leader, and returns the term that is over.
func (s *electionSim) inject(old *member) uint64 {
	term := old.core.stateNow().Term
	second := s.second(old)
	switch s.fault {
	case processDies:
		s.die(old)
	case hostSilent:
		old.down = true
	case cutOff:
		s.deafTo[old.id], s.muteTo[old.id] = true, true
	case deaf:
		s.deafTo[old.id] = true
	case mute:
		s.muteTo[old.id] = true
	case twoDie:
		s.die(old)
		s.die(second)
	case twoSilent:
		old.down, second.down = true, true
	case successorDies:
		old.down = true
		var next *member
		s.until(20*simTimeout, func() bool {
			for _, id := range s.ids() {
				m := s.members[id]
				if st := m.core.stateNow(); !m.down && (st.Role == Candidate || st.Role == Leader && st.Term > term) {
					next = m
				}
			}
			return next != nil
		})
		second, term = next, next.core.stateNow().Term
		next.down = true
	}
	if len(s.members) == 3 && second.down {
		// Without it there is no quorum. Its log comes back, and it has missed what happened meanwhile.
		s.in(200*time.Millisecond, func() {
			s.restart(second)
			for pair := range s.told {
				if pair[0] == second.id || pair[1] == second.id {
					delete(s.told, pair)
				}
			}
			m := s.members[second.id]
			m.diskHeld, m.cfg.HeartbeatTicks = true, 1
			m.cfg.CampaignDelay = func(lost uint64) time.Duration { return ha.CampaignDelay(s.view(m), lost) }
			s.tickFor(m)
		})
		s.until(200*time.Millisecond, func() bool { return false })
	}
	return term
}

// second is the voter that ranks first among the others.
func (s *electionSim) second(old *member) *member {
	var best *member
	first := time.Duration(1 << 62)
	for _, id := range s.ids() {
		if id == old.id {
			continue
		}
		if d := ha.CampaignDelay(s.view(s.members[id]), old.id); d < first {
			best, first = s.members[id], d
		}
	}
	return best
}

// die ends a process; the others' redials are refused.
func (s *electionSim) die(m *member) {
	m.down = true
	for _, id := range s.ids() {
		if o := s.members[id]; id != m.id {
			s.in(s.between(s.delay/5, 2*s.delay), func() {
				if !o.down && s.members[m.id].down {
					s.told[[2]uint64{o.id, m.id}] = true
					o.core.peerGone(m.id)
					s.act(o)
				}
			})
		}
	}
}

// settled checks that what was committed is what the leader has, and that only one leads.
func (s *electionSim) settled(l *member) {
	s.check()
	for index, e := range s.committed {
		term, err := l.store.Term(index)
		if err != nil || term != e.GetTerm() {
			s.t.Fatalf("seed %d: %s: entry %d/%d is committed and not in the log of leader %d (%d, %v)", s.seed, s, e.GetTerm(),
				index, l.id, term, err)
		}
	}
	if s.accepted == 0 || len(s.committed) < 3 {
		s.t.Fatalf("seed %d: only %d proposals, %d entries: the test does not test", s.seed, s.accepted, len(s.committed))
	}
}

// threeVoters are started and have no leader.
func threeVoters(t *testing.T) *env {
	t.Helper()
	e := newEnv(t)
	for id := uint64(1); id <= 3; id++ {
		if err := e.start(id, newMemStore(1, 2, 3), nil); err != nil {
			t.Fatal(err)
		}
	}
	return e
}

// TestNewLeaderIsKept: the first message of a new leader is answered, and its lease may rest on that answer. A tick
// right after it, before raft's state is read, must not count the long silence of the old leader as silence of the new
// one.
func TestNewLeaderIsKept(t *testing.T) {
	e := threeVoters(t)
	e.members[1].core.campaign()
	e.settle()
	m := e.members[2]
	e.tick([]uint64{2}, m.cfg.ElectionTicks)
	beat := &raftpb.Message{Type: raftpb.MsgHeartbeat.Enum(), From: new(uint64(3)), To: new(uint64(2)),
		Term: new(uint64(2))}
	m.core.receive(beat)
	m.core.tick()
	if st := m.core.stateNow(); st.Leader != 3 || st.Term != 2 {
		t.Fatalf("a new leader was forgotten: %+v", st)
	}
}

// TestReadIndexIsNotPassedOn: a question that reaches a node which does not lead any more must not go on to the leader
// in the asker's name.
func TestReadIndexIsNotPassedOn(t *testing.T) {
	e := threeVoters(t)
	e.members[1].core.campaign()
	e.settle()
	e.askInVain(t, 2, 3)
}

// askInVain has a member get a question from another one, which it must not pass on.
func (e *env) askInVain(t *testing.T, id, from uint64) {
	t.Helper()
	m := e.members[id]
	m.core.receive(&raftpb.Message{Type: raftpb.MsgReadIndex.Enum(), From: new(from), To: new(id),
		Entries: []*raftpb.Entry{{Data: []byte("question")}}})
	m.turn()
	for _, msg := range e.net {
		if msg.GetFrom() != id {
			t.Errorf("%d sends %v", id, msg)
		}
	}
}

// TestReadIndexInTheTurnOfALoss: nor one that comes in the turn in which it hears of the leader that follows it.
func TestReadIndexInTheTurnOfALoss(t *testing.T) {
	e := threeVoters(t)
	e.members[1].core.campaign()
	e.settle()
	m := e.members[1]
	m.core.receive(&raftpb.Message{Type: raftpb.MsgHeartbeat.Enum(), From: new(uint64(3)), To: new(uint64(1)),
		Term: new(m.core.state.Term + 1)})
	e.askInVain(t, 1, 2)
}

// TestLeastTimeout: a lease ends before the first voter that has a shorter election timeout would vote for another
// (S10).
func TestLeastTimeout(t *testing.T) {
	e := threeVoters(t)
	m := e.members[1]
	m.pub.leastTimeout.Store(int64(300 * time.Millisecond))
	m.core.campaign()
	e.settle()
	e.tick(e.ids(), 2*m.cfg.HeartbeatTicks)
	if left := time.Duration(m.pub.lease.Load() - e.now); left <= 0 || left > 240*time.Millisecond {
		t.Fatalf("the lease has %v left", left)
	}
}

// TestRestartedVoterKeepsItsPromise: a leader's lease counts on what a voter answered before it died, and the voter may
// be back before the leader knows of its death. For an election timeout the voter votes for no candidate, not even
// itself; it votes at once for the member to which the leader hands over.
func TestRestartedVoterKeepsItsPromise(t *testing.T) {
	e := threeVoters(t)
	e.members[1].core.campaign()
	e.settle()
	e.tick(e.ids(), 2*e.members[1].cfg.HeartbeatTicks)
	if e.members[1].pub.lease.Load() <= e.now {
		t.Fatal("1 holds no lease")
	}

	// 3 loses its leader, truly or not; 2 answered that leader's last round and restarts.
	e.cut[1] = true
	if err := e.start(2, e.members[2].store.crash(), nil); err != nil {
		t.Fatal(err)
	}
	e.members[3].core.peerGone(1)
	e.members[2].core.campaign()
	e.tick([]uint64{2, 3}, e.members[2].cfg.ElectionTicks-e.members[2].cfg.HeartbeatTicks)
	for _, id := range []uint64{2, 3} {
		if st := e.members[id].core.stateNow(); st.Role == Leader || st.Term > 1 {
			t.Fatalf("%d, while 1 may hold a lease: %+v", id, st)
		}
	}
	e.tick([]uint64{2, 3}, 2*e.members[2].cfg.ElectionTicks)
	if a, b := e.members[2].core.stateNow(), e.members[3].core.stateNow(); a.Leader == 0 || a.Leader == 1 ||
		a.Leader != b.Leader {
		t.Fatalf("no new leader: %+v %+v", a, b)
	}
}

// A voter without answers asks each of the others, and sends no more than that, however often raft itself starts a
// campaign.
func TestAskedIsBounded(t *testing.T) {
	e := threeVoters(t)
	e.members[2].down, e.members[3].down = true, true
	for range 1000 {
		e.tick([]uint64{1}, 1)
		if n := len(e.members[1].core.elections.asked); n > 2 {
			t.Fatalf("%d requests are repeated", n)
		}
	}
	if e.members[1].core.state.Role != Candidate {
		t.Fatal("it does not ask")
	}
}

// TestLostLeaderThatIsBack: of five voters two are dead, so that the other three are needed. A leader that was cut off
// from them for a while is one of them: it and those who lost it must not split the votes forever.
func TestLostLeaderThatIsBack(t *testing.T) {
	voters := []uint64{1, 2, 3, 4, 5}
	for _, leader := range voters {
		for _, dead := range [][]uint64{{1, 2}, {1, 3}, {1, 4}, {1, 5}, {2, 3}, {2, 4}, {2, 5}, {3, 4}, {3, 5}, {4, 5}} {
			for _, cut := range []int{5, 9, 13, 17, 21, 25} {
				if slices.Contains(dead, leader) {
					continue
				}
				e := newEnv(t)
				e.timers = rand.New(rand.NewPCG(1, uint64(cut)))
				for _, id := range voters {
					if err := e.start(id, newMemStore(voters...), nil); err != nil {
						t.Fatal(err)
					}
				}
				e.members[leader].core.campaign()
				e.settle()
				e.tick(voters, 3)
				for _, id := range dead {
					e.members[id].down = true
				}
				e.cut[leader] = true
				e.tick(voters, cut)
				e.cut[leader] = false
				e.tick(voters, 4*e.members[leader].cfg.ElectionTicks)
				leads := slices.ContainsFunc(voters, func(id uint64) bool {
					return !slices.Contains(dead, id) && e.members[id].core.committedInTerm()
				})
				if !leads {
					t.Errorf("%d led, %v are dead: no member leads %d ticks after it is back from %d", leader, dead,
						4*e.members[leader].cfg.ElectionTicks, cut)
				}
			}
		}
	}
}

// Whom a transfer that was given up asked to take over is not asked again by the next one.
func TestTransferAsksItsTarget(t *testing.T) {
	e := threeVoters(t)
	lead := e.members[1]
	lead.core.campaign()
	e.settle()
	e.members[2].down = true
	failed := errors.New("not yet")
	lead.core.startTransfer(&transfer{to: 2, done: func(err error) { failed = err }})
	e.settle()
	e.tick([]uint64{1, 3}, lead.cfg.ElectionTicks+3)
	if !errors.Is(failed, ErrTransferFailed) {
		t.Fatal(failed)
	}
	lead.transfer(3)
	lead.turn()
	if asked := lead.core.elections.asked; len(asked) != 1 || asked[0].GetTo() != 3 {
		t.Fatalf("asked: %v", asked)
	}
}
