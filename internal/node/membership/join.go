package membership

import (
	"context"
	"slices"
	"strings"
	"time"

	"trireme/internal/api"
	"trireme/internal/base/config"
	"trireme/internal/base/pki"
	"trireme/internal/mysql/gtid"
)

// Life of a join token.
const (
	defaultTokenLife = time.Hour
	maxTokenLife     = 7 * 24 * time.Hour
)

// NewJoinToken implements api.Backend: an invitation for one node, recorded in the cluster settings.
func (ms *Members) NewJoinToken(ctx context.Context, req api.JoinTokenRequest) (api.JoinTokenResult, error) {
	if req.TTL == 0 {
		req.TTL = defaultTokenLife
	}
	if req.TTL < time.Minute || req.TTL > maxTokenLife {
		return api.JoinTokenResult{}, api.Errorf(api.KindInvalid, "a join token lives between 1 minute and 7 days, not %s",
			req.TTL)
	}
	if req.Role == "" {
		req.Role = config.RoleVoter
	}
	token, rec, err := pki.NewJoinToken(ms.cfg.API.Advertise, ms.host.CADigest(), time.Now(), req.TTL)
	if err != nil {
		return api.JoinTokenResult{}, err
	}
	_, err = ms.Change(ctx, 0, func(c *config.Cluster) error {
		if err := ms.CheckTerm(req.IfTerm); err != nil {
			return err
		}
		if err := caStands(c); err != nil {
			return err
		}
		if m, taken := c.Member(req.Name); taken && req.Name != "" && !m.Pending {
			return nameTaken(c, req.Name)
		}
		c.JoinTokens = slices.DeleteFunc(c.JoinTokens, func(t config.JoinToken) bool { return time.Now().After(t.Expires) })
		c.JoinTokens = append(c.JoinTokens, config.JoinToken{ID: rec.ID, Hash: rec.Hash, Name: req.Name, Role: req.Role,
			Expires: rec.Expires})
		return nil
	})
	if err != nil {
		return api.JoinTokenResult{}, err
	}
	return api.JoinTokenResult{Token: token.Encode(), Name: req.Name, Role: req.Role, Expires: rec.Expires}, nil
}

// Join implements api.Backend: the member is recorded and the token bound to it in one change of the settings.
// reconcile adds it to raft's membership once its daemon is heard of; until then the same token with the same key, or
// a new one for the same name, can be used again, under a new id: the answer to the first attempt may be lost.
func (ms *Members) Join(ctx context.Context, req api.JoinRequest) (api.JoinResult, error) {
	token, err := pki.ParseJoinToken(req.Token)
	if err != nil {
		return api.JoinResult{}, badToken()
	}
	ca, err := pki.LoadCA(ms.cfg.TLSDir())
	if err != nil {
		return api.JoinResult{}, err
	}
	key, err := ca.KeyPEM()
	if err != nil {
		return api.JoinResult{}, err
	}
	// Only the holder of a token may have this node connect anywhere.
	role, err := ms.invited(token, req.CSR)
	if err != nil {
		return api.JoinResult{}, err
	}
	if err := sameKind(req.Member, role); err != nil {
		return api.JoinResult{}, err
	}
	if err := reaches(ctx, req, role); err != nil {
		return api.JoinResult{}, err
	}
	var m config.Member
	var cert []byte
	c, err := ms.Change(ctx, 0, func(c *config.Cluster) error {
		i, err := claim(c, token, req.CSR, time.Now())
		if err != nil {
			return err
		}
		t := c.JoinTokens[i]
		if err := caStands(c); err != nil {
			return err
		}
		m = req.Member.Known()
		m.ID, m.Role, m.Pending, m.Removing = c.NextID, t.Role, true, false
		if err := dropPending(c, t, m.Name); err != nil {
			return err
		}
		if err := checkNewMember(c, m, t); err != nil {
			return err
		}
		if err := checkBrought(c, m, req.Executed); err != nil {
			return err
		}
		hosts := []string{m.Peer, m.API, m.MySQLHost}
		if cert, err = ca.SignCSR(req.CSR, pki.NodeCert{Name: m.Name, ID: m.ID, Hosts: hosts}, time.Now()); err != nil {
			return api.Errorf(api.KindInvalid, "%v", err)
		}
		c.JoinTokens[i].Used, c.JoinTokens[i].CSR = m.ID, csrHash(req.CSR)
		c.Members = append(c.Members, m)
		c.NextID++
		return nil
	})
	if err != nil {
		return api.JoinResult{}, err
	}
	ms.host.Record("join", "", m.Name+" joined as "+m.Role)
	return api.JoinResult{ID: m.ID, Cert: cert, CA: ca.CertPEM(), CAKey: key, Cluster: c, Secrets: ms.host.Newcomer()}, nil
}

