package consensus

import (
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sort"
	"strings"
	"testing"
	"time"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"
)

// env drives a group of cores step by step: no goroutine, no time but ticks, and a network and disks that do what the
// test says.
type env struct {
	t       testing.TB
	members map[uint64]*member
	net     []*raftpb.Message
	cut     map[uint64]bool
	now     int64
	out     strings.Builder
	loud    bool              // heartbeats are shown too
	older   func(uint64) bool // members of a version that neither tells nor learns in elections; nil: none
	learned int               // how often a vote told somebody what is committed
	timers  *rand.Rand        // raft's election timeouts; nil: its own, which nothing repeats
}

type member struct {
	id        uint64
	e         *env
	store     *memStore
	cfg       Config
	pub       published
	core      *core
	appender  *appender
	applier   *applier
	appends   []*raftpb.Message
	applies   []applyJob
	diskHeld  bool // fsync does not return
	down      bool
	delivered []string // data of committed entries
	outcomes  []string // of proposals, reads and transfers, not printed yet
	timeout   int      // raft's, while e.timers draws it
	drawn     raft.SoftState
	drawnTerm uint64
}

func newEnv(t testing.TB) *env {
	return &env{t: t, members: map[uint64]*member{}, cut: map[uint64]bool{}, now: int64(time.Hour)}
}

func (e *env) printf(format string, a ...any) { fmt.Fprintf(&e.out, format+"\n", a...) }

func (e *env) ids() []uint64 {
	var ids []uint64
	for id := range e.members {
		ids = append(ids, id)
	}
	sort.Slice(ids, func(i, j int) bool { return ids[i] < ids[j] })
	return ids
}

// start makes or restarts a member on a store.
func (e *env) start(id uint64, store *memStore, peers []raft.Peer) error {
	m := &member{id: id, e: e, store: store}
	m.cfg = Config{
		ID: id, Storage: store, Send: func([]*raftpb.Message) {},
		ElectionTicks: 10, HeartbeatTicks: 2, TickInterval: 100 * time.Millisecond,
		MaxUncommittedBytes: 200,
		OnCommitted:         m.committed,
		OnSnapshot: func(s *raftpb.Snapshot) error {
			e.printf("%d: log replaced by snapshot at %d, voters=%v learners=%v", id, s.GetMetadata().GetIndex(),
				m.pub.state.Load().Voters, m.pub.state.Load().Learners)
			return nil
		},
		Logger: slog.New(slog.DiscardHandler),
		Clock:  func() int64 { return e.now },
	}
	if err := m.cfg.setDefaults(); err != nil {
		return err
	}
	st, err := recoverState(store, 0)
	if err != nil {
		return err
	}
	if m.core, err = newCore(&m.cfg, st, peers, &m.pub); err != nil {
		return err
	}
	m.appender = newAppender(&m.cfg, st, &m.pub)
	m.applier = newApplier(&m.cfg, st, &m.pub)
	m.applier.change = func(cc raftpb.ConfChangeI) (*raftpb.ConfState, error) { return m.core.applyConfChange(cc), nil }
	e.members[id] = m
	return nil
}

// tick lets one tick interval pass for m alone. Raft draws an election timeout with every new term or role, or about
// that often.
func (m *member) tick() {
	if m.e.timers != nil {
		bs := m.core.rn.BasicStatus()
		if m.timeout == 0 || bs.SoftState != m.drawn || bs.GetTerm() != m.drawnTerm {
			least := 2 * m.cfg.ElectionTicks // as raft is configured in newCore
			m.timeout, m.drawn, m.drawnTerm = least+m.e.timers.IntN(least), bs.SoftState, bs.GetTerm()
		}
		*raftTimer(m.core.rn) = m.timeout
	}
	m.core.tick()
}

func (m *member) committed(ents []*raftpb.Entry) error {
	for _, en := range ents {
		switch {
		case en.GetType() != raftpb.EntryNormal:
			m.e.printf("%d: committed %d/%d membership change", m.id, en.GetTerm(), en.GetIndex())
		case len(en.GetData()) == 0:
			m.e.printf("%d: committed %d/%d empty", m.id, en.GetTerm(), en.GetIndex())
		default:
			m.e.printf("%d: committed %d/%d %q", m.id, en.GetTerm(), en.GetIndex(), shorten(string(en.GetData())))
			m.delivered = append(m.delivered, string(en.GetData()))
		}
	}
	return nil
}

func shorten(s string) string {
	if len(s) > 20 {
		return s[:20] + "..."
	}
	return s
}

// turn lets one member do everything it can without the network: it returns false if there was nothing to do.
func (m *member) turn() bool {
	if m.down {
		return false
	}
	var out output
	if err := m.core.advance(&out); err != nil {
		m.e.t.Fatalf("member %d: %v", m.id, err)
	}
	busy := len(out.appends)+len(out.applies)+len(out.sends)+len(out.states) > 0
	for _, s := range out.states {
		m.e.printf("%d: %s term=%d leader=%d", m.id, s.Role, s.Term, s.Leader)
	}
	m.appends = append(m.appends, out.appends...)
	for _, a := range out.applies {
		m.applies = append(m.applies, applyJob{m: a})
	}
	m.e.net = append(m.e.net, out.sends...)
	m.finish()
	return m.disk() || m.apply() || busy
}

