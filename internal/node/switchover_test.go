package node

import (
	"testing"

	"trireme/internal/access/router"
	"trireme/internal/node/gossip"
)

// TestQuiet: writes are not closed before a router without a node has said that it is quiet in this very switchover,
// and every node that is heard has said so of this term.
func TestQuiet(t *testing.T) {
	n := newTestNode(t)
	n.router = router.New(router.Config{Logger: n.log})
	defer n.router.Close()
	n.router.SetView(router.View{KeepRW: true})
	c := clientsOf{n}
	if c.Followed() || !c.Quiet(4, 7) {
		t.Error("there is no router")
	}
	leave := n.routers.Follow("r1")
	if !c.Followed() {
		t.Error("a router without a node is not asked")
	}
	n.routers.Quiet("r1", 3) // of an attempt before
	if c.Quiet(4, 7) {
		t.Error("a router is quiet that was so at an attempt before")
	}
	if n.routers.Quiet("r1", 4); !c.Quiet(4, 7) || c.Quiet(5, 7) {
		t.Error("a router's word is not taken for the attempt that it names")
	}
	leave()
	peers := n.gossip.Peers()
	peers[2] = &gossip.Peer{Up: true, At: now(), Status: gossip.Status{Quiet: 6, Follows: true}}
	if !c.Followed() || c.Quiet(5, 7) {
		t.Error("a node's router is quiet that was so in a term before")
	}
	if peers[2].Quiet = 7; !c.Quiet(5, 7) {
		t.Error("a node's router is not quiet")
	}
}
