package transport

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"go.etcd.io/raft/v3/raftpb"
)

// link is one outgoing stream to a peer: a bounded queue, and a goroutine that keeps a connection and writes to it.
type link struct {
	p      *peer
	stream stream
	limit  int // bytes queued or being written
	wake   chan struct{}
	kick   chan struct{}

	mu     sync.Mutex
	online bool
	conn   *outConn // the present one, while online
	bytes  int
	msgs   []*raftpb.Message
	spare  []*raftpb.Message
	status []byte // newest status not sent yet
	frames [][]byte
	calls  map[uint64]chan answer
	lastID uint64

	lastFailure string  // owned by run: what was logged last
	failing     Trouble // under mu: of the attempts since the last connection
}

// Trouble is why a peer cannot be reached.
type Trouble struct {
	Tried []Attempt     // the last one at each of its addresses; none: no error
	For   time.Duration // since the first failed attempt in a row

	since time.Time
}

// Attempt to connect that failed.
type Attempt struct {
	Address string
	Err     error
}

// maxTried bounds Trouble.Tried: addresses that a peer has, and had.
const maxTried = 4

// noteAttempt keeps what an attempt to connect came to.
func (l *link) noteAttempt(addr string, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err == nil {
		l.failing = Trouble{}
		return
	}
	if len(l.failing.Tried) == 0 {
		l.failing.since = time.Now()
	}
	tried := slices.DeleteFunc(slices.Clone(l.failing.Tried), func(a Attempt) bool { return a.Address == addr })
	tried = append(tried, Attempt{addr, err})
	l.failing.Tried = tried[max(0, len(tried)-maxTried):]
}

// Trouble tells why a peer cannot be reached, if attempts fail.
func (t *Transport) Trouble(id uint64) Trouble {
	t.mu.RLock()
	p := t.peers[id]
	t.mu.RUnlock()
	if p == nil {
		return Trouble{}
	}
	p.control.mu.Lock()
	defer p.control.mu.Unlock()
	out := p.control.failing
	if len(out.Tried) > 0 {
		out.For = time.Since(out.since)
	}
	return out
}

// answer is the end of a request.
type answer struct {
	body []byte
	err  error
}

// maxCalls bounds the requests waiting for one peer's answer.
const maxCalls = 256

func newLink(p *peer, s stream, limit int) *link {
	return &link{p: p, stream: s, limit: limit, wake: make(chan struct{}, 1), kick: make(chan struct{}, 1),
		calls: make(map[uint64]chan answer)}
}

func (l *link) signal() {
	select {
	case l.wake <- struct{}{}:
	default:
	}
}

func (l *link) isConnected() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.online
}

// enqueue takes a message for the peer; false if there is no connection or no room.
func (l *link) enqueue(m *raftpb.Message) bool {
	n := weight(m)
	l.mu.Lock()
	// A single message larger than the limit must pass when it is alone.
	if !l.online || l.bytes > 0 && l.bytes+n > l.limit {
		l.mu.Unlock()
		return false
	}
	l.bytes += n
	l.msgs = append(l.msgs, m)
	l.mu.Unlock()
	l.signal()
	return true
}

func (l *link) setStatus(status []byte) {
	l.mu.Lock()
	l.status = status
	l.mu.Unlock()
	l.signal()
}

// run keeps the stream open until the peer is removed or the transport closed.
func (l *link) run() {
	backoff := minBackoff
	for l.p.ctx.Err() == nil {
		addr := *l.p.addr.Load()
		c, err := l.dialFresh(addr)
		l.noteAttempt(addr, err)
		if err != nil {
			l.logFailure(err)
			l.p.tryNextAddress(addr)
			if !l.pause(backoff) {
				break
			}
			backoff = min(2*backoff, maxBackoff)
			continue
		}
		l.lastFailure = ""
		backoff = minBackoff
		for c != nil {
			c = l.use(c)
		}
	}
	if l.stream == controlStream && l.p.t.ctx.Err() == nil {
		l.p.down(ErrRemoved)
	}
}

