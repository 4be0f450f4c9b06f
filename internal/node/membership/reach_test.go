package membership

import (
	"context"
	"errors"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"trireme/internal/api"
	"trireme/internal/base/config"
)

// TestReaches: a node that asks to join is taken where each of its addresses leads to what says its word. A logger
// has no mysqld, and what brings a running server has its port taken.
func TestReaches(t *testing.T) {
	says := func(word string) string {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = l.Close() })
		go func() {
			for {
				conn, err := l.Accept()
				if err != nil {
					return
				}
				_, _ = io.WriteString(conn, word)
				_ = conn.Close()
			}
		}()
		return l.Addr().String()
	}
	port := func(addr string) int {
		a, err := net.ResolveTCPAddr("tcp", addr)
		if err != nil {
			t.Fatal(err)
		}
		return a.Port
	}
	good := says("word\n")
	m := config.Member{Name: "n9", Peer: good, API: good, MySQLPort: port(good)}
	brings := ""
	for name, tc := range map[string]struct {
		role   string
		spoil  func(*api.JoinRequest)
		unless string // what the refusal names; empty: none
	}{
		"all": {config.RoleVoter, func(*api.JoinRequest) {}, ""},
		"another program": {config.RoleVoter, func(r *api.JoinRequest) { r.Member.API = says("HTTP/1.1 400\n") },
			"api.advertise"},
		"more than the word": {config.RoleVoter, func(r *api.JoinRequest) { r.Member.Peer = says("word\nmore") },
			"peer.advertise"},
		"no listener": {config.RoleVoter, func(r *api.JoinRequest) { r.Member.MySQLPort = 1 }, "mysql.port"},
		"a logger":    {config.RoleLogger, func(r *api.JoinRequest) { r.Member.MySQLPort = 1 }, ""},
		"with its data": {config.RoleVoter, func(r *api.JoinRequest) { r.Member.MySQLPort, r.Executed = 1, &brings },
			""},
		"an older version": {config.RoleVoter, func(r *api.JoinRequest) { r.Proof, r.Member.Peer = "", "127.0.0.1:1" }, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			req := api.JoinRequest{Member: m, Proof: "word"}
			tc.spoil(&req)
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			err := reaches(ctx, req, tc.role)
			if (err == nil) != (tc.unless == "") {
				t.Fatal(err)
			}
			if e, ok := errors.AsType[*api.Error](err); err != nil &&
				(!ok || e.Kind != api.KindNotReady || !strings.Contains(e.Message, tc.unless) ||
					strings.Count(e.Message, "; ") > 0) {
				t.Error(err)
			}
		})
	}
}
