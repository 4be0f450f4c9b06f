package node

import (
	"testing"
	"time"

	"trireme/internal/access/router"
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
