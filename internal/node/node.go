package node

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"trireme/internal/access/router"
	"trireme/internal/api"
	"trireme/internal/base/coalesce"
	"trireme/internal/base/config"
	"trireme/internal/base/loop"
	"trireme/internal/control/dashboard"
	"trireme/internal/core/consensus"
	"trireme/internal/core/dump"
	"trireme/internal/core/guard"
	"trireme/internal/core/ledger"
	"trireme/internal/core/raftlog"
	"trireme/internal/core/transport"
	"trireme/internal/mysql/gtid"
	"trireme/internal/mysql/mysqld"
	"trireme/internal/node/ackpath"
	"trireme/internal/node/addresses"
	"trireme/internal/node/certs"
	"trireme/internal/node/controlloop"
	"trireme/internal/node/delay"
	"trireme/internal/node/gossip"
	"trireme/internal/node/history"
	"trireme/internal/node/leadership"
	"trireme/internal/node/lifecycle"
	"trireme/internal/node/links"
	"trireme/internal/node/load"
	"trireme/internal/node/membership"
	"trireme/internal/node/memory"
	"trireme/internal/node/reads"
	"trireme/internal/node/recovery"
	"trireme/internal/node/room"
	"trireme/internal/node/routing"
	"trireme/internal/node/seeding"
)

// Pauses of the node's periodic work.
const (
	appliedInterval     = 200 * time.Millisecond // gtid_executed is read while something is not applied
	durableInterval     = 5 * time.Second        // S8
	applierInterval     = 2 * time.Second
	certificateInterval = time.Hour
	caInterval          = time.Second // between steps in a change of the CA
	proofInterval       = time.Second
	keyInterval         = time.Minute
)

// Node is one running member.
type Node struct {
	cfg     config.Node
	id      config.Identity
	log     *slog.Logger // says which node
	base    *slog.Logger // for the parts that say it themselves
	memory  *memory.Memory
	history *history.History
	version string
	began   gtid.Set // what an adopted cluster began with (config.Cluster.Base)

	rlog       *raftlog.Log
	engine     *loop.Loop // what is on the way of a commit runs on it
	cons       *consensus.Node
	tr         *transport.Transport
	led        *ledger.Ledger
	acks       *ackpath.Path
	lives      *lifecycle.Lives // of this node's mysqld; a logger starts none
	feed       *dump.Feed       // nil on a logger
	feedLogin  config.Account   // of this daemon's mysqld, for the life of the daemon
	delay      *delay.Delay     // the gate of the feed
	publisher  *dump.Publisher
	guard      *guard.Guard // nil on a logger
	routing    *routing.Routing
	serving    coalesce.Group[router.Target, uint64] // questions to the leader, for the router
	api        *api.Server
	pages      *dashboard.Pages
	bin        mysqld.Binary
	certs      *certs.Certs
	reads      *reads.Reads
	recovery   *recovery.Recovery
	gossip     *gossip.Gossip
	members    *membership.Members
	room       *room.Room
	seeding    *seeding.Seeding
	leadership *leadership.Leadership
	control    *controlloop.Loop
	metrics    *prometheus.Registry
	addresses  *addresses.Addresses
	links      *links.Links

	wake  chan struct{}
	ready chan struct{} // closed once every part is there
	fatal chan error
	tasks sync.WaitGroup
	ctx   context.Context // ends when the node stops; tasks are bound to it

	watchdog *watchdog     // of the service manager; shared with the node that comes after this one
	turns    atomic.Uint64 // of the loop
	special  atomic.Bool   // something other than rows was committed since recordEvents last looked
	warnings warnings
	load     load.Load

	mu           sync.Mutex
	keyWarnings  []string
	riskWarnings []string // of mysql.options; never changed

	srv       serverSlot
	stateName string
	why       string

	twins []twin // the newest last
}

// serverSlot is what is known of what this node's mysqld applies. It begins again with each life.
type serverSlot struct {
	backlog ledger.Backlog
	movedAt time.Duration // when backlog.Applied last moved, or there was nothing to apply
	rate    float64       // entries per second applied, when there was last a backlog

	largeRate float64       // bytes per second of large transactions applied, when there last was one
	heavy     time.Duration // about how long what is heavy in backlog takes
	lagging   time.Duration // what ha.Laggard asks for
	laggingAt time.Duration // when it did
	applyRate float64       // bytes per second applied, when there was last a backlog; 0: not known
	toldLags  bool          // others were told at once that it lags
	ddl       []mysqld.DDL  // of the leader: under way
}

// errStopped is given to waits that end because the node stops.
var errStopped = errors.New("the node is stopping")

// now is CLOCK_BOOTTIME.
func now() time.Duration { return time.Duration(consensus.Boottime()) }

// wakeLoop makes the loop look again, soon.
func (n *Node) wakeLoop() {
	select {
	case n.wake <- struct{}{}:
	default:
	}
}

// Publish tells the others this node's status at once.
func (n *Node) Publish() {
	n.gossip.Publish()
	n.wakeLoop()
}

// fail ends the node for a reason that makes going on unsafe (S13): mysqld is killed and the daemon exits with the
// reason.
func (n *Node) fail(err error) {
	select {
	case n.fatal <- err:
	default:
	}
}

// loop asks ha.Decide until the node stops. It returns the reason of a fatal stop, or nil.
func (n *Node) loop(ctx context.Context) error {
	tick := time.NewTimer(controlloop.Interval)
	defer tick.Stop()
	var counted time.Duration
	for {
		select {
		case <-ctx.Done():
			return nil
		case err := <-n.fatal:
			return err
		case <-n.wake:
		case <-tick.C:
		}
		n.turns.Add(1)
		n.acks.TickRules(n.Settings())
		n.updateFlow()
		n.reads.LookAtLive()
		tick.Reset(n.control.Turn(controlloop.Interval) - now())
		n.routing.Update()
		n.addresses.UpdateSoon()
		if n.gossip.Due() {
			if now() > counted+gossip.Interval/2 || n.routing.IsQuiet() { // a leader counts what its switchover moves
				counted = now()
				n.routing.Count()
			}
			n.gossip.Broadcast()
		}
	}
}

// task runs f on a goroutine that the node waits for when it stops, and wakes the loop when it is done.
func (n *Node) task(f func(ctx context.Context)) {
	n.Go(func(ctx context.Context) {
		defer n.wakeLoop()
		f(ctx)
	})
}

// Go runs f on a goroutine that the node waits for when it stops.
func (n *Node) Go(f func(ctx context.Context)) { n.tasks.Go(func() { f(n.ctx) }) }

func (n *Node) memberName(id uint64) string {
	if m, ok := n.Settings().MemberByID(id); ok {
		return m.Name
	}
	return fmt.Sprintf("id %d", id)
}

func contains(ids []uint64, id uint64) bool {
	for _, x := range ids {
		if x == id {
			return true
		}
	}
	return false
}
