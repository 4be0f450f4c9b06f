package seeding

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"trireme/internal/api"
	"trireme/internal/base/config"
	"trireme/internal/base/run"
	"trireme/internal/core/consensus"
	"trireme/internal/core/dump"
	"trireme/internal/core/ledger"
	"trireme/internal/core/raftlog"
	"trireme/internal/core/transport"
	"trireme/internal/mysql/gtid"
	"trireme/internal/mysql/mysqld"
	"trireme/internal/node/gossip"
	"trireme/internal/node/lifecycle"
	"trireme/internal/node/membership"
)

// Requests between daemons.
var (
	// ReqDonate. What the data of a copy follows may be told by a key that this version does not know.
	ReqDonate = transport.Kind[transport.None, Donation]{Number: 2, StrictAnswer: true}
	// ReqReinit is answered when the node has given its data up.
	ReqReinit = transport.Kind[transport.None, transport.None]{Number: 3}
	// ReqHeal is answered when the asking node may throw its data away.
	ReqHeal = transport.Kind[HealRequest, transport.None]{Number: 56, StrictBody: true}
)

// Cluster is the members, as this one knows them, and their settings.
type Cluster interface {
	Settings() *config.Cluster
	Peers() gossip.Peers
	Census() membership.Census
	// CheckTerm refuses what was asked for in view of an older term.
	CheckTerm(want uint64) error
	// Change changes the settings, in a term unless that is 0, and returns once that is committed.
	Change(ctx context.Context, term uint64, change func(*config.Cluster) error) (*config.Cluster, error)
	// Result tells an operator what the cluster can bear now.
	Result(version uint64, name, message string) api.MemberResult
	// Blocked is the committed entry that no node can apply, and none that answers has; nil: no such entry.
	Blocked(ctx context.Context) *api.BlockedView
	transport.Asker
}

// Server is this member's mysqld.
type Server interface {
	// Now is what mysqld is, and up to which entry it was last seen to have applied everything, at one moment.
	Now() (s lifecycle.Status, applied uint64)
	// Change gives f the same, to change the status and what is kept in step with it. If f says that it did, other
	// members are told soon. f must not call any port.
	Change(f func(s *lifecycle.Status, applied uint64) (changed bool))
	// RestartFeed starts replication from the feed again where it has stopped.
	RestartFeed(ctx context.Context, l *lifecycle.Life) error
	// PauseFeed stops feeding mysqld until it is judged again.
	PauseFeed()
	// Restart ends a mysqld that serves nothing; its end brings the next start.
	Restart(reason string)
	// GiveUp ends mysqld, if it runs, and waits for that. From then on no recovery here needs the log (S8).
	GiveUp() error
	// Copy has another server's data take the place of this one's, which does not run.
	Copy(ctx context.Context, from mysqld.Seeding) error
	// Space is how many bytes of the disk are free, and how many the data has.
	Space() (free, used uint64, err error)
	Version() string
}

// Memory is node.json, in which notes stand among what lifecycle remembers of the data.
type Memory interface {
	// Notes are the newest; they are not to be changed.
	Notes() *Notes
	// Note changes both in one step and returns once that is on disk.
	Note(change func(*Notes, *lifecycle.State)) error
}

// Raft is what is asked of consensus.Node.
type Raft interface {
	Status() consensus.Status
	ReadIndex(ctx context.Context) (uint64, error)
}

// Log is what is asked of the raft log.
type Log interface {
	FirstIndex() (uint64, error)
	SeekGTID(have gtid.Set, upTo uint64) (index uint64, fde []byte, err error)
	Scan(from, to uint64, f func(m *raftlog.Meta, index, term uint64, events []byte) error) error
}

// Host is the rest of the member.
type Host interface {
	Raft() Raft
	Log() Log
	// Protect fills in how a copy from a member is protected.
	Protect(donor uint64, s *mysqld.Seeding)
	// Record adds an event to the history, to which it adds when, where and in which term.
	Record(e api.Event)
	// IsNew says whether an attempt at what has failed in a way that was not told yet.
	IsNew(what string, err error) bool
	// Go runs f on a goroutine that the node waits for when it stops.
	Go(f func(ctx context.Context))
	// Publish tells others the status at once, and wakes the loop.
	Publish()
	WakeLoop()
}

