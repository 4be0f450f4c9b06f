package node

import (
	"context"
	"errors"
	"fmt"
	"time"

	"trireme/internal/api"
	"trireme/internal/core/consensus"
	"trireme/internal/core/ha"
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
// The target takes the election for the operator's wish, so that it opens writes in a pause too.

// Limits of a forced failover.
const (
	forcePatience = 15 * time.Second // for the target to take writes
	orderPatience = 2 * time.Second  // for an order to be answered
	wishLife      = 10 * time.Second // how long a target takes its election for the operator's wish
	forcePoll     = 20 * time.Millisecond
	forceRounds   = 4 // orders, until the target leads or it is given up
)

// eventForced is an operator's order; what comes of it has an event of its own.
const eventForced = "forced"

// order is what a forced failover wants of another node. In term Term, of which Leader is the leader.
type order struct {
	Term   uint64 `json:"term"`
	Leader uint64 `json:"leader"` // 0: none is known
	To     uint64 `json:"to"`
	By     uint64 `json:"by"`   // who gives it
	Hand   bool   `json:"hand"` // Leader, which keeps writes closed, hands over
}

// wish is an operator's that this node should lead, as told by an order.
type wish struct {
	term  uint64 // in which it was told; the election is a later one
	until time.Duration
	won   uint64 // term of the election that it brought
}

// Failover implements api.Backend, on any node.
func (n *Node) Failover(ctx context.Context, req api.FailoverRequest) (api.FailoverResult, error) {
	if !n.failing.TryLock() {
		return api.FailoverResult{}, forcedAlready()
	}
	defer n.failing.Unlock()
	var to uint64
	if req.To != "" {
		m, err := n.findMember(req.To)
		if err != nil {
			return api.FailoverResult{}, err
		}
		to = m.ID
	}
	if err := n.members.CheckTerm(req.IfTerm); err != nil {
		return api.FailoverResult{}, err
	}
	v := n.view()
	to, why := ha.ForcedFailover(v, to, req.Force)
	if to == 0 {
		return api.FailoverResult{}, refusedForce(why)
	}
	res := api.FailoverResult{To: n.memberName(to), Term: v.Raft.Term, DryRun: req.DryRun}
	if from := v.Open; from != 0 {
		res.From = n.memberName(from)
	} else if v.LastOpen != 0 {
		res.From = n.memberName(v.LastOpen)
	}
	if req.DryRun {
		return res, nil
	}
	n.history.add(n.askedEvent(ctx, eventForced, 0, "a failover to "+res.To+" is forced, on an operator's request"))
	began := now()
	term, err := n.forceLeader(ctx, to)
	if err != nil {
		return res, err
	}
	res.Term, res.TookMS = term, ms(now()-began)
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
func (n *Node) forceLeader(ctx context.Context, to uint64) (term uint64, err error) {
	ctx, cancel := context.WithTimeout(ctx, forcePatience)
	defer cancel()
	first := n.view()
	for round := range forceRounds {
		v := n.view()
		if v.Open != 0 && v.Open != to && v.Open != first.Open {
			return 0, api.Errorf(api.KindChanged, "%s leads now, in term %d", n.memberName(v.Open), v.Raft.Term).
				With("see `trireme status`")
		}
		if err := n.giveOrders(ctx, v, to, round == 0); err != nil {
			return 0, err
		}
		if term = n.awaitForced(ctx, to, v.Raft.Term); term != 0 {
			return term, nil
		}
	}
	return 0, api.Errorf(api.KindTimeout, "%s was asked to lead and does not take writes yet", n.memberName(to)).
		With("see `trireme status` and `trireme why-not %s`", n.memberName(to))
}

// awaitForced waits until the target takes writes in a later term than v's, or was asked to in this one, and gives that
// term; 0 when another order is due.
func (n *Node) awaitForced(ctx context.Context, to, term uint64) uint64 {
	limit := now() + 4*n.cfg.Raft.ElectionTimeout()
	for now() < limit && ctx.Err() == nil {
		v := n.view()
		switch {
		case v.Open == to:
			return v.Raft.Term
		case v.Raft.Term > term && v.Raft.Leader != 0 && v.Raft.Leader != to && v.Open == 0:
			return 0 // somebody else was elected: it has the longer log, or was quicker
		case v.Raft.Leader == to:
			limit = max(limit, now()+time.Second) // it has yet to apply its log
		}
		select {
		case <-ctx.Done():
		case <-time.After(forcePoll):
		}
	}
	return 0
}

// giveOrders tells everybody what the target's election needs. politely: a leader that keeps writes closed is asked to
// hand over.
func (n *Node) giveOrders(ctx context.Context, v ha.View, to uint64, politely bool) error {
	o := order{Term: v.Raft.Term, Leader: v.Raft.Leader, To: to, By: n.id.ID, Hand: politely && v.Open == 0}
	if err := n.giveOrder(ctx, to, o); err != nil {
		return api.Errorf(api.KindCannotLead, "%s was not made to lead: %v", n.memberName(to), err).
			With("see `trireme status`")
	}
	if o.Leader == 0 || o.Leader == to {
		return nil
	}
	for _, p := range append([]ha.Peer{{ID: n.id.ID, Live: true}}, v.Peers...) {
		if p.ID == to || !p.Live || o.Hand != (p.ID == o.Leader) {
			continue
		}
		if err := n.giveOrder(ctx, p.ID, o); err != nil {
			n.log.Warn("the peer did not carry out the forced-failover step", "peer", p.ID, "err", err)
		}
	}
	return nil
}

func (n *Node) giveOrder(ctx context.Context, id uint64, o order) error {
	if id == n.id.ID {
		return n.takeOrder(ctx, id, o)
	}
	ctx, cancel := context.WithTimeout(ctx, orderPatience)
	defer cancel()
	_, err := reqForce.Ask(ctx, n.tr, id, o)
	return err
}

// takeOrder carries out this node's part.
func (n *Node) takeOrder(_ context.Context, _ uint64, o order) error {
	st := n.cons.Status()
	if st.Term != o.Term {
		return fmt.Errorf("it is term %d, not %d: leadership has moved meanwhile", st.Term, o.Term)
	}
	mine := o.To == n.id.ID
	n.mu.Lock()
	if n.ordered.Term == o.Term && n.ordered.By != o.By && now() < n.orderedAt+forcePatience {
		n.mu.Unlock()
		return fmt.Errorf("another failover is under way, to %s", n.memberName(n.ordered.To))
	}
	n.ordered, n.orderedAt = o, now()
	s := n.lives.Status()
	if mine {
		n.wish = wish{term: o.Term, until: now() + wishLife}
		if st.Role == consensus.Leader {
			n.wishLocked(st.Term)
		}
	}
	n.mu.Unlock()
	n.log.Warn("an operator forces a failover", "term", o.Term, "leader", o.Leader, "to", n.memberName(o.To))
	switch {
	case st.Role == consensus.Leader && mine:
		n.poke()
	case st.Role == consensus.Leader && (s.Phase() != ha.PhaseNone || !o.Hand):
		return errors.New("it leads")
	case st.Role == consensus.Leader:
		a := ha.Action{Kind: ha.HandOver, Term: o.Term, To: o.To, Reason: "an operator forces a failover"}
		n.task(func(ctx context.Context) { n.handOver(ctx, a) })
	case st.Leader == 0 && mine:
		n.cons.Campaign()
	case !o.Hand:
		n.cons.Depose(o.Leader, o.Term, mine)
	}
	return nil
}

// takeWishLocked: this node has just been elected; if an operator wished so, it opens writes although automatic
// failover is paused, and does not hand over as a matter of taste.
func (n *Node) takeWishLocked(term uint64) {
	if w := n.wish; w.until > now() && term > w.term {
		n.wishLocked(term)
	}
}

func (n *Node) wishLocked(term uint64) {
	n.askedTerm = term - 1
	n.wish = wish{won: term}
}
