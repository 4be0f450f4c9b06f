// Package leave is how a cluster ends (`trireme leave`). On its leader:
//
//	account of the replicas -> close writes, drain -> everybody has applied everything
//	  -> what each holds, together -> each data node: replication stopped, holes plugged, channel to the source,
//	     my.cnf-plain; asked once more
//	  -> settings: Disbanded -> each daemon: mysqld stopped, exec mysqld --defaults-file=my.cnf-plain
//
// Up to the settings everything can be taken back: the nodes are judged and fed again, writes open. With them the end
// is committed, and each node does the rest by itself.
package leave

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"strconv"
	"strings"
	"sync"
	"time"

	"trireme/internal/api"
	"trireme/internal/base/config"
	"trireme/internal/core/consensus"
	"trireme/internal/core/ha"
	"trireme/internal/core/ledger"
	"trireme/internal/core/transport"
	"trireme/internal/mysql/mysqld"
	"trireme/internal/node/controlloop"
	"trireme/internal/node/gossip"
	"trireme/internal/node/leadership"
	"trireme/internal/node/lifecycle"
	"trireme/internal/node/membership"
)

// Requests between daemons.
var (
	// ReqHoldings is answered with gtid_executed, once the index is applied.
	ReqHoldings = transport.Kind[leadership.Applied, string]{Number: 48}
	// ReqPlain is answered when the server is ready to be a plain one.
	ReqPlain = transport.Kind[Order, transport.None]{Number: 49, StrictBody: true}
	// ReqCancel: the cluster goes on.
	ReqCancel = transport.Kind[transport.None, transport.None]{Number: 50}
)

const plainAccount = "plain_repl" // user of the replicas

// Order tells a node what to become.
type Order struct {
	Source  string         `json:"source"` // name
	Host    string         `json:"host"`
	Port    int            `json:"port"`
	Account mysqld.Account `json:"account"`
	// Executed is everything that any node has executed, local statements of dead incarnations included: with all of it
	// everywhere, no replica asks its source for what that no longer has.
	Executed string `json:"executed"`
	// Confirm asks whether the server is ready as it was left, and gives it another plainLimit: just before the end is
	// committed.
	Confirm bool `json:"confirm,omitempty"`
}

// Host is the rest of the member.
type Host interface {
	transport.Asker
	// Term is that of Raft.
	Term() uint64
	// MySQL is what this member's mysqld is configured with.
	MySQL() mysqld.Config
	// Record adds to the history; by is who asked for it.
	Record(kind, by, text string)
	// Go runs f on a goroutine that the node waits for when it stops, and wakes the loop after it.
	Go(f func(ctx context.Context))
	WakeLoop()
	// Fail ends this run of the node.
	Fail(err error)
}

// End is the end of a cluster on one member. It keeps nothing: how far an end has come is in the settings and in the
// status of mysqld. Its methods may be called from any goroutine.
type End struct {
	ID         config.Identity
	Mu         sync.Locker // the member's: it guards what changes in step with mysqld's status
	Lives      *lifecycle.Lives
	Leadership *leadership.Leadership
	Members    *membership.Members
	Control    *controlloop.Loop
	Gossip     *gossip.Gossip
	Ledger     *ledger.Ledger
	Memory     lifecycle.Memory
	Host       Host
	Log        *slog.Logger
}

// now is CLOCK_BOOTTIME.
func now() time.Duration { return time.Duration(consensus.Boottime()) }

