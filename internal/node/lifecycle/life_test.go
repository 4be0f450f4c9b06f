package lifecycle

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"trireme/internal/base/run"
	"trireme/internal/core/consensus"
	"trireme/internal/core/dump"
	"trireme/internal/core/ledger"
	"trireme/internal/core/raftlog"
	"trireme/internal/mysql/gtid"
	"trireme/internal/mysql/mysqld"
)

// member is a node of a test: it keeps its state in memory, and its mysqld is a fake. Methods that a test does not need
// are nil's.
type member struct {
	Host
	lives *Lives
	mysql *fakeMySQL
	state State

	calls    []string // of the order in which things were done
	applied  uint64   // what Executed answers
	lost     int
	released int
	guarded  time.Duration // what the guard was told
	why      string
	process  Process
	stream   Stream // the next; nil: one that cannot begin
}

var realTime = run.Real{Boottime: consensus.Boottime}

// soon is over at once.
func (m *member) soon(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Millisecond)
	t.Cleanup(cancel)
	return ctx
}

func newMember(t *testing.T) *member {
	m := &member{state: State{Lives: ledger.Lives{Retired: map[uint64]int64{}, Prelude: map[uint64]int64{}}}}
	m.mysql = &fakeMySQL{m: m, end: raftlog.Pos{File: 1, Off: 4}, cut: func() {}}
	m.lives = New(realTime)
	m.lives.Open(Config{Cluster: 5, Node: 1, Ledger: ledger.New(raftlog.Boundary{}), Memory: m, Host: m,
		Logger: slog.New(slog.DiscardHandler)})
	return m
}

// life is one that runs, and follows.
func (m *member) life(incarnation uint64) *Life {
	l := &Life{Incarnation: incarnation, UUID: gtid.IncarnationUUID(5, 1, incarnation), of: m.lives, mysql: m.mysql,
		proc:     hostProcess{&mysqld.Server{}},
		source:   closedSource(),
		consumed: raftlog.Pos{File: 1, Off: 4}}
	m.lives.Change(func(s *Status) {
		s.Started(l)
		s.Ready()
	})
	return l
}

var errNoDump = errors.New("no connection for a dump")

func closedSource() *dump.Source {
	return dump.NewSource(dump.SourceConfig{Dial: func(context.Context) (net.Conn, error) { return nil, errNoDump },
		Logger: slog.New(slog.DiscardHandler)})
}

func (m *member) NewProcess() (Process, error)               { return m.process, nil }
func (m *member) Prove(context.Context, *Life, []byte) error { return nil }
func (m *member) NewSource(*Life) Stream {
	if m.stream != nil {
		return m.stream
	}
	return closedSource()
}
func (m *member) Recall() *State { return &m.state }
func (m *member) Remember(change func(*State)) error {
	m.calls = append(m.calls, "remember")
	change(&m.state)
	return nil
}
func (m *member) Executed(*Life, gtid.Set) (uint64, error) { return m.applied, nil }
func (m *member) LostXA(*Life, LostXA, uint64, gtid.Set)   { m.lost++ }
func (m *member) Guard(until time.Duration)                { m.guarded = until }
func (m *member) ReleaseSlowed()                           { m.released++ }
func (m *member) WhyUnacknowledged() string                { return m.why }

// fakeMySQL answers what a test sets.
type fakeMySQL struct {
	MySQL
	m        *member
	executed string
	prepared func() []mysqld.XID
	waiting  uint64
	looked   func() // at who waits
	end      raftlog.Pos
	busy     int // looks at the binary log that show a local statement under way
	openErr  error
	flushErr error
	flushed  func()
	cut      func()

	readOnlyErr, killErr error // of the first call
	killed               int   // connections, by the first call
}

func (f *fakeMySQL) GTIDExecuted(context.Context) (string, error) { return f.executed, nil }
func (f *fakeMySQL) GTIDOwned(context.Context) (string, error) {
	if f.busy--; f.busy >= 0 {
		return gtid.IncarnationUUID(5, 1, 7).String() + ":9#12", nil
	}
	return "", nil
}
func (f *fakeMySQL) XARecover(context.Context) ([]mysqld.XID, error) {
	if f.prepared == nil {
		return nil, nil
	}
	return f.prepared(), nil
}
func (f *fakeMySQL) WaitingSessions(context.Context) (mysqld.Semisync, error) {
	if f.looked != nil {
		f.looked()
	}
	return mysqld.Semisync{Waiting: f.waiting}, nil
}
func (f *fakeMySQL) BinlogStatus(context.Context) (mysqld.BinlogPos, error) {
	return mysqld.BinlogPos{File: "binlog.000001", Offset: f.end.Off}, nil
}

