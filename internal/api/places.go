package api

import (
	"context"
	"net"
	"net/http"
	"net/netip"
	"sync"
)

// Shares of a server's places.
const (
	placesOfOne    = 2 // one address has one in so many at most
	placesReserved = 8 // one in so many is for nodes and for this host
	reserveOfOne   = 4 // connections of an address that has a place in the reserve
)

// places bound what is open at once: in all, and of one address, so that one host cannot keep the others out. This host
// is not bounded but by the number of all. Make it with newPlaces.
type places struct {
	most, each, reserve int
	local               func(netip.Addr) bool

	mu   sync.Mutex
	used int
	by   map[netip.Addr]int
}

func newPlaces(most, reserve int) *places {
	return &places{most: most, each: max(1, most/placesOfOne), reserve: reserve, local: netip.Addr.IsLoopback,
		by: map[netip.Addr]int{}}
}

// take takes a place; leave must be called once if there was one. reserved: it is one that the taker may keep only if
// it is a node.
func (p *places) take(from string) (leave func(), reserved, ok bool) {
	at := sourceOf(from)
	p.mu.Lock()
	defer p.mu.Unlock()
	has := p.by[at]
	if !p.local(at) {
		reserved = p.used >= p.most-p.reserve
		if has >= p.each || reserved && has >= reserveOfOne {
			return nil, false, false
		}
	}
	if p.used >= p.most {
		return nil, false, false
	}
	p.used++
	p.by[at]++
	return sync.OnceFunc(func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.used--
		if p.by[at]--; p.by[at] == 0 {
			delete(p.by, at)
		}
	}), reserved, true
}

// sourceOf is the address by which places are counted: of IPv6 the network, which one host has to itself.
func sourceOf(hostPort string) netip.Addr {
	ap, err := netip.ParseAddrPort(hostPort)
	if err != nil {
		return netip.Addr{}
	}
	at := ap.Addr().Unmap().WithZone("")
	if at.Is6() && !at.IsLoopback() {
		if net, err := at.Prefix(64); err == nil {
			return net.Addr()
		}
	}
	return at
}

// reserve is the key of a mark at requests whose connection has a place of the reserve.
type reserve struct{}

// markReserve is http.Server's ConnContext.
func markReserve(ctx context.Context, c net.Conn) context.Context {
	for {
		switch at := c.(type) {
		case *slotConn:
			return context.WithValue(ctx, reserve{}, at.reserved)
		case *replayConn:
			c = at.Conn
		case interface{ NetConn() net.Conn }:
			c = at.NetConn()
		default:
			return ctx
		}
	}
}

// mustLeave reports whether a request has come by a place of the reserve, and not from a node.
func mustLeave(r *http.Request) bool {
	reserved, _ := r.Context().Value(reserve{}).(bool)
	return reserved && !isNode(r)
}
