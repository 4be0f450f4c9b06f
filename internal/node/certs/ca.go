package certs

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"trireme/internal/api"
	"trireme/internal/base/config"
	"trireme/internal/base/pki"
	"trireme/internal/core/transport"
	"trireme/internal/node/gossip"
)

// ReqCAKey is a request between daemons: the digest of a CA; answered with that CA's key, as far as the node has it.
// Only members can ask.
var ReqCAKey = transport.Kind[string, []byte]{Number: 40}

// askTimeout bounds a search for what any other member may have.
const askTimeout = 5 * time.Second

// StepCA takes this node's next step in a change of the CA, and as the leader the cluster's.
func (cs *Certs) StepCA(ctx context.Context) {
	cs.changing.Lock()
	defer cs.changing.Unlock()
	if err := cs.stepCA(ctx); ctx.Err() == nil && cs.caProblem.isNew(err) {
		cs.log.Warn("the change of the CA does not progress", "err", err)
	}
}

func (cs *Certs) stepCA(ctx context.Context) error {
	c, dir, leader := cs.host.Settings(), cs.cfg.TLSDir(), cs.host.Raft().Leader
	before := cs.ownStatus()
	ch := c.CAChange
	if ch == nil {
		only := c.CA
		if only == "" {
			only = before.Trusts[0] // what was added came after it
		}
		if len(before.Trusts) == 1 && before.Trusts[0] == only || !cs.current(c, leader) {
			return nil
		}
		if err := cs.bundle.TrustOnly(dir, only); err != nil {
			return err
		}
		cs.log.Info("this node trusts one CA", "sha256", only)
		cs.host.CheckLinks()
		cs.host.Publish()
		return nil
	}
	next, err := pki.DigestOf([]byte(ch.Cert))
	if err != nil {
		return err
	}
	if !slices.Contains(before.Trusts, next) {
		key, err := cs.fetchCAKey(ctx, next)
		if err != nil {
			return err
		}
		if err := cs.bundle.Trust(dir, []byte(ch.Cert), key, time.Now()); err != nil {
			return err
		}
		cs.log.Info("this node trusts another CA, too", "sha256", next)
		cs.host.Publish()
	}
	if ch.Finish && cs.bundle.CADigest() != next {
		if err := cs.bundle.GoOver(dir, next, cs.hosts(), time.Now()); err != nil {
			return err
		}
		cs.log.Info("this node has a certificate of the new CA", "sha256", next, "until", cs.bundle.NotAfter())
		cs.host.Publish()
	}
	if !ch.Finish || leader != cs.id.ID {
		return nil
	}
	if wait := cs.lacking(c,
		func(s gossip.CAStatus) bool { return s.Signer == next && (s.MySQL == "" || s.MySQL == next) }); len(wait) > 0 {
		return fmt.Errorf("waiting for certificates of the new CA, mysqld's too, on %s", strings.Join(wait, ", "))
	}
	err = cs.host.Change(ctx, 0, func(c *config.Cluster) error {
		if c.CAChange == nil || c.CAChange.Cert != ch.Cert {
			return api.Errorf(api.KindChanged, "the change of the CA is another one now")
		}
		c.CA, c.CAChange = next, nil
		return nil
	})
	if err == nil {
		cs.host.Record(EventCA, "", "the cluster trusts its new CA alone")
	}
	return err
}

// current says whether no node that is heard of has newer settings, the leader (raft id; 0: none) among them. By older
// settings, which a node may start with if it could not save its copy, it would end its trust in those whom it needs
// to hear of newer ones.
func (cs *Certs) current(c *config.Cluster, leader uint64) bool {
	peers := cs.host.Peers()
	for _, p := range peers {
		if p.Fresh() && p.Settings > c.Version {
			return false
		}
	}
	return leader != 0 && (leader == cs.id.ID || peers[leader].Fresh())
}

// fetchCAKey asks the other members for the key of a CA.
func (cs *Certs) fetchCAKey(ctx context.Context, of string) (key []byte, err error) {
	key, err = askMembers(ctx, cs, ReqCAKey, of, func([]byte) error { return nil })
	if err != nil {
		err = fmt.Errorf("no member gives the key of the new CA; if the node that made it is lost, "+
			"take the change back, trireme cert new-ca --abort: %w", err)
	}
	return key, err
}

// CAKeyFor answers another member, who has the key of the present CA already, as long as it lacks the new one: who has
// stolen the present key can pose as a member.
func (cs *Certs) CAKeyFor(_ context.Context, from uint64, of string) ([]byte, error) {
	c := cs.host.Settings()
	m, member := c.MemberByID(from)
	if !member || c.CAChange == nil || c.CAChange.Finish {
		return nil, fmt.Errorf("no change of the CA is under way in which node %d needs a key", from)
	}
	if p := cs.host.Peers()[from]; p != nil && slices.Contains(p.CA.Trusts, of) {
		return nil, fmt.Errorf("node %d has said that it trusts this CA: it has the key", from)
	}
	key, err := cs.bundle.CAKey(cs.cfg.TLSDir(), of)
	if err == nil {
		cs.log.Warn("this node gave a member the key of the new CA", "peer", m.Name, "sha256", of)
	}
	return key, err
}

