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

// link is one outgoing stream to a peer: a bounded queue, and a goroutine that keeps a connection for the loop to write
// to.
type link struct {
	p      *peer
	stream stream
	limit  int // bytes queued or being written
	kick   chan struct{}

	mu     sync.Mutex
	conn   *outConn // the present one; nil: none
	bytes  int
	msgs   []*raftpb.Message
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
	p := t.peer(id)
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
	return &link{p: p, stream: s, limit: limit, kick: make(chan struct{}, 1), calls: make(map[uint64]chan answer)}
}

// mark has what is queued written; mu is held, and the loop has to be woken afterwards.
func (l *link) mark() {
	if l.conn != nil {
		l.p.t.mark(l.conn.conn)
	}
}

func (l *link) isConnected() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.conn != nil
}

// enqueue takes a message for the peer; false if there is no connection or no room.
func (l *link) enqueue(m *raftpb.Message) bool {
	n := weight(m)
	l.mu.Lock()
	defer l.mu.Unlock()
	// A single message larger than the limit must pass when it is alone.
	if l.conn == nil || l.bytes > 0 && l.bytes+n > l.limit {
		return false
	}
	l.bytes += n
	l.msgs = append(l.msgs, m)
	l.mark()
	return true
}

func (l *link) setStatus(status []byte) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.status = status
	l.mark()
}

// run keeps the stream open until the peer is removed or the transport closed.
func (l *link) run() {
	backoff := minBackoff
	for l.p.ctx.Err() == nil {
		addr := l.p.address()
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
	l.conn = c
	l.mu.Unlock()
	if l.stream == controlStream {
		l.p.connected(c)
	}
	if l.p.t.cfg.Revoked(c.cert()) != "" { // between hello and now, with nothing for Recheck to see
		c.close()
	}
	lost := c.serve(l.p.ctx)
	l.offline(c, lost)
	if l.stream != controlStream || l.p.ctx.Err() != nil {
		return nil
	}
	return l.p.redial(c.addr, lost)
}

// offline drops what was queued, or being written: by the time there is a connection again, raft wants something else.
func (l *link) offline(c *outConn, lost error) {
	l.mu.Lock()
	l.conn, l.bytes = nil, 0
	msgs, calls := append(c.batch.msgs[c.batch.at:], l.msgs...), l.calls
	if m := c.batch.part.m; m != nil {
		msgs = append(msgs, m)
	}
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

// batch is what a connection writes now. It counts in the queue until all of it is written.
type batch struct {
	msgs   []*raftpb.Message
	status []byte
	frames [][]byte
	bytes  int
	packed bool           // messages are compressed
	at     int            // the next message
	part   encodedMessage // the one before it, unless all of it is written: then m is nil
}

// clockBase makes ping times small and monotonic.
var clockBase = time.Now()

// next writes the next piece of a message, a ping that is due, or the next frame of the batch: requests, messages,
// status. Where it has none left, the next batch is all that is queued by then.
func (c *outConn) next() (bool, error) {
	b := &c.batch
	switch {
	case b.part.m != nil:
		return true, c.piece()
	case c.ping:
		c.ping = false
		var now [8]byte
		binary.LittleEndian.PutUint64(now[:], uint64(time.Since(clockBase)))
		return true, c.w.frame(framePing, now[:])
	case len(b.frames) > 0:
		f := b.frames[0]
		b.frames = b.frames[1:]
		return true, c.w.frame(frameRequest, f)
	case b.at < len(b.msgs):
		m := b.msgs[b.at]
		b.at++
		return true, c.message(m)
	case b.packed:
		b.packed = false
		return true, c.pack.end()
	case b.status != nil:
		status := b.status
		b.status = nil
		return true, c.w.frame(frameStatus, status)
	}
	return c.take(), nil
}

// take gives the room of the batch back, and makes one of what is queued; false: nothing is.
func (c *outConn) take() bool {
	l, b := c.l, &c.batch
	clear(b.msgs)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.bytes -= b.bytes
	*b, l.msgs = batch{msgs: l.msgs, status: l.status, frames: l.frames, bytes: l.bytes}, b.msgs[:0]
	l.status, l.frames = nil, nil
	b.packed = len(b.msgs) > 0 && c.pack.wants(b.bytes)
	return b.bytes > 0 || b.status != nil
}

// message writes a message, of a large one the first piece. It goes into a packed frame if the batch is packed: that is
// for the bulk stream, which has nothing else. What cannot be sent is logged, reported and left out.
func (c *outConn) message(m *raftpb.Message) error {
	e, err := prepare(m)
	if err != nil {
		c.t.cfg.Logger.Error("raft message cannot be sent", "peer", c.l.p.id, "err", err)
		c.t.dropped(m)
		return nil
	}
	c.batch.part = e // until it is written: it is lost with the connection
	if c.batch.packed {
		switch took, err := c.pack.take(&e); {
		case err != nil:
			return err
		case took:
			c.sent(m)
			c.batch.part = encodedMessage{}
			return nil
		}
	}
	return errors.Join(c.w.head(frameRaft, e.size), c.piece())
}

// sent is told that a message is written.
func (c *outConn) sent(m *raftpb.Message) {
	if m.GetType() == raftpb.MsgSnap {
		c.t.cfg.Handler.SnapshotStatus(c.l.p.id, true)
	}
}

// piece writes the next piece of a message.
func (c *outConn) piece() error {
	all, err := c.batch.part.writeTo(c.w, pieceBytes)
	if all {
		c.sent(c.batch.part.m)
		c.batch.part = encodedMessage{}
	}
	return err
}

// handle takes pongs and answers.
func (c *outConn) handle(kind frameKind, body []byte) error {
	switch {
	case kind == framePong && len(body) == 8:
		if c.l.stream == controlStream {
			c.l.p.rtts.add(time.Since(clockBase) - time.Duration(binary.LittleEndian.Uint64(body)))
		}
		return nil
	case kind == frameResponse && c.l.stream == controlStream:
		return c.l.answered(body)
	}
	return fmt.Errorf("%w: frame of kind %d and %d bytes", ErrProtocol, kind, len(body))
}
