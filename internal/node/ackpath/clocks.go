package ackpath

import (
	"time"

	"trireme/internal/core/raftlog"
	"trireme/internal/mysql/binlog"
)

// SetClocks takes what to add to each member's time of day for this host's. The path keeps the map.
func (p *Path) SetClocks(differences map[uint64]time.Duration) { p.clocks.Store(&differences) }

// committedAt is when the first transaction of an entry was committed, by this host's clock; now where that is not
// known, and never later.
func (p *Path) committedAt(m *raftlog.Meta, events []byte, now time.Time) time.Time {
	all := p.clocks.Load()
	if all == nil || m.Flags&raftlog.FlagContinues != 0 || uint64(m.Node) == p.self || len(events) == 0 {
		return now
	}
	d, known := (*all)[uint64(m.Node)]
	if !known {
		return now
	}
	ev, err := binlog.FirstGTID(events)
	if err != nil || ev.ImmediateCommit == 0 {
		return now
	}
	if at := time.UnixMicro(int64(ev.ImmediateCommit)).Add(d); at.Before(now) {
		return at
	}
	return now
}
