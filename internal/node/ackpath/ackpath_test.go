package ackpath

import (
	"encoding/binary"
	"errors"
	"slices"
	"testing"
	"time"

	"go.etcd.io/raft/v3/raftpb"

	"trireme/internal/base/run"
	"trireme/internal/core/consensus"
	"trireme/internal/core/dump"
	"trireme/internal/core/ha"
	"trireme/internal/core/ledger"
	"trireme/internal/core/raftlog"
	"trireme/internal/mysql/binlog"
	"trireme/internal/mysql/gtid"
)

// testHost is node 1 with a mysqld of incarnation 3 that serves in term 7.
type testHost struct {
	status  consensus.Status
	matches consensus.Matches
	leading Leading
	dead    bool  // no mysqld runs
	refuse  error // of Committed
	answer  error // of Ack

	offers    []string                                    // of Offer
	offer     func(done func(uint64, uint64, error)) bool // what it does; nil: there is room
	room      func()                                      // of WhenRoom
	acked     []uint64                                    // offsets
	committed []uint64
	told      []string
	failed    error
	woken     int
}

var realTime = run.Real{Boottime: consensus.Boottime}

func newTestPath() (*Path, *testHost) {
	h := &testHost{}
	h.status.Term, h.status.Role = 7, consensus.Leader
	h.leading = Leading{Incarnation: 3, Term: 7, Source: h}
	return New(1, ledger.New(raftlog.Boundary{}), realTime, h), h
}

func (h *testHost) Raft() Raft               { return h }
func (h *testHost) Status() consensus.Status { return h.status }
func (h *testHost) Matches() (consensus.Matches, bool) {
	return h.matches, h.status.Role == consensus.Leader
}
func (h *testHost) Offer(_ uint64, data []byte, done func(uint64, uint64, error), _ func()) bool {
	h.offers = append(h.offers, string(data))
	return h.offer == nil || h.offer(done)
}
func (h *testHost) WhenRoom(f func())                                        { h.room = f }
func (h *testHost) CarryBegins()                                             {}
func (h *testHost) Proposing(*raftlog.Meta, []byte)                          {}
func (h *testHost) WatchMatches(bool)                                        {}
func (h *testHost) Leading() (Leading, bool)                                 { return h.leading, !h.dead }
func (h *testHost) Acknowledged(*raftlog.Meta)                               {}
func (h *testHost) WhyUnmet(ha.CommitRule, consensus.Matches, uint64) string { return "n3 is gone" }
func (h *testHost) WakeLoop()                                                { h.woken++ }
func (h *testHost) Fail(err error)                                           { h.failed = err }

func (h *testHost) RuleChanged(_ string, _, _ uint64, text string) { h.told = append(h.told, text) }

func (h *testHost) Committed(e Entry) error {
	h.committed = append(h.committed, e.Index)
	return h.refuse
}

func (h *testHost) Ack(_ uint64, end raftlog.Pos) error {
	h.acked = append(h.acked, end.Off)
	return h.answer
}

// barrier begins the stream of node 1's incarnation 3 in term 7.
func barrier() *raftpb.Entry {
	m := raftlog.Meta{Kind: raftlog.Barrier, Node: 1, Incarnation: 3, Start: raftlog.Pos{File: 1, Off: 4},
		End: raftlog.Pos{File: 1, Off: 4}}
	return &raftpb.Entry{Index: new(uint64(1)), Term: new(uint64(7)), Data: raftlog.AppendMeta(nil, &m)}
}

// transaction is the one at an index of that stream, 100 bytes long.
func transaction(index uint64, flags raftlog.Flags) *raftpb.Entry {
	from := uint64(4 + 100*(index-2))
	m := raftlog.Meta{Kind: raftlog.Trx, Node: 1, Incarnation: 3, Flags: flags,
		Start: raftlog.Pos{File: 1, Off: from}, End: raftlog.Pos{File: 1, Off: from + 100}}
	m.AddGTID(gtid.GTID{SID: gtid.SID{UUID: gtid.IncarnationUUID(5, 1, 3)}, GNO: int64(index)})
	return &raftpb.Entry{Index: &index, Term: new(uint64(7)),
		Data: append(raftlog.AppendMeta(nil, &m), make([]byte, 100)...)}
}

func commit(t *testing.T, p *Path, entries ...*raftpb.Entry) {
	t.Helper()
	if err := p.OnCommitted(entries); err != nil {
		t.Fatal(err)
	}
}

// TestOneOKForMany: entries that are committed together get one OK, the last one's, once the host has seen them all.
func TestOneOKForMany(t *testing.T) {
	p, h := newTestPath()
	commit(t, p, barrier(), transaction(2, 0), transaction(3, 0))
	if !slices.Equal(h.acked, []uint64{204}) || !slices.Equal(h.committed, []uint64{1, 2, 3}) || p.Settled() != 7 ||
		h.woken != 1 {
		t.Errorf("%+v, settled %d", h, p.Settled())
	}
	commit(t, p, transaction(4, raftlog.FlagUnfinished))
	if len(h.acked) != 1 || h.woken != 1 {
		t.Errorf("a piece of a transaction got an OK: %+v", h)
	}
}

