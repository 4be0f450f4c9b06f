package leadership

import (
	"context"
	"fmt"
	"slices"
	"time"

	"trireme/internal/api"
	"trireme/internal/base/failpoint"
	"trireme/internal/base/mutant"
	"trireme/internal/core/ha"
	"trireme/internal/core/transport"
	"trireme/internal/mysql/mysqld"
	"trireme/internal/node/gossip"
)

// Patience is how long the steps of a switchover may take, but for open transactions.
const Patience = 10 * time.Second

// Patience of the parts of a switchover.
const (
	// TargetPatience is for a target to apply what it has before writes close, and the rest after it.
	TargetPatience   = 3 * time.Second
	closeBehind      = 20 * time.Millisecond  // in which the target applies the rest, before writes close
	approachPatience = time.Second            // for it to come so close
	trxInterval      = 25 * time.Millisecond  // between two looks at open transactions
	rulePoll         = 5 * time.Millisecond   // the same at commit rules
	quietPatience    = 500 * time.Millisecond // for the transactions of sessions that the routers hold
	electPatience    = 2 * time.Second        // for the target to be elected
)

// ReqApplied is a request between daemons, answered when the node's mysqld has applied the index.
var ReqApplied = transport.Kind[Applied, transport.None]{Number: 1}

// Applied asks until when to wait for what.
type Applied struct {
	Index    uint64        `json:"index"`
	Patience time.Duration `json:"patience_ns"`
	Term     uint64        `json:"term,omitempty"` // nothing of a later one counts; 0: of any
}

// eventNoSwitchover is one that failed.
const eventNoSwitchover = "no-switchover"

// Serving is this member's mysqld, which takes writes in a term and hands over.
type Serving interface {
	// OpenTransactions are those of applications.
	OpenTransactions(ctx context.Context) ([]mysqld.OpenTransaction, error)
	// Committed is the index below which all that was acknowledged lies.
	Committed() uint64
	// BeginClosing is said before Close, and not followed by it when it says no: a fence has begun.
	BeginClosing() bool
	// Close ends writing without losing anything that is under way, and says what it has cut off in any case.
	Close(ctx context.Context) (connections int, rolledBack []mysqld.OpenTransaction, err error)
	// Retire makes it a follower.
	Retire(ctx context.Context) error
	// Reopen opens writes again; if it fails, mysqld is being fenced.
	Reopen(ctx context.Context) error
}

// Clients are who uses this member's mysqld, and how they come to it.
type Clients interface {
	// WaitForRule says which commit rule keeps commits waiting for too long to close writes now; nil: none does.
	WaitForRule() error
	// Hold has routers hold new connections, and sessions between statements: writes of a term are about to be closed.
	Hold(term uint64, why gossip.Leave)
	// Followed says whether a router may have sessions that it can hold.
	Followed() bool
	// Quiet says whether no router has anything under way that it could hold; hold is the newest number of Held.
	Quiet(hold, term uint64) bool
	// Moved is how many sessions routers move now.
	Moved() int
	// DropAddresses releases the virtual addresses.
	DropAddresses()
}

// Attempt is an action to move leadership that has begun.
type Attempt struct {
	l *Leadership
	ha.Action
	request *Request      // an operator's that it fulfils; nil: there is none
	wait    time.Duration // for open transactions
}

