package nbio

import (
	"os"
	"sync"
	"syscall"
)

// Hangups tells when the other side of a connection has ended what it says, although nothing reads from that
// connection. One goroutine waits for all of them, on a poller of its own that the runtime's poller watches: a thousand
// idle connections cost no thousand goroutines.
type Hangups struct {
	poller *os.File
	mu     sync.Mutex
	last   uint64
	calls  map[uint64]func()
}

// hangupEvents are the end of the other side, once; errors and resets come with them.
const hangupEvents = syscall.EPOLLRDHUP | syscall.EPOLLONESHOT

// NewHangups makes one; Run has to be called.
func NewHangups() (*Hangups, error) {
	fd, err := syscall.EpollCreate1(syscall.EPOLL_CLOEXEC)
	if err != nil {
		return nil, os.NewSyscallError("epoll_create1", err)
	}
	if err := syscall.SetNonblock(fd, true); err != nil { // so that the runtime's poller takes it
		_ = syscall.Close(fd)
		return nil, os.NewSyscallError("fcntl", err)
	}
	return &Hangups{poller: os.NewFile(uintptr(fd), "epoll"), calls: map[uint64]func(){}}, nil
}

// Watch has f called, on Run's goroutine, once c's other side has ended, at once if it has already. f must not wait for
// long. After forget, which may be called several times, f is not called any more, but for a call that has begun.
func (h *Hangups) Watch(c *Conn, f func()) (forget func(), err error) {
	h.mu.Lock()
	h.last++
	id := h.last
	h.calls[id] = f
	h.mu.Unlock()
	event := syscall.EpollEvent{Events: hangupEvents, Fd: int32(id), Pad: int32(id >> 32)}
	err = h.control(func(poller uintptr) error {
		var failed error
		err := c.raw.Control(func(fd uintptr) {
			failed = syscall.EpollCtl(int(poller), syscall.EPOLL_CTL_ADD, int(fd), &event)
		})
		if err == nil {
			err = os.NewSyscallError("epoll_ctl", failed)
		}
		return err
	})
	if err != nil {
		h.take(id)
		return nil, err
	}
	return func() { h.take(id) }, nil // the kernel forgets a socket that is closed
}

// control calls f with the poller's descriptor.
func (h *Hangups) control(f func(poller uintptr) error) error {
	raw, err := h.poller.SyscallConn()
	if err != nil {
		return err
	}
	var failed error
	if err := raw.Control(func(fd uintptr) { failed = f(fd) }); err != nil {
		return err
	}
	return failed
}

// take removes what was to be called.
func (h *Hangups) take(id uint64) func() {
	h.mu.Lock()
	defer h.mu.Unlock()
	f := h.calls[id]
	delete(h.calls, id)
	return f
}

// Run makes the calls until Close, which is no error.
func (h *Hangups) Run() error {
	raw, err := h.poller.SyscallConn()
	if err != nil {
		return err
	}
	var events [64]syscall.EpollEvent
	for {
		n := 0
		var failed error
		err := raw.Read(func(fd uintptr) bool {
			n, failed = syscall.EpollWait(int(fd), events[:], 0)
			return n > 0 || failed != nil && failed != syscall.EINTR
		})
		switch {
		case err != nil:
			return nil // closed
		case failed != nil:
			return os.NewSyscallError("epoll_wait", failed)
		}
		for _, e := range events[:n] {
			if f := h.take(uint64(uint32(e.Fd)) | uint64(uint32(e.Pad))<<32); f != nil {
				f()
			}
		}
	}
}

// Close ends Run.
func (h *Hangups) Close() error { return h.poller.Close() }
