package consensus

import (
	"maps"
	"slices"
	"time"

	"go.etcd.io/raft/v3/raftpb"
)

// commitOnlyDelay is how long a message that tells a peer nothing but a new commit index may wait for entries to travel
// with. A session that commits one transaction after the other then costs each peer one message per commit instead of
// two, and one acknowledgement instead of two. A peer's mysqld applies at most that much later. No commit waits for
// such a message, because the leader answers its own mysqld.
const commitOnlyDelay = 4 * time.Millisecond

// commitOnlyAppends holds back messages that carry a commit index only. It belongs to the loop.
type commitOnlyAppends struct {
	sent map[uint64]sentTo          // by peer: what it was told last
	held map[uint64]*raftpb.Message // by peer: the newest notice that waits
	out  []*raftpb.Message
}

// sentTo is the last entry sent to a peer and the commit index that went with it.
type sentTo struct{ term, index, commit uint64 }

func newCommitOnlyAppends() commitOnlyAppends {
	return commitOnlyAppends{sent: map[uint64]sentTo{}, held: map[uint64]*raftpb.Message{}}
}

// filter returns the messages to send now. Only messages that do nothing but announce a commit index wait; entries,
// probes, answers and heartbeats go at once.
func (n *commitOnlyAppends) filter(msgs []*raftpb.Message) []*raftpb.Message {
	n.out = n.out[:0]
	for _, m := range msgs {
		if m.GetType() != raftpb.MsgApp {
			n.out = append(n.out, m)
			continue
		}
		to, last := m.GetTo(), n.sent[m.GetTo()]
		k := len(m.GetEntries())
		if k == 0 && m.GetTerm() == last.term && m.GetIndex() == last.index && m.GetCommit() > last.commit {
			n.held[to] = m
			continue
		}
		delete(n.held, to)
		next := sentTo{term: m.GetTerm(), index: m.GetIndex(), commit: m.GetCommit()}
		if k > 0 {
			next.index = m.GetEntries()[k-1].GetIndex()
		}
		n.sent[to] = next
		n.out = append(n.out, m)
	}
	return n.out
}

// flush returns the held messages; those of an earlier leadership are dropped.
func (n *commitOnlyAppends) flush(s State) []*raftpb.Message {
	n.out = n.out[:0]
	for _, to := range slices.Sorted(maps.Keys(n.held)) {
		m := n.held[to]
		if s.Role == Leader && m.GetTerm() == s.Term {
			n.sent[to] = sentTo{term: m.GetTerm(), index: m.GetIndex(), commit: m.GetCommit()}
			n.out = append(n.out, m)
		}
		delete(n.held, to)
	}
	return n.out
}
