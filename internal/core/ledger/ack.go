package ledger

import "trireme/internal/core/raftlog"

// Ack is what an acknowledgement rests on: the life of mysqld that runs now, the term in which it serves, and raft's
// term, read after the entry was committed.
type Ack struct {
	Node        uint64
	Incarnation uint64
	Serving     uint64 // the one term in which that incarnation serves; 0: none
	Term        uint64
}

// Allows reports whether the end position in a committed entry may be acknowledged to mysqld: only in the term that
// proposed it, and only to the incarnation that wrote it (S1).
func (a Ack) Allows(entryTerm uint64, m *raftlog.Meta) bool {
	return uint64(m.Node) == a.Node && m.Incarnation == a.Incarnation && entryTerm == a.Serving && entryTerm == a.Term
}
