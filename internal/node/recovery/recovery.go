package recovery

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"trireme/internal/api"
	"trireme/internal/base/config"
	"trireme/internal/base/run"
	"trireme/internal/core/consensus"
	"trireme/internal/core/raftlog"
	"trireme/internal/core/transport"
)

// ReqSurvey is a request between daemons, whose body says whether to hold still.
var ReqSurvey = transport.Kind[bool, Survey]{Number: 8}

var (
	// ErrNewGeneration ends a run of this node: it starts again at once, in another generation.
	ErrNewGeneration = errors.New("this node starts again in a new generation of the cluster")
	// ErrLeftBehind ends a node permanently: the cluster goes on without it.
	ErrLeftBehind = errors.New("given up by force-quorum")
)

// Raft is what recovery asks of consensus.Node.
type Raft interface {
	Status() consensus.Status
	HoldsLease() bool
}

// Host is the rest of the member.
type Host interface {
	Raft() Raft
	Log() *raftlog.Log
	Settings() *config.Cluster
	// Heard is when the leader's raft was last heard of, by CLOCK_BOOTTIME; 0: never.
	Heard() time.Duration
	transport.Asker
	// Record adds to the history; by is who asked for it, empty: the node itself.
	Record(kind, by, text string)
	Remember(e api.Event)
	// AuditForce adds to audit.log, durably.
	AuditForce(state, by string, plan *api.ForceReport) error
	// Quiesce fences this node for the rest of its run and brings its log to rest: mysqld dies at once and is not
	// started again.
	Quiesce()
	// Go runs f on a goroutine that the node waits for when it stops.
	Go(f func(ctx context.Context))
	// Fail ends this run of the node.
	Fail(err error)
	// RandomID is a number that no other node draws, not 0.
	RandomID() uint64
}

// Recovery is of one member. Its methods may be called from any goroutine once Open has returned.
type Recovery struct {
	cfg  config.Node
	id   config.Identity
	time run.Time
	fs   raftlog.FS // of the node's directory
	host Host
	log  *slog.Logger

	generation *config.Generation  // that this node belongs to; nil: the first. Fixed for this run
	takeover   *consensus.Takeover // that this node has made, at its last force-quorum; nil: none
	// held while this node makes a generation or goes over to one, and then to the end of this run
	forcing    sync.Mutex
	stillUntil atomic.Int64 // CLOCK_BOOTTIME until which this node stands still, ns

	mu        sync.Mutex
	strangers map[uint64]bool // nodes of other generations that have been told of
}

// New makes the part of a member that does not know its generation yet.
func New(cfg config.Node, id config.Identity, t run.Time, fs raftlog.FS, host Host, log *slog.Logger) *Recovery {
	return &Recovery{cfg: cfg, id: id, time: t, fs: fs, host: host, log: log, strangers: map[uint64]bool{}}
}

// Generation is the one that this node belongs to; nil: the first.
func (r *Recovery) Generation() *config.Generation { return r.generation }
