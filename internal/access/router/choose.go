package router

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"time"

	"trireme/internal/base/nbio"
)

// retryPause is how long after a failed attempt a target is tried again when the view has not changed: its mysqld may
// be restarting in place.
const retryPause = 250 * time.Millisecond

// receive finds out who a client is, and serves it if its address is within its limits.
func (r *Router) receive(p *port, client *nbio.Conn) {
	tcp, remote := client.Conn.(*net.TCPConn)
	if !remote {
		r.serve(p, client, netip.AddrPort{})
		return
	}
	from, err := r.cfg.Limits.caller(tcp)
	if err != nil {
		r.cfg.Logger.Debug("router: no connection", "error", err)
		r.refused(p)
		_ = client.Close()
		return
	}
	leave, err := r.callers.enter(from.Addr(), r.cfg.Limits)
	if err != nil {
		r.refused(p)
		refuse(client, erTooManyConnections, err.Error())
		return
	}
	defer leave()
	r.serve(p, client, from)
}

func (r *Router) refused(p *port) {
	r.mu.Lock()
	defer r.mu.Unlock()
	p.stats.Refused++
}

// serve joins one client, who comes from some address, to a target and copies until one side ends.
func (r *Router) serve(p *port, client *nbio.Conn, from netip.AddrPort) {
	ctx, cancel := context.WithTimeout(r.ctx, r.cfg.HoldTimeout)
	l, refusal := r.connect(ctx, p, client, from, nil)
	cancel()
	if l == nil {
		r.refused(p)
		if r.ctx.Err() != nil {
			_ = client.Close()
			return
		}
		refuse(client, refusal.code, refusal.text)
		return
	}
	if r.follows(p, client) {
		r.follow(l)
		return
	}
	l.run(r)
	r.forget(l)
}

// follows reports whether a port's client logs in here, so that its session can be followed.
func (r *Router) follows(p *port, client *nbio.Conn) bool {
	return r.cfg.Sessions || p == &r.split || p == &r.stream || isLocal(client)
}

// forget takes out a link that has ended.
func (r *Router) forget(l *link) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.unlink(l)
	l.port.stats.BytesIn += uint64(l.in.Swap(0))
	l.port.stats.BytesOut += uint64(l.out.Swap(0))
}

type refusal struct {
	code uint16
	text string
}

// connect finds a target, dials it and registers the connection, waiting for views and trying again until ctx ends.
// s is the session that goes on there; nil: a new connection.
func (r *Router) connect(ctx context.Context, p *port, client *nbio.Conn, from netip.AddrPort, s *session) (*link,
	refusal) {
	var tried []Target // in the present view
	shown, sure, done := r.shown(ctx, p)
	defer done()
	for {
		target, found, changed := r.choose(p, tried)
		if found {
			var l *link
			err := shown(target)
			if err == nil {
				l, err = r.join(ctx, p, client, from, target, s)
			}
			if l != nil {
				l.unsure = !sure
				return l, refusal{}
			}
			if err != nil {
				tried = append(tried, target)
				r.cfg.Logger.Debug("router: target not reached", "node", target.Name, "error", err)
			}
			if ctx.Err() == nil {
				continue
			}
		}
		switch r.wait(ctx, p, changed, len(tried) > 0, s == nil) {
		case waitFull:
			return nil, refusal{erTooManyConnections, "Trireme: too many connections wait for a node that can serve them"}
		case waitEnded:
			return nil, r.noTarget(p)
		}
		tried = nil
	}
}

// shown makes what a target has to pass before a connection is led there. On the stream's port that is to show all that
// was committed before: a consumer that comes back compares the position that it was sent, by any node, with its
// server's gtid_executed, and gives up if that lacks any of it. A follower has OwnWritesTimeout, then the leader is
// taken. While no majority says what is committed, any will do, and that is not sure. done must be called in the end.
func (r *Router) shown(ctx context.Context, p *port) (check func(Target) error, sure bool, done func()) {
	pass := func(Target) error { return nil }
	if p != &r.stream || r.cfg.Reads == nil {
		return pass, true, func() {}
	}
	asking, cancel := context.WithTimeout(ctx, r.cfg.HoldTimeout/2)
	index, err := r.cfg.Reads.Barrier(asking)
	cancel()
	if err != nil {
		r.cfg.Logger.Debug("router: a consumer's server may show less than the stream has", "error", err)
		return pass, false, func() {}
	}
	soon, done := context.WithTimeout(ctx, r.cfg.OwnWritesTimeout)
	return func(t Target) error {
		r.mu.Lock()
		leads := r.view.RW != nil && *r.view.RW == t
		r.mu.Unlock()
		if leads {
			return r.cfg.Reads.Applied(ctx, t.Name, index)
		}
		return r.cfg.Reads.Applied(soon, t.Name, index)
	}, true, done
}

