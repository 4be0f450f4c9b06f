package raftlog

import (
	"encoding/binary"
	"errors"
	"fmt"

	"go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"

	"trireme/internal/base/failpoint"
	"trireme/internal/mysql/binlog"
)

const (
	// copyBelow: shorter events are copied after their header instead of being given to the kernel as a piece of their
	// own.
	copyBelow = 4 << 10
	// flushBytes bounds what is gathered for one write.
	flushBytes = 8 << 20
	// keepScratch is the largest buffer that is kept for the next write.
	keepScratch = 2 << 20
)

// zeros is what is written ahead of the records, piece by piece.
var zeros = make([]byte, 16<<10)

// Append writes entries, which are consecutive, in place of what the log holds from the first of them on. Leading
// entries that the log holds already are not written again. The entries are durable after the next Sync. The log keeps
// them: the caller must not change them any more. The HardState of the entries' term must have been set before. Entries
// at or below the commit index are never replaced. An attempt to do so, and an entry that breaks S6 or S12, is
// ErrInvariant.
func (l *Log) Append(entries []*raftpb.Entry) error {
	l.wmu.Lock()
	defer l.wmu.Unlock()
	if err := l.usable(); err != nil {
		return err
	}
	if len(entries) == 0 {
		return nil
	}
	after := entries[len(entries)-1].GetIndex() + 1
	entries, err := l.dropKnown(entries)
	if err != nil {
		return err
	}
	if len(entries) > 0 {
		after = entries[0].GetIndex()
	}
	if after <= l.last {
		if err := l.truncate(after); err != nil {
			return err
		}
	}
	for _, e := range entries {
		if err := l.add(e); err != nil {
			// What is gathered comes before the bad entry and is good.
			return errors.Join(err, l.flush())
		}
	}
	return l.flush()
}

// dropKnown cuts off leading entries that the log holds or has purged.
func (l *Log) dropKnown(entries []*raftpb.Entry) ([]*raftpb.Entry, error) {
	if at := entries[0].GetIndex(); at > l.last+1 {
		return nil, fmt.Errorf("%w: append at index %d, the log ends at %d", ErrInvariant, at, l.last)
	}
	for len(entries) > 0 && entries[0].GetIndex() <= l.last {
		at := entries[0].GetIndex()
		if at >= l.first() {
			term, err := l.Term(at)
			if err != nil {
				return nil, err
			}
			if term != entries[0].GetTerm() {
				break
			}
		}
		entries = entries[1:]
	}
	return entries, nil
}

// add gathers the entry's record for the next flush, closing the segment first when it is full.
func (l *Log) add(e *raftpb.Entry) error {
	last := l.chain
	if e.GetIndex() != last.index+1 || e.GetTerm() < last.term {
		return fmt.Errorf("%w: entry %d of term %d after entry %d of term %d", ErrInvariant, e.GetIndex(), e.GetTerm(),
			last.index, last.term)
	}
	if e.GetTerm() > l.state.term {
		return fmt.Errorf("%w: entry %d of term %d before term %d was persisted (last: %d)", ErrInvariant, e.GetIndex(),
			e.GetTerm(), e.GetTerm(), l.state.term)
	}
	if len(e.Data) > maxEntryBytes {
		return fmt.Errorf("%w: entry %d has %d bytes, the limit is %d", ErrInvariant, e.GetIndex(), len(e.Data),
			maxEntryBytes)
	}
	if l.full() {
		if err := l.flush(); err != nil {
			return err
		}
		if err := l.rotate(); err != nil {
			return err
		}
	}
	return l.gather(e)
}

// full reports whether the next entry belongs in a new segment: the last one has its full size, or its encryption is
// not the configured one. A transaction in chunks stays in one segment: mysqld cannot replay what mysqlbinlog prints if
// another file's FORMAT_DESCRIPTION event is in the middle of a transaction.
func (l *Log) full() bool {
	s := l.active()
	otherKey := s.keyID != l.opts.Keys.CurrentID()
	if s.last+uint64(len(l.pending)) < s.first() {
		return otherKey
	}
	end := l.gatheredEnd()
	return end >= l.opts.hardSegmentBytes || ((end >= l.opts.SegmentBytes || otherKey) && l.ledger.open == 0)
}

// gatheredEnd is where the segment will end after the next flush.
func (l *Log) gatheredEnd() int64 {
	if n := len(l.pending); n > 0 {
		return l.gathered
	}
	return l.active().end
}

