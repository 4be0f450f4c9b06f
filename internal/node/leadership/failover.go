package leadership

import (
	"context"
	"errors"
	"fmt"
	"time"

	"trireme/internal/api"
	"trireme/internal/core/consensus"
	"trireme/internal/core/ha"
	"trireme/internal/core/transport"
)

// A forced failover moves leadership without the leader's help: for a leader that is sick and not noticed, or gone
// while automatic failover is paused. The node that is asked, whichever it is, gives orders to the others; each order
// names the term in which it was given, and is refused in another one (S7).
//
//   - Somebody takes writes, or a leader is known that does not answer: a majority is made deaf to it
//     (consensus.Depose), its lease runs out and it fences itself; then the target campaigns.
//   - A raft leader that keeps writes closed hands over to the target; if it is the target itself it opens them.
//   - There is no leader: the target campaigns.
//
// The target takes the election for what the operator asked for, so that it opens writes in a pause too.

// Limits of a forced failover.
const (
	forcePatience = 15 * time.Second // for the target to take writes
	orderPatience = 2 * time.Second  // for an order to be answered
	intentLife    = 10 * time.Second // how long a target takes its election for what the operator asked for
	forcePoll     = 20 * time.Millisecond
	forceRounds   = 4 // orders, until the target leads or it is given up
)

// ReqForce is a request between daemons, answered when the node does its part of a forced failover.
var ReqForce = transport.Kind[Order, transport.None]{Number: 20, StrictBody: true}

// eventForced is an operator's order; what comes of it has an event of its own.
const eventForced = "forced"

// Order is what a forced failover wants of another node. In term Term, of which Leader is the leader.
type Order struct {
	Term   uint64 `json:"term"`
	Leader uint64 `json:"leader"` // 0: none is known
	To     uint64 `json:"to"`
	By     uint64 `json:"by"`   // who gives it
	Hand   bool   `json:"hand"` // Leader, which keeps writes closed, hands over
}

// forcedFailoverIntent is what an operator wants of this node, as told by an order: that it leads.
type forcedFailoverIntent struct {
	term  uint64 // in which it was told; the election is a later one
	until time.Duration
	won   uint64 // term of the election that it brought
}

// Failover implements api.Backend, on any node.
func (l *Leadership) Failover(ctx context.Context, req api.FailoverRequest) (api.FailoverResult, error) {
	if !l.forcing.TryLock() {
		return api.FailoverResult{}, forcedAlready()
	}
	defer l.forcing.Unlock()
	var to uint64
	if req.To != "" {
		m, err := l.host.Member(req.To)
		if err != nil {
			return api.FailoverResult{}, err
		}
		to = m.ID
	}
	if err := l.host.CheckTerm(req.IfTerm); err != nil {
		return api.FailoverResult{}, err
	}
	v := l.host.View()
	to, why := ha.ForcedFailover(v, to, req.Force)
	if to == 0 {
		return api.FailoverResult{}, refusedForce(why)
	}
	res := api.FailoverResult{To: l.name(to), Term: v.Raft.Term, DryRun: req.DryRun}
	if from := v.Open; from != 0 {
		res.From = l.name(from)
	} else if v.LastOpen != 0 {
		res.From = l.name(v.LastOpen)
	}
	if req.DryRun {
		return res, nil
	}
	l.host.Record(eventForced, api.WhoAsked(ctx), "a failover to "+res.To+" is forced, on an operator's request")
	began := l.exec.Now()
	term, err := l.forceLeader(ctx, to)
	if err != nil {
		return res, err
	}
	res.Term, res.TookMS = term, float64(l.exec.Now()-began)/float64(time.Millisecond)
	return res, nil
}

func refusedForce(why ha.Reason) error {
	switch why.Code {
	case ha.LeaderWell:
		return api.Errorf(api.KindConflict, "%s", why.Text).
			With("use `trireme switchover`; --force moves leadership without its help all the same")
	case ha.NoQuorum:
		return api.Errorf(api.KindNoLeader, "%s", why.Text).
			With("bring back those that are down; without a majority no node can lead")
	case ha.OtherLeads:
		return api.Errorf(api.KindAlready, "%s", why.Text).With("see `trireme status`; nothing is changed")
	}
	return api.Errorf(api.KindCannotLead, "%s", why.Text).With("see `trireme status`; nothing is changed")
}

func forcedAlready() error {
	return api.Errorf(api.KindBusy, "another failover is under way").
		With("wait for it to end, then look at `trireme status`")
}

// forceLeader gives orders until the target takes writes.
func (l *Leadership) forceLeader(ctx context.Context, to uint64) (term uint64, err error) {
	ctx, cancel := l.exec.WithTimeout(ctx, forcePatience)
	defer cancel()
	first := l.host.View()
	for round := range forceRounds {
		v := l.host.View()
		if v.Open != 0 && v.Open != to && v.Open != first.Open {
			return 0, api.Errorf(api.KindChanged, "%s leads now, in term %d", l.name(v.Open), v.Raft.Term).
				With("see `trireme status`")
		}
		if err := l.giveOrders(ctx, v, to, round == 0); err != nil {
			return 0, err
		}
		if term = l.awaitForced(ctx, to, v.Raft.Term); term != 0 {
			return term, nil
		}
	}
	return 0, api.Errorf(api.KindTimeout, "%s was asked to lead and does not take writes yet", l.name(to)).
		With("see `trireme status` and `trireme why-not %s`", l.name(to))
}

