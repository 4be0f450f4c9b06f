package seeding

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"testing"

	"trireme/internal/api"
	"trireme/internal/base/config"
	"trireme/internal/base/run"
	"trireme/internal/core/consensus"
	"trireme/internal/core/ha"
	"trireme/internal/core/ledger"
	"trireme/internal/core/raftlog"
	"trireme/internal/mysql/gtid"
	"trireme/internal/mysql/mysqld"
	"trireme/internal/node/gossip"
	"trireme/internal/node/lifecycle"
	"trireme/internal/node/membership"
)

var realTime = run.Real{Boottime: consensus.Boottime}

// member is db1 of db1, db2 and db3, without a mysqld and with all that a Seeding needs of the rest. The others are
// ready, and answer what a test sets.
type member struct {
	t *testing.T
	s *Seeding

	settings *config.Cluster
	peers    gossip.Peers
	raft     consensus.Status
	first    uint64 // where the log begins
	answers  map[uint64]func(kind uint8, body []byte) ([]byte, error)
	asked    []uint64 // who was asked, in order
	ill      bool     // this member is not ready
	blocked  *api.BlockedView

	lock    sync.Mutex // as Node.mu: no port may be asked with it held
	lives   *lifecycle.Lives
	applied uint64
	copy    func(ctx context.Context, from mysqld.Seeding) error // nil: it succeeds
	calls   []string                                             // of mysqld
	free    uint64

	notes  Notes
	state  lifecycle.State
	full   error // of writing notes
	events []api.Event
}

func newMember(t *testing.T) *member {
	m := &member{t: t, first: 1, lives: lifecycle.New(realTime), free: 1 << 40,
		settings: &config.Cluster{Version: 3, NextID: 4}, peers: gossip.Peers{},
		answers: map[uint64]func(uint8, []byte) ([]byte, error){}}
	for id := uint64(1); id <= 3; id++ {
		name := fmt.Sprint("db", id)
		m.settings.Members = append(m.settings.Members, config.Member{ID: id, Name: name, Role: config.RoleVoter})
		if id != 1 {
			m.peers[id] = &gossip.Peer{Up: true, At: realTime.Now(), Status: gossip.Status{Ready: true, Epoch: "5",
				Member: api.MemberView{Name: name, MySQL: &api.MySQLView{Version: "9.7.1"}}}}
		}
	}
	m.s = New(config.Default(), config.Identity{Cluster: "prod", Name: "db1", ID: 1, Role: config.RoleVoter},
		Parts{Time: realTime, Ledger: ledger.New(raftlog.Boundary{}), Cluster: testCluster{m}, Server: testServer{m},
			Memory: m, Host: m, Logger: slog.New(slog.DiscardHandler)})
	return m
}

// follows begins a life of mysqld that is judged and fed.
func (m *member) follows(incarnation uint64) *lifecycle.Life {
	l := &lifecycle.Life{Incarnation: incarnation}
	m.lives.Change(func(s *lifecycle.Status) {
		s.Started(l)
		s.Ready()
	})
	return l
}

// setBehind has it seeded.
func (m *member) setBehind(why string) { m.lives.Change(func(s *lifecycle.Status) { s.Behind(why) }) }

// server is how mysqld is, and what is said of it.
func (m *member) server() (ha.ServerState, string) {
	s := m.lives.Status()
	return s.State(), s.Problem()
}

// gives has a member donate.
func (m *member) gives(id uint64, d any) {
	m.answers[id] = func(kind uint8, _ []byte) ([]byte, error) {
		if kind != ReqDonate.Number {
			return nil, fmt.Errorf("request %d", kind)
		}
		return json.Marshal(d)
	}
}

// outside fails if a port is asked from within Server.Change.
func (m *member) outside() {
	m.t.Helper()
	if !m.lock.TryLock() {
		m.t.Error("a port is asked with the member's lock held")
		return
	}
	m.lock.Unlock()
}

// happened are the kinds of the events that were recorded.
func (m *member) happened() (kinds []string) {
	for _, e := range m.events {
		kinds = append(kinds, e.Kind)
	}
	return kinds
}

func (m *member) Notes() *Notes { return &m.notes }

func (m *member) Note(change func(*Notes, *lifecycle.State)) error {
	m.outside()
	if m.full == nil {
		change(&m.notes, &m.state)
	}
	return m.full
}

