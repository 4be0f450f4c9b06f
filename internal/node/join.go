package node

import (
	"context"
	"slices"
	"strings"
	"time"

	"trireme/internal/api"
	"trireme/internal/config"
	"trireme/internal/pki"
)

// Life of a join token.
const (
	defaultTokenLife = time.Hour
	maxTokenLife     = 7 * 24 * time.Hour
)

// NewJoinToken implements api.Backend: an invitation for one node, recorded in the cluster settings.
func (n *Node) NewJoinToken(ctx context.Context, req api.JoinTokenRequest) (api.JoinTokenResult, error) {
	if req.TTL == 0 {
		req.TTL = defaultTokenLife
	}
	if req.TTL < time.Minute || req.TTL > maxTokenLife {
		return api.JoinTokenResult{}, api.Errorf(api.KindInvalid, "a join token lives between 1 minute and 7 days, not %s", req.TTL)
	}
	if req.Role == "" {
		req.Role = config.RoleVoter
	}
	token, rec, err := pki.NewJoinToken(n.cfg.API.Advertise, n.bundle.CADigest(), time.Now(), req.TTL)
	if err != nil {
		return api.JoinTokenResult{}, err
	}
	_, err = n.changeCluster(ctx, func(c *config.Cluster) error {
		if _, taken := c.Member(req.Name); taken && req.Name != "" {
			return nameTaken(c, req.Name)
		}
		c.JoinTokens = slices.DeleteFunc(c.JoinTokens, func(t config.JoinToken) bool { return time.Now().After(t.Expires) })
		c.JoinTokens = append(c.JoinTokens, config.JoinToken{ID: rec.ID, Hash: rec.Hash, Name: req.Name, Role: req.Role, Expires: rec.Expires})
		return nil
	})
	if err != nil {
		return api.JoinTokenResult{}, err
	}
	return api.JoinTokenResult{Token: token.Encode(), Name: req.Name, Role: req.Role, Expires: rec.Expires}, nil
}

// Join implements api.Backend: the token is used up and the member recorded in one change of the settings; reconcile then
// adds it to raft's membership.
func (n *Node) Join(ctx context.Context, req api.JoinRequest) (api.JoinResult, error) {
	token, err := pki.ParseJoinToken(req.Token)
	if err != nil {
		return api.JoinResult{}, badToken()
	}
	ca, err := pki.LoadCA(n.cfg.TLSDir())
	if err != nil {
		return api.JoinResult{}, err
	}
	key, err := ca.KeyPEM()
	if err != nil {
		return api.JoinResult{}, err
	}
	var m config.Member
	var cert []byte
	c, err := n.changeCluster(ctx, func(c *config.Cluster) error {
		i := slices.IndexFunc(c.JoinTokens, func(t config.JoinToken) bool { return t.ID == token.ID })
		if i < 0 {
			return badToken()
		}
		t := c.JoinTokens[i]
		rec := pki.JoinRecord{ID: t.ID, Hash: t.Hash, Expires: t.Expires}
		if err := rec.Verify(token.Secret(), time.Now()); err != nil {
			return badToken()
		}
		m = req.Member
		m.ID, m.Role = c.NextID, t.Role
		if err := checkNewMember(c, m, t); err != nil {
			return err
		}
		hosts := []string{m.Peer, m.API, m.MySQLHost}
		if cert, err = ca.SignCSR(req.CSR, pki.NodeCert{Name: m.Name, ID: m.ID, Hosts: hosts}, time.Now()); err != nil {
			return api.Errorf(api.KindInvalid, "%v", err)
		}
		c.JoinTokens = slices.Delete(c.JoinTokens, i, i+1)
		c.Members = append(c.Members, m)
		c.NextID++
		return nil
	})
	if err != nil {
		return api.JoinResult{}, err
	}
	n.history.add(n.event("join", 0, m.Name+" joined as "+m.Role))
	n.poke()
	return api.JoinResult{ID: m.ID, Cert: cert, CA: ca.CertPEM(), CAKey: key, Cluster: c, Secrets: n.secrets}, nil
}

// checkNewMember checks a newcomer's record against the settings and its invitation.
func checkNewMember(c *config.Cluster, m config.Member, t config.JoinToken) error {
	if t.Name != "" && t.Name != m.Name {
		return api.Errorf(api.KindForbidden, "this join token is for node %q, not for %q", t.Name, m.Name)
	}
	if _, taken := c.Member(m.Name); taken {
		return nameTaken(c, m.Name)
	}
	if c.NextID > config.MaxMemberID {
		return api.Errorf(api.KindConflict, "all %d raft ids of this cluster have been used", config.MaxMemberID)
	}
	if err := m.Validate(); err != nil {
		return api.Errorf(api.KindInvalid, "%v", err)
	}
	return nil
}

func nameTaken(c *config.Cluster, name string) error {
	return api.Errorf(api.KindConflict, "a node named %q is a member already", name).
		With("choose another name; nodes are %s", strings.Join(c.Names(), " "))
}

// badToken is the same whatever is wrong with a token, so that nothing can be guessed from the answer.
func badToken() error {
	return api.Errorf(api.KindUnauthorized, "the join token is wrong, used or expired").With("make a new one with `trireme add NAME`")
}
