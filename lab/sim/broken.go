package sim

import (
	"time"

	"go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"
)

// broken makes nodes do what they must never do, so that tests see that the checks notice. The zero value breaks
// nothing.
type broken struct {
	sync    bool    // a sync does nothing and says it has
	vote    bool    // votes are kept in memory only
	twice   bool    // votes that are refused are granted on the wire
	blind   bool    // only those that are refused because the candidate's log is shorter
	entries bool    // every hundredth entry is written with other bytes
	deliver bool    // every hundredth entry is delivered with other bytes
	reads   bool    // read indexes are answered with older ones
	acks    bool    // an answer claims one entry more than was written
	clock   float64 // how much faster or slower than they may clocks run
	frames  bool    // bytes change under way
	heal    bool    // cuts stay
	gone    bool    // again and again all are told that the leader's process is gone, and it is not
	leases  bool    // S10 is not looked at, to see what else is broken
}

// slander lets everybody but the leader hear again and again that its process is gone, as one who can reset connections
// in its name would.
func (w *World) slander() {
	if w.now >= w.load.until {
		return
	}
	if l := w.Leader(); l != nil {
		for _, m := range w.nodes {
			if m != l && m.up {
				m.in(time.Duration(w.rnd.IntN(5))*time.Millisecond, func() {
					m.st.PeerGone(l.ID)
					m.wake()
				})
			}
		}
	}
	w.At(time.Duration(200+w.rnd.IntN(1000))*time.Millisecond, w.slander)
}

// garbled is e, or every hundredth time something else.
func garbled(e *raftpb.Entry) *raftpb.Entry {
	if e.GetIndex()%100 != 37 || len(e.GetData()) < 8 || e.GetType() != raftpb.EntryNormal {
		return e
	}
	e = proto.Clone(e).(*raftpb.Entry)
	e.Data[len(e.Data)-1] ^= 1
	return e
}

// garbleAll is a copy of entries, garbled.
func garbleAll(entries []*raftpb.Entry) []*raftpb.Entry {
	out := make([]*raftpb.Entry, len(entries))
	for i, e := range entries {
		out[i] = garbled(e)
	}
	return out
}

// lie changes a message that a node sends.
func (n *Node) lie(m *raftpb.Message) *raftpb.Message {
	b, t := &n.w.opts.broken, m.GetType()
	voted, ok := n.w.check.votes[vote{n.ID, m.GetTerm()}]
	grants := b.twice || b.blind && (!ok || voted == m.GetTo()) && n.status.Vote != n.ID
	switch {
	case grants && m.GetReject() && (t == raftpb.MsgVoteResp || t == raftpb.MsgPreVoteResp):
		m = proto.Clone(m).(*raftpb.Message)
		m.Reject = new(false)
	case b.reads && t == raftpb.MsgReadIndexResp && m.GetIndex() > 5:
		m = proto.Clone(m).(*raftpb.Message)
		m.Index = new(m.GetIndex() - 5)
	case b.acks && t == raftpb.MsgAppResp && !m.GetReject():
		m = proto.Clone(m).(*raftpb.Message)
		m.Index = new(m.GetIndex() + 1)
	}
	return m
}
