package transport

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"sync"
	"syscall"
	"time"

	"trireme/internal/base/pki"
)

// peer is another node as this one reaches it: two outgoing links.
type peer struct {
	t       *Transport
	id      uint64
	learned bool // under Transport.mu: it dialed us, SetPeers does not know it yet
	ctx     context.Context
	stop    context.CancelFunc
	where   addresses
	rtts    rtts
	control *link
	bulk    *link

	// Owned by the control link's goroutine.
	up       bool
	instance uint64
}

func newPeer(t *Transport, id uint64, addr string, learned bool) *peer {
	p := &peer{t: t, id: id, learned: learned}
	p.ctx, p.stop = context.WithCancel(t.ctx)
	p.where.used, p.where.told = addr, addr
	p.control = newLink(p, controlStream, t.cfg.MaxControlBytes)
	p.bulk = newLink(p, bulkStream, t.cfg.MaxBulkBytes)
	return p
}

// addresses are where a peer may be. One that moves is known by its certificate, not by its address: the newest word
// counts, and what does not answer is tried in turn with the others.
type addresses struct {
	mu    sync.Mutex
	used  string // one of those below, or the first
	said  string // by itself, in its last hello, over a connection that its certificate vouches for
	told  string // by SetPeers
	known string // by SetKnown: an operator's word
}

// hear takes one of these, and with use has it dialed from now on.
func (p *peer) hear(word *string, addr string, use bool) {
	p.where.mu.Lock()
	defer p.where.mu.Unlock()
	*word = addr
	if use && p.where.used != addr {
		p.where.used = addr
		p.dialNow()
	}
}

func (p *peer) address() string {
	p.where.mu.Lock()
	defer p.where.mu.Unlock()
	return p.where.used
}

// tryNextAddress goes on to the next address after one that did not answer.
func (p *peer) tryNextAddress(failed string) {
	w := &p.where
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.used != failed {
		return // the other link was here already
	}
	var all []string
	for _, a := range []string{w.said, w.told, w.known} {
		if a != "" && !slices.Contains(all, a) {
			all = append(all, a)
		}
	}
	if len(all) > 1 {
		w.used = all[(slices.Index(all, failed)+1)%len(all)]
	}
}

// dialNow ends a pause between two attempts.
func (p *peer) dialNow() {
	for _, l := range []*link{p.control, p.bulk} {
		select {
		case l.kick <- struct{}{}:
		default:
		}
	}
}

// outConn is a connection of a link, adopted, that both sides have agreed on.
type outConn struct {
	*conn
	l        *link
	addr     string // that was dialed
	instance uint64 // of the peer's process
	version  uint16 // of the protocol that both speak
	pack     *packer
	batch    batch
}

// dial opens a stream: TCP, TLS, hello. The certificate must be the peer's.
func (l *link) dial(ctx context.Context, addr string) (*outConn, error) {
	p, cfg := l.p, &l.p.t.cfg
	raw, err := cfg.Dial(ctx, addr)
	if err != nil {
		return nil, fmt.Errorf("dial %s: %w", addr, err)
	}
	c, err := l.greet(ctx, raw)
	if err == nil {
		err = c.s.adopt()
	}
	if err != nil {
		raw.Close()
		return nil, fmt.Errorf("peer %d at %s: %w", p.id, addr, err)
	}
	c.addr = addr
	return c, nil
}

func (l *link) greet(ctx context.Context, raw net.Conn) (*outConn, error) {
	p, cfg := l.p, &l.p.t.cfg
	defer context.AfterFunc(ctx, func() { raw.Close() })()
	sc, err := p.t.secure(ctx, raw, tls.Client)
	if err != nil {
		return nil, err
	}
	if err := checkIdentity(sc.tls, cfg.Cluster, p.id); err != nil {
		return nil, err
	}
	c := &outConn{conn: sc, l: l}
	c.user, c.limit, c.every = c, maxControlFrame, cfg.PingInterval
	compression := CompressNever // a control stream has nothing that would be worth it
	if l.stream == bulkStream {
		c.every *= 4
		compression = cfg.Compression
	}
	revoked := cfg.Revoked(c.cert())
	h := hello{
		version: protocolVersion, minVersion: protocolMinVersion, stream: l.stream,
		from: cfg.ID, to: p.id, instance: p.t.instance, cluster: cfg.Cluster, address: p.t.address,
		generation: cfg.Generation,
	}
	if err := c.say(frameHello, h.encode()); err != nil {
		return nil, fmt.Errorf("say hello: %w", err)
	}
	kind, body, err := c.r.next(maxHelloFrame)
	if err != nil {
		return nil, fmt.Errorf("wait for welcome: %w", err)
	}
	if kind != frameWelcome {
		return nil, fmt.Errorf("%w: frame %d instead of welcome", ErrProtocol, kind)
	}
	w, err := decodeWelcome(body)
	if err != nil {
		return nil, err
	}
	// a program that knows of no generations accepts them all
	if w.verdict == accepted && !w.generation.same(cfg.Generation) {
		w.verdict, w.text = refusedGeneration, fmt.Sprintf("it is of generation %s, this node of generation %s", w.generation,
			cfg.Generation)
	}
	if w.verdict == refusedGeneration {
		cfg.Handler.OtherGeneration(p.id, w.generation)
	}
	if w.verdict != refusedGeneration && revoked != "" {
		return nil, fmt.Errorf("%w: %s", ErrRevoked, revoked)
	}
	if w.verdict == refusedRevoked {
		cfg.ToldRevoked(p.id, w.text)
	}
	if w.verdict == refusedTwin {
		cfg.ToldTwin(p.id, w.text)
	}
	if err := w.err(); err != nil {
		return nil, err
	}
	if w.id != p.id || w.version < protocolMinVersion || w.version > protocolVersion {
		return nil, fmt.Errorf("%w: welcome of node %d, version %d", ErrWrongID, w.id, w.version)
	}
	c.instance, c.version = w.instance, w.version
	c.pack = newPacker(c, compression, &p.t.packed)
	return c, nil
}