// sameKind refuses a logger's token for a node with a mysqld, and the other way round.
func sameKind(m config.Member, role string) error {
	if (m.Role == config.RoleLogger) == (role == config.RoleLogger) {
		return nil
	}
	return api.Errorf(api.KindInvalid, "this join token is for a %s, and %s would join as a %s", role, m.Name, m.Role).
		With("use `trireme join --role %s`, or make another token: `trireme add %s --role %s`", role, m.Name, m.Role)
}

// claim finds the record of a join token that is good for the holder of a key. Who has seen it on its way cannot use
// it once its holder has.
func claim(c *config.Cluster, token pki.JoinToken, csr []byte, at time.Time) (int, error) {
	i := slices.IndexFunc(c.JoinTokens, func(t config.JoinToken) bool { return t.ID == token.ID })
	if i < 0 {
		return 0, badToken()
	}
	t := c.JoinTokens[i]
	rec := pki.JoinRecord{ID: t.ID, Hash: t.Hash, Expires: t.Expires}
	if err := rec.Verify(token.Secret(), at); err != nil {
		return 0, badToken()
	}
	if t.CSR != "" && t.CSR != csrHash(csr) {
		return 0, api.Errorf(api.KindUnauthorized, "this join token was used already, for another key").
			With("if that was this host, make another one: trireme add %s; if not, somebody has seen the token: trireme remove takes out who joined by it", t.Name)
	}
	return i, nil
}

// csrHash names a request for a certificate.
func csrHash(csr []byte) string { return pki.HashToken(string(csr)) }

// invited is the role that a token is good for, by the settings as this node has them.
func (ms *Members) invited(token pki.JoinToken, csr []byte) (role string, err error) {
	c := ms.Current()
	i, err := claim(c, token, csr, time.Now())
	if err != nil {
		return "", err
	}
	return c.JoinTokens[i].Role, nil
}

// dropPending takes an earlier attempt to join out of the settings: the token's, or another one under the same name.
// What it made will never be started.
func dropPending(c *config.Cluster, t config.JoinToken, name string) error {
	if used, ok := c.MemberByID(t.Used); t.Used != 0 && (!ok || !used.Pending) {
		return badToken()
	}
	c.Members = slices.DeleteFunc(c.Members, func(m config.Member) bool {
		return m.Pending && (m.ID == t.Used || m.Name == name)
	})
	return nil
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

// checkBrought says why the data that a newcomer brings does not fit: it must hold exactly what the cluster began
// with. Then the log brings the rest, from its first entry on.
func checkBrought(c *config.Cluster, m config.Member, executed *string) error {
	if executed == nil {
		return nil
	}
	base, err := gtid.ParseSet(c.Base)
	if err != nil {
		return err
	}
	has, err := gtid.ParseSet(*executed)
	if err != nil {
		return api.Errorf(api.KindInvalid, "gtid_executed of %s: %v", m.Name, err)
	}
	errant, missing := has.Subtract(base), base.Subtract(has)
	const instead = "leave that server as it is and make an empty node on its host: trireme join; its data is copied from another node"
	switch {
	case m.Role == config.RoleLogger:
		return api.Errorf(api.KindInvalid, "%s joins as a logger, which has no data", m.Name).With("invite it as a voter")
	case !errant.Empty():
		return api.Errorf(api.KindConflict, "%s has executed what the cluster did not begin with: %s", m.Name, errant).
			With(instead)
	case !missing.Empty():
		return api.Errorf(api.KindConflict, "%s lacks transactions that the cluster began with: %s", m.Name, missing).
			With(instead)
	}
	return nil
}

func nameTaken(c *config.Cluster, name string) error {
	return api.Errorf(api.KindAlready, "a node named %q is a member already", name).
		With("choose another name; nodes are %s", strings.Join(c.Names(), " "))
}

// badToken is the same whatever is wrong with a token, so that nothing can be guessed from the answer.
func badToken() error {
	return api.Errorf(api.KindUnauthorized, "the join token is wrong, used or expired").
		With("make a new one with `trireme add NAME`")
}

// caStands refuses newcomers during a change: they would get the CA of one side of it.
func caStands(c *config.Cluster) error {
	if c.CAChange != nil {
		return api.Errorf(api.KindBusy, "the CA is being changed").With("end that first: trireme cert new-ca --finish")
	}
	return nil
}
