package vip

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"slices"
	"sync"
	"time"
)

const (
	lifetime      = 5 * time.Second // of a bound address, whole seconds
	renewInterval = time.Second
	retryInterval = time.Second            // after a conflict, or without an interface
	askInterval   = 5 * time.Millisecond   // while May says no
	askedLately   = 2 * time.Second        // for so long no other host is expected to have taken the address
	probes        = 3                      // RFC 5227 §2.1.1, which spreads them over 3 s: too long for a failover
	probePause    = 30 * time.Millisecond  // an owner's kernel answers within a millisecond
	defendPause   = 100 * time.Millisecond // between two defences
	maxReport     = 20 * time.Second       // between two reports of the same conflict
)

// announceAt are the moments, counted from the binding, at which the network is told: a switch or a host may lose one.
var announceAt = []time.Duration{0, 50 * time.Millisecond, 200 * time.Millisecond, time.Second, 3 * time.Second,
	10 * time.Second}

// Config of a Manager. Functions are called by goroutines of the Manager, and must not call it.
type Config struct {
	Addresses []netip.Prefix // that may ever be wanted; the prefix length names the subnet
	Interface string         // empty: the one with an address of the subnet
	// May reports whether an address may be here now. It is asked right before each binding and each renewal, so that a
	// daemon that was stopped meanwhile does not take up what others have.
	May func(netip.Addr) bool
	// Member returns the node that a MAC belongs to, empty: no node. An address is taken over only from a member.
	Member func(net.HardwareAddr) string
	// Moved is told of each binding and each release.
	Moved  func(Move)
	Logger *slog.Logger
}

// Move is an address that has come or gone.
type Move struct {
	Addr      netip.Addr
	Held      bool
	Interface string
	From      string // the member that still answered for it; empty: none did
}

// State of an address on this host.
type State struct {
	Prefix    netip.Prefix
	Held      bool
	Interface string // that it is on, or would be; empty: no interface
	MAC       string // of that
	Problem   string // why it is wanted and not held
}

// Manager holds addresses. Its methods may be called by any goroutine.
type Manager struct {
	cfg Config

	mu      sync.Mutex // held while an address is bound or removed
	holders map[netip.Addr]*holder
	idle    map[netip.Addr]State // of those that are not wanted, as found at the start
	closed  bool
	running sync.WaitGroup
}

// holder is one wanted address. mu of the Manager guards it.
type holder struct {
	state State
	// it may be on the interface, also when it does not count as held: a renewal that failed leaves it there to run out
	bound  bool
	ctx    context.Context
	cancel context.CancelFunc
}

// New removes the addresses that an earlier life of this daemon has left. It starts even if some cannot be removed.
func New(cfg Config) *Manager {
	m := &Manager{cfg: cfg, holders: map[netip.Addr]*holder{}, idle: map[netip.Addr]State{}}
	left, err := remove(m.addrs())
	if err != nil {
		cfg.Logger.Warn("virtual addresses that an earlier daemon may have left cannot be removed", "err", err)
	}
	for _, a := range left {
		cfg.Logger.Warn("removed a virtual address that an earlier daemon had left", "address", a)
	}
	for _, p := range cfg.Addresses {
		s := State{Prefix: p}
		l, err := find(p, cfg.Interface, cfg.Addresses)
		if err != nil {
			cfg.Logger.Warn("a virtual address has no interface on this host", "address", p.Addr(), "err", err)
		} else {
			s.Interface, s.MAC = l.name, l.mac.String()
		}
		if err := checkOwn(p.Addr()); err != nil {
			cfg.Logger.Error("a virtual address is one of this host's own", "address", p.Addr(), "err", err)
		}
		m.idle[p.Addr()] = s
	}
	return m
}

func (m *Manager) addrs() []netip.Addr {
	var out []netip.Addr
	for _, p := range m.cfg.Addresses {
		out = append(out, p.Addr())
	}
	return out
}

