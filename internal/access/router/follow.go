package router

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"trireme/internal/mysql/mysqlwire"
)

// follow logs a client in at l's server and carries its commands out until it ends.
func (r *Router) follow(l *link) {
	defer r.forget(l)
	s, through := r.logIn(l)
	r.leaveLogin(l)
	if through {
		l.run(r)
		return
	}
	if s == nil {
		l.abort()
		close(l.done)
		return
	}
	r.carryOut(s)
}

// carryOut carries a session's commands out until it ends.
func (r *Router) carryOut(s *session) {
	s.run()
	_ = s.tcp.Close()
	s.drop()
	if s.split != nil {
		s.turn()
		s.drop()
	}
	r.mu.Lock()
	delete(r.followed, s)
	r.mu.Unlock()
}

// logIn is the connection phase. through: the rest is passed on as bytes.
func (r *Router) logIn(l *link) (s *session, through bool) {
	client, server := mysqlwire.NewConn(l.client, loginMaxPacket), l.wire()
	brief := l.port == &r.stream
	in := &login{client: client, server: server, backend: r.backend(l.target), tls: r.cfg.TLS, strict: brief ||
		r.cfg.waits(), brief: brief, local: isLocal(l.client), spoke: func() { r.loginSpoke(l) }}
	deadline := time.Now().Add(r.cfg.LoginTimeout)
	_, _ = l.client.SetDeadline(deadline), l.server.SetDeadline(deadline)
	ctx, cancel := context.WithDeadline(r.ctx, deadline)
	defer cancel()
	through, err := in.run(ctx)
	if err == nil {
		err = joinConns(l, client, server)
	}
	if err != nil {
		if !errors.Is(err, errLoggedOut) {
			r.cfg.Logger.Debug("router: login", "client", origin(l.from), "node", l.target.Name, "error", err)
			if in.distrusted(err) {
				r.distrusted.Do(func() {
					r.cfg.Logger.Warn("router: a client does not accept this router's certificate; give such clients the CA that issued it, or the router one that they know (router.tls_cert); told once",
						"client", origin(l.from), "error", err)
				})
			}
		}
		return nil, false
	}
	if in.strict && through {
		return nil, false // whose session it is is not known
	}
	if level := r.cfg.level(in.response.User); level.waits() && !brief && !in.portable() {
		refuseLevel(l, level)
		return nil, false
	}
	_, _ = l.client.SetDeadline(time.Time{}), l.server.SetDeadline(time.Time{})
	if !through {
		l.tap = in.tap()
		l.tap.questions = brief && r.cfg.Streams != nil
	} else {
		l.tap = &tap{blind: true}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	follow := !through && !brief && in.portable()
	// One whose server has only changed its role finds that out before its first command.
	if _, linked := r.links[l]; r.closed || !linked || l.cut.Load() && !follow {
		return nil, false
	}
	l.enters = false
	switch {
	case follow:
	case through:
		l.tiedBy = "TLS that ends at the server"
		return nil, true
	case brief:
		l.tiedBy = "the change stream's port"
		return nil, true
	default:
		l.tiedBy = in.ties()
		return nil, true
	}
	in.client, in.server = nil, nil
	s = newSession(r, l, in, l.c, l.s)
	l.session = s
	r.followed[s] = struct{}{}
	r.watch(l)
	return s, false
}

// loginPatience is for how long a planned switchover waits for logins that are under way when it begins to hold and
// whose client has said nothing yet, as health checks do. A client that has answered the server's greeting has work
// under way, and is waited for like a command.
const loginPatience = 200 * time.Millisecond

// enterLogin notes that a client begins to log in; called with mu held, so that no hold comes between.
func (r *Router) enterLogin(l *link) {
	l.enters = true
	if !l.port.readOnly {
		r.logins.Add(1)
		r.met.Store(true)
	}
}

// loginSpoke notes that the client has answered the greeting.
func (r *Router) loginSpoke(l *link) {
	if l.port.readOnly {
		return
	}
	l.spoke = true
	r.active.Add(1)
	r.less(&r.logins)
}

// leaveLogin is the end of what enterLogin began.
func (r *Router) leaveLogin(l *link) {
	switch {
	case l.port.readOnly:
	case l.spoke:
		r.less(&r.active)
	default:
		r.less(&r.logins)
	}
}

// less counts something that was under way out; who waits for Quiet hears of the last.
func (r *Router) less(underWay *atomic.Int64) {
	if underWay.Add(-1) == 0 && r.Quiet() && r.cfg.OnQuiet != nil {
		r.cfg.OnQuiet()
	}
}

// refuseLevel answers the first command of a session that is not followed, whose level cannot be kept. The login's time
// is its limit.
func refuseLevel(l *link, level Level) {
	c := mysqlwire.NewConn(l.c, loginMaxPacket)
	if _, err := c.ReadPacket(); err == nil {
		_ = c.WritePacket(mysqlwire.AppendERR(nil, noLevel(level)))
	}
}

// joinConns takes the connections out of the packet readers, and passes on what those had read too far.
func joinConns(l *link, client, server *mysqlwire.Conn) error {
	c, fromClient, err := client.Detach()
	if err != nil {
		return err
	}
	s, fromServer, err := server.Detach()
	if err != nil {
		return err
	}
	l.c, l.s = c, s
	if _, err := s.Write(fromClient); err != nil {
		return err
	}
	_, err = c.Write(fromServer)
	return err
}

// untie makes a followed session one whose bytes are passed on. It fails when the view has turned against its server
// meanwhile.
func (r *Router) untie(l *link, by string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if l.cut.Load() {
		return false
	}
	delete(r.followed, l.session)
	l.session, l.tiedBy = nil, by
	return true
}

// Quiet says that a planned switchover may close writes: the router holds its read-write sessions, none of those that
// can be held has a command or a transaction under way, and no client is logging in, or those that are have said
// nothing for loginPatience.
func (r *Router) Quiet() bool {
	return r.holding.Load() && r.active.Load() == 0 &&
		(r.logins.Load() == 0 || boottime() >= time.Duration(r.heldAt.Load())+r.patience)
}

// Follows reports whether there may be sessions that a planned switchover can hold: there was one. A client that
// connects for each request has none most of the time.
func (r *Router) Follows() bool { return r.met.Load() }

// awaitRelease waits until new work may begin; false when ctx ends before.
func (r *Router) awaitRelease(ctx context.Context, p *port) bool {
	r.count(p, func(s *PortStats) { s.Held++ })
	defer r.count(p, func(s *PortStats) { s.Held-- })
	for {
		r.mu.Lock()
		changed := r.changed
		r.mu.Unlock()
		if !r.holding.Load() {
			return true
		}
		select {
		case <-ctx.Done():
			return false
		case <-changed:
		}
	}
}

// awaitNews waits for a view, or a hold, other than the one that was counted as seen.
func (r *Router) awaitNews(seen uint64, within time.Duration) bool {
	t := time.NewTimer(within)
	defer t.Stop()
	r.mu.Lock()
	changed := r.changed
	r.mu.Unlock()
	if r.views.Load() != seen {
		return true
	}
	select {
	case <-changed:
		return true
	case <-t.C:
	case <-r.ctx.Done():
	}
	return false
}

func (r *Router) count(p *port, f func(*PortStats)) {
	r.mu.Lock()
	f(&p.stats)
	r.mu.Unlock()
}

// watch has a followed session look at its server as soon as that ends the connection; called with mu held.
func (r *Router) watch(l *link) {
	if r.hangups == nil {
		return
	}
	s := l.session
	unwatch, err := r.hangups.Watch(l.server, func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		if _, found := r.followed[s]; found { // one that is not followed any more must not be rung
			s.ring()
		}
	})
	if err != nil { // rounds find it later
		r.cfg.Logger.Debug("router: a server's end is not waited for", "node", l.target.Name, "error", err)
		return
	}
	l.unwatch = unwatch
}

func (r *Router) hearHangups() {
	if err := r.hangups.Run(); err != nil {
		r.cfg.Logger.Error("router: sessions that their servers end are found by rounds only", "error", err)
	}
}

// roundPause is how long a session may stand whose client has gone while its server works.
const roundPause = 5 * time.Second

// rounds makes idle sessions look at their servers now and then, and servers at clients that have gone.
func (r *Router) rounds() {
	for r.pause(roundPause) {
		r.round()
	}
}

func (r *Router) round() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for s := range r.followed {
		s.ring() // with mu held: one that is not followed any more must not be rung
	}
	for l := range r.links {
		if l.session != nil && l.session.busy.Load() {
			l.passEnd()
		}
	}
}

// passEnd closes the direction to a server for whose answer no client waits any more: mysqld then gives up GET_LOCK and
// SLEEP, and does not interrupt other work. The session meanwhile reads from its server, and not from its client.
func (l *link) passEnd() {
	if l.client.Ended() && l.session.busy.Load() {
		_ = l.server.CloseWrite()
	}
}

// closeSessions ends all followed sessions.
func (r *Router) closeSessions() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for s := range r.followed {
		_ = s.tcp.Close()
	}
}