// Leave answers the verb (leader only).
func (e *End) Leave(ctx context.Context, req api.LeaveRequest) (api.LeaveResult, error) {
	if err := e.Members.CheckTerm(req.IfTerm); err != nil {
		return api.LeaveResult{}, err
	}
	res, peers, err := e.plan()
	if res.DryRun = req.DryRun; err != nil {
		return refused(res, err)
	}
	wait := api.DefaultTrxWait
	if req.OpenTrxWait != nil {
		wait = *req.OpenTrxWait
	}
	if wait < 0 || wait > api.MaxTrxWait {
		return res, api.Errorf(api.KindInvalid, "open transactions can be waited for up to %v, not %v", api.MaxTrxWait,
			wait)
	}
	e.Mu.Lock()
	s := e.Lives.Status()
	l := s.Life()
	if e.Leadership.Asked() || s.Phase() != ha.PhaseOpen || l == nil {
		e.Mu.Unlock()
		return res, leadership.UnderWay()
	}
	if req.DryRun {
		e.Mu.Unlock()
		if err := checkNonePrepared(ctx, l); err != nil {
			return refused(res, err)
		}
		open, err := l.Admin().OpenTransactions(ctx, true)
		res.OpenTransactions, res.OpenCount = leadership.OpenTransactions(open), len(open)
		return res, err
	}
	e.Lives.Change((*lifecycle.Status).HandOver)
	outcome := make(chan leadership.Moved, 1)
	asker, a := api.AskedBy(ctx), &attempt{End: e, life: l, term: s.Term(), peers: peers, wait: wait}
	e.Control.ServeLocked(func(ctx context.Context) { outcome <- a.carryOut(api.AskedAs(ctx, asker)) })
	e.Mu.Unlock()
	m := <-outcome // it has limits of its own
	res.OpenTransactions, res.OpenCount = leadership.OpenTransactions(m.Open), len(m.Open)
	if m.Err != nil {
		return res, api.Errorf(api.KindNotReady, "the cluster was not left: %v", m.Err).
			With("the cluster continues; see `trireme status`, then try again")
	}
	return res, nil
}

// refused is the answer when err stands against an end: a dry run shows it.
func refused(res api.LeaveResult, err error) (api.LeaveResult, error) {
	if e, ok := errors.AsType[*api.Error](err); ok && res.DryRun && e.Kind.Refused() {
		res.Problem, res.ProblemKind = e.Message, e.Kind
		return res, nil
	}
	return res, err
}

// plan says who would become what, or why it cannot be: everybody has to be there and well. peers are the data nodes
// but this one.
func (e *End) plan() (res api.LeaveResult, peers []config.Member, err error) {
	v, c := e.Control.View(), e.Members.Current()
	res = api.LeaveResult{Cluster: e.ID.Cluster, Term: v.Raft.Term, Account: plainAccount,
		Replicas: []api.PlainServer{}, Loggers: []string{}, OpenTransactions: []api.OpenTransaction{}}
	var ill []string
	for _, m := range c.Members {
		s := api.PlainServer{Name: m.Name, Addr: net.JoinHostPort(m.MySQLHost, strconv.Itoa(m.MySQLPort))}
		peer := e.Gossip.Peers()[m.ID]
		switch {
		case m.ID == e.ID.ID:
			res.Source = s
			continue
		case m.Pending || m.Removing:
			ill = append(ill, m.Name+" is just joining or leaving")
		case !peer.Fresh():
			ill = append(ill, m.Name+" does not answer")
		case m.Delay() > 0:
			ill = append(ill, m.Name+" is a delayed learner (take the delay away, or take it out with `trireme remove`)")
		case m.Role != config.RoleLogger && !peer.Ready:
			ill = append(ill, m.Name+" is "+peer.Member.State)
		}
		if m.Role == config.RoleLogger {
			res.Loggers = append(res.Loggers, m.Name)
			continue
		}
		res.Replicas = append(res.Replicas, s)
		peers = append(peers, m)
	}
	switch {
	case c.Disbanded != nil:
		err = api.Errorf(api.KindAlready, "the cluster has been left already")
	case v.Serving.Phase != ha.PhaseOpen:
		err = api.Errorf(api.KindNoLeader, "%s is not a leader with open writes", e.ID.Name).
			With("wait until `trireme status` shows a healthy leader")
	case len(ill) > 0:
		err = api.Errorf(api.KindNotReady, "not every node can be made a plain server: %s", strings.Join(ill, "; ")).
			With("bring it back, or remove it: trireme remove NODE")
	}
	return res, peers, err
}
