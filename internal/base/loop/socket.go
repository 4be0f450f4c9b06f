package loop

import (
	"errors"
	"net"
	"os"
	"syscall"

	"golang.org/x/sys/unix"

	"trireme/internal/base/nbio"
)

// Socket is a connected socket that the runtime's poller does not know. Read and Write do not wait: they return EAGAIN,
// which is a temporary net.Error to those who look for one.
type Socket struct {
	fd     int
	closed bool
}

// Adopt takes the socket out of nc, which is closed. Any goroutine may call it, while no other one uses nc.
func Adopt(nc net.Conn) (*Socket, error) {
	sc, ok := nc.(syscall.Conn)
	if !ok {
		return nil, errors.New("not a socket")
	}
	raw, err := sc.SyscallConn()
	if err != nil {
		return nil, err
	}
	s := &Socket{}
	var dup error
	if err := raw.Control(func(fd uintptr) { s.fd, dup = unix.FcntlInt(fd, unix.F_DUPFD_CLOEXEC, 0) }); err != nil {
		return nil, err
	}
	if dup != nil {
		return nil, os.NewSyscallError("fcntl", dup)
	}
	if err := nc.Close(); err != nil { // by somebody else, meanwhile
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

// FD is the descriptor.
func (s *Socket) FD() int { return s.fd }

// Read reads once, at most 64 KiB.
func (s *Socket) Read(p []byte) (int, error) { return nbio.Read(uintptr(s.fd), p) }

// Write writes once, at most 64 KiB.
func (s *Socket) Write(p []byte) (int, error) { return nbio.Write(uintptr(s.fd), p) }

// Close closes the descriptor; a watch has to be removed before. It may be repeated.
func (s *Socket) Close() error {
	if s.closed {
		return nil
	}
	s.closed = true
	return os.NewSyscallError("close", unix.Close(s.fd))
}