func (m *member) Raft() Raft                          { return testRaft{m} }
func (m *member) Log() Log                            { return testLog{m} }
func (m *member) Protect(_ uint64, s *mysqld.Seeding) { s.CAFile = "protected" }
func (m *member) Record(e api.Event)                  { m.outside(); m.events = append(m.events, e) }
func (m *member) IsNew(string, error) bool            { return false }
func (m *member) Go(f func(context.Context))          { m.outside(); go f(m.t.Context()) }
func (m *member) Publish()                            { m.outside() }
func (m *member) WakeLoop()                           { m.outside() }

type testCluster struct{ m *member }

func (c testCluster) Settings() *config.Cluster                { return c.m.settings }
func (c testCluster) Peers() gossip.Peers                      { return c.m.peers }
func (c testCluster) Blocked(context.Context) *api.BlockedView { return c.m.blocked }

func (c testCluster) Census() membership.Census {
	m := c.m
	m.outside()
	k := ledger.Census{Nodes: map[uint64]ledger.CensusNode{}}
	for _, n := range m.settings.Members {
		p := m.peers[n.ID]
		k.Nodes[n.ID] = ledger.CensusNode{Name: n.Name, Voter: n.Role == config.RoleVoter,
			Live: n.ID == 1 || p.Fresh(), Data: n.Role != config.RoleLogger, Ready: n.ID == 1 && !m.ill || p.Fresh() && p.Ready}
	}
	return membership.Census{Census: k}
}

func (c testCluster) CheckTerm(want uint64) error {
	if want != 0 && want != c.m.raft.Term {
		return api.Errorf(api.KindChanged, "another term")
	}
	return nil
}

func (c testCluster) Change(_ context.Context, term uint64, change func(*config.Cluster) error) (*config.Cluster,
	error) {
	c.m.outside()
	if err := c.CheckTerm(term); err != nil {
		return nil, err
	}
	next := c.m.settings.Clone()
	err := change(next)
	if err == nil {
		c.m.settings = next
	}
	return next, err
}

func (c testCluster) Result(version uint64, name, message string) api.MemberResult {
	return api.MemberResult{Version: version, Name: name, Message: message}
}

func (c testCluster) Request(_ context.Context, to uint64, kind uint8, body []byte) ([]byte, error) {
	c.m.outside()
	c.m.asked = append(c.m.asked, to)
	if answer := c.m.answers[to]; answer != nil {
		return answer(kind, body)
	}
	return nil, errors.New("it does not answer")
}

type testServer struct{ m *member }

func (s testServer) Now() (lifecycle.Status, uint64) {
	s.m.lock.Lock()
	defer s.m.lock.Unlock()
	return s.m.lives.Status(), s.m.applied
}

func (s testServer) Change(f func(*lifecycle.Status, uint64) bool) {
	s.m.lock.Lock()
	defer s.m.lock.Unlock()
	s.m.lives.Change(func(st *lifecycle.Status) { f(st, s.m.applied) })
}

func (s testServer) call(what string) {
	s.m.outside()
	s.m.calls = append(s.m.calls, what)
}

func (s testServer) RestartFeed(context.Context, *lifecycle.Life) error {
	s.call("restart feed")
	return nil
}
func (s testServer) PauseFeed()                            { s.call("pause feed") }
func (s testServer) Restart(string)                        { s.call("restart") }
func (s testServer) GiveUp() error                         { s.call("give up"); s.m.lives.GiveUpLife(); return nil }
func (s testServer) Space() (free, used uint64, err error) { return s.m.free, 100 << 30, nil }
func (s testServer) Version() string                       { return "9.7.4" }

func (s testServer) Copy(ctx context.Context, from mysqld.Seeding) error {
	s.call(fmt.Sprintf("copy from %s:%d", from.Host, from.Port))
	if s.m.copy != nil {
		return s.m.copy(ctx, from)
	}
	return complete(ctx, from)
}

// complete is the end of a copy.
func complete(ctx context.Context, from mysqld.Seeding) error {
	if err := from.Check(ctx); err != nil {
		return err
	}
	return from.Confirm(ctx)
}

type testRaft struct{ m *member }

func (r testRaft) Status() consensus.Status                  { r.m.outside(); return r.m.raft }
func (r testRaft) ReadIndex(context.Context) (uint64, error) { return 0, errors.New("no quorum") }

// testLog has no entries.
type testLog struct{ m *member }

func (l testLog) FirstIndex() (uint64, error) { return l.m.first, nil }

func (l testLog) SeekGTID(gtid.Set, uint64) (uint64, []byte, error) { return l.m.first, nil, nil }

func (l testLog) Scan(uint64, uint64, func(*raftlog.Meta, uint64, uint64, []byte) error) error {
	return nil
}

func equal(t *testing.T, what string, got, want []string) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Errorf("%s: %q, want %q", what, got, want)
	}
}
