package raftlog

import (
	"errors"
	"fmt"
	"sort"

	"trireme/internal/mysql/binlog"
	"trireme/internal/mysql/gtid"
)

// SeekGTID finds where a feed must begin for a receiver that has set. It returns the index of the first entry that
// holds a transaction not in set (for a transaction in chunks, of its first chunk), and the FORMAT_DESCRIPTION event in
// force there (nil if no Barrier was seen yet). From that index on a reader sees whole transactions only. If no entry
// up to upTo holds such a transaction, the index is upTo+1, or the first chunk of a transaction that has not ended
// there. The error is ErrPurged if the index would lie below FirstIndex. upTo must not exceed the commit index.
func (l *Log) SeekGTID(set gtid.Set, upTo uint64) (index uint64, fde []byte, err error) {
	heads := l.heads(upTo)
	// Each segment's header has what all segments before it hold: the sets grow, so the last one within set is found by
	// halving.
	i := sort.Search(len(heads), func(i int) bool { return !set.ContainsSet(heads[i].ledger.gtids) }) - 1
	if i < 0 {
		missing := heads[0].ledger.gtids.Subtract(set)
		return 0, nil, fmt.Errorf("%w: transactions %s lie below the log's first index %d", ErrPurged,
			clipText(missing.String()), heads[0].first)
	}
	head := heads[i]
	index, fde = upTo+1, head.ledger.barrier.FDE
	clean := head.ledger.open // the last index from which on transactions are whole; 0: the next entry
	cleanFDE := fde
	open := clean != 0 // a transaction has begun and not ended
	err = l.Scan(head.first, upTo, func(m *Meta, at, _ uint64, events []byte) error {
		switch m.Kind {
		case Barrier:
			fde = cloneFDE(events)
			clean, open = 0, false
			return nil
		case Trx:
		default:
			return nil
		}
		if m.Flags&FlagContinues == 0 || clean == 0 {
			clean, cleanFDE = at, fde
		}
		open = m.Flags&FlagUnfinished != 0
		for _, r := range m.GTIDs {
			if !set.ContainsRange(r) {
				index = clean
				return errStop
			}
		}
		return nil
	})
	if err == nil && open && clean != 0 {
		index, err = clean, errStop
	}
	if err == errStop {
		if first, _ := l.FirstIndex(); index < first {
			return 0, nil, fmt.Errorf("%w: entry %d, the log begins at %d", ErrPurged, index, first)
		}
		return index, cleanFDE, nil
	}
	return index, fde, err
}

// heads returns what the segments that hold entries up to an index begin with, at least the first one.
func (l *Log) heads(upTo uint64) (heads []*segmentHead) {
	l.mu.RLock()
	defer l.mu.RUnlock()
	for i, s := range l.segs {
		if i == 0 || s.head.first <= upTo+1 { // a receiver may have what is not committed here yet
			heads = append(heads, &s.head)
		}
	}
	return heads
}

// errStop ends a Scan that has found what it looked for.
var errStop = fmt.Errorf("raftlog: found")

// clipText shortens a GTID set for an error message.
func clipText(s string) string {
	const limit = 300
	if len(s) <= limit {
		return s
	}
	return s[:limit] + "…"
}

// Scan calls fn for each entry in [from, to] that has a Meta, in order, until fn fails; it returns fn's error. m and
// events live until fn returns. to must not exceed the commit index. ErrPurged: from lies below FirstIndex.
func (l *Log) Scan(from, to uint64, fn func(m *Meta, index, term uint64, events []byte) error) error {
	r := l.NewReader(from)
	var m Meta
	for {
		es, err := r.Next(to, readAhead)
		if err != nil {
			return err
		}
		if len(es) == 0 {
			return nil
		}
		for _, e := range es {
			if events, ok := entryMeta(&m, e); ok {
				if err := fn(&m, e.GetIndex(), e.GetTerm(), events); err != nil {
					return err
				}
			}
		}
	}
}