// gather encodes e after what is gathered and updates chain and ledger.
func (l *Log) gather(e *raftpb.Entry) error {
	rec := record{index: e.GetIndex(), term: e.GetTerm(), durable: l.durable.Load(), raftType: e.GetType(), inline: e.Data}
	var m Meta
	if e.GetType() == raftpb.EntryNormal && len(e.Data) > 0 {
		if events, err := l.metaInto(&m, e.Data); err == nil {
			if err := l.ledger.check(&m); err != nil {
				return fmt.Errorf("%w: entry %d of term %d: %w", ErrInvariant, rec.index, rec.term, err)
			}
			if m.Kind != Settings && len(events) > 0 && framed(events) {
				rec.inline, rec.events = e.Data[:len(e.Data)-len(events)], events
			}
			if l.ledger.aborts(&m) {
				if rec.prefix, err = l.abortEvents(stampOf(rec.events)); err != nil {
					return err
				}
			}
			l.mu.Lock()
			l.ledger.apply(rec.index, rec.term, &m, events)
			l.mu.Unlock()
		}
	}
	at := l.gatheredEnd()
	aead := l.active().aead
	if aead != nil {
		// with the filler after it, so that the room is there the next time too
		l.scratch(sealedRoom + rec.dataSize() + fillerHead)
		rec.seal(aead, &l.nonce, e.Data, l.head[len(l.head)+sealedRoom-tagBytes:cap(l.head)])
	} else {
		l.scratch(len(rec.inline) + recordOverhead + len(rec.prefix) + min(len(rec.events), copyBelow))
	}
	from := len(l.head)
	l.head = appendRecordHead(l.head, &rec, l.chain.crc, at, stampOf(rec.events), uint32(l.opts.NodeID))
	l.head = append(l.head, rec.prefix...)
	if aead != nil {
		l.head = l.head[:len(l.head)+len(rec.events)] // their bytes are there
		l.piece(l.head[from:])
	} else if len(rec.events) < copyBelow {
		l.head = append(l.head, rec.events...)
		l.piece(l.head[from:])
	} else {
		l.piece(l.head[from:])
		l.iovs = append(l.iovs, rec.events)
	}
	l.chain = rec.chain()
	l.pending = append(l.pending, e)
	l.slots = append(l.slots, slot{uint32(at), rec.crc})
	l.gathered = at + int64(rec.size)
	if l.gathered-l.active().end > flushBytes {
		return l.flush()
	}
	return nil
}

// metaInto decodes data's meta, reusing the GTID slice of earlier calls.
func (l *Log) metaInto(m *Meta, data []byte) ([]byte, error) {
	m.GTIDs = l.ranges[:0]
	events, err := m.Decode(data)
	l.ranges = m.GTIDs
	return events, err
}

// stampOf returns the timestamp of the first event, which our own events in front of it take over.
func stampOf(events []byte) uint32 {
	if len(events) < binlog.MinEventSize {
		return 0
	}
	return binary.LittleEndian.Uint32(events)
}

// scratch makes room for n bytes in l.head without moving what pieces refer to.
func (l *Log) scratch(n int) {
	if cap(l.head)-len(l.head) < n {
		l.head = make([]byte, 0, max(n, 256<<10))
	}
}

// piece adds b to the next write; b that follows the last piece in memory extends it.
func (l *Log) piece(b []byte) {
	if n := len(l.iovs); n > 0 {
		if last := l.iovs[n-1]; cap(last) > len(last) && &last[:len(last)+1][len(last)] == &b[0] {
			l.iovs[n-1] = last[:len(last)+len(b)]
			return
		}
	}
	l.iovs = append(l.iovs, b)
}

// flush writes what is gathered and shows it to readers.
func (l *Log) flush() error {
	if len(l.pending) == 0 {
		return nil
	}
	s := l.active()
	records := len(l.iovs)
	end := l.extend(l.gathered)
	failpoint.Hit("log.before-write")
	err := s.f.Writev(l.iovs, s.end)
	if err == nil && end > l.fileEnd {
		err = zero(s.f, l.gathered+fillerHead, end)
	}
	clear(l.iovs[:cap(l.iovs)][:max(records, len(l.iovs))])
	l.iovs, l.head = l.iovs[:0], l.head[:0]
	if cap(l.head) > keepScratch {
		l.head = nil
	}
	if err != nil {
		return l.fail("append to "+s.path, err)
	}
	l.fileEnd, l.dirty = end, true

	l.mu.Lock()
	s.slots = append(s.slots, l.slots...)
	for _, e := range l.pending {
		s.addTerm(e.GetIndex(), e.GetTerm())
		l.cache.push(e)
	}
	s.end = l.gathered
	s.last = l.pending[len(l.pending)-1].GetIndex()
	l.last = s.last
	l.mu.Unlock()
	clear(l.pending)
	l.pending, l.slots = l.pending[:0], l.slots[:0]
	l.wantSpare()
	return nil
}

