package node

import (
	"encoding/json"
	"testing"

	"trireme/internal/config"
	"trireme/internal/pki"
)

// TestCloneLoginIsForMembers: a node that is to leave, or whose certificates are revoked, does not get the password
// that replaces the one which it knows; nor does anybody get an old one.
func TestCloneLoginIsForMembers(t *testing.T) {
	for what, tc := range map[string]struct {
		change func(*config.Cluster)
		from   uint64
		ok     bool
	}{
		"a member":            {func(*config.Cluster) {}, 2, true},
		"no member":           {func(*config.Cluster) {}, 9, false},
		"one that is removed": {func(c *config.Cluster) { c.Members[1].Removing = true }, 2, false},
		"one that is revoked": {func(c *config.Cluster) { c.RevokedCerts = []config.Revocation{{ID: 2, Name: "db2"}} }, 2,
			false},
		"this node has not it":  {func(c *config.Cluster) { c.CloneHash = pki.HashToken("another") }, 2, false},
		"it was never replaced": {func(c *config.Cluster) { c.CloneHash = "" }, 2, true},
		"another one is revoked": {func(c *config.Cluster) { c.RevokedCerts = []config.Revocation{{ID: 3, Name: "db3"}} }, 2,
			true},
	} {
		n := newTestNode(t)
		n.secrets = config.NewSecrets()
		n.Settings().CloneHash = pki.HashToken(n.secrets.Clone.Password)
		tc.change(n.Settings())
		body, err := n.cloneFor(tc.from)
		var got config.Account
		if err == nil {
			err = json.Unmarshal(body, &got)
		}
		if (err == nil) != tc.ok || tc.ok && got != n.secrets.Clone {
			t.Errorf("%s: %+v, %v", what, got, err)
		}
	}
}
