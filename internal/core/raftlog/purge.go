package raftlog

import (
	"fmt"
	"slices"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"

	"trireme/internal/base/failpoint"
)

// Purge removes the oldest segments that lie wholly at or below upTo as long as the log is larger than limit bytes, and
// returns the new FirstIndex. It keeps the last segment, what is not committed and durable, and the beginning of a
// transaction in chunks whose end it keeps. The files, which may take long to remove, are removed after writers may
// continue: no later segment has the name of one.
func (l *Log) Purge(upTo uint64, limit int64) (first uint64, err error) {
	gone, first, err := l.forget(upTo, limit)
	for _, s := range gone {
		if err == nil {
			l.side.Lock() // its index file may be written just now
			err = l.removeSegment(s)
			l.side.Unlock()
			if err != nil {
				err = fmt.Errorf("raftlog: purge: %w", err)
			}
		}
		s.release()
	}
	if err != nil || len(gone) == 0 {
		return first, err
	}
	l.log.Info("log purged", "first", first, "segments", len(gone))
	return first, nil
}

// forget takes the first segments out of the log, durably. Their files are left.
func (l *Log) forget(upTo uint64, limit int64) (gone []*segment, first uint64, err error) {
	l.wmu.Lock()
	defer l.wmu.Unlock()
	if err := l.usable(); err != nil {
		return nil, l.first(), err
	}
	upTo = min(upTo, l.state.commit, l.durable.Load())
	n := 0
	for size := l.sizeLocked(); n < len(l.segs)-1 && l.segs[n].last <= upTo && size > limit; n++ {
		size -= l.segs[n].end
	}
	for n > 0 && l.segs[n].head.ledger.open != 0 {
		n--
	}
	if n == 0 {
		return nil, l.first(), nil
	}
	first = l.segs[n].first()
	// The state file knows the new beginning before anything goes, so that Open can tell a purged segment from a lost one.
	l.state.first = first
	failpoint.Hit("purge.before-state")
	if err := l.writeState("purge", true); err != nil {
		return nil, l.first(), err
	}
	failpoint.Hit("purge.after-state")
	l.mu.Lock()
	gone, l.segs = l.segs[:n], slices.Clone(l.segs[n:])
	l.snap = nil
	l.epoch++
	l.mu.Unlock()
	return gone, first, nil
}

// Snapshot implements raft.Storage: it returns the state at FirstIndex-1, or where the configuration last changed if
// that is later, never inside a transaction. Its Data is for ResetTo and DecodeBoundary. While no snapshot is possible
// the error is raft.ErrSnapshotTemporarilyUnavailable.
func (l *Log) Snapshot() (*raftpb.Snapshot, error) {
	l.mu.RLock()
	snap, confIndex, head, epoch := l.snap, l.state.confIndex, l.segs[0].head, l.epoch
	conf, err := l.state.confState()
	if l.replacing {
		err = raft.ErrSnapshotTemporarilyUnavailable
	}
	l.mu.RUnlock()
	if snap != nil || err != nil {
		return proto.Clone(snap).(*raftpb.Snapshot), err
	}
	if confIndex >= head.first {
		if head, err = l.headAfter(confIndex); err != nil {
			return nil, err
		}
	}
	if head.first == 1 || head.ledger.open != 0 {
		return nil, raft.ErrSnapshotTemporarilyUnavailable
	}
	head.node, head.prevCRC, head.durable = 0, 0, 0
	index := head.first - 1
	snap = &raftpb.Snapshot{
		Data:     head.encode(),
		Metadata: &raftpb.SnapshotMetadata{ConfState: conf, Index: &index, Term: &head.prevTerm},
	}
	l.mu.Lock()
	if l.state.confIndex == confIndex && l.epoch == epoch && !l.replacing {
		l.snap = snap
	}
	l.mu.Unlock()
	return proto.Clone(snap).(*raftpb.Snapshot), nil
}

// headAfter makes the header of a segment that would begin after index, or after the transaction that is open there.
func (l *Log) headAfter(index uint64) (segmentHead, error) {
	l.mu.RLock()
	commit, epoch := l.state.commit, l.epoch
	l.mu.RUnlock()
	led, index, err := l.ledgerAfter(index, commit)
	term, gone := l.Term(index)
	l.mu.RLock()
	same := l.epoch == epoch
	l.mu.RUnlock()
	if !same || gone != nil || err == raft.ErrUnavailable { // purged or reset meanwhile, or not there yet
		err = raft.ErrSnapshotTemporarilyUnavailable
	}
	if err != nil {
		return segmentHead{}, err
	}
	return segmentHead{cluster: l.opts.Cluster, first: index + 1, prevTerm: term, ledger: led}, nil
}

// entryMeta decodes an entry's meta; ok is false when it has none.
func entryMeta(m *Meta, e *raftpb.Entry) (events []byte, ok bool) {
	if e.GetType() != raftpb.EntryNormal || len(e.Data) == 0 {
		return nil, false
	}
	events, err := m.Decode(e.Data)
	return events, err == nil
}
