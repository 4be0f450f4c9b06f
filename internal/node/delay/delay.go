// Package delay is what makes a learner a delayed one (docs/ops/delayed.md): its raft log is like everybody's, and its
// feed hands transactions out late. So nothing waits for it but its own mysqld, and what it protects lies in its own
// log, which it alone keeps for that. It owns the gate of the feed, an operator's order, and what is shown of both.
package delay

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"trireme/internal/api"
	"trireme/internal/base/config"
	"trireme/internal/core/ledger"
	"trireme/internal/core/transport"
	"trireme/internal/mysql/binlog"
	"trireme/internal/mysql/gtid"
)

const (
	sendTimeout = 10 * time.Second
	gateLook    = time.Second // how often the clock is looked at while a transaction waits: it may be set
)

// ReqDelay is a request between daemons, answered when the node has taken the order.
var ReqDelay = transport.Kind[api.DelayRequest, Answer]{Number: 25, StrictBody: true}

// Answer is what another daemon says to a DelayRequest.
type Answer struct {
	Result  api.DelayResult `json:"result"`
	Refused *api.Error      `json:"refused,omitempty"`
}

// Order is an operator's order to a delayed learner. It is kept in node.json until it is taken back.
type Order struct {
	Kind string `json:"kind"`           // api.OrderStopBefore, api.OrderStopAfter or api.OrderApplyNow
	GTID string `json:"gtid,omitempty"` // of StopAfter, empty: nothing more at all
}

// Memory is node.json. SetOrder returns once the order is on disk, and Order never waits for that; nil: no order.
type Memory interface {
	Order() *Order
	SetOrder(o *Order) error
}

// Host is the rest of the member.
type Host interface {
	Memory // changes only with Delay.mu held
	Settings() *config.Cluster
	Member(name string) (config.Member, error)
	Applied() (executed gtid.Set, lacks ledger.Backlog) // for View
	Record(kind, by, text string)                       // adds an event to the history; by is who asked for it
	Publish()
	transport.Asker
}

// Delay is of one member, of one without a delay too. It is the gate of its feed: it holds transactions back until they
// are as old as the delay, or where an operator has stopped it (Order). The age counts from the commit in the leader's
// mysqld, by the time stamp in the GTID event, to this host's time of day, so no restart changes it. If the clocks of
// the two hosts differ, the delay differs by as much. But a transaction never waits longer than the delay from when it
// was first looked at: a clock that was far ahead for a while stops nothing.
type Delay struct {
	id     config.Identity
	led    *ledger.Ledger
	host   Host
	log    *slog.Logger
	clock  func() time.Time
	active atomic.Bool // there is a delay

	mu      sync.Mutex
	delay   time.Duration
	changed chan struct{} // closed and replaced at every change of delay or order
	begun   bool          // handed is known
	handed  gtid.Set      // what mysqld's receiver had when it began, and what it was given since
	last    gtid.GTID     // of the latter, the newest; zero: nothing yet
	passed  bool          // the transaction that the order names is in handed
	next    gtid.GTID     // that waits; zero: none
	due     time.Time     // when next is old enough
}

// New makes the delay that the settings want. It does not read the memory yet.
func New(id config.Identity, led *ledger.Ledger, host Host, log *slog.Logger) *Delay {
	d := &Delay{id: id, led: led, host: host, log: log, clock: time.Now, changed: make(chan struct{})}
	d.delay = d.Configured()
	d.active.Store(d.delay > 0)
	return d
}

// Active says whether transactions are held back. It follows Configured.
func (d *Delay) Active() bool { return d.active.Load() }

// Configured is this node's delay; 0: none.
func (d *Delay) Configured() time.Duration {
	if m, _ := d.host.Settings().MemberByID(d.id.ID); m.Role == config.RoleLearner {
		return m.Delay()
	}
	return 0
}

// Text says that this node is delayed, empty if it is not.
func (d *Delay) Text() string {
	if delay := d.Configured(); delay != 0 {
		return fmt.Sprintf("delayed by %v as configured", config.Duration(delay))
	}
	return ""
}

