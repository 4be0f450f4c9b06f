package loop

import (
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Loop handles what happens, one thing after the other. Wake, Do, Stop and Wait may be called from any goroutine; all
// else belongs to handlers, hooks and calls, which run on the loop, or is done before Start.
type Loop struct {
	poller, bell int // epoll, and an eventfd that wakes it
	bed          bed
	pace         pace
	patience     time.Duration

	hooks     []func() bool
	last      []func()
	watches   map[int32]*Watch
	lastWatch int32
	timers    []*Timer
	events    [64]unix.EpollEvent

	asleep, woken atomic.Bool
	mu            sync.Mutex
	calls, called []func() // called is empty: room for the next calls
	closed        bool

	job     *job
	disk    disk
	blocked atomic.Int64 // the number of the job that runs on the loop itself; 0: none, or the spare has taken over
	jobs    int64
	stop    chan struct{}
	ended   sync.WaitGroup
	once    sync.Once
}

// pace says whether the loop is busy, and when it was last parked.
type pace struct {
	streak   int  // events that came soon after one another
	heard    bool // an event came in the last wait
	heardAt  time.Time
	parkedAt time.Time
}

const (
	// keep is how long the loop keeps its thread before it is parked again: the scheduler preempts after 10 ms.
	keep = 8 * time.Millisecond
	// After so many waits with events, and none longer than briefly, the loop is busy: it keeps its thread.
	busy    = 16
	briefly = 20 * time.Millisecond
)

// New makes a loop. patience is how long a job may hold up the loop before the spare takes over: between one and two
// times that.
func New(patience time.Duration) (*Loop, error) {
	l := &Loop{patience: patience, watches: map[int32]*Watch{}, stop: make(chan struct{})}
	var err error
	if l.poller, err = unix.EpollCreate1(unix.EPOLL_CLOEXEC); err == nil {
		err = l.bed.open(l.poller)
	}
	if err == nil {
		l.bell, err = unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	}
	if err == nil {
		err = addUnread(l.poller, l.bell)
	}
	if err != nil {
		l.close()
		return nil, fmt.Errorf("make a loop: %w", err)
	}
	return l, nil
}

// Hook has f called in each turn. The loop does not sleep before a turn in which no hook has done anything. Before
// Start.
func (l *Loop) Hook(f func() (did bool)) { l.hooks = append(l.hooks, f) }

// Last has f called at the end of each turn, after the hooks and before a job. Before Start, or on the loop.
func (l *Loop) Last(f func()) { l.last = append(l.last, f) }

// Start begins.
func (l *Loop) Start() {
	l.ended.Add(2)
	go l.run(true)
	go l.run(false)
}

// Stop ends the loop. A job under way is waited for by Wait.
func (l *Loop) Stop() {
	l.once.Do(func() { close(l.stop) })
	l.Wake()
}

// Wait waits until the loop has ended. No handler, hook or call runs after it.
func (l *Loop) Wait() {
	l.ended.Wait()
	l.close()
}

func (l *Loop) close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return
	}
	l.closed = true
	_ = unix.Close(l.poller)
	l.bed.close()
	if l.bell > 0 {
		_ = unix.Close(l.bell)
	}
}

// Wake has the hooks called.
func (l *Loop) Wake() {
	l.woken.Store(true)
	if !l.asleep.CompareAndSwap(true, false) {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if one := [8]byte{1}; !l.closed {
		_, _ = unix.Write(l.bell, one[:]) // fails only when 2^64-2 wakes were never seen
	}
}

// Do has f called on the loop, in the order of the calls of Do. It does not wait for that. After Stop f may never be
// called.
func (l *Loop) Do(f func()) {
	l.mu.Lock()
	l.calls = append(l.calls, f)
	l.mu.Unlock()
	l.Wake()
}

// run drives the loop, or is its spare.
func (l *Loop) run(driving bool) {
	defer l.ended.Done()
	for {
		var goOn bool
		if driving {
			goOn = l.drive()
		} else {
			goOn = l.standBy()
		}
		if !goOn {
			return
		}
		driving = !driving
	}
}

// drive returns true when the spare has taken over, and false when the loop has ended.
func (l *Loop) drive() bool {
	for {
		did := l.turn()
		select {
		case <-l.stop:
			return false
		default:
		}
		timeout := l.untilTimer()
		if did {
			timeout = 0
		}
		if j := l.job; j != nil {
			l.job = nil
			if !l.carryOut(j) {
				return true
			}
			timeout = 0 // see what has come meanwhile
		}
		l.wait(timeout)
	}
}

// turn does what is due, each thing once.
func (l *Loop) turn() (did bool) {
	l.mu.Lock()
	calls := l.calls
	l.calls, l.called = l.called[:0], calls
	l.mu.Unlock()
	for _, f := range calls {
		f()
	}
	clear(calls)
	l.runTimers()
	for _, f := range l.hooks {
		did = f() || did
	}
	for _, f := range l.last {
		f()
	}
	return did
}

// wait handles sockets that are ready; it waits for them for at most timeout, or without a limit.
func (l *Loop) wait(timeout time.Duration) {
	l.asleep.Store(true)
	if l.woken.Swap(false) {
		timeout = 0
	}
	n := l.poll(timeout)
	l.asleep.Store(false)
	for _, e := range l.events[:max(0, n)] {
		if w := l.watches[e.Fd]; w != nil && w.id == e.Pad {
			w.ready(Ready(e.Events))
		}
	}
}

// poll returns how many events there are.
func (l *Loop) poll(timeout time.Duration) int {
	if timeout == 0 {
		return l.epoll(0)
	}
	now, p := time.Now(), &l.pace
	if now.Sub(p.heardAt) > briefly {
		p.streak = 0
	}
	if p.heard {
		p.heard, p.heardAt = false, now
		p.streak++
	}
	if left := keep - now.Sub(p.parkedAt); p.streak >= busy && left > 0 {
		if timeout < 0 || timeout > left {
			timeout = left
		}
		return l.epoll(milliseconds(timeout))
	}
	n := l.park(timeout)
	p.parkedAt = time.Now()
	return n
}

// interrupted is epoll's answer when a signal has ended the wait.
const interrupted = -1

// epoll waits without telling the scheduler. A stop of the world sends the thread a signal, as to any that runs Go
// code, and that ends the wait.
func (l *Loop) epoll(ms int) int {
	n, _, errno := syscall.RawSyscall6(unix.SYS_EPOLL_PWAIT, uintptr(l.poller), uintptr(unsafe.Pointer(&l.events)),
		uintptr(len(l.events)), uintptr(ms), 0, 0)
	switch errno {
	case 0:
		if n > 1 || n == 1 && l.events[0].Fd != int32(l.bed.alarm) { // timers alone do not make it busy
			l.pace.heard = true
		}
		return int(n)
	case unix.EINTR:
		return interrupted
	}
	panic("loop: " + os.NewSyscallError("epoll_pwait", errno).Error()) // a bug: the descriptors are ours
}

// milliseconds rounds up.
func milliseconds(d time.Duration) int { return int((d + time.Millisecond - 1) / time.Millisecond) }
