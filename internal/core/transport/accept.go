package transport

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"go.etcd.io/raft/v3/raftpb"
)

// inbound is a stream that a peer opened to us.
type inbound struct {
	*conn
	from     uint64
	stream   stream
	instance uint64
	ctx      context.Context // ends with the connection
	hangUp   context.CancelFunc
	unpacker unpacker

	requests  int // that are being handled, or whose answers are not written yet
	mu        sync.Mutex
	responses []response // not written yet
}

type inboundKey struct {
	from   uint64
	stream stream
}

// handshakeLimiter bounds the connections that are not trusted yet, in all and per address, so that one host cannot
// keep the others out.
type handshakeLimiter struct {
	mu    sync.Mutex
	total int
	hosts map[string]int
}

func (b *handshakeLimiter) enter(host string) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.total >= maxHandshakes || b.hosts[host] >= maxHandshakesPerHost {
		return false
	}
	b.total++
	b.hosts[host]++
	return true
}

func (b *handshakeLimiter) leave(host string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.total--
	if b.hosts[host]--; b.hosts[host] == 0 {
		delete(b.hosts, host)
	}
}

// warnLimiter keeps those who are refused, over and over, from filling the log: one warning of each kind about an
// address in a while.
type warnLimiter struct {
	mu sync.Mutex
	at map[warning]time.Time
}

type warning struct {
	host string
	kind error // ErrProtocol, or nil for one that was not let in
}

const (
	complaintPause = 10 * time.Second
	maxComplaints  = 1024 // remembered; beyond it all are forgotten
)

// may reports whether a warning is due, and counts it as given.
func (c *warnLimiter) may(about warning) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if last, ok := c.at[about]; ok && time.Since(last) < complaintPause {
		return false
	}
	if c.at == nil || len(c.at) >= maxComplaints {
		c.at = map[warning]time.Time{}
	}
	c.at[about] = time.Now()
	return true
}

func (t *Transport) acceptLoop() {
	defer t.wg.Done()
	for {
		raw, err := t.ln.Accept()
		if err != nil {
			return
		}
		host, _, _ := net.SplitHostPort(raw.RemoteAddr().String())
		if !t.handshakes.enter(host) {
			raw.Close()
			continue
		}
		t.wg.Add(1)
		at := time.Now()
		go func() {
			defer t.wg.Done()
			t.serveInbound(raw, host, at)
		}()
	}
}

func (t *Transport) serveInbound(raw net.Conn, host string, at time.Time) {
	defer raw.Close()
	in, h, err := t.welcome(raw, at)
	t.handshakes.leave(host)
	if err != nil {
		t.logStranger(host, err)
		return
	}
	ok, learned := t.register(in, h)
	if !ok {
		_ = in.s.own.Close()
		return
	}
	if learned != "" {
		t.cfg.Logger.Info("a node of the cluster that is not a known peer connected", "peer", in.from, "addr", learned)
	}
	err = in.serve(in.ctx)
	t.unregister(in)
	if errors.Is(err, ErrProtocol) && t.warnings.may(warning{host, ErrProtocol}) {
		t.cfg.Logger.Error("peer violates the protocol; connection closed", "peer", in.from, "stream", in.stream.String(),
			"err", err)
	}
}

// logStranger: a connection that came to nothing is worth a warning if somebody meant to be a peer.
func (t *Transport) logStranger(host string, err error) {
	if t.ctx.Err() != nil {
		return
	}
	if (errors.Is(err, ErrForeignCluster) || errors.Is(err, ErrWrongID) || errors.Is(err, ErrVersion) ||
		errors.Is(err, ErrRevoked)) && t.warnings.may(warning{host: host}) {
		t.cfg.Logger.Warn("refused a peer connection", "addr", host, "err", err)
		return
	}
	t.cfg.Logger.Debug("a connection to the peer port came to nothing", "addr", host, "err", err)
}

