package ledger

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"trireme/internal/base/rule"
	"trireme/internal/base/run"
	"trireme/internal/core/raftlog"
	"trireme/internal/mysql/gtid"
)

// Ledger is what this node knows of the committed log: it sees every committed entry once, in order, and keeps the set
// of GTIDs, the newest barrier and what this node's mysqld has still to apply. It asserts S12: no GTID twice, no gap in
// a stream.
type Ledger struct {
	mu        sync.Mutex
	changed   chan struct{} // closed and replaced whenever index grows
	index     uint64
	committed gtid.Set
	barrier   Barrier
	end       raftlog.Pos // end of the newest entry of barrier's incarnation
	open      bool        // that entry does not end its transaction
	joined    bool        // end and open are known
	pieces    int64       // bytes of the transaction under way, in entries before this one
	whole     uint64      // newest entry after which no transaction is under way, as far as is known
	pending   []Mark      // not yet seen as executed, in log order
	barriers  []Barrier   // the newest, oldest first; at most maxBarriers
}

// maxBarriers bounds what a question about an earlier leader can go back to.
const maxBarriers = 64

// Barrier identifies the barrier entry of one leadership (S6).
type Barrier struct {
	Index, Term uint64
	Node        uint16
	Incarnation uint64
}

// Mark says which GTIDs InnoDB must hold for Index to be applied. Old marks are merged, so that a long backlog stays
// small.
type Mark struct {
	Index     uint64 // the last one, when marks were merged
	First     uint64 // the first one
	GTIDs     []gtid.Range
	Bytes     int64
	Heavy     Heavy     // part of it
	Heard     time.Time // when this node learned that it is committed
	Committed time.Time // when it was; Heard if that is not known
}

// maxMarks bounds ledger.pending; above it neighbouring marks are merged in pairs.
const maxMarks = 1 << 15

// New starts at a boundary of the raft log.
func New(b raftlog.Boundary) *Ledger {
	l := &Ledger{changed: make(chan struct{})}
	l.Reset(b)
	return l
}

// Reset starts again at a boundary. It does not know where the stream of the boundary's incarnation ended: the first
// entry that follows says so.
func (l *Ledger) Reset(b raftlog.Boundary) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.index, l.committed, l.pending, l.pieces = b.Index, b.GTIDs.Clone(), nil, 0
	l.barrier = Barrier{Index: b.Barrier.Index, Term: b.Barrier.Term, Node: b.Barrier.Node,
		Incarnation: b.Barrier.Incarnation}
	l.joined, l.open, l.whole = b.Barrier.Index == 0, false, b.Index
	l.barriers = nil
	if l.barrier.Index != 0 {
		l.barriers = append(l.barriers, l.barrier)
	}
	close(l.changed)
	l.changed = make(chan struct{})
}

// Add takes the next committed entry and returns its meta and what follows it. An error names the rule that is broken
// (rule.Of).
func (l *Ledger) Add(index, term uint64, data []byte, now time.Time) (m raftlog.Meta, rest []byte, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if index != l.index+1 {
		return m, nil, rule.Breaks("S12", "committed entry %d follows entry %d", index, l.index)
	}
	if len(data) > 0 {
		if m, rest, err = raftlog.DecodeMeta(data); err != nil {
			return m, nil, fmt.Errorf("%w: %w", rule.Breaks("S12", "committed entry %d", index), err)
		}
	}
	switch m.Kind {
	case raftlog.Barrier:
		// A life that leads again without a restart continues where it was, or after what it logged for itself while it
		// followed.
		if again := m.Node == l.barrier.Node && m.Incarnation == l.barrier.Incarnation; again && l.joined &&
			m.Start.Less(l.end) {
			return m, nil, rule.Breaks("S12", "barrier %d of incarnation %d of node %d starts at %s, its last entry ended at %s",
				index, m.Incarnation, m.Node, m.Start, l.end)
		}
		l.barrier = Barrier{Index: index, Term: term, Node: m.Node, Incarnation: m.Incarnation}
		l.end, l.open, l.joined = m.End, false, true
		if l.barriers = append(l.barriers, l.barrier); len(l.barriers) > maxBarriers {
			l.barriers = slices.Delete(l.barriers, 0, 1)
		}
	case raftlog.Trx:
		mark := Mark{Index: index, First: index, GTIDs: m.GTIDs, Bytes: int64(len(data)), Heard: now, Committed: now}
		if m.Flags&raftlog.FlagSpecial != 0 {
			mark.Heavy.DDL = ddlTime(rest)
		}
		if err := l.addTrx(term, &m, mark); err != nil {
			return m, nil, err
		}
	}
	l.index = index
	if !l.open {
		l.whole = index
	}
	close(l.changed)
	l.changed = make(chan struct{})
	return m, rest, nil
}

