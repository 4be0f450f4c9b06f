package raftlog

import "go.etcd.io/raft/v3/raftpb"

// All returns the entries from lo to hi-1.
func (l *Log) All(lo, hi uint64) (all []*raftpb.Entry, err error) {
	for lo < hi && err == nil {
		var es []*raftpb.Entry
		es, err = l.Entries(lo, hi, 1<<40)
		all, lo = append(all, es...), lo+uint64(len(es))
	}
	return all, err
}

// Barrier returns the newest Barrier entry at or below LastIndex.
func (l *Log) Barrier() BarrierInfo {
	l.mu.RLock()
	defer l.mu.RUnlock()
	return l.ledger.barrier
}

// Err returns the failure that ended the log's life, or nil.
func (l *Log) Err() error {
	if e := l.failed.Load(); e != nil {
		return *e
	}
	return nil
}
