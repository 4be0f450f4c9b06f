package lifecycle

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"trireme/internal/base/run"
	"trireme/internal/core/dump"
	"trireme/internal/core/ledger"
	"trireme/internal/core/raftlog"
	"trireme/internal/mysql/gtid"
	"trireme/internal/mysql/mysqld"
)

// Limits of waits.
const (
	readIndexTimeout = 5 * time.Second
	BlockerPatience  = 5 * time.Second // for sessions that hold up the applier
)

// Config is what Lives are made of.
type Config struct {
	Cluster uint64
	Node    uint16
	Base    gtid.Set // what an adopted cluster began with (config.Cluster.Base)
	Log     *raftlog.Log
	Ledger  *ledger.Ledger
	Memory  Memory
	Feed    Feed
	Host    Host
	Logger  *slog.Logger
}

// State is what must be remembered over a restart of the daemon. It is on disk before anything that depends on it
// happens.
type State struct {
	// Incarnation is the number of the newest life (S5). It grows before each start.
	Incarnation uint64 `json:"incarnation"`
	// Lives tells this node's local statements from what was lost.
	ledger.Lives
	// Durable is the durable index (S8): everything at or below it is durably in InnoDB.
	Durable uint64 `json:"durable_index"`
	// Inherited are GTIDs that came with the data of another node when this one was seeded, and that are the donor's
	// own affair: local statements of dead incarnations, which the log does not have. A GTID set in MySQL's text form.
	Inherited string `json:"inherited,omitempty"`
}

// Memory keeps a State.
type Memory interface {
	// Recall returns the newest state; it is not to be changed.
	Recall() *State
	// Remember changes the state and returns once it is on disk.
	Remember(change func(*State)) error
}

// Raft is what a life asks of consensus.Node.
type Raft interface {
	ReadIndex(ctx context.Context) (uint64, error)
	// ProposeInTerm returns the index of what was proposed, or why it is in no log (S7).
	ProposeInTerm(ctx context.Context, term uint64, data []byte) (index uint64, err error)
}

// Feed gives mysqld what is committed.
type Feed interface {
	// Begin is called before a receiver starts, and says where it connects.
	Begin() (mysqld.Channel, error)
	// Pause stops feeding a mysqld that is about to lead. It does nothing once ctx has ended.
	Pause(ctx context.Context) error
	Resume()
}

// Host is the rest of the member.
type Host interface {
	Raft() Raft
	// NewProcess makes a mysqld that was not started yet; see NewProcess.
	NewProcess() (Process, error)
	// NewSource reads the binary log of a life.
	NewSource(l *Life) Stream
	// Prove looks at the certificate that a new life shows, before anybody is led there.
	Prove(ctx context.Context, l *Life, tls []byte) error
	// FollowDecisions has the data follow what operators have decided about entries; has is what it holds, and it is
	// not fed yet.
	FollowDecisions(has gtid.Set) error
	// Executed is told what a life has executed, and returns up to which entry it has applied everything; ErrDead if
	// there is another life, or none.
	Executed(l *Life, set gtid.Set) (applied uint64, err error)
	// LostXA is told that a session on a follower has ended a prepared XA transaction.
	LostXA(l *Life, lost LostXA, applied uint64, executed gtid.Set)
	// ReleaseSlowed lets go acknowledgements that are held back for slow followers.
	ReleaseSlowed()
	// WhyUnacknowledged says what the oldest commits wait for; empty: none waits.
	WhyUnacknowledged() string
	// Guard has the guard kill mysqld at a moment, unless it is told again before; 0: it serves nothing and may live.
	Guard(until time.Duration)
	// Dying is told that the process of a life is ending.
	Dying(l *Life)
	// Fail ends the node: it is not safe to go on.
	Fail(err error)
}

// Process is a mysqld, and its files.
type Process interface {
	// Start returns once mysqld takes statements. It removes the binary log, also when it fails.
	Start(ctx context.Context, uuid string) error
	// MySQL is for a mysqld that has started.
	MySQL() MySQL
	// Certificate is what it was configured with, in PEM.
	Certificate() []byte
	Pid() int

	StopPolitely(ctx context.Context) error
	Kill() error
	Dying() <-chan struct{}
	SocketGone() <-chan struct{}
	Done() <-chan struct{}

	// LoggedGTIDs are those in the binary log. What cannot be read is left out.
	LoggedGTIDs() gtid.Set
	// OnlyControlEvents says whether the binary log holds nothing between two positions but the events that begin and end
	// its files.
	OnlyControlEvents(from, to raftlog.Pos) bool
}

// Stream is a dump of mysqld's binary log: dump.Source, which describes its methods.
type Stream interface {
	Prepare(ctx context.Context) error
	Attach(ctx context.Context, from raftlog.Pos) (format []byte, err error)
	Run(ctx context.Context, take func(dump.Payload) (more bool)) error
	Resume()
	Ack(incarnation uint64, pos raftlog.Pos) error
	Position() raftlog.Pos
	Acked() raftlog.Pos
	Close() error
}

