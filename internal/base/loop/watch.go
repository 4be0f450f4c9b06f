package loop

import (
	"os"
	"slices"
	"time"

	"golang.org/x/sys/unix"
)

// Ready says what a descriptor is ready for. After an error or the end of the other side it is ready for reading.
type Ready uint32

// Read reports that a read would not wait.
func (r Ready) Read() bool { return r&(unix.EPOLLIN|unix.EPOLLRDHUP|unix.EPOLLHUP|unix.EPOLLERR) != 0 }

// Write reports that a write would not wait.
func (r Ready) Write() bool { return r&(unix.EPOLLOUT|unix.EPOLLHUP|unix.EPOLLERR) != 0 }

// Watch is a descriptor that the loop looks at.
type Watch struct {
	l       *Loop
	fd      int
	id      int32 // tells it from one before it with the same number
	ready   func(Ready)
	events  uint32
	removed bool
}

// Watch has ready called for as long as the descriptor is ready for reading. Remove it before the descriptor is closed.
func (l *Loop) Watch(fd int, ready func(Ready)) (*Watch, error) {
	l.lastWatch++
	w := &Watch{l: l, fd: fd, id: l.lastWatch, ready: ready, events: unix.EPOLLIN | unix.EPOLLRDHUP}
	if err := w.control(unix.EPOLL_CTL_ADD); err != nil {
		return nil, err
	}
	l.watches[int32(fd)] = w
	return w, nil
}

func (w *Watch) control(op int) error {
	return os.NewSyscallError("epoll_ctl", unix.EpollCtl(w.l.poller, op, w.fd,
		&unix.EpollEvent{Events: w.events, Fd: int32(w.fd), Pad: w.id}))
}

// WantRead switches readiness for reading on, as it is at first, or off.
func (w *Watch) WantRead(on bool) { w.want(unix.EPOLLIN|unix.EPOLLRDHUP, on) }

// WantWrite switches readiness for writing on or off.
func (w *Watch) WantWrite(on bool) { w.want(unix.EPOLLOUT, on) }

func (w *Watch) want(bits uint32, on bool) {
	events := w.events &^ bits
	if on {
		events |= bits
	}
	if events == w.events || w.removed {
		return
	}
	w.events = events
	_ = w.control(unix.EPOLL_CTL_MOD) // fails only for a descriptor that is not watched
}

// Remove ends the watch: ready is not called any more. It may be repeated, and w may be nil.
func (w *Watch) Remove() {
	if w == nil || w.removed {
		return
	}
	w.removed = true
	delete(w.l.watches, int32(w.fd))
	_ = w.control(unix.EPOLL_CTL_DEL) // as above
}

// Timer is a call to come.
type Timer struct {
	l  *Loop
	at time.Time
	f  func()
}

// After has f called on the loop after d, in whole milliseconds.
func (l *Loop) After(d time.Duration, f func()) *Timer {
	t := &Timer{l, time.Now().Add(d), f}
	i, _ := slices.BinarySearchFunc(l.timers, t.at, func(t *Timer, at time.Time) int { return t.at.Compare(at) })
	l.timers = slices.Insert(l.timers, i, t)
	return t
}

// Stop makes sure that the call does not come. It may be repeated, and t may be nil.
func (t *Timer) Stop() {
	if t == nil {
		return
	}
	if i := slices.Index(t.l.timers, t); i >= 0 {
		t.l.timers = slices.Delete(t.l.timers, i, i+1)
	}
}

func (l *Loop) runTimers() {
	now := time.Now()
	for len(l.timers) > 0 && !l.timers[0].at.After(now) {
		t := l.timers[0]
		l.timers = slices.Delete(l.timers, 0, 1)
		t.f()
	}
}

// untilTimer is how long the loop may wait; below 0: without a limit.
func (l *Loop) untilTimer() time.Duration {
	if len(l.timers) == 0 {
		return -1
	}
	return max(0, time.Until(l.timers[0].at))
}