// SettingsChanged follows new settings, and says whether the feed's receiver has to begin again: handed is not known.
func (d *Delay) SettingsChanged() (again bool) {
	delay := d.Configured()
	d.mu.Lock()
	defer d.mu.Unlock()
	if delay == 0 && d.host.Order() != nil { // an order ends with the delay
		if err := d.host.SetOrder(nil); err != nil {
			d.log.Error("the order to a delayed learner was not taken back", "err", err)
			return false
		}
	}
	if d.delay == delay {
		return false
	}
	again = d.delay == 0
	d.next = gtid.GTID{} // it is due by the delay before
	if d.delay = delay; delay == 0 || again {
		d.begun, d.handed, d.last, d.passed = false, gtid.Set{}, gtid.GTID{}, false
	}
	d.active.Store(delay > 0)
	close(d.changed)
	d.changed = make(chan struct{})
	return again
}

// Order answers the verb, on any node: the member that it is for carries it out, leader or not.
func (d *Delay) Order(ctx context.Context, req api.DelayRequest) (res api.DelayResult, err error) {
	m, err := d.host.Member(req.Name)
	if err == nil {
		res, err = d.send(ctx, m, req)
	}
	if err == nil && req.Order != "" {
		d.host.Record("delay", api.WhoAsked(ctx), m.Name+" "+orderText(req)+", on an operator's request")
	}
	return res, err
}

// orderText is what a delayed learner does from an order on.
func orderText(req api.DelayRequest) string {
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

// send has a member carry an order out.
func (d *Delay) send(ctx context.Context, m config.Member, req api.DelayRequest) (res api.DelayResult, err error) {
	if m.ID == d.id.ID {
		return d.take(req)
	}
	ctx, cancel := context.WithTimeout(ctx, sendTimeout)
	defer cancel()
	a, err := ReqDelay.Ask(ctx, d.host, m.ID, req)
	if err != nil {
		return res, api.Errorf(api.KindNotReady, "%s: %v", m.Name, err).With("see `trireme status`")
	}
	if a.Refused != nil {
		return res, a.Refused
	}
	return a.Result, nil
}

// OrderForPeer answers ReqDelay.
func (d *Delay) OrderForPeer(_ context.Context, _ uint64, req api.DelayRequest) (a Answer, err error) {
	if a.Result, err = d.take(req); errors.As(err, &a.Refused) {
		err = nil
	}
	return a, err
}

// take takes an order for this node.
func (d *Delay) take(req api.DelayRequest) (res api.DelayResult, err error) {
	if d.Configured() == 0 {
		return res, d.notDelayed()
	}
	o, at := &Order{Kind: req.Order}, gtid.GTID{}
	switch req.Order {
	case "":
		return d.result()
	case api.OrderResume:
		o = nil
	case api.OrderApplyNow:
	case api.OrderHold:
		o.Kind = api.OrderStopAfter
	case api.OrderStopBefore, api.OrderStopAfter:
		if at, err = gtid.ParseGTID(req.GTID); err != nil {
			return res, api.Errorf(api.KindInvalid, "%q is no GTID: %v", req.GTID, err)
		}
		o.GTID = at.String()
	default:
		return res, api.Errorf(api.KindInvalid, "%q is no order to a delayed learner", req.Order)
	}
	if err = d.command(o, func() error {
		if req.Order == api.OrderHold && !d.last.IsZero() {
			// where it stands is a transaction, so that a restart, which may give mysqld less, leads there again
			o.GTID = d.last.String()
		}
		return d.refusedLocked(at)
	}); err != nil {
		return res, err
	}
	d.log.Warn("an operator's order to this delayed learner: it "+orderText(req), "order", req.Order, "gtid", req.GTID)
	d.host.Publish()
	return d.result()
}

func (d *Delay) notDelayed() error {
	return api.Errorf(api.KindConflict, "%s is not delayed", d.id.Name).
		With("only a learner can be: `trireme config edit apply_delay.%s=1h`", d.id.Name)
}

func (d *Delay) result() (api.DelayResult, error) {
	if v := d.View(d.host.Applied()); v != nil {
		return api.DelayResult{Name: d.id.Name, DelayView: *v}, nil
	}
	return api.DelayResult{}, d.notDelayed()
}

// refusedLocked says why this node cannot take an order, to stop at a transaction unless that is zero.
func (d *Delay) refusedLocked(at gtid.GTID) error {
	_, committed := d.led.Snapshot()
	switch {
	case d.delay == 0: // the settings change just now
		return d.notDelayed()
	case at.IsZero():
	case !d.begun:
		return api.Errorf(api.KindNotReady, "mysqld of %s is not fed yet", d.id.Name).
			With("`trireme delay %s --hold` makes sure that nothing is applied; then try again", d.id.Name)
	case d.handed.Contains(at):
		return api.Errorf(api.KindConflict, "mysqld of %s has %s already", d.id.Name, at).
			With("what it did can be undone from a backup only: trireme restore")
	case !committed.Contains(at):
		return api.Errorf(api.KindNotFound, "%s is not in the log as %s knows it", at, d.id.Name).
			With("look for it with `trireme log dump`; `trireme delay %s --hold` makes sure that nothing is "+
				"applied meanwhile", d.id.Name)
	}
	return nil
}

// command puts another order, nil for none, in the place of the one before, once check accepts it: nothing is handed
// out meanwhile.
func (d *Delay) command(o *Order, check func() error) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := check(); err != nil {
		return err
	}
	if err := d.host.SetOrder(o); err != nil {
		return err
	}
	d.passed = o != nil && o.Kind == api.OrderStopAfter && o.GTID == d.last.String()
	close(d.changed)
	d.changed = make(chan struct{})
	return nil
}

