package raftlog

// Barrier returns the newest Barrier entry at or below LastIndex.
func (l *Log) Barrier() BarrierInfo {
	l.mu.RLock()
	defer l.mu.RUnlock()
	return l.ledger.barrier
}
