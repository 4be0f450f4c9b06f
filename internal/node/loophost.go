package node

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	"trireme/internal/base/config"
	"trireme/internal/core/consensus"
	"trireme/internal/core/dump"
	"trireme/internal/core/ha"
	"trireme/internal/node/controlloop"
	"trireme/internal/node/history"
	"trireme/internal/node/lifecycle"
)

// loopHost is what the control loop sees of this node.
type loopHost struct{ host }

func (h loopHost) Raft() controlloop.Raft { return h.n.cons }

func (h loopHost) Applying(v *ha.Server) {
	n := h.n
	s := &n.srv
	v.Applied, v.Applier, v.Rate, v.Heavy = s.backlog.Applied, n.seeding.Applier(), s.rate, s.heavy
	v.Delayed = n.delay.Text()
	v.Stalled = n.stalledLocked() > 0
}

func (h loopHost) Disks(st *consensus.Status) (full, refused string) {
	return h.n.room.Disks(st)
}

// LeaderChanged: who wanted to end the cluster does not lead any more.
func (h loopHost) LeaderChanged() {
	h.n.lives.Change((*lifecycle.Status).Stay)
	h.n.gossip.Publish()
}

// Decided remembers what the policy said and logs it when it is new.
func (h loopHost) Decided(st ha.State) {
	n := h.n
	n.mu.Lock()
	changed := n.why != st.Why
	if n.stateName != st.Name {
		n.gossip.Publish()
	}
	n.stateName, n.why = st.Name, st.Why
	term := n.control.Soft().Term
	n.mu.Unlock()
	if changed {
		n.watchdog.manager.Status(st.Why)
		n.log.Info(st.Why, "term", term, "state", st.Name)
	}
}

func (h loopHost) Started(l *lifecycle.Life) {
	n := h.n
	n.watchLocked(l)
	n.srv = serverSlot{}
	n.seeding.Started()
	n.task(func(ctx context.Context) { n.watch(ctx, l) })
}

func (h loopHost) NotStarted() {
	s := h.n.lives.Status()
	h.n.log.Error("mysqld did not start", "err", s.Problem(), "attempt", s.Fails())
}

func (h loopHost) Differs(l *lifecycle.Life) bool { return h.n.seeding.FenceKnown(l) }

func (h loopHost) Judged(ctx context.Context, l *lifecycle.Life, v controlloop.Verdict) {
	h.n.tellJudged(ctx, l, v)
}

func (h loopHost) Seed(ctx context.Context) { h.n.seeding.Seed(ctx) }

// Promote makes this node's mysqld the one that takes writes in term, and tells of it.
func (h loopHost) Promote(ctx context.Context, leader *lifecycle.Leader, l *lifecycle.Life, term uint64) {
	n := h.n
	t := n.history.Begin(history.Takeover{Term: term, Incarnation: l.Incarnation, Before: n.led.NewestBarrier(),
		Elected: n.control.Soft().LeaderSince, Forced: n.leadership.Forced(term)})
	applied, err := leader.Promote(ctx)
	if err != nil {
		return
	}
	t.Opened(applied)
	n.addresses.UpdateSoon()
	n.task(func(ctx context.Context) { n.history.Report(ctx, t) })
	n.startEvents(ctx, l)
}

func (h loopHost) Fencing(string) {
	h.n.routing.Update()
	h.n.gossip.Broadcast()
}

func (h loopHost) Fenced(reason string, f lifecycle.Fenced) {
	n := h.n
	n.log.Warn("fenced", "reason", reason, "term", f.Term, "outcome", cmp.Or(f.Outcome, "mysqld is dead"), "ms",
		ms(f.Took))
	text := reason
	if f.Outcome != "" {
		text += ": " + f.Outcome
	}
	e := n.history.Event("fence", 0, text)
	e.Term, e.Drained = f.Term, f.Drained
	n.history.Add(e)
}

func (h loopHost) Restart(reason string) { h.n.restartServer(reason) }

func (h loopHost) Kill(l *lifecycle.Life) error { return l.Process().SendKill() }

func (h loopHost) WhyEnded() string {
	if h.n.guard.Killed() {
		return guardKilled
	}
	return ""
}

func (h loopHost) MayServe() bool {
	return h.n.Settings().Disbanded == nil && !h.n.seeding.HasNewDecisions()
}

func (h loopHost) Go(f func(ctx context.Context)) { h.n.task(f) }

func (h loopHost) Context() context.Context { return h.n.ctx }

func (h loopHost) TransactionRefuse() config.Bytes { return h.n.Settings().TransactionRefuse }
func (h loopHost) Routes()                         { h.n.routing.Update() }
func (h loopHost) DropAddresses()                  { h.n.addresses.Drop() }

// feedFailed is told what ends the feed permanently.
func (n *Node) feedFailed(err error) {
	if errors.Is(err, dump.ErrInvariant) {
		n.fail(fmt.Errorf("the feed: %w", err))
		return
	}
	n.control.FeedFailed(err)
}
