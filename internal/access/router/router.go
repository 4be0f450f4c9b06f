package router

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"trireme/internal/api"
	"trireme/internal/base/nbio"
)

// Router is the ports. Make it with New, then Start; Close when done. All methods may be called from any goroutine.
type Router struct {
	cfg    Config
	rw, ro port
	split  port // its listener is nil without Config.SplitListen
	// splitReads has no listener: it counts the splitting port's connections to followers.
	splitReads port
	stream     port            // its listener is nil without Config.StreamListen
	ctx        context.Context // ends at Close
	cancel     context.CancelFunc
	wg         sync.WaitGroup // accept loops and connections

	mu       sync.Mutex
	view     View
	changed  chan struct{} // closed, and replaced, when view or hold changes
	hold     *hold         // not nil: no new read-write connections
	links    map[*link]struct{}
	followed map[*session]struct{}
	hangups  *nbio.Hangups // of followed sessions' servers; nil: none are waited for
	dials    map[*attempt]struct{}
	clients  int    // connections admitted, held ones included
	full     string // told to one more than Config.MaxConns
	held     int
	closed   bool

	holding atomic.Bool   // followed read-write sessions begin nothing new
	active  atomic.Int64  // of these, those that have begun something
	logins  atomic.Int64  // under way on read-write ports, of sessions that will be followed; they begin with mu held
	met     atomic.Bool   // there was one
	heldAt  atomic.Int64  // boottime when holding became true
	views   atomic.Uint64 // counts changes of view and hold
	told    liveTold
	points  points
	callers callers
	// distrusted: a client that refused the router's certificate was told of.
	distrusted sync.Once
	lags       atomic.Pointer[map[string]time.Duration]
	proofs     atomic.Pointer[map[string]api.MySQLProof]
	warned     map[string]string // what was said last of a node's server
	patience   time.Duration     // loginPatience
}

// port is one of the listeners and its counters, which Router.mu guards.
type port struct {
	readOnly bool
	listener net.Listener
	socket   net.Listener // nil: no unix socket in addition to it
	stats    PortStats
}

// attempt to reach a target.
type attempt struct {
	port   *port
	target Target
	cancel context.CancelFunc
}

// hold is a pause before a planned switchover. from is the leader at that moment.
type hold struct {
	from *Target
	stop func() bool // of the AfterFunc that ends it with its context
}

// New makes a router that knows no target yet.
func New(cfg Config) *Router {
	ctx, cancel := context.WithCancel(context.Background())
	return &Router{
		cfg: cfg.withDefaults(), ro: port{readOnly: true}, splitReads: port{readOnly: true}, stream: port{readOnly: true},
		ctx: ctx, cancel: cancel, changed: make(chan struct{}), links: map[*link]struct{}{}, dials: map[*attempt]struct{}{},
		followed: map[*session]struct{}{}, warned: map[string]string{}, points: points{wanted: make(chan struct{}, 1)},
		patience: loginPatience,
	}
}

// Start begins to listen. Connections are held until SetView names a target.
func (r *Router) Start() error {
	r.bound()
	key := time.AfterFunc(keyAfter, func() { _, _ = routerKey() })
	context.AfterFunc(r.ctx, func() { key.Stop() })
	rw, err := listen(r.cfg.RWListen, "read-write")
	if err != nil {
		return err
	}
	ro, err := listen(r.cfg.ROListen, "read-only")
	if err != nil {
		_ = rw.Close()
		return err
	}
	r.rw.listener, r.ro.listener = rw, ro
	if r.cfg.SplitListen != "" {
		if r.split.listener, err = listen(r.cfg.SplitListen, "splitting"); err != nil {
			r.split.listener = nil
			return errors.Join(err, r.closeListeners())
		}
	}
	if r.cfg.StreamListen != "" {
		r.stream.listener, err = listen(r.cfg.StreamListen, "change stream's")
		if errors.Is(err, syscall.EADDRINUSE) { // no reason to do without a node: the other ports serve the stream, too
			r.cfg.Logger.Error("router: the change stream has no port of its own; free it, or set another router.stream_port, and restart this node", "error", err)
			r.stream.listener = nil
		} else if err != nil {
			r.stream.listener = nil
			return errors.Join(err, r.closeListeners())
		}
	}
	sockets, err := r.listenSockets()
	if err != nil {
		return errors.Join(err, r.closeListeners())
	}
	if r.cfg.Sessions || r.split.listener != nil || sockets {
		if r.hangups, err = nbio.NewHangups(); err != nil {
			return errors.Join(err, r.closeListeners())
		}
		r.wg.Go(r.rounds)
		r.wg.Go(r.hearHangups)
		if o := r.cfg.Outcomes; o != nil {
			r.wg.Go(func() { r.points.run(r.ctx, r.leader, o.Reached) })
		}
	}
	for _, p := range []*port{&r.rw, &r.ro, &r.split, &r.stream} {
		for _, l := range p.listeners() {
			r.wg.Go(func() { r.accept(p, &nbio.Listener{Listener: l, Log: r.cfg.Logger}) })
		}
	}
	return nil
}