// Want says which addresses should be here: it begins to acquire those that are new, and releases the others before it
// returns. Those that may not be here yet are made ready: what is left to do then is to bind.
func (m *Manager) Want(addrs []netip.Addr) {
	m.mu.Lock()
	if m.closed {
		m.mu.Unlock()
		return
	}
	for _, p := range m.cfg.Addresses {
		if a := p.Addr(); m.holders[a] == nil && slices.Contains(addrs, a) {
			h := &holder{state: m.idle[a]}
			h.ctx, h.cancel = context.WithCancel(context.Background())
			m.holders[a] = h
			m.running.Go(func() { m.hold(h) })
		}
	}
	var drop []netip.Addr
	for a := range m.holders {
		if !slices.Contains(addrs, a) {
			drop = append(drop, a)
		}
	}
	m.mu.Unlock()
	if len(drop) > 0 {
		m.Release(drop)
	}
}

// Release resets the connections to addresses and removes them. They are gone when it returns, and come back only by
// Want.
func (m *Manager) Release(addrs []netip.Addr) {
	m.mu.Lock()
	var bound []netip.Addr
	var moves []Move
	for _, a := range addrs {
		h := m.holders[a]
		if h == nil {
			continue
		}
		h.cancel()
		delete(m.holders, a)
		if h.bound {
			bound = append(bound, a)
		}
		if h.state.Held {
			moves = append(moves, Move{Addr: a, Interface: h.state.Interface})
		}
	}
	var err error
	if len(bound) > 0 {
		err = Remove(bound)
	}
	m.mu.Unlock()
	if err != nil {
		m.cfg.Logger.Error("releasing virtual addresses", "err", err)
	}
	for _, mv := range moves {
		m.cfg.Logger.Info("virtual address released", "address", mv.Addr, "interface", mv.Interface)
		m.cfg.Moved(mv)
	}
}

// Close releases everything and waits for the Manager's goroutines.
func (m *Manager) Close() {
	m.mu.Lock()
	m.closed = true
	m.mu.Unlock()
	m.Release(m.addrs())
	m.running.Wait()
}

// States of all addresses, in the order of the configuration.
func (m *Manager) States() []State {
	m.mu.Lock()
	defer m.mu.Unlock()
	var out []State
	for _, p := range m.cfg.Addresses {
		s := m.idle[p.Addr()]
		if h := m.holders[p.Addr()]; h != nil {
			s = h.state
		}
		out = append(out, s)
	}
	return out
}

// hold acquires an address and keeps it until h is released.
func (m *Manager) hold(h *holder) {
	for h.ctx.Err() == nil {
		err := m.acquire(h)
		if err == nil || h.ctx.Err() != nil {
			continue
		}
		m.mu.Lock()
		again := h.state.Problem == err.Error()
		h.state.Problem = err.Error()
		m.mu.Unlock()
		if !again {
			m.cfg.Logger.Error("virtual address cannot be held; trying again", "address", h.state.Prefix.Addr(), "err", err)
		}
		pause(h.ctx, retryInterval)
	}
}

// acquire returns when the address must be acquired again, because it was released or lost.
func (m *Manager) acquire(h *holder) error {
	a := h.state.Prefix.Addr()
	l, err := find(h.state.Prefix, m.cfg.Interface, m.cfg.Addresses)
	if err != nil {
		return err
	}
	if err := checkOwn(a); err != nil {
		return err
	}
	var w *wire
	if l.mac != nil {
		if w, err = openWire(l, a); err != nil {
			return err
		}
		defer w.close()
	}
	owner, err := ask(h.ctx, w, l, a)
	if err != nil {
		return err
	}
	from := ""
	if owner != nil {
		if from = m.cfg.Member(owner); from == "" {
			return fmt.Errorf("%s is in use by a host with the MAC %s, which is no node of this cluster; take it away there, or configure another one", a, owner)
		}
	}
	if bound, err := m.bindIfMay(h, l); err != nil || !bound {
		return err
	}
	m.cfg.Logger.Info("virtual address bound", "address", a, "interface", l.name, "mac", l.mac.String(), "from", from)
	ctx, cancel := context.WithCancel(h.ctx)
	done := make(chan struct{})
	m.running.Go(func() { defer close(done); m.announce(ctx, h.state.Prefix.Addr(), w, l, owner) })
	defer func() { cancel(); <-done }()
	m.cfg.Moved(Move{Addr: a, Held: true, Interface: l.name, From: from})
	return m.renew(h, l)
}