// checkIdentity compares the certificate with who the other side must be; id 0 accepts any node of the cluster.
func checkIdentity(tc *tls.Conn, cluster string, id uint64) error {
	who, err := pki.PeerIdentity(tc.ConnectionState())
	if err != nil {
		return fmt.Errorf("%w: %w", ErrForeignCluster, err)
	}
	if who.Cluster != cluster {
		return fmt.Errorf("%w: its certificate is of cluster %q, this is %q", ErrForeignCluster, who.Cluster, cluster)
	}
	if id != 0 && who.ID != id {
		return fmt.Errorf("%w: its certificate is of node %d (%s), node %d is expected", ErrWrongID, who.ID, who.Name, id)
	}
	return nil
}

// connected tells the handler of a new control connection.
func (p *peer) connected(c *outConn) {
	h := p.t.cfg.Handler
	if p.up && p.instance == c.instance {
		return // the connection broke, the process did not
	}
	if p.up {
		h.PeerDown(p.id, &DownError{Peer: p.id, Lost: ErrRestarted})
	}
	p.up, p.instance = true, c.instance
	p.t.cfg.Logger.Info("peer connected", "peer", p.id, "addr", c.addr)
	h.PeerUp(p.id)
}

// redial decides what the end of a control connection means. It returns a new connection, or nil after PeerDown. It
// dials the address of that connection, even if another address was reported since: a refusal at another address would
// not prove a death.
func (p *peer) redial(addr string, lost error) *outConn {
	ctx, cancel := context.WithTimeout(p.ctx, p.t.cfg.RedialLimit)
	defer cancel()
	var err error
	// A dying process closes its connections and its listener one after the other: a new connection may still be accepted
	// and then be reset.
	for range 5 {
		var c *outConn
		if c, err = p.control.dial(ctx, addr); err == nil {
			return c
		}
		if isRefused(err) || !isReset(err) || !sleep(ctx, 2*time.Millisecond) {
			break
		}
	}
	if p.ctx.Err() != nil {
		return nil
	}
	refused := isRefused(err)
	p.down(&DownError{Peer: p.id, Lost: lost, Redial: err, Refused: refused, Alive: refused && p.t.stillDials(p.id)})
	return nil
}

// aliveGrace is how long the end of a dead process's other connections may take to arrive.
const aliveGrace = 100 * time.Millisecond

// stillDials reports whether the peer keeps a control stream to us open, which a dead process does not.
func (t *Transport) stillDials(id uint64) bool {
	t.mu.RLock()
	in := t.inbound[inboundKey{id, controlStream}]
	t.mu.RUnlock()
	if in == nil {
		return false
	}
	timer := time.NewTimer(aliveGrace)
	defer timer.Stop()
	select {
	case <-in.ctx.Done(): // ended, or replaced: then the newer one is what counts
	case <-timer.C:
	}
	t.mu.RLock()
	defer t.mu.RUnlock()
	return t.inbound[inboundKey{id, controlStream}] != nil
}

func (p *peer) down(reason error) {
	if !p.up {
		return
	}
	p.up = false
	p.rtts.reset()
	p.t.cfg.Logger.Info("peer is down", "peer", p.id, "err", reason)
	p.t.cfg.Handler.PeerDown(p.id, reason)
}

func isReset(err error) bool {
	return errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, syscall.ECONNRESET) ||
		errors.Is(err, syscall.EPIPE)
}

// sleep waits for d; false if ctx ended first.
func sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}
