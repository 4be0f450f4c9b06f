package sim

import (
	"time"

	"go.etcd.io/raft/v3/raftpb"

	"trireme/internal/core/transport"
)

// network is what lies between the nodes. Faults add to it and take away what they added: several may last.
type network struct {
	cuts    [][]int // by sender and receiver: faults that cut this direction
	since   [][]int64
	last    [][2][]int64 // by sender, stream and receiver: arrival of the last message
	base    time.Duration
	spread  time.Duration
	delay   time.Duration // more of it, by faults
	loss    int           // of 1000
	double  int           // of 1000
	reorder int           // faults that let messages overtake each other
}

func (t *network) grow(n int) {
	for i := range t.cuts {
		t.cuts[i] = append(t.cuts[i], 0)
		t.since[i] = append(t.since[i], 0)
		t.last[i][0], t.last[i][1] = append(t.last[i][0], 0), append(t.last[i][1], 0)
	}
	t.cuts = append(t.cuts, make([]int, n))
	t.since = append(t.since, make([]int64, n))
	t.last = append(t.last, [2][]int64{make([]int64, n), make([]int64, n)})
}

// cut reports whether nothing gets from one node to another.
func (t *network) cut(from, to uint64) bool { return t.cuts[from-1][to-1] > 0 }

func (t *network) addCut(now int64, from, to uint64, n int) {
	t.cuts[from-1][to-1] += n
	t.since[from-1][to-1] = now
}

// noticed is how long a cut lasts before the sender's connection counts as broken.
const noticed = 800 * time.Millisecond

// oldestTransfer is how old a message that hands leadership over can be when it arrives. For how long it waits at a
// stopped process is no affair of the network's.
const oldestTransfer = electionTimeout

func (t *network) latency(w *World) time.Duration {
	d := t.base + time.Duration(w.rnd.Int64N(int64(t.spread)+1))
	if t.delay > 0 {
		d += time.Duration(w.rnd.Int64N(int64(t.delay)))
	}
	return d
}

// arrival is when what is sent now arrives, after everything sent before on the same stream unless they may overtake.
func (w *World) arrival(from, to uint64, stream int) time.Duration {
	d := w.net.latency(w)
	if w.net.reorder > 0 {
		return d
	}
	last := &w.net.last[from-1][stream][to-1]
	at := max(w.now+int64(d), *last+1)
	*last = at
	return time.Duration(at - w.now)
}

// send is consensus's Config.Send.
func (n *Node) send(messages []*raftpb.Message) {
	for _, m := range messages {
		m = n.lie(m)
		n.w.check.sent(n, m)
		n.post(m)
	}
}

func (n *Node) post(m *raftpb.Message) {
	w := n.w
	to := w.Node(m.GetTo())
	w.count(cMessages)
	if to == nil || !to.up || w.net.cut(n.ID, to.ID) {
		w.count(cLostMessages)
		refused := to == nil || !to.up || w.now-w.net.since[n.ID-1][to.ID-1] > int64(noticed)
		if refused {
			n.unreachable(m)
		} else if m.GetType() == raftpb.MsgSnap {
			n.reportSnapshot(m.GetTo(), false)
		}
		return
	}
	if n.parted(to) {
		w.count(cLostMessages)
		n.unreachable(m)
		return
	}
	frame, err := transport.EncodeFrame(m)
	if err != nil {
		w.Violate("framing", "node %d cannot encode %s: %v", n.ID, m.GetType(), err)
		return
	}
	stream := 0
	if transport.IsBulk(m) {
		stream = 1
	}
	if w.net.loss > 0 && w.rnd.IntN(1000) < w.net.loss {
		w.count(cLostMessages)
		if m.GetType() == raftpb.MsgSnap {
			n.reportSnapshot(m.GetTo(), false)
		}
		return
	}
	if w.opts.broken.frames && len(frame)%50 == 7 {
		frame[4+w.rnd.IntN(4)] ^= 0x40
	}
	copies := 1
	if w.net.double > 0 && w.rnd.IntN(1000) < w.net.double {
		copies = 2
	}
	for range copies {
		n.deliverLater(to, m, frame, w.arrival(n.ID, to.ID, stream))
	}
}