// Begin notes an attempt to move leadership. A switchover takes the operator's request for it; without one, a daemon
// that is stopping has no time for open transactions.
func (l *Leadership) Begin(a ha.Action) *Attempt {
	at := &Attempt{l: l, Action: a, wait: api.DefaultTrxWait}
	if l.host.Stopping() {
		at.wait = 0
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if a.Term != l.tried.term {
		l.tried.fails = 0
	}
	l.tried.term, l.tried.at, l.tried.to = a.Term, l.exec.Now(), a.To
	if r := l.request; a.Kind == ha.Switchover && r != nil && !r.begun && r.to == a.To && r.term == a.Term {
		r.begun = true
		at.request, at.wait = r, r.wait
	}
	return at
}

// Switchover moves leadership on purpose: make sure of the target, let open transactions end, close writes, drain, wait
// until the target has applied everything, transfer. If a step fails before the transfer, writes open again in the same
// term, and only then the operator gets an answer. ctx ends with a fence.
func (a *Attempt) Switchover(ctx context.Context, s Serving) {
	l, to := a.l, a.l.name(a.To)
	limited, cancel := l.exec.WithTimeout(ctx, Patience+a.wait)
	defer cancel()
	m := a.move(limited, s)
	if len(m.Open) > 0 {
		l.log.Warn("open transactions were rolled back by a switchover", "count", len(m.Open), "first", trxText(m.Open[0]))
	}
	moved, err := m.Err == nil, m.Err
	if moved {
		a.end(m)
		if err = s.Retire(limited); err == nil {
			return
		}
	}
	l.mu.Lock()
	l.tried.fails++
	l.mu.Unlock()
	l.log.Warn("switchover failed", "to", to, "term", a.Term, "err", err)
	l.host.Record(eventNoSwitchover, "", fmt.Sprintf("the switchover to %s failed: %v", to, err))
	if !mutant.Reopen {
		err = s.Reopen(ctx)
	}
	if moved {
		return
	}
	if m.Continues = err == nil; err != nil {
		m.Err = fmt.Errorf("%w; %s is fenced: %w", m.Err, l.id.Name, err)
	}
	a.end(m)
}

// end answers the operator.
func (a *Attempt) end(m Moved) {
	if a.request != nil {
		a.l.end(a.request, m)
	}
}

// move takes the steps up to the transfer.
func (a *Attempt) move(ctx context.Context, s Serving) (m Moved) {
	l := a.l
	// The target first, while writes go on: it must be alive and nearly there. Again after the waits, in which it may have
	// died.
	if m.Err = a.askReady(ctx, s, "is not ready"); m.Err != nil {
		return m
	}
	failpoint.Hit("switchover.begin")
	if m.Err = l.awaitCommits(ctx, s, a.wait); m.Err != nil {
		return m
	}
	if m.Err = a.approach(ctx, s); m.Err != nil {
		return m
	}
	if m = l.close(ctx, s, a.Term, a.cause(), a.wait); m.Err != nil {
		return m
	}
	if m.Err = failpoint.Err("switchover.drained"); m.Err != nil {
		return m
	}
	if m.Err = a.askReady(ctx, s, "did not apply the last entries"); m.Err != nil {
		return m
	}
	tctx, cancel := l.exec.WithTimeout(ctx, electPatience)
	defer cancel()
	failpoint.Hit("switchover.before-transfer")
	m.Err = l.host.Raft().TransferLeadership(tctx, a.To)
	failpoint.Hit("switchover.after-transfer")
	return m
}

// cause says who wanted it.
func (a *Attempt) cause() gossip.Leave {
	switch {
	case a.request != nil:
		return gossip.Leave{Cause: "an operator asked for it", By: a.request.by}
	case a.l.host.Stopping():
		return gossip.Leave{Cause: "its daemon is stopping"}
	}
	return gossip.Leave{Cause: a.Reason}
}

// askReady waits until the target has applied all that is committed; otherwise is what to say of it when it does not.
func (a *Attempt) askReady(ctx context.Context, s Serving, otherwise string) error {
	ctx, cancel := a.l.exec.WithTimeout(ctx, TargetPatience)
	defer cancel()
	_, err := ReqApplied.Ask(ctx, a.l.host, a.To, Applied{Index: s.Committed(), Patience: TargetPatience})
	if err != nil {
		return fmt.Errorf("%s %s: %w", a.l.name(a.To), otherwise, err)
	}
	return nil
}

// approach waits, while writes go on, until the target lags so little that it applies the rest in a moment: each
// time it has applied all that was committed, what came meanwhile is less, as long as it applies faster than clients
// write. If it does not, waiting longer does not help.
func (a *Attempt) approach(ctx context.Context, s Serving) error {
	now := a.l.exec.Now
	for began := now(); ; {
		asked := now()
		if err := a.askReady(ctx, s, "is not ready"); err != nil {
			return err
		}
		if now() < asked+closeBehind || now() > began+approachPatience || a.l.host.Stopping() {
			return nil
		}
	}
}

// Close closes writes for good, or until they are opened again: open transactions may end for some time, routers hold
// their sessions, and all that was written is committed. A switchover closes them in the same way.
func (l *Leadership) Close(ctx context.Context, s Serving, term uint64, why gossip.Leave,
	wait time.Duration) (m Moved) {
	if m.Err = l.awaitCommits(ctx, s, wait); m.Err != nil {
		return m
	}
	return l.close(ctx, s, term, why, wait)
}

// close is the part in which clients notice something.
func (l *Leadership) close(ctx context.Context, s Serving, term uint64, why gossip.Leave,
	wait time.Duration) (m Moved) {
	clients := l.host.Clients()
	l.mu.Lock()
	l.held++
	hold := l.held
	l.mu.Unlock()
	if !s.BeginClosing() {
		m.Err = fmt.Errorf("%s is fenced", l.id.Name)
		return m
	}
	why.Planned = true
	clients.Hold(term, why)
	if clients.Followed() {
		l.awaitQuiet(ctx, hold, term, min(wait, quietPatience))
	}
	failpoint.Hit("switchover.before-close")
	m.Carried = clients.Moved()
	m.Closing = l.exec.Now()
	if m.Cut, m.Open, m.Err = s.Close(ctx); m.Err == nil {
		clients.DropAddresses() // all who wrote here have got their answers
	}
	return m
}

// Held is the number of the last time that this member closed writes by plan.
func (l *Leadership) Held() uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.held
}

