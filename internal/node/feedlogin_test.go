package node

import (
	"database/sql"
	"errors"
	"testing"

	_ "github.com/go-sql-driver/mysql"

	"trireme/internal/base/config"
)

// TestFeedLogin: what all nodes share does not log in to a node's feed, which hands out the whole log.
func TestFeedLogin(t *testing.T) {
	n := newTestNode(t)
	secrets := config.NewSecrets()
	if err := errors.Join(secrets.Save(n.cfg.Dir), n.certs.LoadSecrets()); err != nil {
		t.Fatal(err)
	}
	if mc := n.mysqldConfig(); mc.Admin.Password != secrets.Admin.Password || mc.Repl.Password != secrets.Repl.Password {
		t.Error("mysqld gets others than its daemon")
	}
	if err := n.startFeed(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = n.feed.Close() }()
	for what, tc := range map[string]struct {
		login config.Account
		good  bool
	}{"shared": {secrets.Feed, false}, "its own": {n.feedLogin, true}} {
		db, err := sql.Open("mysql", tc.login.User+":"+tc.login.Password+"@tcp("+n.feed.Addr()+")/")
		if err != nil {
			t.Fatal(err)
		}
		if err := db.PingContext(t.Context()); (err == nil) != tc.good {
			t.Errorf("%s: %v", what, err)
		}
		_ = db.Close()
	}
}
