package membership

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"go.etcd.io/raft/v3/raftpb"

	"trireme/internal/api"
	"trireme/internal/base/config"
	"trireme/internal/core/consensus"
	"trireme/internal/core/raftlog"
	"trireme/internal/core/transport"
	"trireme/internal/node/gossip"
)

// Requests between daemons.
var (
	// ReqSettings is answered with the committed cluster settings, as they are on disk.
	ReqSettings = transport.Kind[transport.None, []byte]{Number: 4}
	// ReqAddress is answered when the settings hold the requester's addresses.
	ReqAddress = transport.Kind[config.Member, transport.None]{Number: 21}
)

// ErrFinal is the end of a node that would end the same way if it were started again: the service manager should leave
// it down.
var ErrFinal = errors.New("starting this node again does not help")

// Raft is what membership asks of consensus.Node.
type Raft interface {
	Status() consensus.Status
	Propose(ctx context.Context, data []byte) (index, term uint64, err error)
	ProposeInTerm(ctx context.Context, term uint64, data []byte) (uint64, error)
	ProposeConfChange(ctx context.Context, c *raftpb.ConfChangeV2) error
	WaitApplied(ctx context.Context, index uint64) error
}

// Links are the links to the other members.
type Links interface {
	transport.Asker
	SetPeers(addrs map[uint64]string)
	SetKnown(addrs map[uint64]string)
}

// Host is the rest of the member.
type Host interface {
	Raft() Raft
	Log() *raftlog.Log
	Links() Links
	// AwaitLease waits until a majority answers this node as its leader.
	AwaitLease(ctx context.Context, patience time.Duration) error
	// Ready says whether this node's mysqld is judged and fed.
	Ready() bool
	// MayBeRead says whether somebody may read a member at AFTER, as far as the leader of a term knows.
	MayBeRead(term, id uint64) bool
	// Adopted is called with settings that came into force; it wakes the loop.
	Adopted(c *config.Cluster)
	Switchover(ctx context.Context, req api.SwitchoverRequest) (api.SwitchoverResult, error)
	// Forward asks the leader's API.
	Forward(ctx context.Context, path string, body, answer any) error
	// CADigest is of the CA that has signed this node's certificate.
	CADigest() string
	// Newcomer are the secrets that a new node gets.
	Newcomer() config.Secrets
	// Record adds to the history; by is who asked for it, empty: the node itself.
	Record(kind, by, text string)
	// IsNew says whether an attempt at what has failed in a way that was not told yet.
	IsNew(what string, err error) bool
	// Go runs f on a goroutine that the node waits for when it stops.
	Go(f func(ctx context.Context))
	// Fail ends this run of the node.
	Fail(err error)
}

// Members is of one member. Its methods may be called from any goroutine.
type Members struct {
	cfg    config.Node
	id     config.Identity
	gossip *gossip.Gossip
	host   Host
	log    *slog.Logger

	current  atomic.Pointer[config.Cluster] // committed settings; immutable, replaced whole
	changing chan struct{}                  // full while a change of them is made here
	saving   sync.Mutex                     // held while the copy of them is written
	linking  sync.Mutex                     // held while the transport is told of the members
	unsaved  atomic.Bool                    // it could not be

	mu    sync.Mutex // never held over a call of the host
	setAt uint64     // index of the entry that set current
	waits error      // why what is due of a change of Raft's membership waits
}

// New makes the part of a member that begins with the settings of its copy.
func New(cfg config.Node, id config.Identity, c *config.Cluster, g *gossip.Gossip, host Host,
	log *slog.Logger) *Members {
	ms := &Members{cfg: cfg, id: id, gossip: g, host: host, log: log, changing: make(chan struct{}, 1)}
	ms.current.Store(c)
	return ms
}

// Current are the settings in force.
func (ms *Members) Current() *config.Cluster { return ms.current.Load() }
