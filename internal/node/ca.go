package node

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"trireme/internal/api"
	"trireme/internal/config"
	"trireme/internal/pki"
)

// caInterval is how often a node looks for its next step in a change of the CA.
const caInterval = time.Second

// reqCAKey has the digest of a CA as its body; answered with that CA's key, as far as the node has it. Only members can ask.
const reqCAKey uint8 = 40

// caStatus is how far a node is in a change of the CA.
type caStatus struct {
	Signer string   `json:"signer"` // digest of the CA that has signed its certificate
	Trusts []string `json:"trusts"` // digests
	// Clone is the pki.HashToken of the password of trireme_clone that it has.
	Clone string `json:"clone,omitempty"`
	// MySQL is the digest of the CA that has signed the certificate which its mysqld shows; empty: none of the cluster's
	// has.
	MySQL string `json:"mysql,omitempty"`
}

func (n *Node) caStatus() caStatus {
	if n.bundle == nil {
		return caStatus{}
	}
	return caStatus{Signer: n.bundle.CADigest(), Trusts: n.bundle.Trusted(), Clone: pki.HashToken(n.shared().Clone.Password)}
}

// caStatusLocked is caStatus with mysqld's part.
func (n *Node) caStatusLocked() caStatus {
	s := n.caStatus()
	if n.srv.life != nil {
		s.MySQL = n.shown.signer
	}
	return s
}

// tendCA takes this node's next step in a change of the CA, and as the leader the cluster's.
func (n *Node) tendCA(ctx context.Context) {
	n.caMu.Lock()
	defer n.caMu.Unlock()
	if err := n.stepCA(ctx, n.cons.Status().Leader); err != nil && ctx.Err() == nil {
		if text := err.Error(); text != n.caProblem {
			n.log.Warn("the change of the CA does not progress", "err", err)
			n.caProblem = text
		}
		return
	}
	n.caProblem = ""
}

func (n *Node) stepCA(ctx context.Context, leader uint64) error {
	c, dir := n.Settings(), n.cfg.TLSDir()
	before := n.caStatus()
	ch := c.CAChange
	if ch == nil {
		only := c.CA
		if only == "" {
			only = before.Trusts[0] // what was added came behind it
		}
		if len(before.Trusts) == 1 && before.Trusts[0] == only || !n.current(c, leader) {
			return nil
		}
		if err := n.bundle.TrustOnly(dir, only); err != nil {
			return err
		}
		n.log.Info("this node trusts one CA", "sha256", only)
		n.tr.Recheck()
		n.tellCA()
		return nil
	}
	next, err := pki.DigestOf([]byte(ch.Cert))
	if err != nil {
		return err
	}
	if !slices.Contains(before.Trusts, next) {
		key, err := n.fetchCAKey(ctx, next)
		if err != nil {
			return err
		}
		if err := n.bundle.Trust(dir, []byte(ch.Cert), key, time.Now()); err != nil {
			return err
		}
		n.log.Info("this node trusts another CA, too", "sha256", next)
		n.tellCA()
	}
	if ch.Finish && n.bundle.CADigest() != next {
		if err := n.bundle.GoOver(dir, next, n.hosts(), time.Now()); err != nil {
			return err
		}
		n.log.Info("this node has a certificate of the new CA", "sha256", next, "until", n.bundle.NotAfter())
		n.tellCA()
	}
	if !ch.Finish || leader != n.id.ID {
		return nil
	}
	if wait := n.lacking(c, func(s caStatus) bool { return s.Signer == next && (s.MySQL == "" || s.MySQL == next) }); len(wait) > 0 {
		return fmt.Errorf("waiting for certificates of the new CA, mysqld's too, on %s", strings.Join(wait, ", "))
	}
	_, err = n.changeCluster(ctx, func(c *config.Cluster) error {
		if c.CAChange == nil || c.CAChange.Cert != ch.Cert {
			return api.Errorf(api.KindChanged, "the change of the CA is another one now")
		}
		c.CA, c.CAChange = next, nil
		return nil
	})
	if err == nil {
		n.history.add(n.event(eventCA, 0, "the cluster trusts its new CA alone"))
	}
	return err
}

