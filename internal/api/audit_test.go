package api

import (
	"context"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"trireme/internal/base/config"
	"trireme/internal/base/pki"
)

// TestAudit: what was asked for is recorded where it was asked and where it was done, with who, from where and what
// became of it; what was asked by those who may not is not, and no secret is.
func TestAudit(t *testing.T) {
	c := newCluster(t)
	lead := &backend{leader: Leader{Name: "n1", Self: true}}
	leader := c.start(1, "n1", lead)
	follow := &backend{leader: Leader{Name: "n1", API: leader.Addr()}}
	follower := c.start(2, "n2", follow)
	operator, anybody := c.client("https://"+follower.Addr(), operatorToken), c.client("https://"+follower.Addr(), "")
	stranger := c.client("https://"+follower.Addr(), "guessed")

	if _, err := Switchover.Ask(t.Context(), operator, SwitchoverRequest{To: "n2"}); err != nil {
		t.Fatal(err)
	}
	if _, err := Switchover.Ask(t.Context(), stranger, SwitchoverRequest{To: "n9"}); KindOf(err) != KindUnauthorized {
		t.Fatal(err)
	}
	if _, err := operator.Cluster(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := Join.Ask(t.Context(), anybody, JoinRequest{Token: "hush", CSR: []byte("hush"),
		Member: config.Member{Name: "n3"}}); err != nil {
		t.Fatal(err)
	}
	ctx := context.WithValue(WithPrincipal(t.Context(), operatorOf(lead.Settings())), fromPages{}, "192.0.2.1:9")
	if _, err := follower.Console().Remove(ctx, MemberRequest{Name: "n3"}); err != nil {
		t.Fatal(err)
	}
	viewer := Principal{By: "token eyes (viewer)", Role: pki.Viewer}
	follower.Console().Refused(WithPrincipal(t.Context(), viewer), "/remove")
	follower.Console().Refused(ctx, "/remove") // who may is not refused
	lead.err = Errorf(KindConflict, "n2 lags too far").With("wait")
	if _, err := Switchover.Ask(t.Context(), operator, SwitchoverRequest{To: "n2"}); KindOf(err) != KindConflict {
		t.Fatal(err)
	}
	if _, err := Join.Ask(t.Context(), anybody, JoinRequest{Token: "guessed", Member: config.Member{Name: "n9"}}); err == nil {
		t.Fatal("joined")
	}

	check := func(b *backend, want ...Audited) {
		t.Helper()
		var got []Audited
		for deadline := time.Now().Add(10 * time.Second); len(got) < len(want) && time.Now().Before(deadline); time.Sleep(time.Millisecond) {
			got = b.audits() // the record follows the answer
		}
		if len(got) != len(want) {
			t.Fatalf("%d records, want %d: %+v", len(got), len(want), got)
		}
		for i, g := range got {
			w := want[i]
			var req map[string]any
			if json.Unmarshal(g.Request, &req) != nil || !strings.Contains(string(g.Request), string(w.Request)) ||
				strings.Contains(string(g.Request), "hush") ||
				!strings.HasPrefix(g.From, w.From) || g.Verb != w.Verb || g.By != w.By || g.Via != w.Via || g.Error != w.Error {
				t.Errorf("record %d: %+v (%s), want %+v (%s)", i, g, g.Request, w, w.Request)
			}
		}
	}
	const here, to, node3 = "127.0.0.1:", `"to":"n2"`, `"n3"`
	refused := lead.err.Error()
	check(follow,
		Audited{Verb: "switchover", By: byOperator, From: here, Request: []byte(to)},
		Audited{Verb: "join", By: byJoinToken, From: here, Request: []byte(node3)},
		Audited{Verb: "remove", By: byOperator, From: "dashboard 192.0.2.1:9", Request: []byte(node3)},
		Audited{Verb: "remove", By: viewer.By, From: "dashboard", Error: viewer.need("POST /remove").Error()},
		Audited{Verb: "switchover", By: byOperator, From: here, Request: []byte(to), Error: refused})
	check(lead,
		Audited{Verb: "switchover", By: byOperator, Via: "n2", From: here, Request: []byte(to)},
		Audited{Verb: "join", By: byJoinToken, Via: "n2", From: here, Request: []byte(node3)},
		Audited{Verb: "remove", By: byOperator, Via: "n2", From: "dashboard 192.0.2.1:9", Request: []byte(node3)},
		Audited{Verb: "switchover", By: byOperator, Via: "n2", From: here, Request: []byte(to), Error: refused})
}

// TestForgedForwarding: who says to be a node that passes a request on, and has not its certificate, is told of as what
// was shown.
func TestForgedForwarding(t *testing.T) {
	c := newCluster(t)
	lead := &backend{leader: Leader{Name: "n1", Self: true}}
	leader := c.start(1, "n1", lead)
	client := c.client("https://"+leader.Addr(), operatorToken)
	client.header.Set(forwardedBy, "n2")
	client.header.Set(askedByHeader, "token someone (admin) from 192.0.2.7:1")
	if _, err := Switchover.Ask(t.Context(), client, SwitchoverRequest{To: "n2"}); err != nil {
		t.Fatal(err)
	}
	var got []Audited
	within(t, "no record", func() bool { got = append(got, lead.audits()...); return len(got) > 0 })
	if got[0].By != byOperator || got[0].Via != "" || !strings.HasPrefix(got[0].From, "127.0.0.1:") {
		t.Errorf("%+v", got[0])
	}
}