// deliverLater lets a frame arrive; what is on its way dies with the receiver's life, or with the link.
func (n *Node) deliverLater(to *Node, m *raftpb.Message, frame []byte, d time.Duration) {
	w, sent, kind, life := n.w, n.w.now, m.GetType(), to.life
	w.At(d, func() {
		late := kind == raftpb.MsgTimeoutNow && w.now-sent > int64(oldestTransfer)
		if to.life != life || w.net.cut(n.ID, to.ID) || late {
			w.count(cLostMessages)
			if kind == raftpb.MsgSnap {
				n.reportSnapshot(to.ID, false)
			}
			return
		}
		to.run(life, func() {
			to.receive(n, frame)
			if kind == raftpb.MsgSnap {
				n.reportSnapshot(to.ID, true)
			}
		})
	})
}

// receive takes a frame from another node.
func (n *Node) receive(from *Node, frame []byte) {
	m, err := transport.DecodeFrame(from.ID, n.ID, frame)
	if err != nil {
		n.w.Violate("framing", "node %d cannot decode what %d sent: %v", n.ID, from.ID, err)
		return
	}
	n.w.note(5, n.ID, from.ID, uint64(m.GetType()), m.GetTerm(), m.GetIndex(), m.GetCommit())
	if n.w.opts.Trace {
		n.w.traceMessage(m)
	}
	if m.GetType() == raftpb.MsgTimeoutNow {
		n.top.Asked(m.GetTerm())
	}
	if n.top.Takes(from.ID) {
		n.st.Step(m)
		n.wake()
	}
}

// redial is how often nodes of two generations try to have a connection.
const redial = 300 * time.Millisecond

// parted reports whether two nodes are of different generations: they tell each other theirs (transport's hello and
// welcome), and nothing else.
func (n *Node) parted(to *Node) bool {
	if n.generation.Number == to.generation.Number && n.generation.ID == to.generation.ID {
		return false
	}
	w := n.w
	if w.sql.broken("generations mix") {
		return false
	}
	if w.now < n.met[to.ID] || w.net.cut(n.ID, to.ID) || w.net.cut(to.ID, n.ID) {
		return true
	}
	n.met[to.ID] = w.now + int64(redial)
	life, other, mine, theirs := n.life, to.life, n.generation, to.generation
	w.At(w.arrival(n.ID, to.ID, 0), func() { to.run(other, func() { to.top.OtherGeneration(n.ID, mine) }) })
	w.At(2*w.arrival(to.ID, n.ID, 0), func() { n.run(life, func() { n.top.OtherGeneration(to.ID, theirs) }) })
	return true
}

func (n *Node) unreachable(m *raftpb.Message) {
	to, snap := m.GetTo(), m.GetType() == raftpb.MsgSnap
	n.in(0, func() {
		n.st.ReportUnreachable(to)
		if snap {
			n.st.ReportSnapshot(to, false)
		}
		n.wake()
	})
}

func (n *Node) reportSnapshot(to uint64, ok bool) {
	n.in(time.Millisecond, func() {
		n.st.ReportSnapshot(to, ok)
		n.wake()
	})
}

// Tell sends something to the Top of another node, over the same network as raft's messages.
func (n *Node) Tell(to uint64, what any) {
	w, m := n.w, n.w.Node(to)
	if m == nil || !m.up || w.net.cut(n.ID, to) || n.parted(m) || w.net.loss > 0 && w.rnd.IntN(1000) < w.net.loss {
		return
	}
	life := m.life
	w.At(w.arrival(n.ID, to, 0), func() {
		if m.life == life && !w.net.cut(n.ID, to) {
			m.run(life, func() {
				m.top.Told(n.ID, what)
				m.wake()
			})
		}
	})
}

func (w *World) traceMessage(m *raftpb.Message) {
	t := m.GetType()
	if t == raftpb.MsgHeartbeat || t == raftpb.MsgHeartbeatResp {
		return
	}
	verdict := ""
	if m.GetReject() {
		verdict = " reject"
	}
	w.Tracef("  %d>%d %s term=%d at=%d/%d entries=%d commit=%d%s", m.GetFrom(), m.GetTo(), t, m.GetTerm(), m.GetLogTerm(),
		m.GetIndex(), len(m.GetEntries()), m.GetCommit(), verdict)
}
