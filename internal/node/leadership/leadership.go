// Package leadership is how leadership comes to a member, and how somebody moves it on purpose. It has the one account
// of that: whether this member can prove that it leads, what an operator has asked for, what was tried, and whom an
// order or the leader before has told to lead.
//
//	switchover       Ask -> ha.Decide -> Begin -> Attempt.Switchover, which answers who asked
//	handing over     ha.Decide -> Begin -> Attempt.HandOver: writes were not opened yet
//	forced failover  Failover, on any member -> an Order to each -> the target's election is the operator's
//	asked to lead    Told: by the leader before, with MsgTimeoutNow
package leadership

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"trireme/internal/base/config"
	"trireme/internal/base/run"
	"trireme/internal/core/consensus"
	"trireme/internal/core/ha"
	"trireme/internal/core/transport"
)

const (
	maxGrace        = 100 * time.Millisecond // see Grace
	handoverTimeout = 3 * time.Second
)

// Raft is what is asked of consensus.Node.
type Raft interface {
	Status() consensus.Status
	HoldsLease() bool
	Campaign()
	// Depose makes this member deaf to a leader, and one that is to campaign does so once it is forgotten.
	Depose(leader, term uint64, campaign bool)
	TransferLeadership(ctx context.Context, to uint64) error
}

// Host is the rest of the member.
type Host interface {
	transport.Asker
	Raft() Raft
	Clients() Clients
	Settings() *config.Cluster
	// Member finds one by name, for an operator.
	Member(name string) (config.Member, error)
	// View is the member as it is now.
	View() ha.View
	// CheckTerm refuses what was asked for in view of an older term.
	CheckTerm(want uint64) error
	// Phase is of what this member's mysqld serves.
	Phase() ha.Phase
	// Stopping says whether the daemon was asked to stop. It waits for no lock that is held over a call of this package.
	Stopping() bool
	// LeastTimeout is the shortest election timeout of all members.
	LeastTimeout() time.Duration
	// Record adds to the history; by is who asked for it, empty: the node itself.
	Record(kind, by, text string)
	WakeLoop()
	// Go runs f on a goroutine that the node waits for when it stops, and wakes the loop after it.
	Go(f func(ctx context.Context))
}

// Leadership is of one member. Its methods may be called from any goroutine; they do not wait for a lock that is held
// over I/O.
type Leadership struct {
	id      config.Identity
	timeout time.Duration // election timeout
	exec    run.Exec
	host    Host
	log     *slog.Logger

	forcing sync.Mutex              // held while this member forces a failover
	seen    atomic.Pointer[ha.View] // the loop's newest

	mu        sync.Mutex    // never held over a call of the host
	lost      time.Duration // when the loop first saw that the lease is gone; 0: it runs
	told      uint64        // term in which the leader told this member to take over; 0: never
	tried     tried
	request   *Request
	held      uint64 // see Held
	ordered   Order  // of a forced failover, the newest
	orderedAt time.Duration
	forced    forcedFailoverIntent
}

// tried are the attempts of a term to move leadership.
type tried struct {
	term  uint64
	at    time.Duration // of the newest
	to    uint64        // likewise
	fails int           // switchovers that failed
}

// New makes the part of a member. timeout is its election timeout.
func New(id config.Identity, timeout time.Duration, exec run.Exec, host Host, log *slog.Logger) *Leadership {
	return &Leadership{id: id, timeout: timeout, exec: exec, host: host, log: log}
}

// name of a member.
func (l *Leadership) name(id uint64) string {
	if m, ok := l.host.Settings().MemberByID(id); ok {
		return m.Name
	}
	return fmt.Sprintf("id %d", id)
}

// Show adds what is known here to a view for the policy, in which raft's term stands already.
func (l *Leadership) Show(v *ha.View) {
	l.mu.Lock()
	defer l.mu.Unlock()
	v.Raft.Asked = l.told != 0 && v.Raft.Term == l.told+1
	v.HandoverTriedTerm, v.HandoverAt = l.tried.term, l.tried.at
	v.HandoverTo, v.HandoverFails = l.tried.to, l.tried.fails
	if l.request != nil && !l.request.begun {
		v.Request = &ha.Transfer{To: l.request.to}
	}
}

// Saw takes the loop's newest view.
func (l *Leadership) Saw(v ha.View) { l.seen.Store(&v) }

// CampaignDelay answers consensus, whose goroutine sends the heartbeats: it waits for no lock.
func (l *Leadership) CampaignDelay(lost uint64) time.Duration {
	if v := l.seen.Load(); v != nil {
		return ha.CampaignDelay(*v, lost)
	}
	return 0
}

// InTerm takes the term that raft is in. A request that has not begun in the term in which it was made ends (S7).
func (l *Leadership) InTerm(term uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if r := l.request; r != nil && !r.begun && r.term != term {
		l.finishLocked(r, Moved{Err: fmt.Errorf("leadership has moved meanwhile: it is term %d, not %d", term, r.term)})
	}
}

// Told: the leader of a term has told this member to take over.
func (l *Leadership) Told(term uint64) {
	l.mu.Lock()
	l.told = term
	l.mu.Unlock()
}

// NoteLease remembers since when the lease is gone. Only the loop calls it, which looks at it in order.
func (l *Leadership) NoteLease(lease time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case lease > l.exec.Now():
		l.lost = 0
	case l.lost == 0 && lease == 0:
		l.lost = l.exec.Now()
	case l.lost == 0:
		l.lost = lease
	}
}

// Lease is raft's lease as the policy sees it. The death of a voter takes its answer out of the lease, which a fresh
// round gives back a moment later: that is no reason to fence.
func (l *Leadership) Lease(lease time.Duration) time.Duration {
	l.mu.Lock()
	lost := l.lost
	l.mu.Unlock()
	switch {
	case lease > l.exec.Now():
		return lease
	case lost != 0:
		lease = lost
	case lease == 0:
		lease = l.exec.Now()
	}
	return lease + l.Grace()
}

// Grace is added to the lease, which lasts 0.8 election timeouts, before this member fences itself, and once more
// before the guard does it: both are over when another member can be elected (S10).
func (l *Leadership) Grace() time.Duration { return min(l.host.LeastTimeout()/10, maxGrace) }

// AwaitLease waits until leadership is proven (S10). After a transfer that did not happen that takes some election
// timeouts.
func (l *Leadership) AwaitLease(ctx context.Context, patience time.Duration) error {
	ctx, cancel := l.exec.WithTimeout(ctx, patience)
	defer cancel()
	for !l.host.Raft().HoldsLease() {
		if err := l.exec.Sleep(ctx, time.Millisecond); err != nil {
			return fmt.Errorf("leadership could not be proven within %v: %w", patience, err)
		}
	}
	return nil
}

// HandOver gives raft leadership away before writes were opened.
func (a *Attempt) HandOver(ctx context.Context) {
	l := a.l
	ctx, cancel := l.exec.WithTimeout(ctx, handoverTimeout)
	defer cancel()
	if err := l.host.Raft().TransferLeadership(ctx, a.To); err != nil {
		l.log.Warn("leadership was not handed over", "term", a.Term, "to", l.name(a.To), "why", a.Reason, "err", err)
		return
	}
	l.log.Info("handed over leadership before opening writes", "term", a.Term, "to", l.name(a.To), "why", a.Reason)
}
