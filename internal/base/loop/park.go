package loop

import (
	"os"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"trireme/internal/base/nbio"
)

// bed is an epoll instance that the runtime's poller watches. It watches the loop's only while the loop is parked: else
// each event would wake a thread of the runtime as well.
type bed struct {
	nbio.Poller
	alarm int // a timerfd in the loop's epoll. A deadline of the runtime would wake another thread each time it is set
}

func (b *bed) open(poller int) (err error) {
	if b.Poller, err = nbio.NewPoller(); err != nil {
		return err
	}
	if b.alarm, err = unix.TimerfdCreate(unix.CLOCK_MONOTONIC, unix.TFD_CLOEXEC|unix.TFD_NONBLOCK); err != nil {
		return os.NewSyscallError("timerfd_create", err)
	}
	return addUnread(poller, b.alarm)
}

// addUnread has poller tell of each event of fd once: fd is never read.
func addUnread(poller, fd int) error {
	return os.NewSyscallError("epoll_ctl", unix.EpollCtl(poller, unix.EPOLL_CTL_ADD, fd,
		&unix.EpollEvent{Events: unix.EPOLLIN | unix.EPOLLET, Fd: int32(fd)}))
}

func (b *bed) close() {
	if b.File != nil {
		_ = b.File.Close()
	}
	if b.alarm > 0 {
		_ = unix.Close(b.alarm)
	}
}

// watch adds poller or removes it, without telling the scheduler: the call does not wait.
func (b *bed) watch(op, poller int) {
	e := unix.EpollEvent{Events: unix.EPOLLIN}
	_, _, errno := syscall.RawSyscall6(unix.SYS_EPOLL_CTL, uintptr(b.FD), uintptr(op), uintptr(poller),
		uintptr(unsafe.Pointer(&e)), 0, 0)
	if errno != 0 {
		panic("loop: " + os.NewSyscallError("epoll_ctl", errno).Error()) // a bug: both are ours
	}
}

// setAlarm has an event come after d; below 0: none. One that was set before does not come any more.
func (b *bed) setAlarm(d time.Duration) {
	spec := unix.ItimerSpec{Value: unix.NsecToTimespec(max(0, int64(d)))}
	_, _, errno := syscall.RawSyscall6(unix.SYS_TIMERFD_SETTIME, uintptr(b.alarm), 0, uintptr(unsafe.Pointer(&spec)), 0,
		0, 0)
	if errno != 0 {
		panic("loop: " + os.NewSyscallError("timerfd_settime", errno).Error()) // as above
	}
}

// park waits in the runtime's poller for at most timeout; below 0: without a limit.
func (l *Loop) park(timeout time.Duration) (n int) {
	l.bed.setAlarm(timeout)
	l.bed.watch(unix.EPOLL_CTL_ADD, l.poller)
	_ = l.bed.Raw.Read(func(uintptr) bool { // an error is the end of the file
		n = l.epoll(0)
		return n > 0
	})
	l.bed.watch(unix.EPOLL_CTL_DEL, l.poller)
	return n
}