// follows reports whether start is where the stream has come to: there, or at the beginning of the next file.
func (l *Ledger) follows(start raftlog.Pos) bool {
	return start == l.end || start == raftlog.Pos{File: l.end.File + 1, Off: 4}
}

func (l *Ledger) addTrx(term uint64, m *raftlog.Meta, mark Mark) error {
	index := mark.Index
	switch b := l.barrier; {
	case b.Index == 0:
		return rule.Breaks("S6", "entry %d has transactions before any barrier", index)
	case m.Node != b.Node || m.Incarnation != b.Incarnation:
		// Proposed before the newer barrier was, committed after it.
		return rule.Breaks("S6", "entry %d is of incarnation %d of node %d after the barrier of incarnation %d of node %d",
			index, m.Incarnation, m.Node, b.Incarnation, b.Node)
	case term != b.Term:
		return rule.Breaks("S7", "entry %d is of term %d, but its incarnation serves term %d", index, term, b.Term)
	}
	if l.joined && !l.follows(m.Start) {
		return rule.Breaks("S12", "entry %d starts at %s, the one before it ended at %s", index, m.Start, l.end)
	}
	if cont := m.Flags&raftlog.FlagContinues != 0; l.joined && cont != l.open {
		return rule.Breaks("S12", "entry %d continues=%t but the entry before it is unfinished=%t", index, cont, l.open)
	}
	l.end, l.open, l.joined = m.End, m.Flags&raftlog.FlagUnfinished != 0, true
	for _, r := range m.GTIDs {
		for g := r.First; g <= r.Last; g++ {
			if id := (gtid.GTID{SID: r.SID, GNO: g}); !l.committed.Add(id) {
				return rule.Breaks("S12", "entry %d holds %s, which the log holds already", index, id)
			}
		}
	}
	if m.Flags&raftlog.FlagContinues == 0 {
		l.pieces = 0
	}
	if len(m.GTIDs) == 0 {
		l.pieces += mark.Bytes
		return nil
	}
	if l.pieces > 0 {
		mark.Bytes += l.pieces
		mark.Heavy.Bytes = mark.Bytes
	}
	l.pieces = 0
	l.pending = append(l.pending, mark)
	if len(l.pending) > maxMarks {
		l.pending = mergeMarks(l.pending)
	}
	return nil
}

// mergeMarks halves a list of marks: two neighbours become one with the GTIDs of both.
func mergeMarks(in []Mark) []Mark {
	out := in[:0]
	for i := 0; i+1 < len(in); i += 2 {
		a, b := in[i], in[i+1]
		gs := append(append([]gtid.Range(nil), a.GTIDs...), b.GTIDs...)
		out = append(out, Mark{Index: b.Index, First: a.First, GTIDs: joinRanges(gs), Bytes: a.Bytes + b.Bytes,
			Heavy: a.Heavy.Plus(b.Heavy), Heard: a.Heard, Committed: a.Committed})
	}
	if len(in)%2 == 1 {
		out = append(out, in[len(in)-1])
	}
	return out
}

// joinRanges merges neighbouring ranges that touch.
func joinRanges(in []gtid.Range) []gtid.Range {
	out := in[:0]
	for _, r := range in {
		if n := len(out); n > 0 && out[n-1].SID == r.SID && out[n-1].Last+1 == r.First {
			out[n-1].Last = r.Last
			continue
		}
		out = append(out, r)
	}
	return out
}

// Whole is the newest entry after which no transaction is under way: a reader that starts there misses none.
func (l *Ledger) Whole() uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.whole
}

// Index is that of the newest committed entry seen.
func (l *Ledger) Index() uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.index
}

// Snapshot returns the index and a copy of the set of committed GTIDs up to it.
func (l *Ledger) Snapshot() (uint64, gtid.Set) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.index, l.committed.Clone()
}

// At returns the index of the newest committed entry seen and a channel that is closed when it grows.
func (l *Ledger) At() (uint64, <-chan struct{}) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.index, l.changed
}

// Await waits until this node has seen entry index committed.
func (l *Ledger) Await(ctx context.Context, index uint64) error {
	return l.AwaitBy(ctx, run.Real{}, index)
}