var _ Stream = (*dump.Source)(nil)

// MySQL is what a life asks of its server: mysqld.Admin.
type MySQL interface {
	Ping(ctx context.Context) (mysqld.Pulse, error)
	GTIDExecuted(ctx context.Context) (string, error)
	GTIDOwned(ctx context.Context) (string, error)
	PlugGTIDs(ctx context.Context, set string) error
	XARecover(ctx context.Context) ([]mysqld.XID, error)
	AdoptXA(ctx context.Context, list []mysqld.PreparedXA) error

	ConfigureChannel(ctx context.Context, ch mysqld.Channel) error
	ConfigurePlain(ctx context.Context, ch mysqld.Channel) error
	StartReplica(ctx context.Context) error
	StopReplica(ctx context.Context) error
	ReplicaStatus(ctx context.Context) (mysqld.ReplicaStatus, error)
	ApplyError(ctx context.Context, st mysqld.ReplicaStatus) (mysqld.ApplyError, error)
	WaitsForSpace(ctx context.Context) (waits bool, err error)
	SetTolerant(ctx context.Context, on bool) error
	Applying(ctx context.Context) ([]string, error)
	WaitExecuted(ctx context.Context, set string, timeout time.Duration) (reached bool, err error)
	KillMetadataBlockers(ctx context.Context) ([]mysqld.Blocker, error)

	AdmitClients(ctx context.Context) error
	RefuseClients(ctx context.Context) error
	ApplicationSessions(ctx context.Context) ([]mysqld.Session, error)
	OpenTransactions(ctx context.Context, rows bool) ([]mysqld.OpenTransaction, error)
	KillApplicationConnections(ctx context.Context) (killed int, err error)
	OpenWrites(ctx context.Context) error
	SetSuperReadOnly(ctx context.Context, on bool) error
	SetSemisync(ctx context.Context, on bool) error
	WaitingSessions(ctx context.Context) (mysqld.Semisync, error)
	SetDurabilityRole(ctx context.Context, leader bool) error
	VerifyLeaderSettings(ctx context.Context) error
	SetEventScheduler(ctx context.Context, on bool) error
	LimitTransactions(ctx context.Context, bytes uint64) error
	RefusedTransactions(ctx context.Context) (uint64, error)

	BinlogStatus(ctx context.Context) (mysqld.BinlogPos, error)
	PurgeBinlogs(ctx context.Context, file string) error
	FlushEngineLogs(ctx context.Context) error
}

var _ MySQL = (*mysqld.Admin)(nil)

// Lives starts this member's mysqld, one life after the other, and knows how far it has come and what is common to all.
// Its methods may be called from any goroutine, but for Start: one at a time.
type Lives struct {
	Config
	exec      run.Exec
	tail      gtid.Set      // what is in the binary logs of lives whose successors did not start; only Start uses it
	specialAt atomic.Uint64 // highest index of an entry with something other than rows, since this daemon started

	xaMu      sync.Mutex
	xa        xaWatch // guarded by xaMu
	xaProblem string  // the same

	mu       sync.Mutex // a leaf: it is never held over a wait
	status   Status
	keepFrom uint64 // see KeepFrom
}

// New is a member without a life.
func New(exec run.Exec) *Lives { return &Lives{exec: exec} }

// Open gives Lives what the first life needs. Before that nothing runs, and there is a status.
func (s *Lives) Open(c Config) { s.Config = c }

// lock takes a lock that is held over waits for mysqld.
func (s *Lives) lock(ctx context.Context, mu *sync.Mutex) error {
	for !mu.TryLock() {
		if err := s.exec.Sleep(ctx, time.Millisecond); err != nil {
			return err
		}
	}
	return nil
}

// awaitCommitted waits until this member has seen entry index committed.
func (s *Lives) awaitCommitted(ctx context.Context, index uint64) error {
	return s.Ledger.AwaitBy(ctx, s.exec, index)
}

// NoteSpecial notes a committed entry that holds something other than rows.
func (s *Lives) NoteSpecial(index uint64) { s.specialAt.Store(index) }

// KeepFrom is the lowest index that recovery here may need (S8); 0: not known, or XA transactions are open.
func (s *Lives) KeepFrom() uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.keepFrom
}

// setKeepFrom is for a life that runs; what another one says counts no more.
func (s *Lives) setKeepFrom(l *Life, index uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.status.life == l {
		s.keepFrom = index
	}
}

// GiveUpLife returns the life whose data is about to be replaced; nil: none runs. From where recovery needs the log is
// not known any more.
func (s *Lives) GiveUpLife() *Life {
	s.mu.Lock()
	defer s.mu.Unlock()
	l := s.status.life
	s.status.life, s.keepFrom = nil, 0
	return l
}
