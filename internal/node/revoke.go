package node

import (
	"context"
	"crypto/x509"
	"fmt"
	"regexp"
	"strings"
	"time"

	"trireme/internal/api"
	"trireme/internal/config"
	"trireme/internal/pki"
)

// revoked says why a certificate is not trusted; empty: it is.
func (n *Node) revoked(cert *x509.Certificate) string {
	if n.bundle.Foreign(cert) { // of a connection that was up when the CA was changed
		return "its certificate is of a CA that is not trusted any more"
	}
	id, _ := pki.IdentityOf(cert) // the handshake has looked for one
	return n.Settings().WhyRevoked(id.ID, pki.SerialOf(cert))
}

// serialAsShown is a serial number in pki.SerialOf's form. Others write it with colons, in capitals, and with zeros in front.
func serialAsShown(what string) string {
	return strings.TrimLeft(strings.ToLower(strings.ReplaceAll(what, ":", "")), "0")
}

var serialText = regexp.MustCompile(`^[0-9a-f]{8,40}$`)

// Revoke implements api.Backend. What is revoked is ended on each node once it has the change.
func (n *Node) Revoke(ctx context.Context, req api.RevokeRequest) (res api.RevokeResult, err error) {
	now := n.Settings()
	serial := serialAsShown(req.What)
	m, isNode := now.Member(req.What)
	r := config.Revocation{At: time.Now().UTC().Round(0)}
	switch {
	case isNode:
		r.ID, r.Name = m.ID, m.Name
		res.Message = fmt.Sprintf("the certificates of node %s (id %d) are revoked: no node connects to it any more, and its daemon ends", m.Name, m.ID)
		res.Advice = fmt.Sprintf("it is a member still, and counts as down: trireme remove %s; then it can join again, under a new id", m.Name)
	case serialText.MatchString(serial):
		r.Serial = serial
		res.Message = "the certificate with serial " + serial + " is revoked: no node takes it any more"
		res.Advice = "if a node shows it at present, that node signs itself another one"
	default:
		return res, api.Errorf(api.KindNotFound, "%q is neither a node nor a serial number; nodes are %s", req.What, strings.Join(now.Names(), " ")).
			With("`trireme cert show` and the daemon's log tell serial numbers")
	}
	res.Serial, res.Node = r.Serial, r.Name
	_, err = n.changeCluster(ctx, func(c *config.Cluster) error {
		if why := c.WhyRevoked(r.ID, r.Serial); why != "" {
			return api.Errorf(api.KindAlready, "%s", why)
		}
		if isNode { // with what other revocations have just taken out
			if err := n.canSpare(c, m); err != nil {
				return err
			}
		}
		if err := c.Revoke(r); err != nil {
			return api.Errorf(api.KindConflict, "%v", err)
		}
		return nil
	})
	if err == nil {
		n.history.add(n.askedEvent(ctx, "revoke", 0, res.Message))
	}
	return res, err
}

// canSpare says why a member cannot be shut out now.
func (n *Node) canSpare(c *config.Cluster, m config.Member) error {
	if m.ID == n.id.ID {
		return api.Errorf(api.KindNeeded, "%s leads", m.Name).With("move leadership first: trireme switchover")
	}
	st := n.cons.Status()
	n.mu.Lock()
	defer n.mu.Unlock()
	return spare(c, st.Voters, m, func(id uint64) bool {
		p := n.peers[id]
		return id == n.id.ID || p != nil && p.fresh()
	})
}

// spare says why voters are no majority without a member. One that is shut out already does not count, however lately it was heard of.
func spare(c *config.Cluster, voters []uint64, m config.Member, up func(id uint64) bool) error {
	left, voter := 0, false
	for _, id := range voters {
		voter = voter || id == m.ID
		if id != m.ID && up(id) && c.WhyRevoked(id, "") == "" {
			left++
		}
	}
	if voter && 2*left <= len(voters) {
		return api.Errorf(api.KindNeeded, "without %s only %d of %d voters are up: no majority", m.Name, left, len(voters)).
			With("bring another one up, or replace it first; see docs/ops/certificates.md")
	}
	return nil
}

// tendRevoked ends what newly committed settings do not trust any more.
func (n *Node) tendRevoked(c *config.Cluster) {
	n.tr.Recheck()
	if own := n.bundle.Serial(); c.WhyRevoked(0, own) != "" {
		n.log.Warn("this node's certificate was revoked: it signs itself another one", "serial", own)
		n.task(func(context.Context) { n.renewCertificate() })
	}
}

// shutOut is what peers say of this node's certificate. n.mu guards it.
type shutOut struct {
	renewed time.Duration   // when it was replaced since a peer did not take it; CLOCK_BOOTTIME, 0: it was not
	taken   time.Duration   // when a peer took it last
	by      map[uint64]bool // who has refused the next one, too
}

// shutOutGrace is for refusals of the old certificate that were on their way when it was replaced.
const shutOutGrace = 3 * time.Second

// shutOutPatience is for members that are not there to refuse or to take it.
const shutOutPatience = time.Minute

// toldRevoked: a peer does not take this node's certificate. A copy of it may have been revoked while this node was away, so it signs itself
// another one. If most of the others refuse that, too, it is this node that is meant. One alone may lie; its word counts when nobody else is there for
// long: most of those whom a node knew may be no members any more either, when it comes back.
func (n *Node) toldRevoked(by uint64, why string) {
	n.mu.Lock()
	at := now()
	late := at > n.shutOut.renewed+shutOutGrace
	// What came of an earlier refusal was taken: this is another one.
	first := n.shutOut.renewed == 0 || late && n.shutOut.taken > n.shutOut.renewed
	if first {
		n.shutOut = shutOut{renewed: at, by: map[uint64]bool{}}
	} else if late {
		n.shutOut.by[by] = true
	}
	others, against, alone := 0, 0, at > n.shutOut.renewed+shutOutPatience
	for _, m := range n.cluster.Members {
		if m.ID != n.id.ID {
			others++
			if n.shutOut.by[m.ID] {
				against++
			}
			if p := n.peers[m.ID]; p != nil && p.up {
				alone = false
			}
		}
	}
	n.mu.Unlock()
	switch {
	case first:
		n.log.Warn("a peer does not take this node's certificate: it signs itself another one", "peer", by, "why", why)
		n.task(func(context.Context) { n.renewCertificate() })
	case 2*against > others || against > 0 && alone:
		n.fail(fmt.Errorf("%w: node %q (id %d) is shut out of cluster %q by the members that it reaches: %s. Its data is left in %s; to make it a member again, "+
			"remove it if it is one, move that directory away and run `trireme join`", ErrFinal, n.id.Name, n.id.ID, n.id.Cluster, why, n.cfg.Dir))
	}
}

// checkRevoked: a node whose certificates are revoked is spoken to by nobody.
func (n *Node) checkRevoked(c *config.Cluster) error {
	if why := c.WhyRevoked(n.id.ID, ""); why != "" {
		return fmt.Errorf("%w: %s: this is it. Its data is left in %s; `trireme remove %s` takes it out, and after that `trireme join`, with that "+
			"directory moved away, makes it a member again", ErrFinal, why, n.cfg.Dir, n.id.Name)
	}
	return nil
}