// awaitQuiet waits until no router has anything under way that it could hold: what goes on longer is rolled back, or
// gets an error.
func (l *Leadership) awaitQuiet(ctx context.Context, hold, term uint64, patience time.Duration) {
	clients := l.host.Clients()
	for end := l.exec.Now() + patience; l.exec.Now() < end && !clients.Quiet(hold, term); {
		if l.exec.Sleep(ctx, time.Millisecond) != nil {
			return
		}
	}
}

// awaitCommits lets open transactions end, and commits that wait for a rule go on, before writes are closed: closed,
// those could only be drained or lost.
func (l *Leadership) awaitCommits(ctx context.Context, s Serving, wait time.Duration) error {
	if wait > 0 {
		l.awaitTransactions(ctx, s, wait)
	}
	clients := l.host.Clients()
	for end := l.exec.Now() + TargetPatience; ; {
		err := clients.WaitForRule()
		if err == nil || l.exec.Now() > end || l.exec.Sleep(ctx, rulePoll) != nil {
			return err
		}
	}
}

// awaitTransactions lets the transactions that are open now end by themselves, for a time. Those that begin meanwhile
// are not waited for. The end of the wait cuts no look short: its connection would have to log in again, while writes
// are being closed.
func (l *Leadership) awaitTransactions(ctx context.Context, s Serving, wait time.Duration) {
	end := l.exec.Now() + wait
	first, err := s.OpenTransactions(ctx)
	for err == nil && len(first) > 0 {
		left := end - l.exec.Now()
		if left <= 0 || l.host.Stopping() { // a daemon that is asked to stop has no time for that
			return
		}
		if l.exec.Sleep(ctx, min(trxInterval, left)) != nil {
			return
		}
		var later []mysqld.OpenTransaction
		later, err = s.OpenTransactions(ctx)
		first = slices.DeleteFunc(first, func(t mysqld.OpenTransaction) bool { return !slices.ContainsFunc(later, t.Same) })
	}
	if err != nil && ctx.Err() == nil {
		l.log.Warn("open transactions were not waited for", "err", err)
	}
}

// trxText describes a transaction in a line.
func trxText(t mysqld.OpenTransaction) string {
	return fmt.Sprintf("%s@%s, open for %d s, %d rows changed", t.User, t.Host, t.AgeS, t.Rows)
}
