package node

import (
	"testing"
	"time"

	"go.etcd.io/raft/v3"

	"trireme/internal/api"
	"trireme/internal/config"
	"trireme/internal/consensus"
)

// TestOrdersNameWhoGaveThem: the history says who ordered a step of a change of the CA, and not from where; what a node does by
// itself has no name.
func TestOrdersNameWhoGaveThem(t *testing.T) {
	n := newTestNode(t, withMembers(testVoters(1)...))
	connectTestPeer(t, n, &slowPeer{})
	openTestLog(t, n)
	startTestRaft(t, n, func(c *consensus.Config) { c.OnCommitted = n.acks.OnCommitted }, raft.Peer{ID: 1})
	n.cons.Campaign()
	eventually(t, func() bool { return n.cons.Status().Role == consensus.Leader })
	n.cluster.CAChange = &config.CAChange{Cert: "of another CA", Since: time.Now().UTC()}
	ctx := api.AskedAs(t.Context(), "token night (admin) from 10.0.0.7:51234")
	if _, err := n.ChangeCA(ctx, api.CARequest{Step: api.CAAbort}); err != nil {
		t.Fatal(err)
	}
	n.history.add(n.askedEvent(t.Context(), "reinit", 0, "by itself"))
	by := map[string]string{}
	for _, e := range n.history.all() {
		by[e.Kind] = e.By
	}
	if by[eventCA] != "token night (admin)" || by["reinit"] != "" {
		t.Errorf("%q", by)
	}
}
