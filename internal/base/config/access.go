package config

import (
	"fmt"
	"slices"
	"time"
)

// MaxAPITokens of one cluster: they travel with every change of the settings.
const MaxAPITokens = 64

// APIToken lets somebody ask the HTTP API. The token itself is known to its holder only.
type APIToken struct {
	Name    string    `json:"name"`
	Role    string    `json:"role"` // a pki.Role
	Hash    string    `json:"hash"` // pki.HashToken
	Made    time.Time `json:"made"`
	Expires time.Time `json:"expires,omitzero"` // zero: never

	kept
}

// GoodAt reports whether it has not expired.
func (t APIToken) GoodAt(at time.Time) bool { return t.Expires.IsZero() || at.Before(t.Expires) }

// checkAccess says what is wrong with the tokens.
func (c *Cluster) checkAccess() error {
	if n := len(c.APITokens); n > MaxAPITokens {
		return fmt.Errorf("cluster settings: %d tokens; there may be %d", n, MaxAPITokens)
	}
	seen := map[string]bool{}
	for _, t := range c.APITokens {
		if t.Name == "" || t.Role == "" || t.Hash == "" || seen[t.Name] {
			return fmt.Errorf("cluster settings: token %q is incomplete, or there twice", t.Name)
		}
		seen[t.Name] = true
	}
	return nil
}

// maxRevoked bounds Cluster.RevokedCerts.
const maxRevoked = 1024

// revokedFor is how long a revocation by serial is kept at least: no certificate but the CA's lives longer.
const revokedFor = 366 * 24 * time.Hour

// Revocation takes the trust from one certificate, or from all that name a node.
type Revocation struct {
	Serial string    `json:"serial,omitempty"` // as pki.SerialOf gives it; empty: of a node
	ID     uint64    `json:"id,omitempty"`     // raft id of that node
	Name   string    `json:"name,omitempty"`   // of that node, to be shown
	At     time.Time `json:"at"`

	kept
}

// Revoke adds one. Nodes that are no members are forgotten, since their ids tell enough; and where room is needed, what
// no certificate can have any more, since it has ended. Not before: the times are by the clocks of those who led, and
// one may have been wrong.
func (c *Cluster) Revoke(r Revocation) error {
	kept := slices.DeleteFunc(slices.Clone(c.RevokedCerts), func(old Revocation) bool {
		_, member := c.MemberByID(old.ID)
		return old.ID != 0 && !member
	})
	if len(kept) >= maxRevoked {
		kept = slices.DeleteFunc(kept, func(old Revocation) bool { return old.ID == 0 && r.At.Sub(old.At) >= revokedFor })
	}
	if len(kept) >= maxRevoked {
		return fmt.Errorf("%d certificates are revoked already, which is the most", len(kept))
	}
	c.RevokedCerts = append(kept, r)
	return nil
}

// WhyRevoked says why a certificate is not trusted: by its serial, or since the node that it names (id; 0: none) is no
// member any more. Empty: it is trusted. Ids are never given twice, and one at or above NextID is of a node that these
// settings do not know yet.
func (c *Cluster) WhyRevoked(id uint64, serial string) string {
	for _, r := range c.RevokedCerts {
		switch {
		case r.Serial != "" && r.Serial == serial:
			return fmt.Sprintf("the certificate with serial %s was revoked on %s", serial, r.At.UTC().Format(time.DateTime))
		case r.ID != 0 && r.ID == id:
			return fmt.Sprintf("the certificates of node %q (id %d) were revoked on %s", r.Name, id, r.At.UTC().
				Format(time.DateTime))
		}
	}
	if _, member := c.MemberByID(id); id != 0 && id < c.NextID && !member {
		return fmt.Sprintf("node %d is not a member any more: it was removed, or joined again under another id", id)
	}
	return ""
}

// CAChange is a change of the CA that is under way (pki's ca.go has the steps of a node).
type CAChange struct {
	Cert   string    `json:"cert"`             // of the CA to be, PEM; its key goes from node to node
	Finish bool      `json:"finish,omitempty"` // all nodes trust it: they go over, and then trust nothing else
	Since  time.Time `json:"since"`

	kept
}
