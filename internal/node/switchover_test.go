package node

import (
	"context"
	"errors"
	"testing"
	"time"

	"trireme/internal/access/router"
	"trireme/internal/api"
	"trireme/internal/core/consensus"
	"trireme/internal/core/ha"
)

// Writes are not closed before a router without a node has said that it is quiet in this very switchover, and every
// router that does not say so is waited for as long as the bound is and no longer.
func TestAwaitQuiet(t *testing.T) {
	n := newTestNode(t)
	n.router, n.hold = router.New(router.Config{Logger: n.log}), 4
	defer n.router.Close()
	n.router.SetView(router.View{KeepRW: true})
	if n.sessionsFollowed() {
		t.Error("there is no router")
	}
	leave := n.routers.Follow("r1")
	if !n.sessionsFollowed() {
		t.Error("a router without a node is not asked")
	}
	n.routers.Quiet("r1", 3) // of an attempt before
	const bound = 50 * time.Millisecond
	began := now()
	n.awaitQuiet(t.Context(), 7, bound)
	if waited := now() - began; waited < bound {
		t.Errorf("it was waited for %v", waited)
	}
	n.routers.Quiet("r1", 4)
	n.awaitQuiet(t.Context(), 7, time.Hour)
	n.hold = 5
	leave()
	n.awaitQuiet(t.Context(), 7, time.Hour)
}

// A request is carried out in the term in which it was made, by a switchover to the node that it names, or not at all
// (S7). Its answer says so, and does not call undone what goes on.
func TestSwitchoverRequest(t *testing.T) {
	begin := func() (*Node, *transferRequest) {
		r := &transferRequest{to: 2, term: 5, wait: 7 * time.Second, result: make(chan moved, 1)}
		n := newTestNode(t)
		n.request, n.raft.Term = r, 5
		return n, r
	}
	gone, cancel := context.WithCancel(t.Context())
	cancel()

	n, r := begin()
	n.softStateLocked(consensus.State{Term: 5, Role: consensus.Leader})
	if n.request != r {
		t.Error("dropped in its own term")
	}
	n.softStateLocked(consensus.State{Term: 6})
	if n.request != nil || len(r.result) != 1 || (<-r.result).err == nil {
		t.Error("not dropped when the term moved on")
	}

	n, r = begin()
	for _, a := range []ha.Action{{Kind: ha.Switchover, Term: 5, To: 3}, {Kind: ha.Switchover, Term: 6, To: 2}} {
		if req, wait := n.takeRequestLocked(a); req != nil || wait != api.DefaultTrxWait || r.begun {
			t.Errorf("%v is taken for the request", a)
		}
	}
	if m, err := n.awaitMoved(gone, r); err != nil || m.err == nil || n.request != nil {
		t.Errorf("not taken back: %+v, %v", m, err)
	}

	n, r = begin()
	if req, wait := n.takeRequestLocked(ha.Action{Kind: ha.Switchover, Term: 5, To: 2}); req != r || wait != r.wait {
		t.Error("the request was not taken")
	}
	n.softStateLocked(consensus.State{Term: 6}) // the switchover itself does that
	var e *api.Error
	if _, err := n.awaitMoved(gone, r); !errors.As(err, &e) || e.Kind != api.KindTimeout || n.request != r {
		t.Errorf("a switchover that goes on: %v", err)
	}
	n.request = nil
	r.finish(moved{cut: 3})
	if m, err := n.awaitMoved(gone, r); err != nil || m.cut != 3 {
		t.Errorf("the outcome: %+v, %v", m, err)
	}
}
