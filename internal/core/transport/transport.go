package transport

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"syscall"
	"time"

	"go.etcd.io/raft/v3/raftpb"

	"trireme/internal/base/loop"
	"trireme/internal/base/nbio"
)

// Handler gets what peers send. HandleRaft and HandleStatus are called on the loop, for one peer and one stream in
// order, the others from many goroutines.
type Handler interface {
	// HandleRaft takes a raft message, which the handler owns. It must not block.
	HandleRaft(m *raftpb.Message)
	// HandleStatus takes a peer's status broadcast. It must not block.
	HandleStatus(from uint64, payload []byte)
	// HandleRequest answers a request. ctx ends with the requester's limit or its connection.
	HandleRequest(ctx context.Context, from uint64, kind uint8, body []byte) ([]byte, error)
	// PeerUp: a control connection to the peer is there. Must not block.
	PeerUp(id uint64)
	// PeerDown: the connection to the peer is gone, see DownError; ErrRemoved after SetPeers. Alternates with PeerUp.
	// Must not block.
	PeerDown(id uint64, reason error)
	// RaftUnreachable: raft messages to the peer were dropped. Called by Send, too. Must not block.
	RaftUnreachable(id uint64)
	// OtherGeneration: a node, whose certificate is the one of id from, wanted a connection, or answered one, and is of
	// another generation. Must not block.
	OtherGeneration(from uint64, theirs Generation)
	// SnapshotStatus: a MsgSnap was handed to the peer's connection, or was lost. Must not block.
	SnapshotStatus(id uint64, ok bool)
}

// Config is fixed for the life of a Transport, except what TLS returns.
type Config struct {
	ID      uint64 // this node's raft id, as in its certificate
	Cluster string // the cluster's name, as in the certificates
	Listen  string // host:port; port 0 takes a free one
	// Advertise is the address that peers reach this node by; "" means the listener's.
	Advertise string
	// Generation that this node belongs to; the zero value is the first.
	Generation Generation
	// TLS gives the configuration for the next connection, both sides (pki.Bundle.PeerTLS), so that certificates can be
	// replaced.
	TLS func() *tls.Config
	// Revoked says why a certificate of the cluster is not trusted all the same; "": it is. nil: all are. It is asked
	// of every peer, in each hello and by Recheck. ToldRevoked: a peer that is trusted says that of this node's own
	// certificate. Both must not block.
	Revoked     func(cert *x509.Certificate) string
	ToldRevoked func(by uint64, why string)

	// Twin: two processes run with the identity of node from, and the younger one, at addr as far as is known, is
	// refused. ToldTwin: this process is the younger one of two, by what a peer says. Both must not block.
	Twin     func(from uint64, addr string)
	ToldTwin func(by uint64, why string)

	Handler Handler
	Logger  *slog.Logger
	// Loop reads and writes all connections. It is started after New, and runs until Close has returned.
	Loop *loop.Loop
	// Dial opens the TCP connection, a socket; nil means a net.Dialer.
	Dial func(ctx context.Context, addr string) (net.Conn, error)

	// Compression of what this node sends; what it gets it reads either way.
	Compression Compression

	MaxBulkBytes    int           // queued for one peer's bulk stream; 64 MiB
	MaxControlBytes int           // queued for one peer's control stream; 8 MiB
	HandshakeLimit  time.Duration // TCP connect, TLS and hello, each; 3 s
	RedialLimit     time.Duration // the redial that decides about PeerDown; 500 ms
	PingInterval    time.Duration // on the control stream, four times as long on the bulk stream; 500 ms
	IdleLimit       time.Duration // without a byte from the other side; 10 s
	StallLimit      time.Duration // for 256 KiB to be taken by the other side; 10 s
}

const (
	maxHandshakes        = 256 // connections that have not said hello yet
	maxHandshakesPerHost = 32
	maxLearned           = 16 // peers that dialed us and are not in SetPeers
	maxRequestsPerPeer   = 64 // being handled at once, until the answer is written
	maxBackoff           = time.Second
	minBackoff           = 20 * time.Millisecond
)

