package dump

import (
	"context"
	"fmt"
	"sync"

	"trireme/internal/core/raftlog"
	"trireme/internal/mysql/gtid"
)

// memLog is a raft log in memory: index i is at entries[i-first].
type memLog struct {
	mu        sync.Mutex
	changed   chan struct{}
	first     uint64
	entries   []Entry
	gone      []Entry // below first
	committed uint64
	held      bool   // nothing more becomes committed but by setCommitted
	wake      func() // the loop of a feed; nil: none
}

func newMemLog() *memLog { return &memLog{first: 1, changed: make(chan struct{})} }

// append adds an entry and, when commit is set, commits all.
func (l *memLog) append(term uint64, data []byte, commit bool) uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	index := l.first + uint64(len(l.entries))
	l.entries = append(l.entries, Entry{Index: index, Term: term, Data: data})
	if commit && !l.held {
		l.committed = index
		close(l.changed)
		l.changed = make(chan struct{})
		if l.wake != nil {
			l.wake()
		}
	}
	return index
}

func (l *memLog) barrier(term uint64, node uint16, incarnation uint64, fde []byte) {
	m := raftlog.Meta{Kind: raftlog.Barrier, Node: node, Incarnation: incarnation}
	l.append(term, append(raftlog.AppendMeta(nil, &m), fde...), true)
}

// setCommitted moves the commit index, as another node would know it.
func (l *memLog) setCommitted(index uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.committed = index
	close(l.changed)
	l.changed = make(chan struct{})
	if l.wake != nil {
		l.wake()
	}
}

// purge drops everything below index.
func (l *memLog) purge(index uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.gone = append(l.gone, l.entries[:index-l.first]...)
	l.entries = l.entries[index-l.first:]
	l.first = index
}

func (l *memLog) Committed() uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.committed
}

func (l *memLog) WaitCommitted(ctx context.Context, index uint64) error {
	for {
		l.mu.Lock()
		committed, changed := l.committed, l.changed
		l.mu.Unlock()
		if committed >= index {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func (l *memLog) Read(_ context.Context, from, to uint64, maxBytes int) ([]Entry, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if from < l.first {
		return nil, fmt.Errorf("%w: entry %d", ErrPurged, from)
	}
	if to > l.committed {
		panic("read above the commit index")
	}
	lo, n, size := from-l.first, uint64(0), 0
	for lo+n < uint64(len(l.entries)) && from+n <= to && (n == 0 || size < maxBytes) {
		size += len(l.entries[lo+n].Data)
		n++
	}
	return l.entries[lo : lo+n : lo+n], nil
}

// cached is FeedConfig.Cached: all is in memory, and no more than maxBytes are given but of a single entry.
func (l *memLog) cached(from, to uint64, maxBytes int) []Entry {
	es, _ := l.Read(context.Background(), from, to, maxBytes)
	size := 0
	for i, e := range es {
		if size += len(e.Data); size > maxBytes && i > 0 {
			return es[:i]
		}
	}
	return es
}

func (l *memLog) SeekGTID(set gtid.Set) (index uint64, fde []byte, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	var current, atStart []byte
	start, open := l.first, false // open: the transaction that begins at start has not ended
	for _, e := range l.gone {
		m, _, err := raftlog.DecodeMeta(e.Data)
		if err != nil {
			continue
		}
		for _, r := range m.GTIDs {
			var s gtid.Set
			if s.AddRange(r); !set.ContainsSet(s) {
				return 0, nil, fmt.Errorf("%w: %v", ErrPurged, r)
			}
		}
	}
	for _, e := range l.entries {
		if e.Index > l.committed {
			break
		}
		if len(e.Data) == 0 {
			continue
		}
		m, events, err := raftlog.DecodeMeta(e.Data)
		if err != nil {
			return 0, nil, err
		}
		switch m.Kind {
		case raftlog.Barrier:
			current, open = events, false
		case raftlog.Trx:
			if m.Flags&raftlog.FlagContinues == 0 {
				start, atStart = e.Index, current
			}
			open = m.Flags&raftlog.FlagUnfinished != 0
			for _, r := range m.GTIDs {
				for gno := r.First; gno <= r.Last; gno++ {
					if !set.Contains(gtid.GTID{SID: r.SID, GNO: gno}) {
						return start, atStart, nil
					}
				}
			}
		}
	}
	if open {
		return start, atStart, nil
	}
	return l.committed + 1, current, nil
}
