package node

import (
	"context"
	"errors"
	"fmt"
	"time"

	"trireme/internal/api"
	"trireme/internal/base/config"
	"trireme/internal/core/ha"
	"trireme/internal/core/transport"
	"trireme/internal/mysql/gtid"
)

// A delayed learner (docs/ops/delayed.md): its raft log is like everybody's, and its feed hands transactions out late.
// So nothing waits for it but its own mysqld, and what it protects lies in its own log, which it alone keeps for that.

// reqDelay is a request between daemons, answered when the node has taken the order.
var reqDelay = transport.Kind[api.DelayRequest, delayAnswer]{Number: 25, StrictBody: true}

const eventDelay = "delay"

// ownDelay is this node's delay; 0: none.
func (n *Node) ownDelay() time.Duration {
	m, _ := n.Settings().MemberByID(n.id.ID)
	if m.Role != config.RoleLearner {
		return 0
	}
	return m.Delay()
}

// delayed says that this node is delayed, empty if it is not.
func (n *Node) delayed() string {
	d := n.ownDelay()
	if d == 0 {
		return ""
	}
	return fmt.Sprintf("delayed by %v as configured", config.Duration(d))
}

// openGate makes the gate as settings and node.json want it.
func (n *Node) openGate() {
	n.applyDelay = newGate()
	n.applyDelay.order = n.local.get().Hold
	n.applyDelay.set(n.ownDelay())
}

// updateDelay follows new settings. An order ends with the delay.
func (n *Node) updateDelay() {
	if n.applyDelay == nil {
		return // a node that is being put together
	}
	d := n.ownDelay()
	if d == 0 && n.local.get().Hold != nil {
		if err := n.command(nil, func() error { return nil }); err != nil {
			n.log.Error("the order to a delayed learner was not taken back", "err", err)
			return
		}
	}
	if n.applyDelay.set(d) && n.feed != nil {
		n.feed.Again()
	}
}

// command has the gate follow an order, nil for none, that is on disk.
func (n *Node) command(o *holdOrder, check func() error) error {
	return n.applyDelay.command(o, func() error {
		if err := check(); err != nil {
			return err
		}
		return n.local.update(func(s *localState) { s.Hold = o })
	})
}

// Delay implements api.Backend, on any node: the member that it is for carries it out, leader or not.
func (n *Node) Delay(ctx context.Context, req api.DelayRequest) (res api.DelayResult, err error) {
	m, err := n.findMember(req.Name)
	if err != nil {
		return res, err
	}
	if res, err = n.orderDelay(ctx, m, req); err == nil && req.Order != "" {
		n.history.add(n.askedEvent(ctx, eventDelay, 0, m.Name+" "+delayText(req)+", on an operator's request"))
	}
	return res, err
}

// delayText is what a delayed learner does from an order on.
func delayText(req api.DelayRequest) string {
	switch req.Order {
	case api.OrderApplyNow:
		return "applies what is committed without delay"
	case api.OrderHold:
		return "applies nothing more"
	case api.OrderStopBefore:
		return "applies all up to just before " + req.GTID + " without delay, and stops there"
	case api.OrderStopAfter:
		return "applies all up to and with " + req.GTID + " without delay, and stops there"
	}
	return "applies with its delay again"
}

// orderDelay has a member carry an order out.
func (n *Node) orderDelay(ctx context.Context, m config.Member, req api.DelayRequest) (res api.DelayResult, err error) {
	if m.ID == n.id.ID {
		return n.delayHere(req)
	}
	ctx, cancel := context.WithTimeout(ctx, delayTimeout)
	defer cancel()
	a, err := reqDelay.Ask(ctx, n.tr, m.ID, req)
	if err != nil {
		return res, api.Errorf(api.KindNotReady, "%s: %v", m.Name, err).With("see `trireme status`")
	}
	if a.Refused != nil {
		return res, a.Refused
	}
	return a.Result, nil
}

// delayAnswer is what another daemon says to a DelayRequest.
type delayAnswer struct {
	Result  api.DelayResult `json:"result"`
	Refused *api.Error      `json:"refused,omitempty"`
}

