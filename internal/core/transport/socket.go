package transport

import (
	"io"
	"net"
	"os"
	"syscall"
	"time"

	"trireme/internal/base/loop"
)

const (
	// turnBytes is how much one connection reads or writes before others have their turn.
	turnBytes = 1 << 20
	ioChunk   = 256 << 10 // has to be taken within StallLimit
	pushFrom  = 64 << 10  // the most that the kernel is given at once
	// pieceBytes is how much of a raft message is encrypted before the connection looks whether it may go on.
	pieceBytes = 256 << 10
)

// socket is what TLS reads and writes: a net.Conn, which waits, until it is adopted. From then on it is the loop's and
// never waits. A read gets what has come, or EAGAIN. That is a temporary net.Error, so crypto/tls keeps the part of a
// record that it has, and goes on with it at the next read. A write takes everything, and push gives it to the kernel.
type socket struct {
	net.Conn
	own *loop.Socket // nil: not adopted yet

	left  int       // may still be read in this turn
	heard time.Time // when the last byte came

	out   []byte // out[done:] is for the kernel
	done  int
	room  int       // may still be written in this turn
	full  bool      // the kernel takes no more, or the turn is over
	since time.Time // something waits, or the kernel has taken the last ioChunk; zero: nothing waits
	taken int       // since then
}

// adopt gives it to the loop; no other goroutine uses it any more.
func (s *socket) adopt() error {
	own, err := loop.Adopt(s.Conn)
	if err == nil {
		s.own, s.heard = own, time.Now()
	}
	return err
}

func (s *socket) Read(p []byte) (int, error) {
	if s.own == nil {
		return s.Conn.Read(p)
	}
	if s.left <= 0 {
		return 0, syscall.EAGAIN
	}
	n, err := s.own.Read(p)
	if s.left -= n; n < len(p) {
		s.left = 0 // there was no more: epoll tells of what comes from now on
	}
	switch {
	case err == syscall.EAGAIN:
		return 0, err
	case err != nil:
		return 0, s.fail("read", err)
	case n == 0:
		return 0, io.EOF
	}
	s.heard = time.Now()
	return n, nil
}

func (s *socket) Write(p []byte) (int, error) {
	if s.own == nil {
		return s.Conn.Write(p)
	}
	s.out = append(s.out, p...)
	if len(s.out)-s.done < pushFrom {
		return len(p), nil
	}
	return len(p), s.push()
}

// push writes what the kernel takes, unless it is known to be full.
func (s *socket) push() error {
	for s.done < len(s.out) && !s.full {
		n, err := s.own.Write(s.out[s.done:])
		if err != nil && err != syscall.EAGAIN {
			return s.fail("write", err)
		}
		s.done += n
		s.taken += n
		s.room -= n
		s.full = s.room <= 0 || n < min(pushFrom, len(s.out)-s.done+n)
	}
	switch {
	case s.done == len(s.out):
		s.out, s.done, s.taken, s.since = s.out[:0], 0, 0, time.Time{}
		if cap(s.out) > ioChunk {
			s.out = nil
		}
		if s.full = s.room <= 0; s.full {
			s.since = time.Now()
		}
	case s.since.IsZero() || s.taken >= ioChunk:
		s.since, s.taken = time.Now(), 0
	}
	return nil
}

// fail makes the error of an operation as package net does.
func (s *socket) fail(op string, err error) error {
	if errno, ok := err.(syscall.Errno); ok {
		err = os.NewSyscallError(op, errno)
	}
	return &net.OpError{Op: op, Net: s.LocalAddr().Network(), Source: s.LocalAddr(), Addr: s.RemoteAddr(), Err: err}
}
