package raftlog

import (
	"errors"
	"fmt"
	"slices"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"

	"trireme/internal/base/failpoint"
)

// truncate cuts the entry at index and all above it. The order matters: the watermark is lowered before the entries
// that it covers are removed, and the cut is durable before anything is written over it, so that a crash leaves either
// the old tail or none.
func (l *Log) truncate(index uint64) error {
	if index <= l.state.commit {
		return fmt.Errorf("%w: entry %d would be replaced, the commit index is %d", ErrInvariant, index, l.state.commit)
	}
	keep := len(l.segs) - 1
	for keep > 0 && l.segs[keep].first() > index {
		keep--
	}
	s := l.segs[keep]
	slots, _, err := l.slotsOf(s)
	if err != nil {
		return err
	}
	chain, cut, led := s.head.prev(), s.headSize, s.head.ledger.clone()
	if index > s.first() {
		chain.index, chain.term, chain.crc = index-1, s.term(index-1), slots[index-1-s.first()].crc
		cut = int64(slots[index-s.first()].off)
		if led, _, err = l.ledgerAfter(index-1, 0); err != nil {
			return err
		}
	}
	failpoint.Hit("truncate.before-watermark")
	if durable := l.durable.Load(); durable >= index {
		l.durable.Store(index - 1)
		if err := l.writeState("truncation", true); err != nil {
			return err
		}
	}
	failpoint.Hit("truncate.after-watermark")
	l.log.Info("conflicting tail cut", "index", index, "entries", l.last-index+1, "term", l.chain.term)
	if err := l.dropAbove(keep); err != nil {
		return err
	}

	l.mu.Lock()
	s.slots = slices.Clone(slots[:index-s.first()])
	s.terms = slices.DeleteFunc(s.terms, func(r termRun) bool { return r.index >= index })
	s.last, s.end = index-1, cut
	l.last, l.ledger, l.snap = index-1, led, nil
	l.cache.cut(index)
	l.epoch++
	l.mu.Unlock()
	l.chain = chain
	failpoint.Hit("truncate.before-file")
	if err := l.cutFile(s); err != nil {
		return l.fail("truncate "+s.path, err)
	}
	failpoint.Hit("truncate.after-file")
	l.dirty = false
	return nil
}

// dropAbove removes the segments after the one numbered keep, the newest first, so that a crash leaves no gap.
func (l *Log) dropAbove(keep int) error {
	if keep == len(l.segs)-1 {
		return nil
	}
	l.side.Lock() // no index file of these may be written meanwhile
	defer l.side.Unlock()
	for i := len(l.segs) - 1; i > keep; i-- {
		if err := l.removeSegment(l.segs[i]); err != nil {
			return l.fail("truncate", err)
		}
		if err := l.fs.SyncDir(l.dir); err != nil {
			return l.fail("truncate", err)
		}
	}
	if err := l.removeFile(indexName(l.segs[keep].name)); err != nil {
		return l.fail("truncate", err)
	}
	l.mu.Lock()
	for _, s := range l.segs[keep+1:] {
		s.release()
	}
	clear(l.segs[keep+1:])
	l.segs = l.segs[:keep+1]
	l.segs[keep].indexed = false
	l.mu.Unlock()
	return nil
}

// removeSegment deletes a segment's files; readers that have it open can still read it.
func (l *Log) removeSegment(s *segment) error {
	err := l.removeFile(s.name)
	failpoint.Hit("purge.after-segment")
	return errors.Join(err, l.removeFile(indexName(s.name)))
}

func (l *Log) removeFile(name string) error {
	if err := l.fs.Remove(l.path(name)); err != nil && !isNotExist(err) {
		return err
	}
	return nil
}

// ledgerAfter computes the ledger after the entry at index, or after the end of the transaction that is open there if
// that lies at or below upTo, and says where that is. It reads the segment of index from its beginning.
func (l *Log) ledgerAfter(index, upTo uint64) (led ledger, at uint64, err error) {
	l.mu.RLock()
	if index < l.first() || index > l.last {
		l.mu.RUnlock()
		return led, 0, raft.ErrUnavailable
	}
	head := l.find(index).head
	l.mu.RUnlock()
	led = head.ledger.clone()
	err = l.Scan(head.first, max(index, upTo), func(m *Meta, i, term uint64, events []byte) error {
		if i > index {
			if led.open == 0 {
				return errStop
			}
			index = i
		}
		led.apply(i, term, m, events)
		return nil
	})
	if err == errStop {
		err = nil
	}
	return led, index, err
}

// ResetTo discards the whole log and starts after snap, which another node's Snapshot made. HardState is kept, with the
// commit index raised to snap's.
func (l *Log) ResetTo(snap *raftpb.Snapshot) error {
	head, err := decodeBoundary(snap.GetData())
	if err != nil {
		return err
	}
	meta := snap.GetMetadata()
	if head.first != meta.GetIndex()+1 || head.prevTerm != meta.GetTerm() {
		return fmt.Errorf("%w: snapshot of index %d term %d with the boundary of index %d term %d", ErrCorrupt,
			meta.GetIndex(), meta.GetTerm(), head.first-1, head.prevTerm)
	}
	if head.cluster != l.opts.Cluster {
		return fmt.Errorf("%w: snapshot of cluster %x", ErrForeign, head.cluster)
	}
	conf, err := proto.Marshal(meta.GetConfState())
	if err != nil {
		return fmt.Errorf("raftlog: encode configuration: %w", err)
	}
	l.wmu.Lock()
	defer l.wmu.Unlock()
	if err := l.usable(); err != nil {
		return err
	}
	if meta.GetIndex() < l.state.commit {
		return fmt.Errorf("%w: reset to index %d below commit index %d", ErrInvariant, meta.GetIndex(), l.state.commit)
	}
	head.node, head.prevCRC, head.durable = l.opts.NodeID, 0, meta.GetIndex()
	failpoint.Hit("reset.before-segment")
	if err := l.makeFirst(&head); err != nil {
		return l.fail("reset", err)
	}
	failpoint.Hit("reset.after-segment")
	l.durable.Store(meta.GetIndex())
	l.mu.Lock()
	st := &l.state.state
	st.first, st.confIndex, st.conf, st.resetting = head.first, meta.GetIndex(), conf, true
	st.commit = max(st.commit, meta.GetIndex())
	l.snap, l.replacing = nil, true
	l.mu.Unlock()
	if err := l.writeState("reset", true); err != nil {
		return err
	}
	failpoint.Hit("reset.after-state")
	l.side.Lock()
	defer l.side.Unlock()
	if err := l.finishReset(); err != nil {
		return l.fail("reset", err)
	}
	return l.adoptReset()
}

// adoptReset opens the segment that finishReset left, in place of all others.
func (l *Log) adoptReset() error {
	segs, err := openSegments(l.fs, l.fs.Open, l.dir, &l.state.state, l.opts.Keys)
	if err != nil {
		return l.fail("reset", err)
	}
	s := segs[0]
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, old := range l.segs {
		old.release()
	}
	l.segs, l.last, l.ledger = segs, s.last, s.head.ledger.clone()
	l.replacing = false
	l.cache.cut(0)
	l.epoch++
	l.chain, l.fileEnd, l.dirty = s.head.prev(), s.end, false
	l.log.Info("log reset to a snapshot", "index", l.last, "term", l.chain.term)
	return nil
}
