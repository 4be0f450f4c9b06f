package main

import (
	"context"
	"crypto/tls"
	"fmt"
	"slices"
	"strings"
	"time"

	"trireme/internal/api"
	"trireme/internal/base/pki"
)

// shown is t with who has shown itself there.
func (t target) shown(cs tls.ConnectionState) (target, error) {
	id, err := pki.PeerIdentity(cs)
	if err != nil {
		return target{}, err
	}
	t.node, t.serial = id, pki.SerialOf(cs.PeerCertificates[0])
	return t, nil
}

// vouched asks the nodes at the other addresses of the credential, without a token, whether the node at t is a member
// with a good certificate: one that was removed or revoked has a certificate of the CA still. It waits for a majority
// of the addresses, or until the rest had their time (half of ctx's at most); where no other one answers nothing speaks
// against t.
func (t *target) vouched(ctx context.Context) error {
	_, addr, _ := strings.Cut(t.base, "://")
	addrs := append([]string{addr}, slices.DeleteFunc(slices.Clone(t.cred.API),
		func(a string) bool { return a == addr })...)
	limit := probeTimeout
	if end, bounded := ctx.Deadline(); bounded {
		limit = min(limit, time.Until(end)/2) // the rest is for the question itself
	}
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	answers := make(chan api.RouteView, len(addrs)) // a zero one: none came
	for _, a := range addrs {
		go func() {
			c := api.NewClient("https://"+a, "", t.trust)
			defer c.Close()
			v, _ := c.Route(ctx)
			answers <- v
		}()
	}
	views, known := []api.RouteView{{Node: t.node.Name, From: t.node, Serial: t.serial}}, len(addrs)
	for range addrs {
		switch v := <-answers; {
		case same(v, views[0]):
			views[0] = v
		case slices.ContainsFunc(views, func(o api.RouteView) bool { return same(o, v) }):
			known-- // another address of a node that has answered
		case v.From.ID != 0:
			views = append(views, v)
		}
		if 2*len(views) > known && len(members(views)) == len(views) {
			break
		}
	}
	good := members(views)
	if !slices.ContainsFunc(good, func(v api.RouteView) bool { return same(v, views[0]) }) {
		return api.Errorf(api.KindForbidden,
			"other nodes say that %s at %s is not a member: it was removed, or its certificate was revoked", t.node.Name, addr).
			With("it gets no token; if they are former nodes themselves, take their addresses out of the credential's file")
	}
	t.trust = onlyMembers(t.trust, good)
	return nil
}

// same reports whether two views came from one node.
func same(a, b api.RouteView) bool { return a.From == b.From && a.Serial == b.Serial }

// members are the views of nodes that the others take for such.
func members(views []api.RouteView) []api.RouteView {
	return api.Owned(views, func(v api.RouteView) api.RouteView { return v }, api.RouteView{})
}

// onlyMembers is trust that refuses a node which one of views disowns: at the next connection another one may listen at
// the same address.
func onlyMembers(trust *tls.Config, views []api.RouteView) *tls.Config {
	trust, verify := trust.Clone(), trust.VerifyConnection
	trust.VerifyConnection = func(cs tls.ConnectionState) error {
		if err := verify(cs); err != nil {
			return err
		}
		id, err := pki.PeerIdentity(cs)
		if err != nil {
			return err
		}
		shown := api.RouteView{From: id, Serial: pki.SerialOf(cs.PeerCertificates[0])}
		if slices.ContainsFunc(views, func(v api.RouteView) bool { return v.Disowns(shown) }) {
			return fmt.Errorf("%s is not a member any more", id.Name)
		}
		return nil
	}
	return trust
}
