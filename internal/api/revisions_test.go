package api

import (
	"context"
	"net/http"
	"strings"
	"testing"
)

// TestAskedBy: the leader learns who asked, also through another node; an operator cannot say that it was somebody
// else.
func TestAskedBy(t *testing.T) {
	c := newCluster(t)
	lead := &backend{leader: Leader{Name: "n1", Self: true}}
	leader := c.start(1, "n1", lead)
	follower := c.start(2, "n2", &backend{leader: Leader{Name: "n1", API: leader.Addr()}})
	const pre = "rollback by operator from 127.0.0.1:"
	for _, at := range []*Server{leader, follower} {
		client := c.client("https://"+at.Addr(), operatorToken)
		client.header.Set(askedByHeader, "somebody else")
		if res, err := RollbackConfig.Ask(t.Context(), client, ConfigRollback{To: 7}); err != nil || res.To != 7 {
			t.Fatal(res, err)
		}
	}
	own, err := c.bundle(3, "n3").NodeClientTLS()
	if err != nil {
		t.Fatal(err)
	}
	node := NewClient("https://"+leader.Addr(), "node-to-node", own)
	defer node.Close()
	node.header.Set(askedByHeader, strings.Repeat("x", 1000))
	if _, err := RollbackConfig.Ask(t.Context(), node, ConfigRollback{}); err != nil {
		t.Fatal(err)
	}
	ctx := context.WithValue(WithPrincipal(t.Context(), operatorOf(lead.Settings())), fromPages{}, "192.0.2.1:9")
	if _, err := Do(ctx, follower.Console(), RollbackConfig, ConfigRollback{To: 7}); err != nil {
		t.Fatal(err)
	}
	asked := lead.calls()
	if len(asked) != 4 || !strings.HasPrefix(asked[0], pre) || !strings.HasPrefix(asked[1], pre) ||
		len(asked[2]) > maxAskedBy+20 ||
		asked[3] != "rollback by operator from dashboard 192.0.2.1:9" {
		t.Errorf("%q", asked)
	}
}

// TestPrivate: what not everybody may see needs the token.
func TestPrivate(t *testing.T) {
	c := newCluster(t)
	s := c.start(1, "n1", &backend{leader: Leader{Name: "n1", Self: true}})
	for _, token := range []string{"", "guessed"} {
		for _, path := range privatePaths {
			err := c.client("https://"+s.Addr(), token).do(t.Context(), http.MethodGet, path, nil, new(struct{}))
			if KindOf(err) != KindUnauthorized {
				t.Errorf("%s with %q: %v", path, token, err)
			}
		}
	}
	if v, err := ConfigHistory.Ask(t.Context(), c.client("https://"+s.Addr(), operatorToken)); err != nil ||
		v.Version != 3 {
		t.Error(v, err)
	}
}

var privatePaths = []string{"/config/history", "/period?from=2026-01-02T03:04:05Z&to=2026-01-02T03:05:05Z"}
