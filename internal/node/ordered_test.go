package node

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"go.etcd.io/raft/v3"

	"trireme/internal/api"
	"trireme/internal/base/config"
	"trireme/internal/core/consensus"
	"trireme/internal/node/certs"
	"trireme/internal/node/gossip"
	"trireme/internal/node/history"
)

// TestOrdersNameWhoGaveThem: the history says who ordered a step of a change of the CA, and not from where; what a node
// does by itself has no name.
func TestOrdersNameWhoGaveThem(t *testing.T) {
	n := newTestNode(t, withMembers(testVoters(1)...))
	connectTestPeer(t, n, &slowPeer{})
	openTestLog(t, n)
	startTestRaft(t, n, func(c *consensus.Config) { c.OnCommitted = n.acks.OnCommitted }, raft.Peer{ID: 1})
	n.cons.Campaign()
	eventually(t, func() bool { return n.cons.Status().Role == consensus.Leader })
	n.Settings().CAChange = &config.CAChange{Cert: "of another CA", Since: time.Now().UTC()}
	ctx := api.AskedAs(t.Context(), "token night (admin) from 10.0.0.7:51234")
	if _, err := n.certs.ChangeCA(ctx, api.CARequest{Step: api.CAAbort}); err != nil {
		t.Fatal(err)
	}
	n.history.Record("reinit", api.WhoAsked(t.Context()), "by itself")
	by := map[string]string{}
	for _, e := range n.history.All() {
		by[e.Kind] = e.By
	}
	if by[certs.EventCA] != "token night (admin)" || by["reinit"] != "" {
		t.Errorf("%q", by)
	}
}

// TestDelayNamesWhoOrderedIt: the node that is asked says in the history who gave a delayed learner an order, whether
// it is that learner or another node is; looking is no order, and a refused order has no effect.
func TestDelayNamesWhoOrderedIt(t *testing.T) {
	members := testVoters(2)
	members[0].Role, members[0].ApplyDelayMS = config.RoleLearner, 60_000
	n := newTestNode(t, withMembers(members...), func(d *testDir) { d.id.Role = config.RoleLearner })
	openTestLog(t, n)
	startTestRaft(t, n, nil)
	answer := make(chan struct{})
	close(answer)
	connectTestPeer(t, n, &slowPeer{settings: []byte(`{"result":{"name":"db2"}}`), asked: make(chan struct{}),
		answer: answer})
	ctx := api.AskedAs(t.Context(), "token night (operator) from 10.0.0.7:51234")
	for _, req := range []api.DelayRequest{{Name: "db1"}, {Name: "db1", Order: "fly"}, {Name: "db1", Order: api.OrderHold},
		{Name: "db2", Order: api.OrderApplyNow}} {
		if _, err := n.delay.Order(ctx, req); (err != nil) != (req.Order == "fly") {
			t.Errorf("%+v: %v", req, err)
		}
	}
	all := n.history.All()
	if len(all) != 2 || !strings.HasPrefix(all[0].Message, "db1 applies nothing more") ||
		!strings.HasPrefix(all[1].Message, "db2 applies what is committed") {
		t.Fatalf("%+v", all)
	}
	for _, e := range all {
		if e.Kind != "delay" || e.By != "token night (operator)" {
			t.Errorf("%+v", e)
		}
	}
}

// TestSwitchoverNamesWhoOrderedIt: the next leader hears from the one before who asked for a switchover, and says so.
func TestSwitchoverNamesWhoOrderedIt(t *testing.T) {
	n := newTestNode(t)
	openTestLog(t, n)
	startTestRaft(t, n, nil)
	n.gossip.Leave(7, gossip.Leave{By: "token night (operator)", Planned: true})
	left, _ := n.gossip.Past()
	if left.Term != 7 || !left.Planned || left.By == "" {
		t.Fatalf("%+v", left)
	}
	text, err := json.Marshal(left)
	if err != nil {
		t.Fatal(err)
	}
	p := &gossip.Peer{Up: true, At: now(), Status: gossip.Status{Routed: 99}}
	if err := json.Unmarshal(text, &p.Left); err != nil {
		t.Fatal(err)
	}
	n.gossip.Peers()[2] = p
	n.routing.Leads(99)
	takeOver(t, n, 7)
	if e := n.history.All()[0]; e.Kind != history.EventSwitchover || e.By != "token night (operator)" {
		t.Errorf("%+v", e)
	}
}