// bindIfMay waits until the address may be here, and binds it. bound is false if that took so long that the other hosts
// must be asked again.
func (m *Manager) bindIfMay(h *holder, l link) (bound bool, err error) {
	for asked := time.Now(); h.ctx.Err() == nil && time.Since(asked) < askedLately; pause(h.ctx, askInterval) {
		if bound, err = m.bindNow(h, l); bound || err != nil {
			return bound, err
		}
	}
	return false, nil
}

func (m *Manager) bindNow(h *holder, l link) (bound bool, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	a := h.state.Prefix.Addr()
	if h.ctx.Err() != nil || !m.cfg.May(a) {
		return false, nil
	}
	h.bound = true
	if err := bind(l, a); err != nil {
		return false, err
	}
	h.state.Held, h.state.Problem, h.state.Interface, h.state.MAC = true, "", l.name, l.mac.String()
	return true, nil
}

// renew keeps a bound address for as long as it may be here. When it may not it is left to run out, unless it is
// released before.
func (m *Manager) renew(h *holder, l link) error {
	for {
		pause(h.ctx, renewInterval)
		m.mu.Lock()
		if h.ctx.Err() != nil {
			m.mu.Unlock()
			return nil
		}
		var err error
		if a := h.state.Prefix.Addr(); m.cfg.May(a) {
			err = bind(l, a)
		}
		if err != nil {
			h.state.Held = false
		}
		m.mu.Unlock()
		if err != nil {
			return err
		}
	}
}

// ask probes for an address; nil: no host has it. w is nil if there is no host to ask.
func ask(ctx context.Context, w *wire, l link, a netip.Addr) (net.HardwareAddr, error) {
	if w == nil {
		return nil, nil
	}
	for range probes {
		if err := w.send(probe(l.mac, a)); err != nil {
			return nil, fmt.Errorf("asking on %s who has %s: %w", l.name, a, err)
		}
		owner, err := w.claimed(a, l.mac, probePause)
		if err == nil {
			return owner, nil
		}
		if !errors.Is(err, os.ErrDeadlineExceeded) {
			return nil, fmt.Errorf("asking on %s who has %s: %w", l.name, a, err)
		}
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
	}
	return nil, nil
}

// announce tells the network, and the one who answered for the address before, that it is here; and again whenever
// somebody else claims it, since a host that does that has deceived all others.
func (m *Manager) announce(ctx context.Context, a netip.Addr, w *wire, l link, before net.HardwareAddr) {
	if w == nil {
		return
	}
	defer context.AfterFunc(ctx, w.close)() // ends a wait
	began, next := time.Now(), 0
	var reported time.Time
	for ctx.Err() == nil {
		if next < len(announceAt) && time.Since(began) >= announceAt[next] {
			m.tell(w, l, a, before)
			next++
			continue
		}
		wait := renewInterval
		if next < len(announceAt) {
			wait = min(wait, announceAt[next]-time.Since(began))
		}
		other, err := w.claimed(a, l.mac, wait)
		if errors.Is(err, os.ErrDeadlineExceeded) {
			continue
		}
		if err != nil {
			pause(ctx, renewInterval) // the interface is down, or this is over
			continue
		}
		if ctx.Err() != nil || !m.cfg.May(a) {
			continue // another node has it, rightly
		}
		if time.Since(reported) > maxReport {
			reported = time.Now()
			m.cfg.Logger.Warn("another host claims a virtual address; announcing it again", "address", a, "mac", other.String(),
				"node", m.cfg.Member(other))
		}
		m.tell(w, l, a, other)
		pause(ctx, defendPause)
	}
}

// tell announces an address to all and to one.
func (m *Manager) tell(w *wire, l link, a netip.Addr, one net.HardwareAddr) {
	frames := announcements(nil, l.mac, a)
	if one != nil {
		frames = append(frames, announcements(one, l.mac, a)...)
	}
	if err := w.send(frames...); err != nil {
		m.cfg.Logger.Warn("announcing a virtual address", "address", a, "interface", l.name, "err", err)
	}
}

func pause(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
	case <-t.C:
	}
}
