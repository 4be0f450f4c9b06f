package nbio

import (
	"errors"
	"os"
	"sync"
	"syscall"
)

// Hangups tells when the other side of a connection has ended what it says, although nothing reads from that
// connection. One goroutine waits for all of them, on a poller of its own that the runtime's poller watches: a thousand
// idle connections cost no thousand goroutines.
type Hangups struct {
	poller Poller
	mu     sync.Mutex
	last   uint64
	calls  map[uint64]func()
}

// hangupEvents are the end of the other side, once; errors and resets come with them.
const hangupEvents = syscall.EPOLLRDHUP | syscall.EPOLLONESHOT

// NewHangups makes one; Run has to be called.
func NewHangups() (*Hangups, error) {
	p, err := NewPoller()
	if err != nil {
		return nil, err
	}
	return &Hangups{poller: p, calls: map[uint64]func(){}}, nil
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
	var inner, failed error
	outer := h.poller.Raw.Control(func(poller uintptr) {
		inner = c.raw.Control(func(fd uintptr) {
			failed = os.NewSyscallError("epoll_ctl", syscall.EpollCtl(int(poller), syscall.EPOLL_CTL_ADD, int(fd), &event))
		})
	})
	err = errors.Join(outer, inner, failed)
	if err != nil {
		h.take(id)
		return nil, err
	}
	return func() { h.take(id) }, nil // the kernel forgets a socket that is closed
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
	var events [64]syscall.EpollEvent
	for {
		n := 0
		var failed error
		err := h.poller.Raw.Read(func(fd uintptr) bool {
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