const delayTimeout = 10 * time.Second

// delayForPeer answers reqDelay.
func (n *Node) delayForPeer(_ context.Context, _ uint64, req api.DelayRequest) (a delayAnswer, err error) {
	if a.Result, err = n.delayHere(req); errors.As(err, &a.Refused) {
		err = nil
	}
	return a, err
}

// delayHere takes an order for this node.
func (n *Node) delayHere(req api.DelayRequest) (res api.DelayResult, err error) {
	if n.ownDelay() == 0 {
		return res, n.notDelayed()
	}
	var o *holdOrder
	check := func() error { return nil }
	switch req.Order {
	case "":
		return n.delayResult()
	case api.OrderResume:
	case api.OrderApplyNow:
		o = &holdOrder{Kind: api.OrderApplyNow}
	case api.OrderHold:
		o = &holdOrder{Kind: api.OrderStopAfter}
		// where it stands is a transaction, so that a restart, which may give mysqld less, leads there again
		check = func() error {
			if last := n.applyDelay.last; !last.IsZero() {
				o.GTID = last.String()
			}
			return nil
		}
	case api.OrderStopBefore, api.OrderStopAfter:
		id, err := gtid.ParseGTID(req.GTID)
		if err != nil {
			return res, api.Errorf(api.KindInvalid, "%q is no GTID: %v", req.GTID, err)
		}
		o = &holdOrder{Kind: req.Order, GTID: id.String()}
		check = func() error { return n.mayStopAt(id) }
	default:
		return res, api.Errorf(api.KindInvalid, "%q is no order to a delayed learner", req.Order)
	}
	err = n.command(o, func() error {
		if n.applyDelay.delay == 0 { // the settings change just now
			return n.notDelayed()
		}
		return check()
	})
	if err != nil {
		return res, err
	}
	n.log.Warn("an operator's order to this delayed learner: it "+delayText(req), "order", req.Order, "gtid", req.GTID)
	n.Publish()
	return n.delayResult()
}

func (n *Node) notDelayed() error {
	return api.Errorf(api.KindConflict, "%s is not delayed", n.id.Name).
		With("only a learner can be: `trireme config edit apply_delay.%s=1h`", n.id.Name)
}

func (n *Node) delayResult() (api.DelayResult, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	v := n.delayViewLocked()
	if v == nil {
		return api.DelayResult{}, n.notDelayed()
	}
	return api.DelayResult{Name: n.id.Name, DelayView: *v}, nil
}

// mayStopAt says why this node cannot stop at a transaction. The gate is held.
func (n *Node) mayStopAt(id gtid.GTID) error {
	_, committed := n.led.Snapshot()
	switch {
	case !n.applyDelay.begun:
		return api.Errorf(api.KindNotReady, "mysqld of %s is not fed yet", n.id.Name).
			With("`trireme delay %s --hold` makes sure that nothing is applied; then try again", n.id.Name)
	case n.applyDelay.handed.Contains(id):
		return api.Errorf(api.KindConflict, "mysqld of %s has %s already", n.id.Name, id).
			With("what it did can be undone from a backup only: trireme restore")
	case !committed.Contains(id):
		return api.Errorf(api.KindNotFound, "%s is not in the log as %s knows it", id, n.id.Name).
			With("look for it with `trireme log dump`; `trireme delay %s --hold` makes sure that nothing is applied meanwhile",
				n.id.Name)
	}
	return nil
}

// delayViewLocked is what this node shows of its delay; nil: it has no delay.
func (n *Node) delayViewLocked() *api.DelayView {
	var executed gtid.Set
	if s := n.lives.Status(); s.Life() != nil && s.State() == ha.ServerReady {
		executed = s.Life().Executed()
	}
	v := n.applyDelay.view(executed)
	if v != nil && !n.srv.backlog.Since.IsZero() {
		v.BehindSeconds = time.Since(n.srv.backlog.Committed).Seconds()
		v.BehindBytes = uint64(n.srv.backlog.Bytes)
	}
	return v
}
