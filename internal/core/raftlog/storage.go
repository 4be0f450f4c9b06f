package raftlog

import (
	"errors"
	"fmt"
	"slices"
	"sort"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"
)

var _ raft.Storage = (*Log)(nil)

// InitialState implements raft.Storage. The HardState is nil as long as none was set; its commit index is clipped to
// what the log holds.
func (l *Log) InitialState() (*raftpb.HardState, *raftpb.ConfState, error) {
	l.mu.RLock()
	defer l.mu.RUnlock()
	conf, err := l.state.confState()
	st := &l.state.state
	if err != nil || st.term == 0 && st.vote == 0 && st.commit == 0 {
		return nil, conf, err
	}
	return &raftpb.HardState{Term: new(st.term), Vote: new(st.vote), Commit: new(st.commit)}, conf, nil
}

// ConfStateIndex returns the index given with the newest SetConfState: configuration changes at or below it are in
// InitialState's ConfState already and must not be applied again.
func (l *Log) ConfStateIndex() uint64 {
	l.mu.RLock()
	defer l.mu.RUnlock()
	return l.state.confIndex
}

// FirstIndex implements raft.Storage.
func (l *Log) FirstIndex() (uint64, error) {
	l.mu.RLock()
	defer l.mu.RUnlock()
	return l.first(), nil
}

// LastIndex implements raft.Storage.
func (l *Log) LastIndex() (uint64, error) {
	l.mu.RLock()
	defer l.mu.RUnlock()
	return l.last, nil
}

// Term implements raft.Storage. It reads nothing from disk.
func (l *Log) Term(i uint64) (uint64, error) {
	l.mu.RLock()
	defer l.mu.RUnlock()
	switch {
	case i+1 < l.first():
		return 0, raft.ErrCompacted
	case i+1 == l.first():
		return l.segs[0].head.prevTerm, nil
	case i > l.last:
		return 0, raft.ErrUnavailable
	}
	return l.find(i).term(i), nil
}

// find returns the segment of the entry at index, which the log must hold. Call it with mu held.
func (l *Log) find(index uint64) *segment {
	return l.segs[sort.Search(len(l.segs), func(i int) bool { return l.segs[i].first() > index })-1]
}

// readAhead is how much a reader takes from disk at once.
const readAhead = 2 << 20

// Entries implements raft.Storage. It returns what the cache or one read of a segment gives, which may be less than
// maxSize allows: Raft asks again. The errors are raft.ErrCompacted, raft.ErrUnavailable, ErrCorrupt and the file
// system's.
func (l *Log) Entries(lo, hi, maxSize uint64) ([]*raftpb.Entry, error) {
	for {
		l.mu.RLock()
		if lo < l.first() {
			l.mu.RUnlock()
			return nil, raft.ErrCompacted
		}
		if lo > l.last || hi > l.last+1 {
			l.mu.RUnlock()
			return nil, raft.ErrUnavailable
		}
		if out := l.cache.get(lo, hi, maxSize); len(out) > 0 {
			l.mu.RUnlock()
			return out, nil
		}
		s, epoch := l.find(lo), l.epoch
		s.acquire()
		l.mu.RUnlock()

		out, err := l.readSegment(s, lo, hi, int64(min(maxSize, readAhead)))
		s.release()
		if err == nil {
			return out, nil
		}
		l.mu.RLock()
		again := l.epoch != epoch
		l.mu.RUnlock()
		if !again {
			return nil, err
		}
	}
}

// readSegment reads entries of s from lo on: those that end before hi, within about maxBytes, and within s; at least
// one.
func (l *Log) readSegment(s *segment, lo, hi uint64, maxBytes int64) ([]*raftpb.Entry, error) {
	slots, end, err := l.slotsOf(s)
	if err != nil {
		return nil, err
	}
	hi = min(hi, s.first()+uint64(len(slots)))
	if lo >= hi {
		return nil, raft.ErrUnavailable
	}
	offset := func(index uint64) int64 {
		if i := index - s.first(); i < uint64(len(slots)) {
			return int64(slots[i].off)
		}
		return end
	}
	from, to := offset(lo), lo+1
	for to < hi && offset(to+1)-from <= maxBytes {
		to++
	}
	buf := make([]byte, offset(to)-from)
	if err := readFull(s.f, buf, from); err != nil {
		return nil, fmt.Errorf("raftlog: read %s at %d: %w", s.path, from, err)
	}
	prev := s.head.prev()
	if lo > s.first() {
		prev = chain{lo - 1, 0, slots[lo-1-s.first()].crc}
	}
	return decodeEntries(s, buf, from, prev, int(to-lo))
}

