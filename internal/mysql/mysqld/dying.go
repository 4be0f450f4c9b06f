package mysqld

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// A process that is killed ends for its parent, and its sockets close, when its last thread has given back all of its
// memory: some 100 ms per GiB. A failover need not wait for that. Its threads end at once, one by one, and each can be
// waited for (PIDFD_THREAD, Linux 6.9); but not the main thread: since Linux 6.15 that is reported with the last one.
// So another thread is waited for, and when it ends the main thread is asked whether it is ending too.

// awaitDeath returns when the process is being ended, at the latest when it is reaped, and makes sure that it is.
func (p *child) awaitDeath() {
	for {
		ended, err := threadEnded(p.pid)
		if errors.Is(err, unix.EINVAL) { // Linux before 6.9
			<-p.done
			return
		}
		if ended && p.mainExits() {
			_ = p.cmd.Process.Signal(syscall.SIGKILL) // whatever ends it, the rest goes too; not counted as asked for
			return
		}
		if ended {
			continue // it was that thread alone
		}
		select { // it has no other thread yet, or none any more
		case <-p.done:
			return
		case <-time.After(threadRetry):
		}
	}
}

// threadEnded waits for the end of the oldest thread. It is false if the process has no thread that can be waited for.
func threadEnded(pid int) (bool, error) {
	thread, err := oldestThread(pid)
	if err != nil {
		return false, err
	}
	defer func() { _ = thread.Close() }()
	err = awaitEnd(thread)
	return err == nil, err
}

// mainExits reports whether the main thread follows another one that has ended.
func (p *child) mainExits() bool {
	for wait := time.Millisecond; wait < threadPatience; wait *= 2 {
		if exiting(p.pid) {
			return true
		}
		time.Sleep(wait)
	}
	return false
}

const (
	threadRetry    = 50 * time.Millisecond
	threadPatience = 50 * time.Millisecond // about: for the main thread to follow another one
)

// oldestThread is a pidfd of a process's oldest thread but the main one. mysqld's are InnoDB's, which stay.
func oldestThread(pid int) (*os.File, error) {
	list, err := os.ReadDir(fmt.Sprintf("/proc/%d/task", pid))
	if err != nil {
		return nil, err
	}
	oldest := 0
	for _, e := range list {
		if tid, err := strconv.Atoi(e.Name()); err == nil && tid != pid && (oldest == 0 || tid < oldest) {
			oldest = tid
		}
	}
	if oldest == 0 {
		return nil, os.ErrNotExist
	}
	fd, err := unix.PidfdOpen(oldest, unix.PIDFD_THREAD|unix.PIDFD_NONBLOCK)
	if err != nil {
		return nil, fmt.Errorf("pidfd of a thread: %w", err)
	}
	return os.NewFile(uintptr(fd), "thread of mysqld"), nil
}

// awaitEnd waits for the end of a thread without keeping one of ours.
func awaitEnd(thread *os.File) error {
	raw, err := thread.SyscallConn()
	if err != nil {
		return err
	}
	var failed error
	err = raw.Read(func(fd uintptr) bool {
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, 0)
		if err != nil && err != unix.EINTR {
			failed = err
		}
		return n > 0 || failed != nil
	})
	if err == nil {
		err = failed
	}
	return err
}

// pfExiting is PF_EXITING of the kernel's include/linux/sched.h.
const pfExiting = 0x4

// statFields are the fields of a stat file of proc(5) from the third on: the name before them may hold anything.
func statFields(elem ...string) ([]string, error) {
	b, err := os.ReadFile(filepath.Join(append([]string{"/proc"}, elem...)...))
	if err != nil {
		return nil, err
	}
	stat := string(b)
	return strings.Fields(stat[strings.LastIndexByte(stat, ')')+1:]), nil
}

// exiting reports whether a process's main thread is ending or gone, from fields 3 and 9 of its stat (proc(5)).
func exiting(pid int) bool {
	f, err := statFields(strconv.Itoa(pid), "task", strconv.Itoa(pid), "stat")
	if err != nil {
		return true
	}
	if len(f) < 7 {
		return false
	}
	flags, err := strconv.ParseUint(f[6], 10, 64)
	return f[0] == "Z" || f[0] == "X" || err == nil && flags&pfExiting != 0
}
