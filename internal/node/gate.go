package node

import (
	"sync"
	"sync/atomic"
	"time"

	"trireme/internal/api"
	"trireme/internal/core/dump"
	"trireme/internal/mysql/binlog"
	"trireme/internal/mysql/gtid"
)

// gate holds back transactions of a delayed learner's feed: until they are as old as the delay, or where an operator
// has stopped it (holdOrder). The age counts from the commit in the leader's mysqld, by the time stamp in the GTID
// event, to this host's time of day, so no restart changes it. If the clocks of the two hosts differ, the delay differs
// by as much. But a transaction never waits longer than the delay from when it was first looked at: a clock that was
// far ahead for a while stops nothing.
type gate struct {
	clock  func() time.Time
	active atomic.Bool // there is a delay

	mu      sync.Mutex
	delay   time.Duration
	order   *holdOrder
	changed chan struct{} // closed and replaced at every change of delay or order
	begun   bool          // handed is known
	handed  gtid.Set      // what mysqld's receiver had when it began, and what it was given since
	last    gtid.GTID     // of the latter, the newest; zero: nothing yet
	passed  bool          // the transaction that order names is in handed
	next    gtid.GTID     // that waits; zero: none
	due     time.Time     // when next is old enough
}

var _ dump.Gate = (*gate)(nil)

// holdOrder is an operator's order to a delayed learner. It is kept in node.json until it is taken back.
type holdOrder struct {
	Kind string `json:"kind"`           // api.OrderStopBefore, api.OrderStopAfter or api.OrderApplyNow
	GTID string `json:"gtid,omitempty"` // of StopAfter, empty: nothing more at all
}

func newGate() *gate { return &gate{clock: time.Now, changed: make(chan struct{})} }

// set changes the delay, and says whether the receiver has to begin again for handed to be known.
func (g *gate) set(delay time.Duration) (again bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.delay == delay {
		return false
	}
	again = g.delay == 0
	g.next = gtid.GTID{} // it is due by the delay before
	if g.delay = delay; delay == 0 || again {
		g.begun, g.handed, g.last = false, gtid.Set{}, gtid.GTID{}
	}
	g.active.Store(delay > 0)
	g.wakeLocked()
	return again
}

func (g *gate) wakeLocked() {
	close(g.changed)
	g.changed = make(chan struct{})
}

// command puts another order, nil for none, in the place of the one before, once check accepts it: nothing is handed
// out meanwhile.
func (g *gate) command(o *holdOrder, check func() error) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if err := check(); err != nil {
		return err
	}
	g.order = o
	g.passed = o != nil && o.Kind == api.OrderStopAfter && o.GTID == g.last.String()
	g.wakeLocked()
	return nil
}

// Begin implements dump.Gate.
func (g *gate) Begin(has gtid.Set) {
	if !g.active.Load() {
		return
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.begun, g.handed, g.next, g.passed = true, has.Clone(), gtid.GTID{}, false
	g.last = gtid.GTID{}
	if g.order != nil && g.order.GTID != "" {
		id, err := gtid.ParseGTID(g.order.GTID)
		g.passed = err != nil || has.Contains(id)
	}
}

// Pass implements dump.Gate.
func (g *gate) Pass(trx *binlog.TrxInfo) (wait time.Duration, changed <-chan struct{}) {
	if !g.active.Load() {
		return 0, nil
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	id, now := trx.GTID, g.clock()
	if g.handed.Contains(id) {
		return 0, nil // asked again: to hold it now would stop mysqld before what it is said to have
	}
	if g.next != id {
		g.next, g.due = id, now
		if at := time.UnixMicro(int64(trx.ImmediateCommit)); trx.ImmediateCommit != 0 && at.Before(now) {
			g.due = at
		}
		g.due = g.due.Add(g.delay)
	}
	switch {
	case g.stopsLocked(id):
		return gateLook, g.changed
	case g.order == nil && now.Before(g.due):
		return min(g.due.Sub(now), gateLook), g.changed
	}
	g.handed.Add(id)
	g.last, g.next = id, gtid.GTID{}
	if g.order != nil && g.order.Kind == api.OrderStopAfter && g.order.GTID == id.String() {
		g.passed = true
	}
	return 0, nil
}

// gateLook is how often the clock is looked at while a transaction waits: it may be set.
const gateLook = time.Second

// stopsLocked says whether the order stops the feed before a transaction. One whose own transaction mysqld has already,
// which is never met again, stops it at once: the data may have been copied from another node meanwhile.
func (g *gate) stopsLocked(id gtid.GTID) bool {
	switch o := g.order; {
	case o == nil || o.Kind == api.OrderApplyNow:
		return false
	case g.passed || o.GTID == "":
		return true
	default:
		return o.Kind == api.OrderStopBefore && o.GTID == id.String()
	}
}

// view is what is shown of a delayed learner; executed is what its mysqld has. nil: there is no delay.
func (g *gate) view(executed gtid.Set) *api.DelayView {
	if g == nil || !g.active.Load() {
		return nil
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	v := &api.DelayView{Seconds: g.delay.Seconds(), CaughtUp: executed.ContainsSet(g.handed)}
	if g.order != nil {
		v.Order, v.GTID = g.order.Kind, g.order.GTID
	}
	if !g.next.IsZero() {
		v.Next = g.next.String()
		if v.Stopped = g.stopsLocked(g.next); !v.Stopped {
			v.RemainingSeconds = max(0, g.due.Sub(g.clock()).Seconds())
		}
	} else if o := g.order; g.begun && o != nil && o.Kind != api.OrderApplyNow {
		v.Stopped = g.passed || o.GTID == ""
	}
	// One that is due and has not been asked for is what a feed left that has ended: that is no sign of having caught up.
	v.Stopped, v.CaughtUp = v.Stopped && v.CaughtUp, v.CaughtUp && (v.Stopped || g.order == nil && v.RemainingSeconds > 0)
	v.Missed = g.begun && g.passed && g.order != nil && g.order.Kind == api.OrderStopBefore
	return v
}
