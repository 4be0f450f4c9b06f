package ledger

import (
	"errors"
	"fmt"

	"trireme/internal/core/raftlog"
	"trireme/internal/mysql/binlog"
	"trireme/internal/mysql/gtid"
)

// Leadership is the time in which one incarnation serves writes in one term: a client's connection to a leader lasts no
// longer.
type Leadership struct {
	Node        uint16
	Incarnation uint64
	Term        uint64
}

// String gives "incarnation 3 of node 1 in term 7".
func (r Leadership) String() string {
	return fmt.Sprintf("incarnation %d of node %d in term %d", r.Incarnation, r.Node, r.Term)
}

// begins reports whether b is a barrier of the leadership.
func (r Leadership) begins(b Barrier) bool {
	return r == Leadership{Node: b.Node, Incarnation: b.Incarnation, Term: b.Term}
}

// endedBy reports that no transaction of the leadership can be committed after b (S6). A term has one leader; its mysqld
// may restart within the term if the leader is the only voter.
func (r Leadership) endedBy(b Barrier) bool {
	return b.Term > r.Term || b.Term == r.Term && b.Node == r.Node && b.Incarnation > r.Incarnation
}

// Span is where the transactions of a leadership lie in the log: after Begin and, once End is not 0, below End. All
// commits up to Seen are known here.
type Span struct {
	Begin, End, Seen uint64
}

// Errors of Span.
var (
	// ErrNotYet: the leadership's barrier is not committed as far as this node knows. Wait.
	ErrNotYet = errors.New("ledger: this leadership is not known here yet")
	// ErrForgotten: the leadership is older than what is remembered.
	ErrForgotten = errors.New("ledger: this leadership is longer ago than what is remembered")
	// ErrNoLeadership: another node led in that term, or none.
	ErrNoLeadership = errors.New("ledger: there was no such leadership")
)

// Span finds a leadership, and a channel that is closed when more is known of the log. The errors are ErrNotYet,
// ErrForgotten and ErrNoLeadership.
func (l *Ledger) Span(r Leadership) (Span, <-chan struct{}, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	s := Span{Seen: l.index}
	for _, b := range l.barriers {
		switch {
		case s.Begin == 0 && r.begins(b):
			s.Begin = b.Index
		case s.Begin != 0 && r.endedBy(b):
			s.End = b.Index
			return s, l.changed, nil
		}
	}
	switch {
	case s.Begin != 0:
		return s, l.changed, nil
	case !r.endedBy(l.barrier):
		return s, l.changed, fmt.Errorf("%w: %v", ErrNotYet, r)
	case l.barriers[0].Term >= r.Term:
		return s, l.changed, fmt.Errorf("%w: %v", ErrForgotten, r)
	}
	return s, l.changed, fmt.Errorf("%w: %v", ErrNoLeadership, r)
}

// ThreadTrx is a committed transaction of one connection of a leadership.
type ThreadTrx struct {
	Index uint64
	GTID  gtid.GTID
	// Undone: its last event is a ROLLBACK; what of it took effect is not known.
	Undone bool
}

// Tail is the committed transactions of one leadership from some index on, by the connection that ran them. It is not
// safe for concurrent use.
type Tail struct {
	Leadership Leadership
	From       uint64 // first index that was read
	Next       uint64 // the index to read next

	walker  Walker
	threads map[uint32][]ThreadTrx
	count   int
}

// maxTail bounds a Tail's transactions.
const maxTail = 1 << 17

// ErrTailTooLong: after the tail's beginning lie more transactions than a Tail takes.
var ErrTailTooLong = fmt.Errorf("ledger: more than %d transactions to be looked through", maxTail)

// NewTail begins at an index after the leadership's barrier. A transaction whose first piece lies below the index is
// skipped.
func NewTail(r Leadership, from uint64) *Tail {
	return &Tail{Leadership: r, From: from, Next: from, walker: Walker{Plain: true}, threads: map[uint32][]ThreadTrx{}}
}

// Add takes the next entry that has a meta. Events that cannot be read, which the log's checks do not let in, are an
// error.
func (t *Tail) Add(m *raftlog.Meta, index, term uint64, events []byte) error {
	t.Next = index + 1
	if m.Kind == raftlog.Trx && (Leadership{Node: m.Node, Incarnation: m.Incarnation, Term: term}) != t.Leadership {
		return nil
	}
	return t.walker.Walk(m, index, events, func(b binlog.Boundary, _ binlog.Header, _ []byte) error {
		if b != binlog.End {
			return nil
		}
		if t.count++; t.count > maxTail {
			return ErrTailTooLong
		}
		x := t.walker.Asm.Trx()
		t.threads[x.ThreadID] = append(t.threads[x.ThreadID],
			ThreadTrx{Index: index, GTID: x.GTID, Undone: x.Kind == binlog.RowsRollback})
		return nil
	})
}

// Of returns, in log order, what a connection committed at or above from and after the transaction after. A zero after,
// or one that is not in the log, is below all of them.
func (t *Tail) Of(thread uint32, from uint64, after gtid.GTID) []ThreadTrx {
	list := t.threads[thread]
	for len(list) > 0 && list[0].Index < from {
		list = list[1:]
	}
	for i, x := range list {
		if x.GTID == after {
			return list[i+1:]
		}
	}
	return list
}

// Contains reports whether a transaction is committed as far as this node knows.
func (l *Ledger) Contains(g gtid.GTID) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.committed.Contains(g)
}