// welcome does the listener's part of TLS and hello within HandshakeLimit. The connection was accepted at that time.
func (t *Transport) welcome(raw net.Conn, at time.Time) (*inbound, *hello, error) {
	ctx, cancel := context.WithTimeout(t.ctx, t.cfg.HandshakeLimit)
	defer cancel()
	defer context.AfterFunc(ctx, func() { raw.Close() })()
	c, err := t.secure(ctx, raw, tls.Server)
	if err != nil {
		return nil, nil, err
	}
	kind, body, err := c.r.next(maxHelloFrame)
	if err != nil {
		return nil, nil, fmt.Errorf("wait for hello: %w", err)
	}
	if kind != frameHello {
		return nil, nil, fmt.Errorf("%w: frame %d instead of hello", ErrProtocol, kind)
	}
	h, err := decodeHello(body)
	if err != nil {
		return nil, nil, err
	}
	w := t.judge(c.tls, h)
	if w.verdict == accepted && t.isTwin(h, raw, at) {
		w.verdict, w.text = refusedTwin, fmt.Sprintf("another process runs as node %d, and was started before this one",
			h.from)
	}
	if err := c.say(frameWelcome, w.encode()); err != nil {
		return nil, nil, fmt.Errorf("answer hello: %w", err)
	}
	if w.verdict == refusedGeneration {
		t.cfg.Handler.OtherGeneration(h.from, h.generation)
	}
	if err := w.err(); err != nil {
		return nil, nil, err
	}
	return newInbound(c, h), h, c.s.adopt()
}

func newInbound(c *conn, h *hello) *inbound {
	in := &inbound{conn: c, from: h.from, stream: h.stream, instance: h.instance}
	c.user, c.answers, c.limit = in, true, maxControlFrame
	if h.stream == bulkStream {
		c.limit = maxBulkFrame
	}
	return in
}

// judge decides about a hello.
func (t *Transport) judge(tc *tls.Conn, h *hello) *welcome {
	w := &welcome{version: min(h.version, protocolVersion), id: t.cfg.ID, instance: t.instance,
		generation: t.cfg.Generation}
	refuse := func(v verdict, format string, a ...any) *welcome {
		w.verdict, w.text = v, fmt.Sprintf(format, a...)
		return w
	}
	if h.version < protocolMinVersion || h.minVersion > protocolVersion {
		return refuse(refusedVersion, "node %d speaks versions %d to %d, node %d speaks %d to %d",
			h.from, h.minVersion, h.version, t.cfg.ID, protocolMinVersion, protocolVersion)
	}
	if h.cluster != t.cfg.Cluster {
		return refuse(refusedCluster, "node %d says cluster %q, node %d is of %q", h.from, h.cluster, t.cfg.ID, t.cfg.Cluster)
	}
	if h.to != t.cfg.ID {
		return refuse(refusedID, "node %d wants node %d, this is node %d", h.from, h.to, t.cfg.ID)
	}
	if h.from == t.cfg.ID {
		return refuse(refusedID, "two nodes claim id %d", h.from)
	}
	if err := checkIdentity(tc, t.cfg.Cluster, h.from); err != nil {
		return refuse(refusedID, "hello says node %d: %v", h.from, err)
	}
	if !h.generation.same(t.cfg.Generation) { // who it is has been proven
		return refuse(refusedGeneration, "node %d is of generation %s, node %d of generation %s", h.from, h.generation,
			t.cfg.ID, t.cfg.Generation)
	}
	// after the check of the generation: another generation has other members
	if why := t.cfg.Revoked(tc.ConnectionState().PeerCertificates[0]); why != "" {
		return refuse(refusedRevoked, "%s", why)
	}
	return w
}

// register makes in the one stream of its kind from its peer, in place of an older one, and lets our own links to the
// peer dial at once, where it says that it is. A peer that SetPeers did not name is dialed at the address it gave: it
// may lead a membership that this node has not heard of yet. learned is that address. Nothing is logged here, because
// the loop waits for t.mu.
func (t *Transport) register(in *inbound, h *hello) (ok bool, learned string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed {
		return false, ""
	}
	in.ctx, in.hangUp = context.WithCancel(t.ctx)
	key := inboundKey{in.from, in.stream}
	if old := t.inbound[key]; old != nil {
		old.hangUp()
	}
	t.inbound[key] = in
	if t.cfg.Revoked(in.cert()) != "" { // between hello and now, with nothing for Recheck to see
		in.hangUp()
	}
	p := t.peers[in.from]
	addr := dialBack(h.address, in.s.RemoteAddr())
	// with that stream it is forgotten, too
	if p == nil && addr != "" && in.stream == controlStream && t.learnedPeers() < maxLearned {
		p, learned = t.addPeer(in.from, addr, true), addr
	}
	if p != nil {
		if addr != "" {
			p.hear(&p.where.said, addr, true)
		}
		p.dialNow()
	}
	return true, learned
}