func (l *link) dialFresh(addr string) (*outConn, error) {
	ctx, cancel := context.WithTimeout(l.p.ctx, l.p.t.cfg.HandshakeLimit)
	defer cancel()
	return l.dial(ctx, addr)
}

// use serves a connection to its end, and returns the next one if the redial at once succeeded.
func (l *link) use(c *outConn) *outConn {
	l.mu.Lock()
	l.online, l.conn = true, c
	l.mu.Unlock()
	if l.stream == controlStream {
		l.p.connected(c)
	}
	if l.p.t.cfg.Revoked(c.cert()) != "" { // between hello and now, with nothing for Recheck to see
		c.raw.Close()
	}
	l.signal() // a status may be waiting
	lost := l.serve(c)
	l.offline(lost)
	if l.stream != controlStream || l.p.ctx.Err() != nil {
		return nil
	}
	return l.p.redial(c.addr, lost)
}

// offline drops what was queued: by the time there is a connection again, raft wants something else.
func (l *link) offline(lost error) {
	l.mu.Lock()
	l.online, l.conn, l.bytes = false, nil, 0
	msgs, calls := l.msgs, l.calls
	l.msgs, l.frames, l.calls = nil, nil, make(map[uint64]chan answer)
	l.mu.Unlock()
	for _, ch := range calls {
		ch <- answer{err: fmt.Errorf("%w: %w", ErrNotConnected, lost)}
	}
	if l.p.t.ctx.Err() != nil || l.stream != bulkStream {
		return
	}
	for _, m := range msgs {
		if m.GetType() == raftpb.MsgSnap {
			l.p.t.dropped(m)
		}
	}
	// Whatever the kernel had taken is lost as well.
	l.p.t.cfg.Handler.RaftUnreachable(l.p.id)
}

// logFailure logs a reason once, not at every attempt.
func (l *link) logFailure(err error) {
	if l.p.ctx.Err() != nil {
		return
	}
	log := l.p.t.cfg.Logger
	if text := err.Error(); text != l.lastFailure {
		l.lastFailure = text
		log.Warn("peer cannot be reached; retrying", "peer", l.p.id, "stream", l.stream.String(), "err", err)
		return
	}
	log.Debug("peer cannot be reached", "peer", l.p.id, "stream", l.stream.String(), "err", err)
}

// pause waits before the next attempt, unless kicked; false when the link is to end.
func (l *link) pause(d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-l.p.ctx.Done():
		return false
	case <-l.kick:
	case <-timer.C:
	}
	return true
}

// serve writes what is queued, and pings, until the connection ends. It returns why it ended.
func (l *link) serve(c *outConn) error {
	defer context.AfterFunc(l.p.ctx, func() { c.raw.Close() })()
	readEnd := make(chan error, 1)
	go func() {
		err := l.read(c)
		c.raw.Close() // wakes the writer
		readEnd <- err
	}()
	err := l.write(c, readEnd)
	c.raw.Close()
	if err == nil {
		return <-readEnd
	}
	if rerr := <-readEnd; isReset(rerr) {
		return rerr // the peer's end says more than a failed write
	}
	return err
}

// write returns nil when the reader has ended.
func (l *link) write(c *outConn, readEnd chan error) error {
	interval := l.p.t.cfg.PingInterval
	if l.stream == bulkStream {
		interval *= 4
	}
	ping := time.NewTicker(interval)
	defer ping.Stop()
	pack := newPacker(c, l.compression(), &l.p.t.packed)
	if err := writePing(c.w); err != nil {
		return err
	}
	for {
		select {
		case err := <-readEnd:
			readEnd <- err
			return nil
		case <-ping.C:
			if err := writePing(c.w); err != nil {
				return err
			}
		case <-l.wake:
			if err := l.flush(pack); err != nil {
				return err
			}
		}
	}
}