func (f *fakeMySQL) SetSuperReadOnly(context.Context, bool) error {
	err := f.readOnlyErr
	f.readOnlyErr = nil
	return err
}
func (f *fakeMySQL) OpenTransactions(context.Context, bool) ([]mysqld.OpenTransaction, error) {
	return []mysqld.OpenTransaction{{AgeS: 3}}, nil
}
func (f *fakeMySQL) ApplicationSessions(context.Context) ([]mysqld.Session, error) {
	return nil, nil
}
func (f *fakeMySQL) KillApplicationConnections(context.Context) (int, error) {
	f.cut()
	n, err := f.killed, f.killErr
	f.killed, f.killErr = 0, nil
	return n, err
}
func (f *fakeMySQL) OpenWrites(context.Context) error { return f.openErr }
func (f *fakeMySQL) RefuseClients(context.Context) error {
	f.m.calls = append(f.m.calls, "refuse clients")
	return nil
}
func (f *fakeMySQL) SetSemisync(_ context.Context, on bool) error {
	f.m.calls = append(f.m.calls, map[bool]string{true: "semisync on", false: "semisync off"}[on])
	return nil
}
func (f *fakeMySQL) ConfigurePlain(context.Context, mysqld.Channel) error {
	f.m.calls = append(f.m.calls, "plain source")
	return nil
}
func (f *fakeMySQL) StartReplica(context.Context) error {
	f.m.calls = append(f.m.calls, "start")
	return nil
}
func (f *fakeMySQL) StopReplica(context.Context) error {
	f.m.calls = append(f.m.calls, "stop")
	return nil
}
func (f *fakeMySQL) FlushEngineLogs(context.Context) error {
	f.m.calls = append(f.m.calls, "flush")
	if f.flushed != nil {
		f.flushed()
	}
	return f.flushErr
}

// A mysqld that was killed and does not end, with its disk, does not keep the daemon from ending.
func TestWatchEndsWithTheDaemon(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	l := newMember(t).life(7)
	l.proc = hostProcess{&mysqld.Server{}} // a process that does not end: Done is never ready
	ended := make(chan bool)
	go func() { ended <- l.Watch(ctx) }()
	cancel()
	select {
	case dead := <-ended:
		if dead {
			t.Error("its mysqld counts as dead")
		}
	case <-time.After(10 * time.Second):
		t.Fatal("it waits for the end of mysqld")
	}
}

// ending is a process that comes to its end.
type ending struct {
	fakeProcess
	dying, gone, done chan struct{}
}

func (p ending) Dying() <-chan struct{}      { return p.dying }
func (p ending) SocketGone() <-chan struct{} { return p.gone }
func (p ending) Done() <-chan struct{}       { return p.done }
func (p ending) Pid() int                    { return 1 }

// Dying implements Host.
func (m *member) Dying(*Life) { m.calls = append(m.calls, "dying") }

// TestWatch: a mysqld that somebody else shuts down is killed; one that this daemon stops, or that dies, is not.
func TestWatch(t *testing.T) {
	for _, c := range []struct {
		name                string
		dies, gone, polite  bool
		killed, toldOfDying bool
	}{
		{"it dies", true, false, false, false, true},
		{"somebody shuts it down", false, true, false, true, false},
		{"this daemon shuts it down", false, true, true, false, false},
		{"it dies, and its socket is gone", true, true, false, false, true},
	} {
		m := newMember(t)
		l := m.life(7)
		p := ending{fakeProcess{m: m}, make(chan struct{}), make(chan struct{}), make(chan struct{})}
		l.proc = p
		l.polite.Store(c.polite)
		if c.dies {
			close(p.dying)
		}
		if c.gone {
			close(p.gone)
		}
		close(p.done)
		m.calls = nil
		ended := l.Watch(t.Context())
		if !ended || slices.Contains(m.calls, "kill") != c.killed || slices.Contains(m.calls, "dying") != c.toldOfDying {
			t.Errorf("%s: ended %t, %q", c.name, ended, m.calls)
		}
	}
}