// largeWrite saves so little by zeros ahead that they do not pay, bytes.
const largeWrite = 256 << 10

// extend adds a filler event to a write that ends at end. It returns the new size of the file: more than its present
// size if the zeros ahead are used up.
func (l *Log) extend(end int64) int64 {
	ahead := l.opts.ZeroAheadBytes
	size := l.fileEnd
	switch {
	case end+minFiller <= size:
	case end-l.active().end >= largeWrite: // others follow, and would each write over zeros of their own
		size = end + minFiller
	default:
		size = (end + minFiller + ahead - 1) / ahead * ahead
	}
	l.scratch(fillerHead)
	from := len(l.head)
	l.head = appendFiller(l.head, end, size-end, uint32(l.opts.NodeID))
	l.piece(l.head[from:])
	return size
}

// zero fills a file with zeros from at to its new size. It writes small pieces: the page cache keeps a large piece as
// one folio, and then counts and walks all of it for every record that is written into it later.
func zero(f File, at, size int64) error {
	for at < size {
		n := min(size-at, int64(len(zeros)))
		if err := f.Writev([][]byte{zeros[:n]}, at); err != nil {
			return err
		}
		at += n
	}
	return nil
}

// Sync makes all appended entries durable: one fdatasync, or none when nothing was appended.
func (l *Log) Sync() error {
	l.wmu.Lock()
	defer l.wmu.Unlock()
	if err := l.usable(); err != nil {
		return err
	}
	return l.sync()
}

func (l *Log) sync() error {
	if !l.dirty {
		return nil
	}
	if err := failpoint.Err("log.after-write"); err != nil {
		return l.fail("fsync "+l.active().path, err)
	}
	if err := l.active().f.Fdatasync(); err != nil {
		return l.fail("fsync "+l.active().path, err)
	}
	failpoint.Hit("log.after-sync")
	l.dirty = false
	l.durable.Store(l.last)
	return nil
}

// writeState writes the state file with the newest watermark.
func (l *Log) writeState(doing string, sync bool) error {
	l.state.durable = l.durable.Load()
	if err := l.state.write(sync); err != nil {
		return l.fail("write "+l.path(stateName)+" at "+doing, err)
	}
	return nil
}

// SetHardState makes term and vote durable before it returns. It writes commit only when there is another reason to
// write. commit never falls: a reset, a purge or a configuration may have told the log more than the caller remembers.
// An empty hs is ignored.
func (l *Log) SetHardState(hs *raftpb.HardState) error {
	if hs.GetTerm() == 0 && hs.GetVote() == 0 && hs.GetCommit() == 0 {
		return nil
	}
	l.wmu.Lock()
	defer l.wmu.Unlock()
	if err := l.usable(); err != nil {
		return err
	}
	st, term, vote := l.state, hs.GetTerm(), hs.GetVote()
	switch {
	case term < st.term:
		return fmt.Errorf("%w: term %d after term %d", ErrInvariant, term, st.term)
	case term == st.term && st.vote != 0 && vote != st.vote:
		return fmt.Errorf("%w: vote for %d in term %d after one for %d", ErrInvariant, vote, term, st.vote)
	}
	same := term == st.term && vote == st.vote
	l.mu.Lock()
	st.term, st.vote, st.commit = term, vote, max(hs.GetCommit(), st.commit)
	l.mu.Unlock()
	if same {
		return nil
	}
	return l.writeState("change of term or vote", true)
}

// SetConfState keeps the configuration that is in force after the entry at index, durably.
func (l *Log) SetConfState(cs *raftpb.ConfState, index uint64) error {
	b, err := proto.Marshal(cs)
	if err != nil {
		return fmt.Errorf("raftlog: encode configuration: %w", err)
	}
	l.wmu.Lock()
	defer l.wmu.Unlock()
	if err := l.usable(); err != nil {
		return err
	}
	if index < l.state.confIndex {
		return fmt.Errorf("%w: configuration of index %d after that of index %d", ErrInvariant, index, l.state.confIndex)
	}
	l.mu.Lock()
	l.state.conf, l.state.confIndex, l.snap = b, index, nil
	l.mu.Unlock()
	return l.writeState("change of configuration", true)
}