// Begin implements dump.Gate.
func (d *Delay) Begin(has gtid.Set) {
	if !d.active.Load() {
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.begun, d.handed, d.last, d.next, d.passed = true, has.Clone(), gtid.GTID{}, gtid.GTID{}, false
	if o := d.host.Order(); o != nil && o.GTID != "" {
		id, err := gtid.ParseGTID(o.GTID)
		d.passed = err != nil || has.Contains(id)
	}
}

// Pass implements dump.Gate.
func (d *Delay) Pass(trx *binlog.TrxInfo) (wait time.Duration, changed <-chan struct{}) {
	if !d.active.Load() {
		return 0, nil
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	id, now, o := trx.GTID, d.clock(), d.host.Order()
	if d.handed.Contains(id) {
		return 0, nil // asked again: to hold it now would stop mysqld before what it is said to have
	}
	if d.next != id {
		d.next, d.due = id, now
		if at := time.UnixMicro(int64(trx.ImmediateCommit)); trx.ImmediateCommit != 0 && at.Before(now) {
			d.due = at
		}
		d.due = d.due.Add(d.delay)
	}
	switch {
	case d.stopsLocked(id):
		return gateLook, d.changed
	case o == nil && now.Before(d.due):
		return min(d.due.Sub(now), gateLook), d.changed
	}
	d.handed.Add(id)
	d.last, d.next = id, gtid.GTID{}
	d.passed = d.passed || o != nil && o.Kind == api.OrderStopAfter && o.GTID == id.String()
	return 0, nil
}

// stopsLocked says whether the order stops the feed before a transaction. One whose own transaction mysqld has already,
// which is never met again, stops it at once: the data may have been copied from another node meanwhile.
func (d *Delay) stopsLocked(id gtid.GTID) bool {
	switch o := d.host.Order(); {
	case o == nil || o.Kind == api.OrderApplyNow:
		return false
	case d.passed || o.GTID == "":
		return true
	default:
		return o.Kind == api.OrderStopBefore && o.GTID == id.String()
	}
}

// View is what is shown of a delayed learner, nil of another node. executed is what its mysqld has, empty unless it is
// ready; lacks is what it has not applied.
func (d *Delay) View(executed gtid.Set, lacks ledger.Backlog) *api.DelayView {
	if !d.active.Load() {
		return nil
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	v, o := &api.DelayView{Seconds: d.delay.Seconds(), CaughtUp: executed.ContainsSet(d.handed)}, d.host.Order()
	if !lacks.Since.IsZero() {
		v.BehindSeconds, v.BehindBytes = time.Since(lacks.Committed).Seconds(), uint64(lacks.Bytes)
	}
	if o != nil {
		v.Order, v.GTID = o.Kind, o.GTID
	}
	if !d.next.IsZero() {
		v.Next = d.next.String()
		if v.Stopped = d.stopsLocked(d.next); !v.Stopped {
			v.RemainingSeconds = max(0, d.due.Sub(d.clock()).Seconds())
		}
	} else if d.begun && o != nil && o.Kind != api.OrderApplyNow {
		v.Stopped = d.passed || o.GTID == ""
	}
	// One that is due and was not asked for is what a feed left that has ended: that is no sign of having caught up.
	v.Stopped, v.CaughtUp = v.Stopped && v.CaughtUp, v.CaughtUp && (v.Stopped || o == nil && v.RemainingSeconds > 0)
	v.Missed = d.begun && d.passed && o != nil && o.Kind == api.OrderStopBefore
	return v
}