// choose picks a target that was not tried yet. Without one, changed is closed when it makes sense to ask again.
func (r *Router) choose(p *port, tried []Target) (t Target, found bool, changed <-chan struct{}) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if p.readOnly {
		t, found = r.leastLoaded(tried)
	}
	if !found && r.view.RW != nil && !slices.Contains(tried, *r.view.RW) && (p.readOnly || r.hold == nil) {
		t, found = *r.view.RW, true
	}
	return t, found, r.changed
}

// leastLoaded is the follower with the fewest connections; called with mu held.
func (r *Router) leastLoaded(tried []Target) (best Target, found bool) {
	load := make(map[Target]int, len(r.view.RO))
	for l := range r.links {
		load[l.target]++
	}
	for _, t := range r.view.RO {
		if !slices.Contains(tried, t) && (!found || load[t] < load[best]) {
			best, found = t, true
		}
	}
	return best, found
}

// join dials the target. It gives nil, nil when the view turned against the target meanwhile.
func (r *Router) join(ctx context.Context, p *port, client *nbio.Conn, from netip.AddrPort, t Target,
	s *session) (*link, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	a := &attempt{port: p, target: t, cancel: cancel}
	r.mu.Lock()
	if !r.view.allows(p.readOnly, t) {
		r.mu.Unlock()
		return nil, nil
	}
	r.dials[a] = struct{}{}
	r.mu.Unlock()
	conn, greeting, err := r.reach(ctx, p, t)
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.dials, a)
	if err != nil && !r.view.allows(p.readOnly, t) {
		return nil, nil // given up
	}
	if err != nil {
		p.stats.DialErrors++
		return nil, err
	}
	if r.closed || !r.view.allows(p.readOnly, t) || !p.readOnly && r.holding.Load() {
		_ = conn.Close()
		return nil, nil
	}
	l := newLink(p, t, client, conn, from)
	l.greeting, l.session = greeting, s
	switch {
	case s != nil:
	case !r.follows(p, client):
		l.tiedBy = `router.sessions = "pass"`
	default:
		r.enterLogin(l)
	}
	r.links[l] = struct{}{}
	p.stats.Open++
	if s != nil {
		r.watch(l)
	}
	return l, nil
}

// maxGreeting is more than a server's first packet, or its first error.
const maxGreeting = 1024

// reach dials a target, and makes sure that the server of a read-write connection is the one that the view means. A
// view may be old, and a restarted mysqld listens at the address of the one before it. So reach waits for the server's
// first words, and then asks the target. By then the connection belongs to one incarnation and is in its list of
// sessions: a later fence cuts it.
func (r *Router) reach(ctx context.Context, p *port, t Target) (*nbio.Conn, []byte, error) {
	dialing, cancel := context.WithTimeout(ctx, r.cfg.DialTimeout)
	defer cancel()
	c, err := new(net.Dialer).DialContext(dialing, "tcp", t.Addr)
	if err != nil {
		return nil, nil, err
	}
	conn := nbio.Wrap(c).(*nbio.Conn)
	if p.readOnly || r.cfg.Confirm == nil {
		return conn, nil, nil
	}
	stop := context.AfterFunc(ctx, func() { _ = conn.SetReadDeadline(time.Unix(1, 0)) })
	greeting := make([]byte, maxGreeting)
	n, err := conn.Read(greeting)
	if err == nil {
		err = r.cfg.Confirm(ctx, t)
	}
	if !stop() && err == nil {
		err = ctx.Err()
	}
	if err != nil {
		_ = conn.Close()
		return nil, nil, err
	}
	return conn, greeting[:n], nil
}

type waited int

const (
	waitAgain waited = iota
	waitEnded
	waitFull
)

// wait holds a connection until the view changes, a failed target may be tried again, or its time is over.
func (r *Router) wait(ctx context.Context, p *port, changed <-chan struct{}, retry, limited bool) waited {
	r.mu.Lock()
	if limited && r.held >= r.cfg.MaxHeld {
		r.mu.Unlock()
		return waitFull
	}
	r.held++
	p.stats.Held++
	r.mu.Unlock()
	defer func() {
		r.mu.Lock()
		r.held--
		p.stats.Held--
		r.mu.Unlock()
	}()
	var again <-chan time.Time
	if retry {
		t := time.NewTimer(retryPause)
		defer t.Stop()
		again = t.C
	}
	select {
	case <-ctx.Done():
		return waitEnded
	case <-changed:
	case <-again:
	}
	return waitAgain
}

// noTarget makes the error for a client for which no target was found in time.
func (r *Router) noTarget(p *port) refusal {
	what := "no leader accepts writes"
	if p.readOnly {
		what = "no node can serve reads"
	}
	text :=
		fmt.Sprintf("Trireme: %s now (waited %v); if a majority of the nodes is up this ends by itself, see `trireme status`",
			what, r.cfg.HoldTimeout)
	return refusal{erOptionPreventsStatement, text}
}