// Transport is one node's side of all peer links. All methods are safe for concurrent use.
type Transport struct {
	cfg      Config
	ln       net.Listener
	instance uint64
	address  string
	ctx      context.Context
	cancel   context.CancelFunc
	wg       sync.WaitGroup

	handshakes handshakeLimiter
	warnings   warnLimiter
	packed     Packed
	loop       *loop.Loop

	dueMu         sync.Mutex
	due, dueSpare []*conn // see mark

	mu      sync.RWMutex
	closed  bool
	peers   map[uint64]*peer
	known   map[uint64]string // see SetKnown
	inbound map[inboundKey]*inbound
	lives   map[uint64]*lives
}

// New listens and starts to accept. SetPeers tells whom to dial.
func New(cfg Config) (*Transport, error) {
	if err := cfg.setDefaults(); err != nil {
		return nil, err
	}
	ln, err := ListenTCP(cfg.Listen)
	if errors.Is(err, syscall.EADDRINUSE) {
		return nil, fmt.Errorf("peer: port %s is in use; stop what listens there or set another one in [peer] listen: %w",
			cfg.Listen, err)
	}
	if err != nil {
		return nil, fmt.Errorf("listen for peers on %s: %w", cfg.Listen, err)
	}
	t := &Transport{
		cfg:        cfg,
		loop:       cfg.Loop,
		ln:         &nbio.Listener{Listener: ln, Log: cfg.Logger},
		address:    cfg.Advertise,
		handshakes: handshakeLimiter{hosts: make(map[string]int)},
		peers:      make(map[uint64]*peer),
		inbound:    make(map[inboundKey]*inbound),
		lives:      make(map[uint64]*lives),
	}
	if t.address == "" {
		t.address = ln.Addr().String()
	}
	t.instance = newInstance()
	t.ctx, t.cancel = context.WithCancel(context.Background())
	t.loop.Last(t.writeDue)
	t.wg.Add(1)
	go t.acceptLoop()
	return t, nil
}