// current says whether nobody who is heard of has newer settings, the leader (raft id; 0: none) among them. By settings of before, which a node may
// start with if it could not save its copy, it would end its trust in those whom it needs to hear of newer ones.
func (n *Node) current(c *config.Cluster, leader uint64) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, p := range n.peers {
		if p.fresh() && p.status.Settings > c.Version {
			return false
		}
	}
	p := n.peers[leader]
	return leader != 0 && (leader == n.id.ID || p != nil && p.fresh())
}

// tellCA has the others hear how far this node is.
func (n *Node) tellCA() {
	n.mu.Lock()
	n.publishNow = true
	n.mu.Unlock()
	n.poke()
}

// fetchCAKey asks the other members for the key of a CA.
func (n *Node) fetchCAKey(ctx context.Context, of string) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, settingsTimeout)
	defer cancel()
	var errs []error
	for _, m := range n.Settings().Members {
		if m.ID == n.id.ID {
			continue
		}
		key, e := n.tr.Request(ctx, m.ID, reqCAKey, []byte(of))
		if e == nil {
			return key, nil
		}
		errs = append(errs, fmt.Errorf("%s: %w", m.Name, e))
	}
	return nil, fmt.Errorf("no member gives the key of the new CA; if the node that made it is lost, take the change back, trireme cert new-ca --abort: %w",
		errors.Join(errs...))
}

// caKeyFor answers another member, who has the key of the present CA already, as long as it lacks the new one: who has stolen the present key
// can pose as a member.
func (n *Node) caKeyFor(from uint64, of string) ([]byte, error) {
	c := n.Settings()
	m, member := c.MemberByID(from)
	if !member || c.CAChange == nil || c.CAChange.Finish {
		return nil, fmt.Errorf("no change of the CA is under way in which node %d needs a key", from)
	}
	n.mu.Lock()
	p := n.peers[from]
	has := p != nil && slices.Contains(p.status.CA.Trusts, of)
	n.mu.Unlock()
	if has {
		return nil, fmt.Errorf("node %d has said that it trusts this CA: it has the key", from)
	}
	key, err := n.bundle.CAKey(n.cfg.TLSDir(), of)
	if err == nil {
		n.log.Warn("this node gave a member the key of the new CA", "peer", m.Name, "sha256", of)
	}
	return key, err
}

// lacking are the members that are not as wanted, or are not heard of.
func (n *Node) lacking(c *config.Cluster, ok func(caStatus) bool) (names []string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, m := range c.Members {
		p := n.peers[m.ID]
		if m.ID == n.id.ID && ok(n.caStatusLocked()) || m.ID != n.id.ID && p != nil && p.fresh() && ok(p.status.CA) {
			continue
		}
		names = append(names, m.Name)
	}
	return names
}

// ChangeCA implements api.Backend: it begins a change of the CA, ends it, or takes back one that has only begun.
func (n *Node) ChangeCA(ctx context.Context, req api.CARequest) (api.CAView, error) {
	n.caMu.Lock() // tendCA would drop what is not in the settings yet
	defer n.caMu.Unlock()
	var err error
	switch req.Step {
	case api.CABegin:
		err = n.beginCA(ctx)
	case api.CAFinish:
		err = n.finishCA(ctx)
	case api.CAAbort:
		_, err = n.changeCluster(ctx, func(c *config.Cluster) error {
			switch {
			case c.CAChange == nil:
				return api.Errorf(api.KindConflict, "no change of the CA is under way")
			case c.CAChange.Finish:
				return api.Errorf(api.KindConflict, "nodes go over to the new CA already: it ends there, and not back here")
			}
			c.CA, c.CAChange = n.bundle.CADigest(), nil
			return nil
		})
		if err == nil {
			n.history.add(n.askedEvent(ctx, eventCA, 0, "the change of the CA was taken back"))
		}
	default:
		err = api.Errorf(api.KindInvalid, "%q is no step of a change of the CA", req.Step)
	}
	return n.CA(ctx), err
}