// AwaitBy is Await with another way to wait.
func (l *Ledger) AwaitBy(ctx context.Context, exec run.Exec, index uint64) error {
	for {
		at, changed := l.At()
		if at >= index {
			return nil
		}
		if err := exec.Wait(ctx, changed); err != nil {
			return err
		}
	}
}

// NewestBarrier returns the newest committed barrier.
func (l *Ledger) NewestBarrier() Barrier {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.barrier
}

// Backlog is what a mysqld has still to apply.
type Backlog struct {
	Applied uint64 // highest index of which InnoDB holds everything
	Bytes   int64
	Since   time.Time // when this node learned that the oldest entry not applied is committed; zero if all are applied
	// Committed is when it was committed, as far as is known (Backdate).
	Committed time.Time
	Heavy     Heavy // of all of it
	Next      Heavy // of what stands first, which is being applied
}

// Applied drops the marks that executed covers and says what is left.
func (l *Ledger) Applied(executed gtid.Set) Backlog {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := 0
	for n < len(l.pending) && containsAll(executed, l.pending[n].GTIDs) {
		n++
	}
	l.pending = l.pending[n:]
	if len(l.pending) == 0 {
		l.pending = nil
		return Backlog{Applied: l.index}
	}
	b := Backlog{Applied: l.pending[0].First - 1, Since: l.pending[0].Heard, Committed: l.pending[0].Committed,
		Next: l.pending[0].Heavy}
	for i := range l.pending {
		b.Bytes += l.pending[i].Bytes
		b.Heavy = b.Heavy.Plus(l.pending[i].Heavy)
	}
	return b
}

// LeftOut is the first transaction that is not executed although a later entry is, and the index at which its entry
// begins; 0: no transaction was left out. A later entry that was already executed before proves nothing: XA
// transactions are applied again at the start of a mysqld, after later ones.
func (l *Ledger) LeftOut(executed, before gtid.Set) (g gtid.GTID, index uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.pending) == 0 {
		return g, 0
	}
	var missing []gtid.Range
	for _, r := range l.pending[0].GTIDs {
		missing = append(missing, splitMissing(executed, r)...)
	}
	if len(missing) == 0 {
		return g, 0
	}
	for i := range l.pending[1:] {
		if later := l.pending[i+1].GTIDs; containsAll(executed, later) && !containsAll(before, later) {
			return first(missing[0]), l.pending[0].First
		}
	}
	return g, 0
}

// Backdate tells when the newest entry was committed, if that is not as good as now.
func (l *Ledger) Backdate(at time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if k := len(l.pending); k > 0 && l.pending[k-1].Index == l.index {
		l.pending[k-1].Committed = at
	}
}

// Oldest is when this node learned of the oldest entry that InnoDB has not been seen to hold; waits is false without
// one.
func (l *Ledger) Oldest() (at time.Time, waits bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.pending) == 0 {
		return at, false
	}
	return l.pending[0].Heard, true
}

// Missing is what InnoDB has not been seen to hold of what was committed up to an index.
func (l *Ledger) Missing(upTo uint64) (s gtid.Set) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for i := range l.pending {
		if l.pending[i].First > upTo {
			break
		}
		for _, r := range l.pending[i].GTIDs {
			s.AddRange(r)
		}
	}
	return s
}

// AppliedIndex is the highest index up to which InnoDB has been seen to hold everything.
func (l *Ledger) AppliedIndex() uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.pending) == 0 {
		return l.index
	}
	return l.pending[0].First - 1
}

// IndexOf returns the index that must be applied for all of set to be; 0 if that has been seen already. known is false
// when not all of it is committed as far as this node knows.
func (l *Ledger) IndexOf(set gtid.Set) (index uint64, known bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.committed.ContainsSet(set) {
		return 0, false
	}
	for i := len(l.pending) - 1; i >= 0; i-- {
		for _, r := range l.pending[i].GTIDs {
			if _, some := set.FirstOf(r); some {
				return l.pending[i].Index, true
			}
		}
	}
	return 0, true
}

// Restart rebuilds the list of what is not applied, after a mysqld came up with less than the one before it had.
func (l *Ledger) Restart(marks []Mark, upTo uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	i := 0
	for i < len(l.pending) && l.pending[i].Index <= upTo {
		i++
	}
	l.pending = append(marks, l.pending[i:]...)
	for len(l.pending) > maxMarks {
		l.pending = mergeMarks(l.pending)
	}
}

func containsAll(s gtid.Set, rs []gtid.Range) bool {
	return !slices.ContainsFunc(rs, func(r gtid.Range) bool { return !s.ContainsRange(r) })
}