func (c *Config) setDefaults() error {
	if c.ID == 0 || c.Cluster == "" || len(c.Cluster) > 255 || c.Handler == nil || c.TLS == nil || c.Loop == nil ||
		len(c.Advertise) > 512 {
		return errors.New("transport: ID, Cluster, TLS, Handler and Loop are required")
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	c.Logger = c.Logger.With("node", c.ID)
	def(&c.Generation.Number, 1)
	if len(c.Generation.Claim) > maxClaim {
		return fmt.Errorf("transport: a claim of %d bytes, at most %d", len(c.Generation.Claim), maxClaim)
	}
	def(&c.MaxBulkBytes, 64<<20)
	def(&c.MaxControlBytes, 8<<20)
	def(&c.HandshakeLimit, 3*time.Second)
	def(&c.RedialLimit, 500*time.Millisecond)
	def(&c.PingInterval, 500*time.Millisecond)
	def(&c.IdleLimit, 10*time.Second)
	def(&c.StallLimit, 10*time.Second)
	if c.Dial == nil {
		c.Dial = DialTCP
	}
	if c.Revoked == nil {
		c.Revoked = func(*x509.Certificate) string { return "" }
	}
	if c.ToldRevoked == nil {
		c.ToldRevoked = func(uint64, string) {}
	}
	if c.Twin == nil {
		c.Twin = func(uint64, string) {}
	}
	if c.ToldTwin == nil {
		c.ToldTwin = func(uint64, string) {}
	}
	return nil
}

func def[T comparable](p *T, v T) {
	var zero T
	if *p == zero {
		*p = v
	}
}

// Packed counts what was compressed, to all peers.
func (t *Transport) Packed() *Packed { return &t.packed }

// Addr is where this node listens.
func (t *Transport) Addr() string { return t.ln.Addr().String() }

// Close ends all connections and waits for all goroutines; a HandleRequest under way gets a cancelled ctx. No method of
// the Handler is called after it returns.
func (t *Transport) Close() error {
	t.mu.Lock()
	if t.closed {
		t.mu.Unlock()
		return ErrClosed
	}
	t.closed = true
	t.cancel()
	t.mu.Unlock()
	err := t.ln.Close()
	t.wg.Wait()
	return err
}

// SetPeers replaces the peers to dial: raft id to address. This node's own id is left out. Peers that go are told of
// with PeerDown(ErrRemoved), if they were up, and the streams that they opened to us end: they open new ones, and as
// strangers are told what has become of them.
func (t *Transport) SetPeers(addrs map[uint64]string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed {
		return
	}
	for id, p := range t.peers {
		if _, keep := addrs[id]; !keep && !p.learned {
			delete(t.peers, id)
			p.stop()
			for key, in := range t.inbound {
				if key.from == id {
					in.hangUp()
				}
			}
		}
	}
	for id, addr := range addrs {
		if id == t.cfg.ID {
			continue
		}
		if p := t.peers[id]; p != nil {
			p.learned = false
			p.hear(&p.where.told, addr, p.where.told != addr) // which is written here only
			continue
		}
		t.addPeer(id, addr, false)
	}
}

// SetKnown gives addresses to try besides those of SetPeers: raft id to address. Peers may have moved while this node
// did not hear of it.
func (t *Transport) SetKnown(addrs map[uint64]string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.known = addrs
	for id, p := range t.peers {
		p.hear(&p.where.known, addrs[id], false)
	}
}

// Recheck ends the connections whose certificates Config.Revoked does not trust any more.
func (t *Transport) Recheck() {
	t.mu.RLock()
	defer t.mu.RUnlock()
	for _, in := range t.inbound {
		if t.cfg.Revoked(in.cert()) != "" {
			in.hangUp()
		}
	}
	for _, p := range t.peers {
		for _, l := range []*link{p.control, p.bulk} {
			l.mu.Lock()
			if l.conn != nil && t.cfg.Revoked(l.conn.cert()) != "" {
				l.conn.close()
			}
			l.mu.Unlock()
		}
	}
}

// addPeer starts to dial; t.mu is held.
func (t *Transport) addPeer(id uint64, addr string, learned bool) *peer {
	p := newPeer(t, id, addr, learned)
	p.where.known = t.known[id]
	t.peers[id] = p
	t.wg.Add(2)
	for _, l := range []*link{p.control, p.bulk} {
		go func() {
			defer t.wg.Done()
			l.run()
		}()
	}
	return p
}

func (t *Transport) peer(id uint64) *peer {
	t.mu.RLock()
	defer t.mu.RUnlock()
	return t.peers[id]
}

// Send queues raft messages for the peers named in them and returns at once. All that is queued on the loop, in one
// turn, is written at the end of that turn, before the loop carries out a job. Messages that cannot be queued are
// dropped, and RaftUnreachable is called. The messages must not change any more.
func (t *Transport) Send(msgs []*raftpb.Message) {
	defer t.loop.Wake()
	for _, m := range msgs {
		p := t.peer(m.GetTo())
		if p == nil {
			t.dropped(m)
			continue
		}
		l := p.control
		if isBulk(m.GetType()) {
			l = p.bulk
		}
		if !l.enqueue(m) {
			t.dropped(m)
		}
	}
}

// dropped tells raft about a message that will not arrive. Only those that raft counts on are worth telling.
func (t *Transport) dropped(m *raftpb.Message) {
	switch m.GetType() {
	case raftpb.MsgSnap:
		t.cfg.Handler.SnapshotStatus(m.GetTo(), false)
	case raftpb.MsgApp:
		t.cfg.Handler.RaftUnreachable(m.GetTo())
	}
}

// Broadcast sends a status to every peer. A peer that has not been sent the previous one yet gets this one only; one
// that is not connected gets it once it is. At most MaxRequestBytes; status must not change any more.
func (t *Transport) Broadcast(status []byte) {
	if len(status) > MaxRequestBytes {
		t.cfg.Logger.Error("status broadcast is too large and was not sent", "bytes", len(status))
		return
	}
	t.mu.RLock()
	defer t.mu.RUnlock()
	for _, p := range t.peers {
		p.control.setStatus(status)
	}
	t.loop.Wake()
}

// Request asks a peer and waits for the answer. Errors: ErrUnknownPeer, ErrNotConnected, ErrBusy, ErrTooLarge,
// ErrClosed, ctx's error, or *RemoteError. After ErrNotConnected and ctx's error the peer may have handled it all the
// same.
func (t *Transport) Request(ctx context.Context, to uint64, kind uint8, body []byte) ([]byte, error) {
	if len(body) > MaxRequestBytes {
		return nil, fmt.Errorf("%w: %d bytes to peer %d", ErrTooLarge, len(body), to)
	}
	p := t.peer(to)
	if p == nil {
		return nil, fmt.Errorf("%w: %d", ErrUnknownPeer, to)
	}
	return p.control.request(ctx, kind, body)
}

// Connected reports whether the control stream to a peer is up.
func (t *Transport) Connected(id uint64) bool {
	p := t.peer(id)
	return p != nil && p.control.isConnected()
}
