package router

import (
	"bufio"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"sync"
	"time"

	"github.com/pires/go-proxyproto"
	"golang.org/x/time/rate"
)

// proxyPatience bounds the wait for a balancer's header: it sends that before anything else.
const proxyPatience = 3 * time.Second

// Limits of what one client's address may do; the zero value limits nothing.
type Limits struct {
	// Balancers are the addresses whose connections begin with a header of the PROXY protocol, version 1 or 2, that
	// names the client (https://www.haproxy.org/download/3.1/doc/proxy-protocol.txt). From others none is taken:
	// anybody could claim to be anybody.
	Balancers []netip.Prefix
	Conns     int // connections at a time
	Rate      int // new connections a second, on average; as many at once
}

// callers counts what comes from each address. The zero value is ready.
type callers struct {
	mu sync.Mutex
	by map[netip.Addr]*caller
}

type caller struct {
	open int
	rate *rate.Limiter
}

// forgetFrom is how many addresses are remembered before those without a connection are forgotten.
const forgetFrom = 4096

// enter counts a connection, if it is within the limits; leave takes it back. The error is for the client.
func (c *callers) enter(from netip.Addr, l Limits) (leave func(), err error) {
	if l.Conns == 0 && l.Rate == 0 {
		return func() {}, nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	k := c.by[from]
	if k == nil {
		c.forget(l)
		k = &caller{rate: rate.NewLimiter(rate.Limit(l.Rate), l.Rate)}
		if c.by == nil {
			c.by = map[netip.Addr]*caller{}
		}
		c.by[from] = k
	}
	if l.Conns > 0 && k.open >= l.Conns {
		return nil,
			fmt.Errorf("%d connections of %s through this Trireme router are open; router.max_conns_per_address allows no more",
				k.open, from)
	}
	if l.Rate > 0 && !k.rate.Allow() {
		return nil,
			fmt.Errorf(
				"more than %d new connections a second from %s to this Trireme router; router.max_conn_rate allows no more", l.Rate,
				from)
	}
	k.open++
	return func() {
		c.mu.Lock()
		k.open--
		c.mu.Unlock()
	}, nil
}

// forget drops addresses that are as if they had never been heard of.
func (c *callers) forget(l Limits) {
	if len(c.by) < forgetFrom {
		return
	}
	for from, k := range c.by {
		if k.open == 0 && k.rate.Tokens() >= float64(l.Rate) {
			delete(c.by, from)
		}
	}
}

// caller is the address that a connection comes from: the other side's, or the one that a balancer names.
func (l Limits) caller(c *net.TCPConn) (netip.AddrPort, error) {
	from := plain(c.RemoteAddr())
	for _, b := range l.Balancers {
		if b.Contains(from.Addr()) {
			return named(c, from)
		}
	}
	return from, nil
}

func plain(a net.Addr) netip.AddrPort {
	if t, ok := a.(*net.TCPAddr); ok {
		p := t.AddrPort()
		return netip.AddrPortFrom(p.Addr().Unmap(), p.Port())
	}
	return netip.AddrPort{}
}

// named reads a balancer's header.
func named(c *net.TCPConn, balancer netip.AddrPort) (netip.AddrPort, error) {
	if err := c.SetReadDeadline(time.Now().Add(proxyPatience)); err != nil {
		return balancer, err
	}
	r := bufio.NewReaderSize(c, 512)
	h, err := proxyproto.Read(r)
	if err != nil {
		return balancer, fmt.Errorf("header of the PROXY protocol from %s: %w", balancer, err)
	}
	if r.Buffered() > 0 {
		return balancer, errors.New("bytes after the PROXY protocol header from " + balancer.String() +
			", before the server's greeting")
	}
	if err := c.SetReadDeadline(time.Time{}); err != nil {
		return balancer, err
	}
	if !h.Command.IsProxy() || !plain(h.SourceAddr).IsValid() {
		return balancer, nil // the balancer's own, a health check
	}
	return plain(h.SourceAddr), nil
}