// TestNobodyElsesOK: what this leader did not propose in its term, or another incarnation has written, gets no OK (S1).
func TestNobodyElsesOK(t *testing.T) {
	for name, change := range map[string]func(*testHost){
		"raft is in another term":             func(h *testHost) { h.status.Term = 8 },
		"mysqld serves in no term":            func(h *testHost) { h.leading.Term = 0 },
		"mysqld serves in another term":       func(h *testHost) { h.leading.Term = 8 },
		"another incarnation of mysqld runs":  func(h *testHost) { h.leading.Incarnation = 4 },
		"no mysqld runs":                      func(h *testHost) { h.dead = true },
		"both have gone on to the next term":  func(h *testHost) { h.status.Term, h.leading.Term = 8, 8 },
		"the host does not take what it says": func(h *testHost) { h.refuse = errors.New("unreadable") },
	} {
		p, h := newTestPath()
		commit(t, p, barrier())
		change(h)
		if err := p.OnCommitted([]*raftpb.Entry{transaction(2, 0)}); !errors.Is(err, h.refuse) || len(h.acked) > 0 {
			t.Errorf("%s: %v, acknowledged %d", name, err, h.acked)
		}
	}
}

// TestAckFails: a source that has ended is no failure, one that was told nonsense ends the node.
func TestAckFails(t *testing.T) {
	for answer, fails := range map[error]bool{dump.ErrClosed: false, dump.ErrNotAttached: false, dump.ErrInvariant: true} {
		p, h := newTestPath()
		h.answer = answer
		commit(t, p, barrier(), transaction(2, 0))
		if (h.failed != nil) != fails {
			t.Errorf("%v: %v", answer, h.failed)
		}
	}
}

// TestSlow: the OK of a commit that is slowed comes after the delay, and at once when writes are closed.
func TestSlow(t *testing.T) {
	p, h := newTestPath()
	if s := p.Slow(4*time.Second, "n2", 2500*time.Millisecond); s != SlowingBegan || p.Delay() != 125*time.Millisecond {
		t.Fatalf("%v, %v", s, p.Delay())
	}
	if v := p.Flow(); v.Node != "n2" || v.DelaySeconds != 0.125 || v.BacklogSeconds != 2.5 || v.ObjectiveSeconds != 4 {
		t.Errorf("%+v", v)
	}
	p.flow.delay.Store(int64(time.Hour))
	commit(t, p, barrier(), transaction(2, 0), transaction(3, 0))
	if len(h.acked) > 0 {
		t.Fatal("not slowed")
	}
	p.ReleaseSlowed()
	if !slices.Equal(h.acked, []uint64{204}) || p.Delay() != 0 {
		t.Errorf("%d, slowed by %v", h.acked, p.Delay())
	}
	commit(t, p, transaction(4, 0))
	if p.ReleaseSlowed(); !slices.Equal(h.acked, []uint64{204, 304}) {
		t.Errorf("%d", h.acked)
	}
	p.Slow(4*time.Second, "n2", 2500*time.Millisecond)
	if p.SlowNothing(); p.Delay() != 0 || p.Flow() != nil {
		t.Error("still slowed")
	}
	if s := p.Slow(4*time.Second, "", 0); s != SlowingSame {
		t.Errorf("%v", s)
	}
}

// TestSlowEnds: that commits go as fast as they can is said once they have for a while.
func TestSlowEnds(t *testing.T) {
	p, _ := newTestPath()
	p.Slow(4*time.Second, "n2", 3*time.Second)
	if s := p.Slow(4*time.Second, "", 0); s != SlowingSame {
		t.Errorf("%v", s)
	}
	p.flow.slowed -= flowQuiet
	if s := p.Slow(4*time.Second, "", 0); s != SlowingEnded {
		t.Errorf("%v", s)
	}
}

// TestCommittedAt: the age of an entry is that of its commit on the leader, whatever the leader's clock says.
func TestCommittedAt(t *testing.T) {
	now := time.Unix(1_700_000_000, 0)
	const ahead = time.Hour // the leader's clock
	p, _ := newTestPath()
	events := gtidEvent(now.Add(ahead - 5*time.Second))
	m := &raftlog.Meta{Kind: raftlog.Trx, Node: 2}
	if at := p.committedAt(m, events, now); at != now {
		t.Errorf("a clock that is not known: %v", at)
	}
	p.SetClocks(map[uint64]time.Duration{2: -ahead, 3: ahead})
	for _, tt := range []struct {
		node  uint16
		flags raftlog.Flags
		want  time.Duration
	}{{2, 0, 5 * time.Second}, {1, 0, 0}, {4, 0, 0}, {2, raftlog.FlagContinues, 0}, {3, 0, 0}} {
		m := &raftlog.Meta{Kind: raftlog.Trx, Node: tt.node, Flags: tt.flags}
		if got := now.Sub(p.committedAt(m, events, now)); got != tt.want {
			t.Errorf("%+v: %v old", tt, got)
		}
	}
}

// gtidEvent is a GTID event as a leader's mysqld writes it.
func gtidEvent(committed time.Time) []byte {
	body := append([]byte{0}, make([]byte, 16)...)
	body[1] = 1
	body = binary.LittleEndian.AppendUint64(body, 7)
	body = append(body, 2)
	body = binary.LittleEndian.AppendUint64(body, 0)
	body = binary.LittleEndian.AppendUint64(body, 1)
	stamp := binary.LittleEndian.AppendUint64(nil, uint64(committed.UnixMicro()))
	body = append(append(body, stamp[:7]...), 100)
	body = binary.LittleEndian.AppendUint32(body, 90704)
	return binlog.AppendEvent(nil, binlog.Header{Type: binlog.TypeGTID, ServerID: 1}, body)
}
