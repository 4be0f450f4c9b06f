package reads

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	"trireme/internal/api"
	"trireme/internal/base/coalesce"
	"trireme/internal/base/config"
	"trireme/internal/core/consensus"
	"trireme/internal/core/ledger"
	"trireme/internal/core/raftlog"
	"trireme/internal/core/transport"
	"trireme/internal/mysql/gtid"
	"trireme/internal/node/gossip"
)

// Requests between daemons.
var (
	// ReqApplied has an index as its body; answered, once the requester's limit is over or that index is applied, with
	// the one up to which the node's mysqld has applied everything.
	ReqApplied = transport.Kind[uint64, uint64]{Number: 24}
	// ReqLive goes to the leader: body liveTell or liveWait; answered with its commit index and raft ids.
	ReqLive = transport.Kind[uint8, []uint64]{Number: 26}
)

// askPatience bounds one question to the leader.
const askPatience = time.Second

// Raft is what reads ask of consensus.Node.
type Raft interface {
	Status() consensus.Status
	HoldsLease() bool
	ReadIndex(ctx context.Context) (uint64, error)
}

// Host is the rest of the member.
type Host interface {
	Raft() Raft
	Log() *raftlog.Log
	Settings() *config.Cluster
	Peers() gossip.Peers
	// Settled is the highest term of which an entry was committed and applied here.
	Settled() uint64
	// AppliedIndex is up to where this node's mysqld has been seen to have applied everything; an error: it does not
	// serve.
	AppliedIndex() (uint64, error)
	// Follow waits a moment for this node's mysqld to apply an index, and looks at what it has applied.
	Follow(ctx context.Context, index uint64, patience time.Duration) error
	// DeclaredVoid says whether a transaction does nothing, on any node.
	DeclaredVoid(g gtid.GTID) bool
	transport.Asker
	// Go runs f on a goroutine that the node waits for when it stops.
	Go(f func(ctx context.Context))
}

// Reads is of one member. Its methods may be called from any goroutine, but for LookAtLive, which is the loop's.
type Reads struct {
	id     config.Identity
	ledger *ledger.Ledger
	host   Host
	log    *slog.Logger

	outcomes outcomes
	applied  coalesce.Waits[uint64] // for the mysqld of a node, by raft id
	live     liveSet                // of the leader
	asked    coalesce.Group[struct{}, api.ReadIndexView]
}

// New makes the reads of a member.
func New(id config.Identity, led *ledger.Ledger, host Host, log *slog.Logger) *Reads {
	r := &Reads{id: id, ledger: led, host: host, log: log}
	r.applied.Go, r.applied.Ascending, r.applied.Most = host.Go, true, maxReaders
	r.applied.Ask = func(ctx context.Context, id, index uint64) (at uint64, late, err error) {
		at, err = r.follow(ctx, id, index)
		return at, nil, err
	}
	return r
}

// now is CLOCK_BOOTTIME.
func now() time.Duration { return time.Duration(consensus.Boottime()) }

// name of a member.
func (r *Reads) name(id uint64) string {
	if m, ok := r.host.Settings().MemberByID(id); ok {
		return m.Name
	}
	return fmt.Sprintf("id %d", id)
}

// dataMembers are the members with a mysqld.
func (r *Reads) dataMembers() []config.Member {
	return slices.DeleteFunc(slices.Clone(r.host.Settings().Members),
		func(m config.Member) bool { return m.Role == config.RoleLogger })
}

// Barrier returns an index of the log: a mysqld that has applied it shows everything that was answered before the call.
// It works on every node and costs a quorum round, shared with other callers.
func (r *Reads) Barrier(ctx context.Context) (uint64, error) {
	index, err := r.host.Raft().ReadIndex(ctx)
	if err != nil {
		return 0, api.Errorf(api.KindNoLeader, "what is committed now cannot be told: %v", err).
			With("it needs a leader that a majority of the voters answers; see `trireme status`")
	}
	return index, nil
}

// Live asks the leader which nodes count as live. Who asks at the same time shares an answer.
func (r *Reads) Live(ctx context.Context) (api.ReadIndexView, error) {
	return r.asked.Do(ctx, struct{}{}, func() (told api.ReadIndexView, err error) {
		ctx, cancel := context.WithTimeout(context.Background(), askPatience)
		defer cancel()
		index, ids, err := r.askLive(ctx, liveTell)
		if err != nil {
			return told, err
		}
		told.Index = index
		for _, id := range ids {
			told.Live = append(told.Live, r.name(id))
		}
		return told, nil
	})
}

// ReadIndex implements api.Backend.
func (r *Reads) ReadIndex(ctx context.Context, q api.ReadIndexQuery) (api.ReadIndexView, error) {
	if q.Live {
		v, err := r.Live(ctx)
		if err != nil {
			err = api.Errorf(api.KindNoLeader, "who counts as live cannot be told: %v", err).
				With("it needs a leader that a majority of the voters answers; see `trireme status`")
		}
		return v, err
	}
	index, err := r.Barrier(ctx)
	v := api.ReadIndexView{Index: index}
	if err != nil || !q.GTIDs {
		return v, err
	}
	if err := r.ledger.Await(ctx, index); err != nil {
		return v, api.Errorf(api.KindTimeout, "entry %d is not known to be committed on %s yet", index, r.id.Name).
			With("try again, or ask another node")
	}
	_, committed := r.ledger.Snapshot()
	v.GTIDs = committed.String()
	return v, nil
}

// Applied implements api.Backend.
func (r *Reads) Applied(ctx context.Context, q api.AppliedQuery) (v api.AppliedView, err error) {
	v.Index = q.Index
	if q.GTIDs != "" {
		set, err := gtid.ParseSet(q.GTIDs)
		if err != nil {
			return v, api.Errorf(api.KindInvalid, "gtids: %v", err)
		}
		index, err := r.indexOf(ctx, set)
		if err != nil {
			return v, notApplied(err)
		}
		if q.Everywhere {
			index = r.ledger.Index() // what is applied here may be ahead of the others
		}
		v.Index = max(v.Index, index)
	}
	if q.Everywhere {
		if err = r.ledger.Await(ctx, v.Index); err == nil {
			err = r.WaitEverywhere(ctx, v.Index)
		}
	} else if err = r.WaitApplied(ctx, v.Index); err == nil {
		v.Index, err = r.host.AppliedIndex()
	}
	if err != nil {
		return v, notApplied(err)
	}
	return v, nil
}

// notApplied words an error for a router.
func notApplied(err error) error {
	text := strings.ReplaceAll(err.Error(), "\n", "; ")
	if errors.Is(err, context.DeadlineExceeded) {
		return api.Errorf(api.KindTimeout, "%s", text).With("wait longer, or read another node; see `trireme status`")
	}
	return api.Errorf(api.KindConflict, "%s", text).With("read another node; see `trireme status`")
}
