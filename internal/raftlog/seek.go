package raftlog

import (
	"fmt"
	"sort"

	"trireme/internal/gtid"
)

// SeekGTID finds where a feed must begin for a receiver that has set: the index of the first entry (of the first chunk, for a
// transaction in chunks) that holds a transaction not in set, and the FORMAT_DESCRIPTION event in force there (nil when no
// Barrier was seen yet). From that index on a reader sees whole transactions only. It is upTo+1 when there is none up to upTo, and
// ErrPurged when it would lie below FirstIndex. upTo must not exceed the commit index.
func (l *Log) SeekGTID(set gtid.Set, upTo uint64) (index uint64, fde []byte, err error) {
	l.mu.RLock()
	heads := make([]*segmentHead, len(l.segs))
	for i, s := range l.segs {
		heads[i] = &s.head
	}
	l.mu.RUnlock()
	// Each segment's header has what all segments before it hold: the sets grow, so the last one within set is found by halving.
	i := sort.Search(len(heads), func(i int) bool { return !set.ContainsSet(heads[i].ledger.gtids) }) - 1
	if i < 0 {
		missing := heads[0].ledger.gtids.Subtract(set)
		return 0, nil, fmt.Errorf("%w: transactions %s lie below the log's first index %d", ErrPurged, clipText(missing.String()), heads[0].first)
	}
	head := heads[i]
	index, fde = upTo+1, head.ledger.barrier.FDE
	clean := head.ledger.open // the last index from which on transactions are whole; 0: the next entry
	cleanFDE := fde
	err = l.Scan(head.first, upTo, func(m *Meta, at, _ uint64, events []byte) error {
		switch m.Kind {
		case Barrier:
			fde = cloneFDE(events)
			clean = 0
			return nil
		case Trx:
		default:
			return nil
		}
		if m.Flags&FlagContinues == 0 || clean == 0 {
			clean, cleanFDE = at, fde
		}
		for _, r := range m.GTIDs {
			if !holdsAll(&set, r) {
				index = clean
				return errStop
			}
		}
		return nil
	})
	if err == errStop {
		if first, _ := l.FirstIndex(); index < first {
			return 0, nil, fmt.Errorf("%w: entry %d, the log begins at %d", ErrPurged, index, first)
		}
		return index, cleanFDE, nil
	}
	return index, fde, err
}

// errStop ends a Scan that has found what it looked for.
var errStop = fmt.Errorf("raftlog: found")

func holdsAll(set *gtid.Set, r gtid.Range) bool {
	const few = 1 << 12
	if r.Len() > few {
		var s gtid.Set
		s.AddRange(r)
		return set.ContainsSet(s)
	}
	for n := r.First; n <= r.Last; n++ {
		if !set.Contains(gtid.GTID{SID: r.SID, GNO: n}) {
			return false
		}
	}
	return true
}

// clipText shortens a GTID set for an error message.
func clipText(s string) string {
	const limit = 300
	if len(s) <= limit {
		return s
	}
	return s[:limit] + "…"
}

// Scan calls fn for each entry in [from, to] that has a Meta, in order, until fn fails; it returns fn's error. m and events live until
// fn returns. to must not exceed the commit index. ErrPurged: from lies below FirstIndex.
func (l *Log) Scan(from, to uint64, fn func(m *Meta, index, term uint64, events []byte) error) error {
	r := l.NewReader(from)
	defer r.Close()
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