// lacking are the members that are not as wanted, or are not heard of.
func (cs *Certs) lacking(c *config.Cluster, ok func(gossip.CAStatus) bool) (names []string) {
	own, peers := cs.ownStatus(), cs.host.Peers()
	for _, m := range c.Members {
		if p := peers[m.ID]; m.ID == cs.id.ID && ok(own) || m.ID != cs.id.ID && p.Fresh() && ok(p.CA) {
			continue
		}
		names = append(names, m.Name)
	}
	return names
}

// ChangeCA implements api.Backend: it begins a change of the CA, ends it, or takes back one that has only begun.
func (cs *Certs) ChangeCA(ctx context.Context, req api.CARequest) (api.CAView, error) {
	cs.changing.Lock() // StepCA would drop what is not in the settings yet
	defer cs.changing.Unlock()
	var err error
	switch req.Step {
	case api.CABegin:
		err = cs.beginCA(ctx)
	case api.CAFinish:
		err = cs.finishCA(ctx)
	case api.CAAbort:
		err = cs.host.Change(ctx, 0, func(c *config.Cluster) error {
			switch {
			case c.CAChange == nil:
				return api.Errorf(api.KindConflict, "no change of the CA is under way")
			case c.CAChange.Finish:
				return api.Errorf(api.KindConflict, "nodes go over to the new CA already: it ends there, and not back here")
			}
			c.CA, c.CAChange = cs.bundle.CADigest(), nil
			return nil
		})
		if err == nil {
			cs.host.Record(EventCA, api.WhoAsked(ctx), "the change of the CA was taken back")
		}
	default:
		err = api.Errorf(api.KindInvalid, "%q is no step of a change of the CA", req.Step)
	}
	return cs.CA(ctx), err
}

// EventCA is a change of the CA, a step of it.
const EventCA = "ca"

func (cs *Certs) beginCA(ctx context.Context) error {
	c := cs.host.Settings()
	if c.CAChange != nil {
		return api.Errorf(api.KindBusy, "a change of the CA is under way since %s", c.CAChange.Since.UTC().
			Format(time.DateTime)).
			With("see `trireme cert ca`; end it with `trireme cert new-ca --finish`, or --abort")
	}
	if wait := cs.lacking(c, func(s gossip.CAStatus) bool { return len(s.Trusts) == 1 }); len(wait) > 0 {
		return notReady(wait)
	}
	ca, err := pki.NewCA(cs.id.Cluster, time.Now())
	if err != nil {
		return err
	}
	key, err := ca.KeyPEM()
	if err != nil {
		return err
	}
	// first: no other node has the key
	if err := cs.bundle.Trust(cs.cfg.TLSDir(), ca.CertPEM(), key, time.Now()); err != nil {
		return err
	}
	err = cs.host.Change(ctx, 0, func(c *config.Cluster) error {
		if c.CAChange != nil {
			return api.Errorf(api.KindBusy, "a change of the CA has begun meanwhile")
		}
		c.CAChange = &config.CAChange{Cert: string(ca.CertPEM()), Since: time.Now().UTC().Round(0)}
		return nil
	})
	if err == nil {
		cs.host.Record(EventCA, api.WhoAsked(ctx), "a change of the CA has begun: two are trusted")
	}
	return err
}

func (cs *Certs) finishCA(ctx context.Context) error {
	err := cs.host.Change(ctx, 0, func(c *config.Cluster) error {
		if c.CAChange == nil {
			return api.Errorf(api.KindConflict, "no change of the CA is under way").With("begin one with `trireme cert new-ca`")
		}
		next, err := pki.DigestOf([]byte(c.CAChange.Cert))
		if err != nil {
			return err
		}
		if wait := cs.lacking(c, func(s gossip.CAStatus) bool { return slices.Contains(s.Trusts, next) }); len(wait) > 0 {
			return notReady(wait)
		}
		c.CAChange = &config.CAChange{Cert: c.CAChange.Cert, Finish: true, Since: c.CAChange.Since}
		return nil
	})
	if err == nil {
		cs.host.Record(EventCA, api.WhoAsked(ctx), "the nodes go over to the new CA")
	}
	return err
}

func notReady(nodes []string) error {
	return api.Errorf(api.KindNotReady, "not all nodes are up and ready for it: %s", strings.Join(nodes, ", ")).
		With("bring them up, or take them out with `trireme remove`; a node that misses the change would be shut out by it")
}

// CA implements api.Backend.
func (cs *Certs) CA(context.Context) api.CAView {
	own, peers, c := cs.ownStatus(), cs.host.Peers(), cs.host.Settings()
	v := api.CAView{Signer: own.Signer, Trusts: own.Trusts, Certs: string(cs.bundle.CAPEM()), Nodes: []api.CANode{}}
	if ch := c.CAChange; ch != nil {
		v.Since, v.Finish = &ch.Since, ch.Finish
		v.Next, _ = pki.DigestOf([]byte(ch.Cert))
	}
	v.Rotating = c.Rotate ||
		len(cs.lacking(c, func(s gossip.CAStatus) bool { return c.CloneHash == "" || s.Clone == c.CloneHash })) > 0
	for _, m := range c.Members {
		s, p := api.CANode{Name: m.Name}, peers[m.ID]
		switch {
		case m.ID == cs.id.ID:
			s.Up, s.Signer, s.Trusts = true, own.Signer, own.Trusts
		case p.Fresh():
			s.Up, s.Signer, s.Trusts = true, p.CA.Signer, p.CA.Trusts
		}
		v.Nodes = append(v.Nodes, s)
	}
	return v
}
