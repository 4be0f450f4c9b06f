package guard

import (
	"errors"
	"fmt"
	"log/slog"
	"time"

	"golang.org/x/sys/unix"

	"trireme/internal/base/failpoint"
)

// What the guard process inherits, after standard error.
const (
	socketFD = 3
	pageFD   = 4
)

// lookInterval is how often the guard shows that it is there while nothing is served.
const lookInterval = time.Second

// retryInterval separates attempts to kill mysqld and to withdraw the rest.
const retryInterval = 100 * time.Millisecond

// endPatience is how long the guard of a dead daemon keeps trying. Not longer: a daemon that is started again may have
// addresses again.
const endPatience = time.Second

// Run is the guard process. It returns when its daemon is dead and mysqld has been killed. After the kill it calls
// withdraw, which removes the other ways to mysqld and their connections. It calls withdraw again while the daemon
// stays silent, and soon again if it fails.
func Run(log *slog.Logger, withdraw func() error) error {
	p, err := mapPage(pageFD)
	if err == nil {
		_, err = unix.GetsockoptInt(socketFD, unix.SOL_SOCKET, unix.SO_TYPE)
	}
	if err != nil {
		return fmt.Errorf("only the daemon starts the guard: %w", err)
	}
	timer, err := unix.TimerfdCreate(unix.CLOCK_BOOTTIME, unix.TFD_CLOEXEC|unix.TFD_NONBLOCK)
	if err != nil {
		return fmt.Errorf("guard: timer: %w", err)
	}
	w := watch{page: p, timer: timer, log: log, mysqld: -1, withdraw: withdraw}
	for {
		w.look()
		alive, err := w.sleep()
		if err != nil {
			return err // the daemon starts another guard
		}
		if !alive {
			for last := now() + endPatience; !w.end("its daemon is dead") && now() < last; {
				time.Sleep(retryInterval)
			}
			return nil
		}
	}
}

// watch is the guard's state.
type watch struct {
	page   *page
	timer  int // timerfd
	log    *slog.Logger
	mysqld int // pidfd, -1: none
	done   bool
	left   bool          // the last withdrawal failed
	again  time.Duration // not before this is what failed repeated

	withdraw func() error
}

// look kills mysqld if its time is over.
func (w *watch) look() {
	t := now()
	w.page.seen.Store(int64(t))
	if until := time.Duration(w.page.until.Load()); until != 0 && t >= until {
		w.end(fmt.Sprintf("its daemon has given no sign of life: overdue by %d ms", (t - until).Milliseconds()))
	}
}

// end makes sure that no client is served here. It reports whether it has succeeded: what failed is tried again.
func (w *watch) end(reason string) bool {
	w.kill(reason)
	err := w.withdraw()
	if err != nil && !w.left {
		w.log.Error("guard: virtual addresses cannot be removed; trying again", "err", err)
	}
	w.left, w.again = err != nil, now()+retryInterval
	return !w.left && (w.done || w.mysqld < 0)
}

// kill ends mysqld, once. The daemon, which sees it die, must be able to see why: that is written down first.
func (w *watch) kill(reason string) {
	if w.mysqld < 0 || w.done {
		return
	}
	w.page.killed.Store(int64(now()))
	err := unix.PidfdSendSignal(w.mysqld, unix.SIGKILL, nil, 0)
	if err != nil {
		w.page.killed.Store(0)
	}
	if errors.Is(err, unix.ESRCH) {
		w.done = true // it is dead
		return
	}
	if err != nil {
		w.log.Error("guard: mysqld cannot be killed; trying again", "err", err)
		return
	}
	w.done = true
	w.log.Error("guard: mysqld was killed", "reason", reason)
}

// sleep waits for the end of the time that mysqld has, at most lookInterval, or for the daemon. alive is false when
// that is dead.
func (w *watch) sleep() (alive bool, err error) {
	at := now() + lookInterval
	if until := time.Duration(w.page.until.Load()); until != 0 && until < at && (w.left || !w.done && w.mysqld >= 0) {
		at = max(until, w.again, 1) // 0 would disarm the timer
	}
	spec := unix.ItimerSpec{Value: unix.NsecToTimespec(failpoint.Real(int64(at)))}
	if err := unix.TimerfdSettime(w.timer, unix.TFD_TIMER_ABSTIME, &spec, nil); err != nil {
		return false, fmt.Errorf("guard: timer: %w", err)
	}
	fds := []unix.PollFd{{Fd: socketFD, Events: unix.POLLIN}, {Fd: int32(w.timer), Events: unix.POLLIN}}
	if _, err := unix.Poll(fds, failpoint.Patience()); err != nil && !errors.Is(err, unix.EINTR) {
		return false, fmt.Errorf("guard: wait: %w", err)
	}
	if fds[0].Revents == 0 {
		return true, nil
	}
	return w.receive()
}

// receive takes what the daemon sent: the pidfd of a new mysqld, or only a wake-up.
func (w *watch) receive() (alive bool, err error) {
	var b [1]byte
	oob := make([]byte, unix.CmsgSpace(4))
	n, oobn, _, _, err := unix.Recvmsg(socketFD, b[:], oob, unix.MSG_CMSG_CLOEXEC|unix.MSG_DONTWAIT)
	switch {
	case errors.Is(err, unix.EINTR), errors.Is(err, unix.EAGAIN):
		return true, nil
	case err != nil, n == 0:
		return false, nil // ECONNRESET and the like end the daemon's side too
	case oobn == 0:
		return true, nil
	}
	msgs, err := unix.ParseSocketControlMessage(oob[:oobn])
	if err != nil {
		return false, fmt.Errorf("guard: message of the daemon: %w", err)
	}
	for i := range msgs {
		fds, err := unix.ParseUnixRights(&msgs[i])
		if err != nil || len(fds) != 1 {
			return false, fmt.Errorf("guard: message of the daemon: %d descriptors, %w", len(fds), err)
		}
		if w.mysqld >= 0 {
			_ = unix.Close(w.mysqld)
		}
		w.mysqld, w.done = fds[0], false
	}
	return true, nil
}