// GTIDsBefore returns what a receiver has that took everything in the log's order up to a position in the binary log of
// an incarnation: the GTIDs of the transactions that end there or before, and of all that lies in front of them in the
// log, up to index upTo; and where the last of them ends, at the position or before it. The errors are ErrPurged,
// ErrNoPosition, ErrBeyond, ErrCorrupt, or the file system's. upTo must not exceed the commit index.
func (l *Log) GTIDsBefore(node uint16, incarnation uint64, at Pos, upTo uint64) (has gtid.Set, end Pos, err error) {
	heads := l.heads(upTo)
	// The last segment before which the newest entry is of the incarnation and not after the position. Without such a
	// segment it may lie anywhere.
	from := 0
	for i, h := range heads {
		if t := &h.ledger.tail; t.Kind != 0 && t.Node == node && t.Incarnation == incarnation {
			if at.Less(t.End) && i == 0 {
				return gtid.Set{}, Pos{}, behindPosition(h.first, at)
			}
			if at.Less(t.End) {
				break
			}
			if t.Kind == Trx || t.End.Less(at) {
				from = i
			}
		}
	}
	head := heads[from]
	w := posWalk{node: node, incarnation: incarnation, at: at, seen: head.ledger.gtids.Clone(), first: head.first}
	if t := &head.ledger.tail; t.Kind != 0 && t.Node == node && t.Incarnation == incarnation && !at.Less(t.End) {
		w.take(t.End)
		w.found, w.end = from > 0 || t.Kind == Trx || t.End.Less(at), t.End
	}
	if err := l.Scan(head.first, upTo, w.entry); err != nil && !errors.Is(err, errStop) {
		return gtid.Set{}, Pos{}, err
	}
	switch {
	case !w.found:
		return gtid.Set{}, Pos{}, ErrNoPosition
	case w.end.Less(at):
		return gtid.Set{}, Pos{}, fmt.Errorf("%w: it ends at %v", ErrBeyond, w.end)
	}
	return w.has, w.upTo, nil
}

func behindPosition(first uint64, at Pos) error {
	return fmt.Errorf("%w: the log begins at entry %d, after %v", ErrPurged, first, at)
}

// posWalk goes through entries up to a position of an incarnation. An incarnation may lead several times, at positions
// that grow, and begins where it has ended if nothing lies between: a position that fits both is the earlier one.
type posWalk struct {
	node        uint16
	incarnation uint64
	at          Pos
	first       uint64   // index
	seen        gtid.Set // of all entries so far
	has         gtid.Set // seen at the newest end of the incarnation that is not after at
	upTo        Pos      // that end
	end         Pos      // of the incarnation's newest entry
	found       bool
}

// take notes what was seen so far as what lies in front of an end.
func (w *posWalk) take(end Pos) { w.found, w.has, w.upTo = true, w.seen.Clone(), end }

func (w *posWalk) entry(m *Meta, _, _ uint64, events []byte) error {
	if m.Kind != Trx && m.Kind != Barrier {
		return nil
	}
	if m.Node != w.node || m.Incarnation != w.incarnation {
		for _, r := range m.GTIDs {
			w.seen.AddRange(r)
		}
		return nil
	}
	w.end = m.End
	left, end := endsUpTo(m, events, w.at)
	switch {
	case m.Kind == Barrier && !w.found && !m.End.Less(w.at) && w.first > 1:
		return behindPosition(w.first, w.at) // it may have led before, in what is gone
	case m.Kind == Barrier && (!w.found || m.End.Less(w.at)):
		w.take(m.End)
	case left > 0:
		for _, r := range m.GTIDs {
			n := min(int64(r.Len()), int64(left))
			if n > 0 {
				w.seen.AddRange(gtid.Range{SID: r.SID, First: r.First, Last: r.First + n - 1})
			}
			left -= int(n)
		}
		w.take(end)
	}
	if w.at.Less(m.End) {
		return errStop
	}
	return nil
}

// endsUpTo counts the transactions that end in an entry at or before a position, and says where the last of them does.
func endsUpTo(m *Meta, events []byte, at Pos) (n int, last Pos) {
	if !at.Less(m.End) {
		for _, r := range m.GTIDs {
			n += int(r.Len())
		}
		return n, m.End
	}
	end, begun := m.Start, m.Flags&FlagContinues != 0
	for h := range binlog.Events(events) {
		if h.Type.StartsTransaction() {
			if begun && !at.Less(end) {
				n, last = n+1, end
			}
			begun = true
		}
		end = Pos{File: m.End.File, Off: binlog.PositionOf(end.Off, h.LogPos)}
		if at.Less(end) {
			break
		}
	}
	return n, last
}
