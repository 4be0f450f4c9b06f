// Package nbio reads and writes sockets without telling Go's scheduler about each system call.
//
// A system call through package syscall is announced to the scheduler, since it might block: entersyscall wakes the
// runtime's monitor thread when the process was idle, and that thread then naps and looks around until everything is
// idle again. A node that carries one commit after the other is woken some five times per commit, and each time paid
// two thread switches for it: a fifth of the leader's CPU per commit (perf, one session). A socket in non-blocking mode
// never blocks, so the announcement buys nothing. Waiting itself is the runtime poller's, as ever.
package nbio

import (
	"io"
	"net"
	"os"
	"sync"
	"syscall"
)

// largest is the most that one unannounced system call copies, bytes: while it runs, no other goroutine of its thread
// does.
const largest = 64 << 10

// Conn is a TCP or unix connection. Deadlines work as on the connection below. At most one goroutine may read at a
// time.
type Conn struct {
	net.Conn
	raw syscall.RawConn

	in, out attempt
	turn    sync.Mutex // whose it is uses out
}

// attempt is one direction; its fields are used by one goroutine at a time.
type attempt struct {
	buf  []byte
	n    int
	err  syscall.Errno
	try  func(fd uintptr) bool
	kind kind
	byte [1]byte // to peek into
}

// kind of a system call.
type kind byte

const (
	reading kind = iota
	peeking      // without waiting
	writing
	writingOnce // without waiting
)

// Wrap makes a Conn of nc, or returns nc as it is if it is no socket.
func Wrap(nc net.Conn) net.Conn {
	sc, ok := nc.(syscall.Conn)
	if !ok {
		return nc
	}
	raw, err := sc.SyscallConn()
	if err != nil {
		return nc
	}
	c := &Conn{Conn: nc, raw: raw}
	c.in.try, c.out.try = c.in.call, c.out.call
	return c
}

// call makes the system call; false means that the socket is not ready and the caller is to wait.
func (a *attempt) call(fd uintptr) bool {
	for {
		var n uintptr
		var errno syscall.Errno
		switch a.kind {
		case reading:
			n, errno = read(fd, a.buf)
		case peeking:
			n, errno = peek(fd, &a.byte)
		default:
			n, errno = write(fd, a.buf)
		}
		switch errno {
		case 0:
			a.n, a.err = int(n), 0
			return true
		case syscall.EINTR:
		case syscall.EAGAIN:
			a.n, a.err = 0, errno
			return a.kind == peeking || a.kind == writingOnce
		default:
			a.n, a.err = 0, errno
			return true
		}
	}
}

// Read implements io.Reader.
func (c *Conn) Read(p []byte) (int, error) {
	if len(p) == 0 {
		return 0, nil
	}
	a := &c.in
	a.buf, a.kind = p[:min(len(p), largest)], reading
	err := c.raw.Read(a.try)
	a.buf = nil
	switch {
	case err != nil:
		return 0, err
	case a.err != 0:
		return 0, c.fail("read", a.err)
	case a.n == 0:
		return 0, io.EOF
	}
	return a.n, nil
}

// Peek looks at the first byte that Read would return, without waiting or consuming it: n is 1, or 0 without an error
// if the other side has ended. While there is nothing to read the error is EAGAIN. Only a caller that may read may call
// it.
func (c *Conn) Peek() (n int, err error) {
	c.in.kind = peeking
	err = c.raw.Read(c.in.try)
	switch {
	case err != nil:
		return 0, err
	case c.in.err != 0:
		return 0, c.in.err
	}
	return c.in.n, nil
}

// Ended reports whether the other side has ended, and all that it has said was read. Any goroutine may ask, also while
// another one reads.
func (c *Conn) Ended() bool {
	a := attempt{kind: peeking}
	if err := c.raw.Control(func(fd uintptr) { a.call(fd) }); err != nil {
		return false
	}
	return a.n == 0 && a.err == 0 || a.err == syscall.ECONNRESET
}

// ReadBy has f make the read by itself, and call it again when there is something to read, as long as it returns false.
// f must not wait.
func (c *Conn) ReadBy(f func(fd uintptr) (done bool)) error { return c.raw.Read(f) }

// Read is read(2) of a socket that does not block, at most 64 KiB.
func Read(fd uintptr, p []byte) (int, error) { return once(fd, attempt{buf: p}) }

// Write is write(2) of a socket that does not block, at most 64 KiB.
func Write(fd uintptr, p []byte) (int, error) { return once(fd, attempt{buf: p, kind: writing}) }

func once(fd uintptr, a attempt) (int, error) {
	a.buf = a.buf[:min(len(a.buf), largest)]
	if a.call(fd); a.err != 0 {
		return 0, a.err
	}
	return a.n, nil
}

// CloseWrite ends what is said; the other side may go on.
func (c *Conn) CloseWrite() error { return c.Conn.(interface{ CloseWrite() error }).CloseWrite() }

// Write implements io.Writer.
func (c *Conn) Write(p []byte) (int, error) {
	c.turn.Lock()
	defer c.turn.Unlock()
	done := 0
	for done < len(p) {
		n, err := c.write(p[done:], writing)
		done += n
		if err != nil {
			return done, err
		}
	}
	return done, nil
}

// TryWrite writes what the socket takes at once, perhaps nothing, and never waits, nor for another goroutine's Write.
func (c *Conn) TryWrite(p []byte) (int, error) {
	if len(p) == 0 || !c.turn.TryLock() {
		return 0, nil
	}
	defer c.turn.Unlock()
	return c.write(p, writingOnce)
}

func (c *Conn) write(p []byte, kind kind) (int, error) {
	a := &c.out
	a.buf, a.kind = p[:min(len(p), largest)], kind
	err := c.raw.Write(a.try)
	a.buf = nil
	switch {
	case err != nil:
		return 0, err
	case a.err == syscall.EAGAIN:
		return 0, nil
	case a.err != 0:
		return 0, c.fail("write", a.err)
	}
	return a.n, nil
}

func (c *Conn) fail(op string, errno syscall.Errno) error {
	return &net.OpError{Op: op, Net: c.LocalAddr().Network(), Source: c.LocalAddr(), Addr: c.RemoteAddr(),
		Err: os.NewSyscallError(op, errno)}
}