// awaitForced waits until the target takes writes in a later term than v's, or was asked to in this one, and gives that
// term; 0 when another order is due.
func (l *Leadership) awaitForced(ctx context.Context, to, term uint64) uint64 {
	limit := l.exec.Now() + 4*l.timeout
	for l.exec.Now() < limit && ctx.Err() == nil {
		v := l.host.View()
		switch {
		case v.Open == to:
			return v.Raft.Term
		case v.Raft.Term > term && v.Raft.Leader != 0 && v.Raft.Leader != to && v.Open == 0:
			return 0 // somebody else was elected: it has the longer log, or was quicker
		case v.Raft.Leader == to:
			limit = max(limit, l.exec.Now()+time.Second) // it has yet to apply its log
		}
		_ = l.exec.Sleep(ctx, forcePoll)
	}
	return 0
}

// giveOrders tells everybody what the target's election needs. politely: a leader that keeps writes closed is asked to
// hand over.
func (l *Leadership) giveOrders(ctx context.Context, v ha.View, to uint64, politely bool) error {
	o := Order{Term: v.Raft.Term, Leader: v.Raft.Leader, To: to, By: l.id.ID, Hand: politely && v.Open == 0}
	if err := l.giveOrder(ctx, to, o); err != nil {
		return api.Errorf(api.KindCannotLead, "%s was not made to lead: %v", l.name(to), err).
			With("see `trireme status`")
	}
	if o.Leader == 0 || o.Leader == to {
		return nil
	}
	for _, p := range append([]ha.Peer{{ID: l.id.ID, Live: true}}, v.Peers...) {
		if p.ID == to || !p.Live || o.Hand != (p.ID == o.Leader) {
			continue
		}
		if err := l.giveOrder(ctx, p.ID, o); err != nil {
			l.log.Warn("the peer did not carry out the forced-failover step", "peer", p.ID, "err", err)
		}
	}
	return nil
}

func (l *Leadership) giveOrder(ctx context.Context, id uint64, o Order) error {
	if id == l.id.ID {
		return l.TakeOrder(ctx, id, o)
	}
	ctx, cancel := l.exec.WithTimeout(ctx, orderPatience)
	defer cancel()
	_, err := ReqForce.Ask(ctx, l.host, id, o)
	return err
}

// TakeOrder carries out this node's part.
func (l *Leadership) TakeOrder(_ context.Context, _ uint64, o Order) error {
	st := l.host.Raft().Status()
	if st.Term != o.Term {
		return fmt.Errorf("it is term %d, not %d: leadership has moved meanwhile", st.Term, o.Term)
	}
	mine := o.To == l.id.ID
	l.mu.Lock()
	if l.ordered.Term == o.Term && l.ordered.By != o.By && l.exec.Now() < l.orderedAt+forcePatience {
		to := l.ordered.To
		l.mu.Unlock()
		return fmt.Errorf("another failover is under way, to %s", l.name(to))
	}
	l.ordered, l.orderedAt = o, l.exec.Now()
	if mine {
		l.forced = forcedFailoverIntent{term: o.Term, until: l.exec.Now() + intentLife}
		if st.Role == consensus.Leader {
			l.electedLocked(st.Term)
		}
	}
	l.mu.Unlock()
	phase := l.host.Phase()
	l.log.Warn("an operator forces a failover", "term", o.Term, "leader", o.Leader, "to", l.name(o.To))
	switch {
	case st.Role == consensus.Leader && mine:
		l.host.WakeLoop()
	case st.Role == consensus.Leader && (phase != ha.PhaseNone || !o.Hand):
		return errors.New("it leads")
	case st.Role == consensus.Leader:
		a := &Attempt{l: l, Action: ha.Action{Kind: ha.HandOver, Term: o.Term, To: o.To,
			Reason: "an operator forces a failover"}}
		l.host.Go(a.HandOver)
	case st.Leader == 0 && mine:
		l.host.Raft().Campaign()
	case !o.Hand:
		l.host.Raft().Depose(o.Leader, o.Term, mine)
	}
	return nil
}

// Elected: this node has just been elected; if an operator asked for it, it opens writes although automatic failover is
// paused, and does not hand over as a matter of taste.
func (l *Leadership) Elected(term uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if w := l.forced; w.until > l.exec.Now() && term > w.term {
		l.electedLocked(term)
	}
}

func (l *Leadership) electedLocked(term uint64) {
	l.told = term - 1
	l.forced = forcedFailoverIntent{won: term}
}

// Forced says whether the election of a term was brought by an operator's forced failover.
func (l *Leadership) Forced(term uint64) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.forced.won == term
}
