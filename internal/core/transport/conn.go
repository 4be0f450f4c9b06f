package transport

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"trireme/internal/base/loop"
	"trireme/internal/base/pki"
)

// conn is a connection. A goroutine dials or accepts it, and says hello; serve gives it to the loop, which alone reads
// and writes it from then on. Its fields belong to the one that has it.
type conn struct {
	t     *Transport
	s     *socket
	tls   *tls.Conn
	r     *frameReader
	w     frameWriter
	user  user
	limit int // bytes in the body of a frame that comes
	// answers: what comes is answered, so nothing is read while answers wait to be taken.
	answers bool
	every   time.Duration // between two pings; 0: none
	pingAt  time.Time     // the next one
	ping    bool          // it is due

	watch *loop.Watch
	timer *loop.Timer

	ended chan struct{} // closed when the loop has done with it
	err   error         // why
	due   bool          // under Transport.dueMu
}

// user makes and takes the frames of a connection, on the loop.
type user interface {
	// handle takes a frame. An error ends the connection.
	handle(kind frameKind, body []byte) error
	// next writes one of the frames that are queued, or a piece of a large one; false: there is none.
	next() (bool, error)
}

// secure does the TLS handshake on a side of a connection.
func (t *Transport) secure(ctx context.Context, raw net.Conn, side func(net.Conn, *tls.Config) *tls.Conn) (*conn,
	error) {
	c := &conn{t: t, s: &socket{Conn: raw}, ended: make(chan struct{})}
	c.tls = side(c.s, t.cfg.TLS())
	if err := c.tls.HandshakeContext(ctx); err != nil {
		if errors.Is(err, pki.ErrForeign) {
			err = fmt.Errorf("%w: %w", ErrForeignCluster, err)
		}
		return nil, fmt.Errorf("TLS: %w", err)
	}
	c.r, c.w = newFrameReader(c.tls), newFrameWriter(c.tls)
	return c, nil
}

// say writes a frame of the greeting.
func (c *conn) say(kind frameKind, body []byte) error {
	return errors.Join(c.w.frame(kind, body), c.w.Flush())
}

// cert is what the other side has shown.
func (c *conn) cert() *x509.Certificate { return c.tls.ConnectionState().PeerCertificates[0] }

// serve has the loop read and write an adopted connection until it ends, at the latest with ctx, and returns why.
func (c *conn) serve(ctx context.Context) error {
	c.t.loop.Do(c.start)
	select {
	case <-c.ended:
	case <-ctx.Done():
		c.close()
		<-c.ended
	}
	return c.err
}

// close ends it soon; any goroutine may call it, once it is adopted.
func (c *conn) close() { c.t.loop.Do(func() { c.end(net.ErrClosed) }) }

// What follows runs on the loop.

func (c *conn) over() bool { return c.err != nil }

func (c *conn) end(err error) {
	if c.over() {
		return
	}
	c.err = err
	c.watch.Remove()
	c.timer.Stop()
	_ = c.s.own.Close()
	close(c.ended)
}

func (c *conn) start() {
	if c.over() {
		return
	}
	var err error
	if c.watch, err = c.t.loop.Watch(c.s.own.FD(), c.ready); err != nil {
		c.end(err)
		return
	}
	c.ping, c.pingAt = c.every > 0, time.Now().Add(c.every)
	c.arm()
	c.turn(true) // what came with the greeting is in the buffers here: epoll does not tell of it
}

// ready is called by the loop.
func (c *conn) ready(r loop.Ready) {
	read := r.Read()
	if c.s.full && r.Write() {
		c.s.full, c.s.room = false, turnBytes
		if err := c.s.push(); err != nil {
			c.end(err)
			return
		}
		if c.answers && !c.s.full {
			read, c.s.heard = true, time.Now() // it was not listened to
		}
	}
	c.turn(read)
}

// turn reads, if it is to, and writes.
func (c *conn) turn(read bool) {
	var err error
	c.s.room = turnBytes
	if read {
		err = c.read()
	}
	if err == nil {
		if err = c.write(); err != nil {
			if said := c.read(); said != nil { // the other side's end says more than a failed write
				err = said
			}
		}
	}
	if err != nil {
		c.end(err)
	}
}

// deaf reports that nothing is read for now.
func (c *conn) deaf() bool { return c.answers && c.s.full }

// read handles the frames that have come.
func (c *conn) read() error {
	c.s.left = turnBytes
	for !c.deaf() {
		kind, body, err := c.r.next(c.limit)
		if err == syscall.EAGAIN {
			break
		}
		if err == nil {
			err = c.user.handle(kind, body)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// write writes what is queued, as long as the kernel takes it and it is this connection's turn.
func (c *conn) write() error {
	for !c.s.full {
		wrote, err := c.user.next()
		if err == nil && !wrote {
			if err = errors.Join(c.w.Flush(), c.s.push()); err == nil {
				break
			}
		}
		if err != nil {
			return err
		}
	}
	c.watch.WantWrite(c.s.full)
	if c.answers {
		c.watch.WantRead(!c.s.full)
	}
	return nil
}

// tick pings, and ends a connection whose other side says nothing, or takes nothing, for too long.
func (c *conn) tick() {
	now, cfg := time.Now(), &c.t.cfg
	silent := func() bool { return !c.deaf() && now.Sub(c.s.heard) >= cfg.IdleLimit }
	stalled := func() bool { return c.s.full && now.Sub(c.s.since) >= cfg.StallLimit }
	if c.every > 0 && !now.Before(c.pingAt) {
		c.ping, c.pingAt = true, now.Add(c.every)
	}
	if silent() || stalled() {
		c.ready(unix.EPOLLIN | unix.EPOLLOUT) // it may be the loop that was held up
	} else {
		c.turn(false)
	}
	switch {
	case silent():
		c.end(c.s.fail("read", os.ErrDeadlineExceeded))
	case stalled():
		c.end(c.s.fail("write", os.ErrDeadlineExceeded))
	}
	if !c.over() {
		c.arm()
	}
}

// arm sets the timer to the next moment at which tick may have something to do. What begins to wait after this has a
// later limit.
func (c *conn) arm() {
	cfg := &c.t.cfg
	wait := cfg.StallLimit
	if c.s.full {
		wait = time.Until(c.s.since.Add(cfg.StallLimit))
	}
	if !c.deaf() {
		wait = min(wait, time.Until(c.s.heard.Add(cfg.IdleLimit)))
	}
	if c.every > 0 {
		wait = min(wait, time.Until(c.pingAt))
	}
	c.timer = c.t.loop.After(wait, c.tick)
}

// mark has what is queued for a connection written at the end of the loop's turn, or once the loop is woken. Any
// goroutine may call it.
func (t *Transport) mark(c *conn) {
	t.dueMu.Lock()
	defer t.dueMu.Unlock()
	if !c.due {
		c.due = true
		t.due = append(t.due, c)
	}
}

// writeDue comes last in each turn of the loop.
func (t *Transport) writeDue() {
	t.dueMu.Lock()
	due := t.due
	t.due, t.dueSpare = t.dueSpare[:0], due
	for _, c := range due {
		c.due = false
	}
	t.dueMu.Unlock()
	for _, c := range due {
		if c.watch != nil && !c.over() { // start and later turns write by themselves
			c.turn(false)
		}
	}
	clear(due)
}