// listenSockets reports whether there are any.
func (r *Router) listenSockets() (any bool, err error) {
	for _, s := range []struct {
		p    *port
		path string
	}{{&r.rw, r.cfg.RWSocket}, {&r.ro, r.cfg.ROSocket}, {&r.split, r.cfg.SplitSocket}} {
		if s.path == "" {
			continue
		}
		if s.p.socket, err = listenUnix(s.path); err != nil {
			return any, err
		}
		any = true
	}
	return any, nil
}

// listeners are those that there are.
func (p *port) listeners() (all []net.Listener) {
	for _, l := range []net.Listener{p.listener, p.socket} {
		if l != nil {
			all = append(all, l)
		}
	}
	return all
}

func (r *Router) closeListeners() (err error) {
	for _, p := range []*port{&r.rw, &r.ro, &r.split, &r.stream} {
		for _, l := range p.listeners() {
			err = errors.Join(err, l.Close())
		}
	}
	return err
}

func listen(addr, what string) (net.Listener, error) {
	l, err := net.Listen("tcp", addr)
	if errors.Is(err, syscall.EADDRINUSE) {
		return nil, fmt.Errorf("router: %s port %s is in use; stop what listens there or set another port under [router]: %w",
			what, addr, err)
	}
	if err != nil {
		return nil, fmt.Errorf("router: listening on the %s port: %w", what, err)
	}
	return l, nil
}

// leader is the target of the read-write port; nil: no leader.
func (r *Router) leader() *Target {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.view.RW
}

// RWAddr is where the read-write port listens, once started.
func (r *Router) RWAddr() string { return r.rw.listener.Addr().String() }

// ROAddr is where the read-only port listens, once started.
func (r *Router) ROAddr() string { return r.ro.listener.Addr().String() }

// SplitAddr is where the splitting port listens, once started.
func (r *Router) SplitAddr() string { return r.split.listener.Addr().String() }

// StreamAddr is where the change stream's port listens, once started; empty: it does not.
func (r *Router) StreamAddr() string {
	if r.stream.listener == nil {
		return ""
	}
	return r.stream.listener.Addr().String()
}

// SetView tells where connections go from now on. It returns after every connection that the view does not allow is
// closed.
func (r *Router) SetView(v View) {
	v = v.clone()
	r.mu.Lock()
	if r.closed || r.view.equal(v) {
		r.mu.Unlock()
		return
	}
	r.view = v
	if r.hold != nil && v.RW != nil && (r.hold.from == nil || *r.hold.from != *v.RW) {
		r.endHold()
	}
	// before those who wait are released: they must see that their server is not the leader any more
	cut := r.unlinkForbidden()
	r.announce()
	r.mu.Unlock()

	cutAll(cut)
	var leader Target
	if v.RW != nil {
		leader = *v.RW
	}
	r.cfg.Logger.Info("router: new view", "leader", leader.Name, "epoch", leader.Epoch, "followers", len(v.RO),
		"connections_cut", len(cut))
}

// Hold stops new read-write connections before a planned switchover: they wait as if there were no leader. Open ones
// are not touched. It ends with the first view that has another leader or epoch, with Resume, or with ctx.
func (r *Router) Hold(ctx context.Context) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed || r.hold != nil {
		return
	}
	h := &hold{from: r.view.RW}
	h.stop = context.AfterFunc(ctx, func() { r.release(h) })
	r.hold = h
	r.announce()
}

// Resume ends a Hold whose switchover did not take place.
func (r *Router) Resume() {
	r.mu.Lock()
	h := r.hold
	r.mu.Unlock()
	if h != nil {
		r.release(h)
	}
}

func (r *Router) release(h *hold) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.hold == h {
		r.endHold()
		r.announce()
	}
}

// endHold is called with mu held.
func (r *Router) endHold() {
	r.hold.stop()
	r.hold = nil
}