// dialBack is the address a peer gave, with the address it came from in place of 0.0.0.0 or ::.
func dialBack(given string, from net.Addr) string {
	host, port, err := net.SplitHostPort(given)
	if err != nil {
		return ""
	}
	if ip := net.ParseIP(host); host != "" && (ip == nil || !ip.IsUnspecified()) {
		return given
	}
	if host, _, err = net.SplitHostPort(from.String()); err != nil {
		return ""
	}
	return net.JoinHostPort(host, port)
}

func (t *Transport) learnedPeers() int {
	n := 0
	for _, p := range t.peers {
		if p.learned {
			n++
		}
	}
	return n
}

func (t *Transport) unregister(in *inbound) {
	defer in.hangUp() // after the unlock: callers that wait for the end find it unregistered
	t.mu.Lock()
	defer t.mu.Unlock()
	key := inboundKey{in.from, in.stream}
	if t.inbound[key] != in {
		return
	}
	delete(t.inbound, key)
	if p := t.peers[in.from]; p != nil && p.learned && in.stream == controlStream {
		delete(t.peers, in.from)
		p.stop()
	}
}

func (in *inbound) handle(kind frameKind, body []byte) error {
	switch {
	case kind == frameRaft:
		return in.handleRaft(body)
	case (kind == frameRelay || kind == frameForward) && in.stream == bulkStream:
		return nil
	case kind == framePacked && in.stream == bulkStream:
		return in.handlePacked(body)
	case kind == framePing && len(body) == 8:
		return in.w.frame(framePong, body)
	case kind == frameStatus && in.stream == controlStream:
		in.t.cfg.Handler.HandleStatus(in.from, body)
		return nil
	case kind == frameRequest && in.stream == controlStream:
		return in.startRequest(body)
	}
	return fmt.Errorf("%w: frame of kind %d and %d bytes on the %s stream", ErrProtocol, kind, len(body), in.stream)
}

// handlePacked handles the frames in a packed one, which are messages between nodes and nothing else.
func (in *inbound) handlePacked(body []byte) error {
	frames, err := in.unpacker.unpack(body)
	in.s.left -= len(frames) // it takes more of the turn than to read them
	for err == nil && len(frames) > 0 {
		var kind frameKind
		if kind, body, frames, err = cutFrame(frames); err != nil {
			break
		}
		if kind != frameRaft && kind != frameRelay && kind != frameForward {
			return fmt.Errorf("%w: frame of kind %d in a packed one", ErrProtocol, kind)
		}
		err = in.handle(kind, body)
	}
	return err
}

func (in *inbound) handleRaft(body []byte) error {
	m, err := decodeRaft(in.from, in.t.cfg.ID, body)
	if err != nil {
		return err
	}
	if isBulk(m.GetType()) != (in.stream == bulkStream) {
		return fmt.Errorf("%w: %s on the %s stream", ErrProtocol, m.GetType(), in.stream)
	}
	in.t.cfg.Handler.HandleRaft(m)
	return nil
}

// decodeRaft reads a raft message that came from one node to another.
func decodeRaft(from, to uint64, body []byte) (*raftpb.Message, error) {
	m, err := decodeMessage(body)
	if err != nil {
		return nil, err
	}
	if m.GetFrom() != from || m.GetTo() != to {
		return nil, fmt.Errorf("%w: %s from %d to %d on a stream from %d", ErrProtocol, m.GetType(), m.GetFrom(), m.GetTo(),
			from)
	}
	if m.GetType() == raftpb.MsgSnap && m.GetSnapshot().GetMetadata() == nil {
		return nil, fmt.Errorf("%w: MsgSnap without a snapshot", ErrProtocol)
	}
	return m, nil
}