// eventCA: a change of the CA, a step of it.
const eventCA = "ca"

func (n *Node) beginCA(ctx context.Context) error {
	c := n.Settings()
	if c.CAChange != nil {
		return api.Errorf(api.KindBusy, "a change of the CA is under way since %s", c.CAChange.Since.UTC().Format(time.DateTime)).
			With("see `trireme cert ca`; end it with `trireme cert new-ca --finish`, or --abort")
	}
	if wait := n.lacking(c, func(s caStatus) bool { return len(s.Trusts) == 1 }); len(wait) > 0 {
		return notReady(wait)
	}
	ca, err := pki.NewCA(n.id.Cluster, time.Now())
	if err != nil {
		return err
	}
	key, err := ca.KeyPEM()
	if err != nil {
		return err
	}
	if err := n.bundle.Trust(n.cfg.TLSDir(), ca.CertPEM(), key, time.Now()); err != nil { // first: nobody else has the key
		return err
	}
	_, err = n.changeCluster(ctx, func(c *config.Cluster) error {
		if c.CAChange != nil {
			return api.Errorf(api.KindBusy, "a change of the CA has begun meanwhile")
		}
		c.CAChange = &config.CAChange{Cert: string(ca.CertPEM()), Since: time.Now().UTC().Round(0)}
		return nil
	})
	if err == nil {
		n.history.add(n.askedEvent(ctx, eventCA, 0, "a change of the CA has begun: two are trusted"))
	}
	return err
}

func (n *Node) finishCA(ctx context.Context) error {
	_, err := n.changeCluster(ctx, func(c *config.Cluster) error {
		if c.CAChange == nil {
			return api.Errorf(api.KindConflict, "no change of the CA is under way").With("begin one with `trireme cert new-ca`")
		}
		next, err := pki.DigestOf([]byte(c.CAChange.Cert))
		if err != nil {
			return err
		}
		if wait := n.lacking(c, func(s caStatus) bool { return slices.Contains(s.Trusts, next) }); len(wait) > 0 {
			return notReady(wait)
		}
		c.CAChange = &config.CAChange{Cert: c.CAChange.Cert, Finish: true, Since: c.CAChange.Since}
		return nil
	})
	if err == nil {
		n.history.add(n.askedEvent(ctx, eventCA, 0, "the nodes go over to the new CA"))
	}
	return err
}

func notReady(nodes []string) error {
	return api.Errorf(api.KindNotReady, "not all nodes are up and ready for it: %s", strings.Join(nodes, ", ")).
		With("bring them up, or take them out with `trireme remove`; a node that misses the change would be shut out by it")
}

// CA implements api.Backend.
func (n *Node) CA(context.Context) api.CAView {
	own, c := n.caStatus(), n.Settings()
	v := api.CAView{Signer: own.Signer, Trusts: own.Trusts, Certs: string(n.bundle.CAPEM()), Nodes: []api.CANode{}}
	if ch := c.CAChange; ch != nil {
		v.Since, v.Finish = &ch.Since, ch.Finish
		v.Next, _ = pki.DigestOf([]byte(ch.Cert))
	}
	v.Rotating = c.Rotate || len(n.lacking(c, func(s caStatus) bool { return c.CloneHash == "" || s.Clone == c.CloneHash })) > 0
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, m := range c.Members {
		s, p := api.CANode{Name: m.Name}, n.peers[m.ID]
		switch {
		case m.ID == n.id.ID:
			s.Up, s.Signer, s.Trusts = true, own.Signer, own.Trusts
		case p != nil && p.fresh():
			s.Up, s.Signer, s.Trusts = true, p.status.CA.Signer, p.status.CA.Trusts
		}
		v.Nodes = append(v.Nodes, s)
	}
	return v
}

// caStands refuses newcomers during a change: they would get the CA of one side of it.
func caStands(c *config.Cluster) error {
	if c.CAChange != nil {
		return api.Errorf(api.KindBusy, "the CA is being changed").With("end that first: trireme cert new-ca --finish")
	}
	return nil
}
