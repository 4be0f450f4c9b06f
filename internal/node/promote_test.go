package node

import (
	"context"
	"errors"
	"testing"
	"time"

	"go.etcd.io/raft/v3"

	"trireme/internal/base/config"
	"trireme/internal/core/consensus"
	"trireme/internal/core/ha"
	"trireme/internal/node/lifecycle"
)

// TestMayOpen: writes open only on the life and in the term and phase that they were to open in, as they are at that
// moment (S7), and a fence that begins meanwhile is not undone by the answer.
func TestMayOpen(t *testing.T) {
	n := newTestNode(t, withMembers(testVoters(1)...))
	openTestLog(t, n)
	startTestRaft(t, n, nil, raft.Peer{ID: 1})
	n.cons.Campaign()
	eventually(t, func() bool { return n.cons.Status().Role == consensus.Leader })
	term, l := n.cons.Status().Term, &lifecycle.Life{Incarnation: 7}
	promoting := func(s *lifecycle.Status) {
		s.Started(l)
		s.Ready()
		s.Promote(term)
	}
	settings := n.Settings().Clone()
	for _, c := range []struct {
		name   string
		change func()
		life   *lifecycle.Life
		term   uint64
		from   ha.Phase
		may    bool
	}{
		{"as it is", func() {}, l, term, ha.PhasePromoting, true},
		{"another life", func() {}, &lifecycle.Life{Incarnation: 6}, term, ha.PhasePromoting, false},
		{"an older term", func() {}, l, term - 1, ha.PhasePromoting, false},
		{"a switchover", func() { n.lives.Change((*lifecycle.Status).HandOver) }, l, term, ha.PhasePromoting, false},
		{"back from a switchover", func() { n.lives.Change((*lifecycle.Status).HandOver) }, l, term, ha.PhaseHandover, true},
		{"a fence", func() { n.lives.Change((*lifecycle.Status).Fence) }, l, term, ha.PhasePromoting, false},
		{"raft is in another term", func() { n.lives.Change(func(s *lifecycle.Status) { s.Promote(term + 1) }) }, l, term + 1,
			ha.PhasePromoting, false},
		{"it serves another term", func() { n.lives.Change(func(s *lifecycle.Status) { s.Promote(term - 1) }) }, l, term,
			ha.PhasePromoting, false},
		{"the end of the cluster", func() { n.Settings().Disbanded = &config.Disbanded{} }, l, term, ha.PhasePromoting,
			false},
		{"a decision", func() { n.Settings().DeclareVoid(config.Void{Index: 9}) }, l, term, ha.PhasePromoting, false},
		{"the daemon stops", func() { n.lives.Change((*lifecycle.Status).BeginStop) }, l, term, ha.PhasePromoting, false},
	} {
		*n.Settings() = *settings.Clone()
		n.lives.Change(promoting)
		c.change()
		if err := n.control.LeaderHost().MayOpen(c.life, c.term, c.from); (err == nil) != c.may {
			t.Errorf("%s: %v", c.name, err)
		}
	}
	*n.Settings() = *settings.Clone()
	n.lives.Change(promoting)
	if err := n.control.LeaderHost().Opened(l, term, ha.PhasePromoting); err != nil || n.control.View().Open != 1 {
		t.Errorf("%v; %d takes writes", err, n.control.View().Open)
	}
	n.lives.Change(promoting)
	n.lives.Change((*lifecycle.Status).Fence)
	err := n.control.LeaderHost().Opened(l, term, ha.PhasePromoting)
	if v := n.control.View(); !errors.Is(err, consensus.ErrNotLeader) || v.Serving.Phase != ha.PhaseFencing {
		t.Errorf("%v in the middle of a fence; %+v", err, v.Serving)
	}
}

// TestFenceEndsAllThatServes: a fence cancels a promotion that still starts events when a switchover begins, and waits
// for it too before it lets mysqld go on.
func TestFenceEndsAllThatServes(t *testing.T) {
	n := newTestNode(t)
	cancelled, end, moved := make(chan struct{}), make(chan struct{}), make(chan struct{})
	serve := func(f func(ctx context.Context)) {
		n.mu.Lock()
		defer n.mu.Unlock()
		n.control.ServeLocked(f)
	}
	n.lives.Change(func(s *lifecycle.Status) { s.Promote(7) })
	serve(func(ctx context.Context) {
		<-ctx.Done()
		close(cancelled)
		<-end
	})
	n.lives.Change((*lifecycle.Status).Open)
	n.lives.Change((*lifecycle.Status).HandOver)
	serve(func(context.Context) { close(moved) })
	<-moved
	n.lives.Change((*lifecycle.Status).Fence)
	select {
	case <-cancelled:
	case <-time.After(10 * time.Second):
		t.Error("the promotion goes on")
	}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if n.lives.AwaitServing(ctx) == nil {
		t.Error("the promotion is not waited for")
	}
	close(end)
	if err := n.lives.AwaitServing(t.Context()); err != nil {
		t.Error(err)
	}
}