// clockBase makes ping times small and monotonic.
var clockBase = time.Now()

func writePing(w frameWriter) error {
	var b [8]byte
	binary.LittleEndian.PutUint64(b[:], uint64(time.Since(clockBase)))
	return errors.Join(w.frame(framePing, b[:]), w.Flush())
}

// compression is when this link compresses: a control stream has nothing that would be worth it.
func (l *link) compression() Compression {
	if l.stream == bulkStream {
		return l.p.t.cfg.Compression
	}
	return CompressNever
}

// flush writes everything queued with one flush at the end.
func (l *link) flush(pack *packer) error {
	l.mu.Lock()
	msgs, status, frames, bytes := l.msgs, l.status, l.frames, l.bytes
	l.msgs, l.spare = l.spare[:0], nil
	l.status, l.frames = nil, nil
	l.mu.Unlock()

	var err error
	if pack.wants(bytes) {
		err = l.writePacked(pack, msgs)
	} else {
		err = l.writeAll(pack.c.w, msgs, status, frames)
	}
	if l.stream == bulkStream {
		l.reportSnapshots(msgs, err == nil)
	}
	clear(msgs)
	l.mu.Lock()
	l.bytes -= min(bytes, l.bytes)
	l.spare = msgs[:0]
	l.mu.Unlock()
	return err
}

func (l *link) writeAll(w frameWriter, msgs []*raftpb.Message, status []byte, frames [][]byte) error {
	for _, f := range frames {
		if err := w.frame(frameRequest, f); err != nil {
			return err
		}
	}
	for _, m := range msgs {
		e, err := l.prepare(m)
		if err != nil {
			continue
		}
		if err := w.message(frameRaft, &e); err != nil {
			return err
		}
	}
	if status != nil {
		if err := w.frame(frameStatus, status); err != nil {
			return err
		}
	}
	return w.Flush()
}

// writePacked writes messages in packed frames. It is for the bulk stream, which has nothing else.
func (l *link) writePacked(p *packer, msgs []*raftpb.Message) error {
	if err := p.begin(); err != nil {
		return err
	}
	for _, m := range msgs {
		e, err := l.prepare(m)
		if err != nil {
			continue
		}
		w, err := p.target(e.size)
		if err != nil {
			return err
		}
		if err := errors.Join(w.message(frameRaft, &e), p.took()); err != nil {
			return err
		}
	}
	if err := p.end(); err != nil {
		return err
	}
	return p.c.w.Flush()
}

// prepare makes a queued message ready to be written. What cannot be sent is logged, reported and left out.
func (l *link) prepare(m *raftpb.Message) (encodedMessage, error) {
	e, err := prepare(m)
	if err != nil {
		l.p.t.cfg.Logger.Error("raft message cannot be sent", "peer", l.p.id, "err", err)
		l.p.t.dropped(m)
	}
	return e, err
}

func (l *link) reportSnapshots(msgs []*raftpb.Message, ok bool) {
	for _, m := range msgs {
		if m.GetType() == raftpb.MsgSnap {
			l.p.t.cfg.Handler.SnapshotStatus(l.p.id, ok)
		}
	}
}

// read takes pongs and answers.
func (l *link) read(c *outConn) error {
	for {
		kind, body, err := c.r.next(maxControlFrame)
		if err != nil {
			return err
		}
		switch {
		case kind == framePong && len(body) == 8:
			if l.stream == controlStream {
				l.p.rtts.add(time.Since(clockBase) - time.Duration(binary.LittleEndian.Uint64(body)))
			}
		case kind == frameResponse && l.stream == controlStream:
			if err := l.answered(body); err != nil {
				return err
			}
		default:
			return fmt.Errorf("%w: frame of kind %d and %d bytes", ErrProtocol, kind, len(body))
		}
	}
}
