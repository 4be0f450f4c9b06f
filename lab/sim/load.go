package sim

import (
	"encoding/binary"
	"time"

	"go.etcd.io/raft/v3/raftpb"

	"trireme/internal/core/consensus"
	"trireme/internal/core/transport"
)

// load is the work that clients give to the cluster, when no other Top brings its own.
type load struct {
	next  uint64 // number of the next proposal
	until int64
	acked []uint64 // indexes of acknowledged entries, as they came
}

// plain is the Top that goes with load.
type plain struct {
	oneGeneration
	n       *Node
	pending map[uint64]proposed // accepted in this life, by index
	applied uint64
}

type proposed struct{ term, sum uint64 }

func newPlain(n *Node) Top { return &plain{n: n} }

// oneGeneration is of Tops whose clusters have one.
type oneGeneration struct{}

// Opening and the next ones implement Top.
func (oneGeneration) Opening() error                               { return nil }
func (oneGeneration) LogOpened() error                             { return nil }
func (oneGeneration) Generation() (g transport.Generation)         { return g }
func (oneGeneration) OtherGeneration(uint64, transport.Generation) {}
func (oneGeneration) Takes(uint64) bool                            { return true }

// Start begins at the newest place from which the log is needed, or at its beginning.
func (p *plain) Start() (applied uint64, err error) {
	p.pending, p.applied = map[uint64]proposed{}, 0
	if hs, _, err := p.n.log.InitialState(); err == nil && hs != nil && p.n.w.rnd.IntN(2) == 0 {
		p.applied = p.n.log.BoundaryAt(hs.GetCommit()).Index
	}
	return p.applied, nil
}

// Committed acknowledges what this node has proposed in the term that it was proposed in.
func (p *plain) Committed(entries []*raftpb.Entry) {
	for _, e := range entries {
		p.applied = e.GetIndex()
		q, ok := p.pending[e.GetIndex()]
		if !ok {
			continue
		}
		delete(p.pending, e.GetIndex())
		if q.term != e.GetTerm() {
			continue // another leader's
		}
		if q.sum != sumOf(e) {
			p.n.w.Violate("S1", "entry %d of term %d is not what node %d proposed there", e.GetIndex(), q.term, p.n.ID)
		}
		p.n.w.load.acked = append(p.n.w.load.acked, e.GetIndex())
		p.n.w.count(cAcknowledged)
	}
}

func (p *plain) Snapshot(s *raftpb.Snapshot)  { p.applied = s.GetMetadata().GetIndex() }
func (p *plain) Matched(consensus.Matches)    {}
func (p *plain) State(consensus.State)        {}
func (p *plain) Asked(uint64)                 {}
func (p *plain) PeerGone(uint64)              {}
func (p *plain) Told(uint64, any)             {}
func (p *plain) Crash(bool)                   { p.pending = nil }
func (p *plain) PurgeBelow() uint64           { return p.applied }
func (p *plain) MayChange(_, _ []uint64) bool { return true }

// CampaignDelay lets the lower ids go first.
func (p *plain) CampaignDelay(lost uint64) time.Duration {
	place := 0
	for _, id := range p.n.status.Voters {
		if id < p.n.ID && id != lost {
			place++
		}
	}
	return time.Duration(place) * heartbeatTicks * tickInterval
}

// Finish: every member has everything that was acknowledged.
func (p *plain) Finish() {
	for _, at := range p.n.w.load.acked {
		if p.applied < at {
			p.n.w.Violate("acknowledged entries", "entry %d was acknowledged, and node %d has applied up to %d at the end", at,
				p.n.ID, p.applied)
			return
		}
	}
}

// startLoad lets clients come.
func (w *World) startLoad() {
	if w.opts.Top != nil || w.now >= w.load.until {
		return
	}
	gap := time.Duration(5+w.rnd.IntN(120)) * time.Millisecond
	if w.rnd.IntN(10) == 0 {
		gap = time.Duration(w.rnd.IntN(500)) * time.Microsecond
	}
	w.At(gap, func() {
		w.client()
		w.startLoad()
	})
}

// client does one thing on one node.
func (w *World) client() {
	n := w.anyUp()
	if n == nil {
		return
	}
	switch k := w.rnd.IntN(20); {
	case k < 3:
		n.ReadIndex(func(uint64) {})
	case k < 5:
		n.leaseRead()
	default:
		if l := w.Leader(); l != nil && w.rnd.IntN(8) > 0 {
			n = l
		}
		for range 1 + w.rnd.IntN(3) {
			n.propose()
		}
	}
}

// anyUp picks a node that runs, nil if no node runs.
func (w *World) anyUp() *Node {
	k := w.rnd.IntN(len(w.nodes))
	for i := range w.nodes {
		if n := w.nodes[(k+i)%len(w.nodes)]; n.up && !n.paused {
			return n
		}
	}
	return nil
}

// leaseRead is a read on the leader without a round of messages: it checks the lease after the result is ready (S10).
func (n *Node) leaseRead() {
	if !n.HoldsLease() {
		return
	}
	known, life := n.w.check.commit, n.life
	result := n.status.Commit
	n.in(time.Duration(n.w.rnd.IntN(3000))*time.Microsecond, func() {
		if n.life != life || !n.HoldsLease() {
			return
		}
		n.w.count(cLeaseReads)
		if result < known && !n.w.opts.broken.leases {
			n.w.Violate("S10", "node %d answers a read with what was committed at %d, and %d had been committed when it came",
				n.ID, result, known)
		}
	})
}

func (n *Node) propose() {
	w := n.w
	w.load.next++
	size := 8 + w.rnd.IntN(100)
	if w.rnd.IntN(30) == 0 {
		size = 8 + w.rnd.IntN(3000)
	}
	data := make([]byte, size)
	for i := range data {
		data[i] = byte(0x80 | i)
	}
	binary.BigEndian.PutUint64(data, w.load.next|1<<63) // no meta begins like this: the log keeps it as it is
	term := uint64(0)
	if w.rnd.IntN(2) == 0 {
		term = n.status.Term
	}
	sum := sumOf(&raftpb.Entry{Data: data})
	p, _ := n.top.(*plain)
	n.Propose(term, data, func(index, term uint64, err error) {
		if err != nil || p == nil || p.pending == nil {
			return
		}
		w.count(cAccepted)
		if p.applied < index {
			p.pending[index] = proposed{term, sum}
		}
	})
}
