// Package ackpath leads from what mysqld writes to Raft, and from what Raft has committed to the OKs of mysqld's
// clients.
//
//	mysqld --binary log--> Carry --proposals--> Raft
//	Raft --entries--> ledger --> commit rules --> flow control --> OK (S1)
//
// Raft brings committed entries in order. Each goes into the ledger first, then to the host, which
// counts it and takes new settings. An entry that ends with a transaction of this node's own mysqld lets commits go on:
// at once, or when must_ack and commit_zones are met, or after the delay that lag_objective asks for. Acknowledgements
// are cumulative: the OK of an entry is that of all before it, so they may overtake each other.
//
// Whatever held an OK back, the last step looks again whether this node is still the leader of the term that proposed
// the entry, and whether the mysqld that wrote it still runs (ledger.Ack).
package ackpath

import (
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"go.etcd.io/raft/v3/raftpb"

	"trireme/internal/base/failpoint"
	"trireme/internal/base/run"
	"trireme/internal/core/consensus"
	"trireme/internal/core/dump"
	"trireme/internal/core/ha"
	"trireme/internal/core/ledger"
	"trireme/internal/core/raftlog"
)

// Leading is the mysqld that runs here.
type Leading struct {
	Incarnation uint64
	Term        uint64 // the one in which it serves; 0: none
	Source      Source
}

// Source takes acknowledgements: the dump of mysqld's binary log, dump.Source.
type Source interface {
	Ack(incarnation uint64, end raftlog.Pos) error
}

// Raft is what the path asks of consensus.Node.
type Raft interface {
	Status() consensus.Status
	Matches() (m consensus.Matches, leads bool)
	WatchMatches(on bool)
	Offer(term uint64, data []byte, done func(index, term uint64, err error), copied func()) (more bool)
}

// Entry is one that was committed.
type Entry struct {
	Index uint64
	Meta  *raftlog.Meta
	Size  int    // bytes, with the meta
	Body  []byte // what follows the meta
}

// Host is the rest of the member.
type Host interface {
	Raft() Raft
	// Leading is the mysqld that runs here; ok is false when no mysqld leads.
	Leading() (l Leading, ok bool)
	// WhenRoom has f called once on the engine when raft has room again (consensus.Node.WhenRoom).
	WhenRoom(f func())
	// CarryBegins is told that what mysqld writes is carried to Raft from now on, and Proposing of each piece; data is
	// not to be kept.
	CarryBegins()
	Proposing(m *raftlog.Meta, data []byte)
	// Committed is told of each entry, in order, before it is acknowledged. An error ends the node.
	Committed(e Entry) error
	// Acknowledged is told of each OK that mysqld got.
	Acknowledged(m *raftlog.Meta)
	// WhyUnmet says whose log a rule waits for.
	WhyUnmet(c ha.CommitRule, m consensus.Matches, commit uint64) string
	// RuleChanged is told that a rule was suspended or is in force again.
	RuleChanged(kind string, term, commit uint64, text string)
	WakeLoop()
	// Fail ends the node: an invariant is broken.
	Fail(err error)
}

// Path is of one member. Its methods may be called from any goroutine, but for OnCommitted, whose calls come one after
// the other (on the engine, or the apply goroutine), and TickRules (the member's loop).
type Path struct {
	self    uint64
	ledger  *ledger.Ledger
	clock   run.Clock
	host    Host
	settled atomic.Uint64
	clocks  atomic.Pointer[map[uint64]time.Duration]
	rules   rules
	flow    flow
}

// New makes the path of a member. It holds nothing back until TickRules and Slow say so.
func New(self uint64, led *ledger.Ledger, clock run.Clock, host Host) *Path {
	return &Path{self: self, ledger: led, clock: clock, host: host}
}

// Settled is the highest term of which an entry was committed and applied here.
func (p *Path) Settled() uint64 { return p.settled.Load() }

// backdateFrom is how much older than its arrival an entry is when its age is worth a second lock of the ledger.
const backdateFrom = 50 * time.Millisecond

// OnCommitted takes committed entries, in order. An error ends the node. Ordinary transactions (raftlog.IsPlainTrx)
// take it no time: a few additions and an acknowledgement. Settings, barriers and the rest may make the member wait.
func (p *Path) OnCommitted(entries []*raftpb.Entry) error {
	var ack *raftlog.Meta
	var ackTerm uint64
	rules := p.rules.on.Load()
	for _, e := range entries {
		data := e.GetData()
		if e.GetType() != raftpb.EntryNormal {
			data = nil
		}
		at := p.clock.Wall()
		m, body, err := p.ledger.Add(e.GetIndex(), e.GetTerm(), data, at)
		if err != nil {
			return fmt.Errorf("the committed log is broken: %w", err)
		}
		if m.Kind == raftlog.Trx {
			if committed := p.committedAt(&m, body, at); at.Sub(committed) > backdateFrom {
				p.ledger.Backdate(committed)
			}
		}
		if err := p.host.Committed(Entry{e.GetIndex(), &m, len(data), body}); err != nil {
			return err
		}
		switch {
		case m.Kind != raftlog.Trx || m.Flags&raftlog.FlagUnfinished != 0:
		case rules:
			p.holdForRules(e.GetIndex(), e.GetTerm(), &m)
		default:
			ack, ackTerm = &m, e.GetTerm()
		}
	}
	if term := entries[len(entries)-1].GetTerm(); p.settled.Swap(term) != term {
		p.host.WakeLoop()
	}
	if ack != nil {
		p.acknowledgeSoon(ackTerm, ack)
	}
	return nil
}

// held is what an acknowledgement needs. It keeps nothing of the entry itself.
type held struct {
	term uint64
	meta raftlog.Meta
}

func holdBack(term uint64, m *raftlog.Meta) held {
	return held{term, raftlog.Meta{Node: m.Node, Incarnation: m.Incarnation, End: m.End}}
}

// Acknowledge lets mysqld go on with what is committed: only in the term that proposed it and only to the incarnation
// that wrote it (S1).
func (p *Path) Acknowledge(entryTerm uint64, m *raftlog.Meta) {
	if uint64(m.Node) != p.self {
		return
	}
	l, ok := p.host.Leading()
	if !ok {
		return
	}
	ack := ledger.Ack{Node: p.self, Incarnation: l.Incarnation, Serving: l.Term, Term: p.host.Raft().Status().Term}
	if !ack.Allows(entryTerm, m) {
		return
	}
	failpoint.Hit("ack.before")
	err := l.Source.Ack(m.Incarnation, m.End)
	if err != nil && !errors.Is(err, dump.ErrClosed) && !errors.Is(err, dump.ErrNotAttached) {
		p.host.Fail(fmt.Errorf("acknowledging %s: %w", m.End, err))
	}
	p.host.Acknowledged(m)
	failpoint.Hit("ack.after")
}
