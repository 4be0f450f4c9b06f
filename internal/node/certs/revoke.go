package certs

import (
	"context"
	"crypto/x509"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	"trireme/internal/api"
	"trireme/internal/base/config"
	"trireme/internal/base/pki"
)

// WhyRevoked says why a certificate is not trusted; empty: it is.
func (cs *Certs) WhyRevoked(cert *x509.Certificate) string {
	if cs.bundle.Foreign(cert) { // of a connection that was up when the CA was changed
		return "its certificate is of a CA that is not trusted any more"
	}
	id, _ := pki.IdentityOf(cert) // the handshake has looked for one
	return cs.host.Settings().WhyRevoked(id.ID, pki.SerialOf(cert))
}

// serialAsShown is a serial number in pki.SerialOf's form. Others write it with colons, in capitals, and with zeros in
// front.
func serialAsShown(what string) string {
	return strings.TrimLeft(strings.ToLower(strings.ReplaceAll(what, ":", "")), "0")
}

var serialText = regexp.MustCompile(`^[0-9a-f]{8,40}$`)

// Revoke implements api.Backend. What is revoked is ended on each node once it has the change.
func (cs *Certs) Revoke(ctx context.Context, req api.RevokeRequest) (res api.RevokeResult, err error) {
	now := cs.host.Settings()
	serial := serialAsShown(req.What)
	m, isNode := now.Member(req.What)
	r := config.Revocation{At: time.Now().UTC().Round(0)}
	switch {
	case isNode:
		r.ID, r.Name = m.ID, m.Name
		res.Message =
			fmt.Sprintf("the certificates of node %s (id %d) are revoked: no node connects to it any more, and its daemon ends",
				m.Name, m.ID)
		res.Advice =
			fmt.Sprintf("it is a member still, and counts as down: trireme remove %s; then it can join again, under a new id",
				m.Name)
	case serialText.MatchString(serial):
		r.Serial = serial
		res.Message = "the certificate with serial " + serial + " is revoked: no node takes it any more"
		res.Advice = "if a node shows it at present, that node signs itself another one"
	default:
		return res, api.Errorf(api.KindNotFound, "%q is neither a node nor a serial number; nodes are %s", req.What,
			strings.Join(now.Names(), " ")).
			With("`trireme cert show` and the daemon's log tell serial numbers")
	}
	res.Serial, res.Node = r.Serial, r.Name
	err = cs.host.Change(ctx, 0, func(c *config.Cluster) error {
		if why := c.WhyRevoked(r.ID, r.Serial); why != "" {
			return api.Errorf(api.KindAlready, "%s", why)
		}
		if isNode { // with what other revocations have just taken out
			if err := cs.canSpare(c, m); err != nil {
				return err
			}
		}
		if err := c.Revoke(r); err != nil {
			return api.Errorf(api.KindConflict, "%v", err)
		}
		return nil
	})
	if err == nil {
		cs.host.Record("revoke", api.WhoAsked(ctx), res.Message)
	}
	return res, err
}

// canSpare says why a member cannot be shut out now. Voters that are shut out already do not count, however lately they
// were heard of.
func (cs *Certs) canSpare(c *config.Cluster, m config.Member) error {
	if m.ID == cs.id.ID {
		return api.Errorf(api.KindNeeded, "%s leads", m.Name).With("move leadership first: trireme switchover")
	}
	voters, peers := cs.host.Raft().Voters, cs.host.Peers()
	left := 0
	for _, id := range voters {
		if id != m.ID && (id == cs.id.ID || peers[id].Fresh()) && c.WhyRevoked(id, "") == "" {
			left++
		}
	}
	if slices.Contains(voters, m.ID) && 2*left <= len(voters) {
		return api.Errorf(api.KindNeeded, "without %s only %d of %d voters are up: no majority", m.Name, left, len(voters)).
			With("bring another one up, or replace it first; see docs/ops/certificates.md")
	}
	return nil
}

// SettingsChanged ends what newly committed settings do not trust any more.
func (cs *Certs) SettingsChanged(c *config.Cluster) {
	cs.host.CheckLinks()
	if own := cs.bundle.Serial(); c.WhyRevoked(0, own) != "" {
		cs.log.Warn("this node's certificate was revoked: it signs itself another one", "serial", own)
		cs.host.Go(func(context.Context) { cs.renew() })
	}
}

// shutOut is what peers say of this node's certificate. Certs.mu guards it.
type shutOut struct {
	renewed time.Duration   // when it was replaced since a peer did not take it; CLOCK_BOOTTIME, 0: it was not
	taken   time.Duration   // when a peer took it last
	by      map[uint64]bool // who has refused the next one, too
}

// shutOutGrace is for refusals of the old certificate that were on their way when it was replaced.
const shutOutGrace = 3 * time.Second

// shutOutPatience is for members that are not there to refuse or to take it.
const shutOutPatience = time.Minute

// ToldRevoked: a peer does not take this node's certificate. A copy of it may have been revoked while this node was
// away, so it signs itself another one. If most of the others refuse that, too, it is this node that is meant. One
// alone may lie; its word counts when no other node is there for long: most of those whom a node knew may be no members
// any more either, when it comes back.
func (cs *Certs) ToldRevoked(by uint64, why string) {
	members, peers := cs.host.Settings().Members, cs.host.Peers()
	cs.mu.Lock()
	at := now()
	late := at > cs.shutOut.renewed+shutOutGrace
	// What came of an earlier refusal was taken: this is another one.
	first := cs.shutOut.renewed == 0 || late && cs.shutOut.taken > cs.shutOut.renewed
	if first {
		cs.shutOut = shutOut{renewed: at, by: map[uint64]bool{}}
	} else if late {
		cs.shutOut.by[by] = true
	}
	others, against, alone := 0, 0, at > cs.shutOut.renewed+shutOutPatience
	for _, m := range members {
		if m.ID != cs.id.ID {
			others++
			if cs.shutOut.by[m.ID] {
				against++
			}
			if p := peers[m.ID]; p != nil && p.Up {
				alone = false
			}
		}
	}
	cs.mu.Unlock()
	switch {
	case first:
		cs.log.Warn("a peer does not take this node's certificate: it signs itself another one", "peer", by, "why", why)
		cs.host.Go(func(context.Context) { cs.renew() })
	case 2*against > others || against > 0 && alone:
		cs.host.ShutOut(why)
	}
}

// Taken: a peer has taken this node's certificate.
func (cs *Certs) Taken() {
	cs.mu.Lock()
	cs.shutOut.taken = now()
	cs.mu.Unlock()
}