// decodeEntries makes entries of the n records in buf, which they alias.
func decodeEntries(s *segment, buf []byte, at int64, prev chain, n int) ([]*raftpb.Entry, error) {
	out := make([]*raftpb.Entry, 0, n)
	mem := make([]struct {
		e           raftpb.Entry
		index, term uint64
	}, n)
	for i := range mem {
		rec, err := decodeRecord(buf, prev)
		if err == nil {
			err = rec.open(s.aead)
		}
		if err != nil {
			if !errors.Is(err, errBadRecord) {
				err = fmt.Errorf("%w: %w", errBadRecord, err)
			}
			return nil, corruptAt(s, at, prev.index+1, err)
		}
		prev = rec.chain()
		m := &mem[i]
		m.index, m.term = rec.index, rec.term
		m.e.Index, m.e.Term = &m.index, &m.term
		if rec.raftType != raftpb.EntryNormal {
			m.e.Type = rec.raftType.Enum()
		}
		m.e.Data = rec.data()
		out = append(out, &m.e)
		buf, at = buf[rec.size:], at+int64(rec.size)
	}
	return out, nil
}

// slotsOf returns the offsets of a segment's records and where the last one ends, loading them when the segment is
// closed and they are not in memory.
func (l *Log) slotsOf(s *segment) ([]slot, int64, error) {
	l.mu.RLock()
	if s == l.active() {
		defer l.mu.RUnlock()
		return s.slots, s.end, nil
	}
	l.mu.RUnlock()

	l.mu.Lock()
	slots, end, i := s.slots, s.end, l.position(s)
	if slots != nil || i < 0 || s == l.active() {
		if i >= 0 {
			l.useIndex(s)
		}
		l.mu.Unlock()
		return slots, end, nil
	}
	next := l.segs[i+1].head
	l.mu.Unlock()

	// Others may load the same index meanwhile; both get the same.
	loaded, noIndex := loadIndex(l.fs, s, &next, true)
	if noIndex != nil {
		var err error
		if loaded, err = scanClosed(s, &next); err != nil {
			return nil, 0, err
		}
		l.log.Info("segment index rebuilt", "file", s.name, "cause", noIndex)
	}
	l.mu.Lock()
	if s.slots == nil && l.position(s) >= 0 && s != l.active() {
		s.slots = loaded.slots
		s.indexed = noIndex == nil
		l.useIndex(s)
	}
	l.mu.Unlock()
	if noIndex != nil {
		l.opts.Later(l.upkeep)
	}
	return loaded.slots, loaded.end, nil
}

// position returns s's place in the log, or -1 when it is not part of it any more. Call it with mu held.
func (l *Log) position(s *segment) int { return slices.Index(l.segs, s) }

// useIndex records that s's offsets were used. If too many segments have offsets in memory, it drops those of the
// closed segment used longest ago; offsets that are not in an index file yet stay. Call it with mu held for writing.
func (l *Log) useIndex(s *segment) {
	l.idxClock++
	s.used = l.idxClock
	var oldest *segment
	loaded := 0
	for _, t := range l.segs[:len(l.segs)-1] {
		if t.slots == nil || !t.indexed {
			continue
		}
		loaded++
		if oldest == nil || t.used < oldest.used {
			oldest = t
		}
	}
	if loaded > maxLoadedIndexes {
		oldest.slots = nil
	}
}

// Cached returns entries from lo to hi-1 that are in memory, as Entries does, or none.
func (l *Log) Cached(lo, hi, maxBytes uint64) []*raftpb.Entry {
	l.mu.RLock()
	defer l.mu.RUnlock()
	if lo < l.first() || lo > l.last || hi > l.last+1 {
		return nil
	}
	return l.cache.get(lo, hi, maxBytes)
}