// Notes are what must be remembered over a restart. They are on disk before anything that depends on them happens.
type Notes struct {
	// Diverged is why the data does not match the log although it looks so: a session here has ended an XA transaction.
	// nil: nothing is known.
	Diverged *api.ApplyErrorView `json:"diverged,omitempty"`
	// Voids are the marks of the config.Voids that the data follows. They are written down before mysqld is fed
	// accordingly.
	Voids []string `json:"voids,omitempty"`
	// Heals are when this node was last seeded because its applier could not apply an entry, or because of Diverged.
	Heals []time.Time `json:"heals,omitempty"`
}

// Parts are what a Seeding works with.
type Parts struct {
	Time    run.Time
	Ledger  *ledger.Ledger
	Cluster Cluster
	Server  Server
	Memory  Memory
	Host    Host
	Logger  *slog.Logger
}

// Seeding is of one member. Its methods may be called from any goroutine, but for CarryOutDecisions and those that tend
// an applier (Mend, HealDiverged, WatchLeftOut, NoteApplier): they are each for one caller at a time.
type Seeding struct {
	cfg       config.Node
	id        config.Identity
	time      run.Time
	ledger    *ledger.Ledger
	cluster   Cluster
	server    Server
	memory    Memory
	host      Host
	log       *slog.Logger
	tolerance *dump.Tolerance

	failure atomic.Pointer[failure] // nil: none; see "What changes together"
	applier atomic.Pointer[string]  // why replication from the feed does not run; nil: it does; the same
	heals   atomic.Uint64           // times that this node gave its data up for an entry that it could not apply
	grants  grants

	mu      sync.Mutex
	copying copying // guarded by mu
}

// New makes the part of a member that knows nothing of its mysqld yet.
func New(cfg config.Node, id config.Identity, p Parts) *Seeding {
	s := &Seeding{cfg: cfg, id: id, time: p.Time, ledger: p.Ledger, cluster: p.Cluster, server: p.Server, memory: p.Memory,
		host: p.Host, log: p.Logger}
	s.tolerance = dump.NewTolerance(s.followsTolerant)
	return s
}

// now is CLOCK_BOOTTIME.
func (s *Seeding) now() time.Duration { return s.time.Now() }

// name of a member.
func (s *Seeding) name(id uint64) string {
	if m, ok := s.cluster.Settings().MemberByID(id); ok {
		return m.Name
	}
	return fmt.Sprintf("id %d", id)
}

// Forget forgets what was known of a data directory. It is on disk before the directory goes, and before another one
// comes.
func (s *Seeding) Forget() error {
	return s.memory.Note(func(n *Notes, st *lifecycle.State) {
		st.Durable, st.Inherited, n.Diverged, n.Voids = 0, "", nil, nil
	})
}

// Started is told, with the lock of Server.Change held, that a life of mysqld has begun.
func (s *Seeding) Started() { s.clear() }

// clear forgets what an applier has come to. It is for holders of the lock of Server.Change.
func (s *Seeding) clear() {
	s.failure.Store(nil)
	s.applier.Store(nil)
}

// Applied is told, with the lock of Server.Change held, up to which entry mysqld has applied everything.
func (s *Seeding) Applied(index uint64) {
	// A node that leads by now would not look at its applier again.
	if f := s.failure.Load(); f != nil && f.view.Index != 0 && !f.view.Diverged && index >= f.view.Index {
		s.failure.Store(nil)
	}
}

// Applier is why replication from the feed does not run; empty: it does.
func (s *Seeding) Applier() string {
	if why := s.applier.Load(); why != nil {
		return *why
	}
	return ""
}

// ApplyError is what the applier has stopped at, or how the data differs; nil: nothing.
func (s *Seeding) ApplyError() *api.ApplyErrorView {
	if f := s.failure.Load(); f != nil {
		return &f.view
	}
	return nil
}

// Heals is how often this node gave its data up by itself since its daemon started.
func (s *Seeding) Heals() uint64 { return s.heals.Load() }