// TestBeginLead: what a life has logged by itself is remembered before Raft is given anything, and a local statement
// that is under way is neither taken for one nor left waiting.
func TestBeginLead(t *testing.T) {
	m := newMember(t)
	l := m.life(7)
	m.mysql.executed, m.mysql.end = l.UUID.String()+":1-4", raftlog.Pos{File: 1, Off: 812}
	m.mysql.busy = 1
	if err := l.BeginLead(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, from := l.Stream(); from != m.mysql.end || !slices.Equal(m.state.Led, []uint64{7}) || m.state.Prelude[7] != 4 {
		t.Errorf("the dump starts at %s; %+v", from, m.state)
	}
	if got, want := strings.Join(m.calls, ", "), "semisync on, semisync off, semisync on, remember"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
	m.mysql.busy = 1 << 10
	if err := l.BeginLead(t.Context()); err != errNotQuiet || m.calls[len(m.calls)-1] != "semisync off" {
		t.Errorf("%v after %q", err, m.calls[len(m.calls)-1])
	}
}

// TestKeepDurable: the durable index is written down after InnoDB has flushed what it names, and while an XA
// transaction is prepared all of the log is kept.
func TestKeepDurable(t *testing.T) {
	m := newMember(t)
	l := m.life(7)
	m.applied, m.state.Durable = 30, 10
	m.mysql.flushErr = context.DeadlineExceeded
	if err := l.KeepDurable(t.Context(), 30); err != nil || m.state.Durable != 10 || m.lives.KeepFrom() != 0 {
		t.Errorf("not flushed: %v, durable %d, kept from %d", err, m.state.Durable, m.lives.KeepFrom())
	}
	m.mysql.flushErr, m.calls = nil, nil
	if err := l.KeepDurable(t.Context(), 30); err != nil || m.state.Durable != 30 || m.lives.KeepFrom() != 10 {
		t.Errorf("%v, durable %d, kept from %d", err, m.state.Durable, m.lives.KeepFrom())
	}
	if got := strings.Join(m.calls, ", "); got != "flush, remember" {
		t.Error(got)
	}
	m.mysql.prepared = func() []mysqld.XID { return []mysqld.XID{{FormatID: 1, Gtrid: "x"}} }
	if err := l.KeepDurable(t.Context(), 30); err != nil || m.lives.KeepFrom() != 0 {
		t.Errorf("%v, kept from %d", err, m.lives.KeepFrom())
	}
}

// TestKeepDurableOfDataGivenUp: what a look finds at data that is given up meanwhile says nothing about the copy that
// takes its place.
func TestKeepDurableOfDataGivenUp(t *testing.T) {
	m := newMember(t)
	l := m.life(7)
	m.applied, m.state.Durable = 30, 10
	m.mysql.flushed = func() {
		if m.lives.GiveUpLife() != l {
			t.Error("another life was given up")
		}
		m.state.Durable = 0
	}
	if err := l.KeepDurable(t.Context(), 30); err != nil || m.state.Durable != 0 || m.lives.KeepFrom() != 0 {
		t.Errorf("%v, durable %d, kept from %d", err, m.state.Durable, m.lives.KeepFrom())
	}
}

// TestLeaveFeed: replication is not started while the receiver may point at a plain source, and the receiver is not
// pointed there once a judgement may have pointed it at the feed.
func TestLeaveFeed(t *testing.T) {
	for _, c := range []struct {
		name  string
		since func(s *Status)
		left  bool // it may be pointed at a plain source
		fed   bool // replication may be started
	}{
		{"it follows", func(*Status) {}, false, true},
		{"it leaves", func(s *Status) { s.Leave(time.Minute) }, true, false},
		{"it stays", func(s *Status) { s.Leave(time.Minute); s.Stay() }, false, false},
		{"it is judged again", func(s *Status) { s.Leave(time.Minute); s.Judging() }, false, false},
		{"it has been judged again", func(s *Status) { s.Leave(time.Minute); s.Judging(); s.Ready() }, false, true},
		{"it is another", func(s *Status) { s.Started(&Life{Incarnation: 8}); s.Leave(time.Minute) }, false, false},
		{"it is promoted", func(s *Status) { s.Promote(5) }, false, false},
		{"it is dying", func(s *Status) { s.Leave(time.Minute); s.Dying() }, false, false},
	} {
		m := newMember(t)
		l := m.life(7)
		m.lives.Change(c.since)
		m.calls = nil
		if err := l.LeaveFeed(t.Context(), mysqld.Channel{}); (err == nil) != c.left ||
			slices.Contains(m.calls, "plain source") != c.left {
			t.Errorf("%s: pointed at a plain source: %v, %q", c.name, err, m.calls)
		}
		m.calls = nil
		if err := l.RestartFeed(t.Context()); (err == nil) != c.fed || slices.Contains(m.calls, "start") != c.fed {
			t.Errorf("%s: started: %v, %q", c.name, err, m.calls)
		}
	}
}

// starting is a process whose start a test looks at.
type starting struct {
	fakeProcess
	started func()
}

func (p starting) Start(context.Context, string) error { p.started(); return nil }
func (p starting) MySQL() MySQL                        { return p.m.mysql }
func (p starting) Certificate() []byte                 { return nil }
func (p starting) Pid() int                            { return 1 }
func (p starting) LoggedGTIDs() (s gtid.Set)           { return s }

// TestStartAtTheEnd: a mysqld that has come up when the daemon is about to end does not outlive it.
func TestStartAtTheEnd(t *testing.T) {
	for _, ends := range []bool{false, true} {
		m := newMember(t)
		f := &feedable{fakeMySQL: m.mysql}
		ctx, cancel := context.WithCancel(t.Context())
		m.stream, m.process = f, starting{fakeProcess{m: m}, func() {
			if ends {
				cancel()
			}
		}}
		l, err := m.lives.Start(ctx)
		cancel()
		if (l == nil) != ends || (err != nil) != ends || slices.Contains(m.calls, "kill") != ends {
			t.Errorf("the daemon ends %t: %v, %q", ends, err, m.calls)
		}
	}
}
