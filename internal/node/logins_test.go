package node

import (
	"testing"

	"trireme/internal/config"
)

// TestLoginsAreOfOneDaemon: each daemon has passwords of its own for the accounts of its host, which its directory
// holds and which no other node gets; what all nodes share stays.
func TestLoginsAreOfOneDaemon(t *testing.T) {
	n := newTestNode(t)
	before := config.NewSecrets()
	n.secrets = before
	n.renewLogins()
	got, err := config.LoadSecrets(n.cfg.Dir)
	if err != nil || got != n.secrets {
		t.Fatalf("%v, the directory holds the same: %t", err, got == n.secrets)
	}
	if got.Admin.Password == before.Admin.Password || got.Repl.Password == before.Repl.Password ||
		got.Admin.User != before.Admin.User {
		t.Error("they were not replaced")
	}
	if got.Clone != before.Clone || got.APIToken != before.APIToken {
		t.Error("what nodes share was replaced")
	}
	told := n.toldToNewcomer()
	if told.Admin.Password == got.Admin.Password || told.Repl.Password == got.Repl.Password {
		t.Error("a new node gets this node's passwords")
	}
	if told.Clone != got.Clone || told.APIToken != got.APIToken || told.Validate() != nil {
		t.Error("a new node lacks what nodes share")
	}
	if mc := n.mysqldConfig(); mc.Admin.Password != got.Admin.Password || mc.Repl.Password != got.Repl.Password {
		t.Error("mysqld gets others")
	}
	n.cfg.Dir += "/gone" // as a full disk
	n.renewLogins()
	if n.secrets != got {
		t.Error("it goes on with passwords that its directory does not have")
	}
}