// announce wakes those who wait for a change; called with mu held.
func (r *Router) announce() {
	holds := r.hold != nil || r.view.RW == nil && r.view.KeepRW
	if holds && !r.holding.Load() {
		r.heldAt.Store(int64(boottime()))
		if r.logins.Load() > 0 && r.cfg.OnQuiet != nil {
			time.AfterFunc(r.patience, r.cfg.OnQuiet)
		}
	}
	r.holding.Store(holds)
	r.views.Add(1)
	close(r.changed)
	r.changed = make(chan struct{})
}

// unlinkForbidden takes out the connections that the present view does not allow, and gives up attempts to make such
// ones: the host of a leader that was cut off does not answer, and who waits for it must not wait longer than for a new
// leader. Called with mu held.
func (r *Router) unlinkForbidden() []forbidden {
	for a := range r.dials {
		if !r.view.allows(a.port.readOnly, a.target) {
			a.cancel()
		}
	}
	var cut []forbidden
	for l := range r.links {
		switch {
		case r.view.allows(l.port.readOnly, l.target):
		case l.enters && l.port.readOnly && !r.closed && r.view.serves(l.target):
			// its server has another role now: the login may end, and then the session continues at another server
			l.turnAgainst()
		default:
			r.unlink(l)
			l.port.stats.Cut++
			l.turnAgainst()
			cut = append(cut, forbidden{l, l.session})
		}
	}
	return cut
}

// unlink forgets a connection, once; called with mu held.
func (r *Router) unlink(l *link) {
	if _, known := r.links[l]; known {
		delete(r.links, l)
		l.port.stats.Open--
		if l.unwatch != nil {
			l.unwatch()
		}
	}
}

// Stats gives the counters.
func (r *Router) Stats() Stats {
	r.mu.Lock()
	defer r.mu.Unlock()
	s := Stats{RW: r.rw.stats, RO: r.ro.stats, Split: r.split.stats, SplitReads: r.splitReads.stats,
		Stream:   r.stream.stats,
		ByTarget: map[string]int{}, TiedBy: map[string]int{}}
	of := map[*port]*PortStats{&r.rw: &s.RW, &r.ro: &s.RO, &r.split: &s.Split, &r.splitReads: &s.SplitReads,
		&r.stream: &s.Stream}
	stats := func(p *port) *PortStats { return of[p] }
	tied := func(p *port, by string) {
		stats(p).Tied++
		if p == &r.rw || p == &r.split {
			s.TiedBy[by]++
		}
	}
	for f := range r.followed {
		if by := f.tiedBy.Load(); by != nil {
			tied(f.port, *by)
		} else {
			stats(f.port).Followed++
		}
	}
	for l := range r.links {
		s.ByTarget[l.target.Name]++
		p := stats(l.port)
		if l.session == nil && l.tiedBy != "" {
			tied(l.port, l.tiedBy)
		}
		p.BytesIn += uint64(l.in.Load())
		p.BytesOut += uint64(l.out.Load())
	}
	return s
}

// Close stops listening, cuts all connections and returns when nothing of the router runs any more.
func (r *Router) Close() error {
	r.mu.Lock()
	if r.closed {
		r.mu.Unlock()
		return nil
	}
	r.closed = true
	r.view = View{}
	if r.hold != nil {
		r.endHold()
	}
	cut := r.unlinkForbidden()
	r.announce()
	r.mu.Unlock()

	r.cancel()
	r.closeSessions()
	_ = r.closeListeners()
	if r.hangups != nil {
		_ = r.hangups.Close()
	}
	cutAll(cut)
	r.wg.Wait()
	return nil
}

// accept admits connections until the listener is closed.
func (r *Router) accept(p *port, l net.Listener) {
	for {
		conn, err := l.Accept()
		if err != nil {
			return
		}
		client := nbio.Wrap(conn).(*nbio.Conn)
		if !r.admit(p) {
			refuse(client, erTooManyConnections, r.full)
			continue
		}
		r.wg.Add(1)
		go func() {
			defer r.wg.Done()
			defer r.leave()
			r.receive(p, client)
		}()
	}
}

// pause waits, false when the router closes meanwhile.
func (r *Router) pause(d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-r.ctx.Done():
		return false
	}
}

func (r *Router) admit(p *port) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	p.stats.Accepted++
	if r.clients >= r.cfg.MaxConns {
		p.stats.Refused++
		return false
	}
	r.clients++
	return true
}

func (r *Router) leave() {
	r.mu.Lock()
	r.clients--
	r.mu.Unlock()
}