// disk carries out the appends, all in one batch.
func (m *member) disk() bool {
	if m.diskHeld || len(m.appends) == 0 {
		return false
	}
	batch := m.appends
	m.appends = nil
	responses, err := m.appender.process(batch)
	if err != nil {
		m.e.t.Fatalf("member %d: %v", m.id, err)
	}
	for _, b := range batch {
		if s := b.GetSnapshot(); !raft.IsEmptySnap(s) {
			m.applies = append(m.applies, applyJob{snap: s})
		}
	}
	for _, r := range responses {
		if r.GetTo() != m.id {
			m.e.net = append(m.e.net, r)
		} else if err := m.core.respond(r); err != nil {
			m.e.t.Fatalf("member %d: %v", m.id, err)
		}
	}
	return true
}

func (m *member) apply() bool {
	jobs := m.applies
	m.applies = nil
	for _, j := range jobs {
		if j.snap != nil {
			if err := m.applier.snapshot(j.snap); err != nil {
				m.e.t.Fatalf("member %d: %v", m.id, err)
			}
			continue
		}
		if err := m.applier.process(j.m); err != nil {
			m.e.t.Fatalf("member %d: %v", m.id, err)
		}
		for _, r := range j.m.GetResponses() {
			if err := m.core.respond(r); err != nil {
				m.e.t.Fatalf("member %d: %v", m.id, err)
			}
		}
	}
	return len(jobs) > 0
}

// propose gives a proposal to m's raft; its outcome will be printed.
func (m *member) propose(p *proposal) {
	p.done = func(index, term uint64, err error) {
		if err != nil {
			m.note("proposal refused: %v", err)
		} else {
			m.note("proposal accepted at %d/%d", term, index)
		}
	}
	m.core.props.waiting = append(m.core.props.waiting, p)
}

func (m *member) transfer(to uint64) {
	m.core.startTransfer(&transfer{to: to, done: func(err error) { m.note("transfer to %d: %v", to, err) }})
}

func (m *member) note(format string, a ...any) {
	m.outcomes = append(m.outcomes, fmt.Sprintf(format, a...))
}

// finish prints the outcome of proposals, reads and transfers.
func (m *member) finish() {
	for _, o := range m.outcomes {
		m.e.printf("%d: %s", m.id, o)
	}
	m.outcomes = nil
}

// settle runs until nothing moves.
func (e *env) settle() {
	for step := 0; ; step++ {
		if step > 10000 {
			e.t.Fatal("the group does not come to rest")
		}
		busy := false
		for _, id := range e.ids() {
			busy = e.members[id].turn() || busy
		}
		if msgs := e.net; len(msgs) > 0 {
			e.net = nil
			busy = true
			for _, m := range msgs {
				e.deliver(m)
			}
		}
		if !busy {
			for _, id := range e.ids() {
				e.members[id].finish()
			}
			return
		}
	}
}

func (e *env) deliver(m *raftpb.Message) {
	to := e.members[m.GetTo()]
	lost := to == nil || to.down || e.cut[m.GetTo()] || e.cut[m.GetFrom()]
	e.show(m, lost)
	if lost {
		return
	}
	if e.older != nil && isElection(m) && (e.older(m.GetFrom()) || e.older(m.GetTo())) {
		m = proto.Clone(m).(*raftpb.Message)
		m.Commit, m.RejectHint = nil, nil
	}
	before := to.core.rn.BasicStatus().GetCommit()
	to.core.receive(m)
	if isElection(m) && to.core.rn.BasicStatus().GetCommit() > before {
		e.learned++
	}
}

func (e *env) show(m *raftpb.Message, lost bool) {
	t := m.GetType()
	if !e.loud && (t == raftpb.MsgHeartbeat || t == raftpb.MsgHeartbeatResp) {
		return
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%d>%d %s term=%d", m.GetFrom(), m.GetTo(), t, m.GetTerm())
	switch t {
	case raftpb.MsgApp:
		fmt.Fprintf(&b, " after=%d/%d entries=%d commit=%d", m.GetLogTerm(), m.GetIndex(), len(m.GetEntries()), m.GetCommit())
	case raftpb.MsgAppResp:
		fmt.Fprintf(&b, " index=%d", m.GetIndex())
	case raftpb.MsgVote, raftpb.MsgPreVote:
		fmt.Fprintf(&b, " log=%d/%d", m.GetLogTerm(), m.GetIndex())
	case raftpb.MsgSnap:
		fmt.Fprintf(&b, " snapshot=%d", m.GetSnapshot().GetMetadata().GetIndex())
	}
	if m.GetReject() {
		b.WriteString(" reject")
	}
	if lost {
		b.WriteString(" (lost)")
	}
	e.printf("  %s", b.String())
}

// tick lets n tick intervals pass for the members given, with everything in between.
func (e *env) tick(ids []uint64, n int) {
	for range n {
		e.now += int64(100 * time.Millisecond)
		for _, id := range ids {
			if m := e.members[id]; !m.down {
				m.tick()
			}
		}
		e.settle()
	}
}
