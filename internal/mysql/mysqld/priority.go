package mysqld

import (
	"fmt"
	"os"
	"strconv"
	"sync/atomic"

	"golang.org/x/sys/unix"
)

// ahead is the nice value of a daemon. Its threads need little, but at once: with dozens of mysqld's that want the same
// CPU, heartbeats wait their turn until a leader that is well loses its lease, or the guard takes the daemon for dead.
const ahead = -10

// mysqldNice is the nice value of mysqlds. nil: this process has no priority over them.
var mysqldNice atomic.Pointer[int]

// RaisePriority gives the threads of this process precedence over the mysqlds that it starts: nice -10
// (setpriority(2)), which takes CAP_SYS_NICE. The error says that it is not allowed; then all is as before, but in a container: there, as
// process 1, it lowers the mysqlds instead.
func RaisePriority() error {
	raw, err := unix.Getpriority(unix.PRIO_PROCESS, 0)
	if err != nil {
		return fmt.Errorf("getpriority: %w", err)
	}
	began := 20 - raw // the system call's own form
	if began > ahead {
		err = renice(os.Getpid(), ahead)
	}
	nice := niceOfMysqld(began, err == nil, os.Getpid() == 1)
	mysqldNice.Store(&nice)
	if err != nil && nice == began {
		return fmt.Errorf("the daemon cannot raise its priority above mysqld's (set it to nice %d): where CPU is short it may lose its lease; give it CAP_SYS_NICE: %w", ahead, err)
	}
	return nil
}

// niceOfMysqld is the nice value of mysqlds of a daemon that began with one, and may have been raised. Where all
// processes are ours mysqld can be lowered as well: no other one gains by it.
func niceOfMysqld(began int, raised, alone bool) int {
	if !raised && alone {
		return began - ahead
	}
	return max(began, 0)
}

// fallBehind gives a process that was just started a lower priority than this one. To lower a priority is always
// allowed.
func fallBehind(pid int) {
	if nice := mysqldNice.Load(); nice != nil {
		_ = renice(pid, *nice) // it may have died already, which others find
	}
}

// renice sets the nice value of all threads of a process. Threads have their maker's, so none is missed once a whole
// round finds nothing to do.
func renice(pid, nice int) error {
	for again := true; again; {
		again = false
		tasks, err := os.ReadDir(fmt.Sprintf("/proc/%d/task", pid))
		if err != nil {
			return err
		}
		for _, t := range tasks {
			tid, err := strconv.Atoi(t.Name())
			if err != nil {
				continue
			}
			if raw, err := unix.Getpriority(unix.PRIO_PROCESS, tid); err != nil || 20-raw == nice {
				continue // it has ended, or is done
			}
			if err := unix.Setpriority(unix.PRIO_PROCESS, tid, nice); err != nil && err != unix.ESRCH {
				return err
			}
			again = true
		}
	}
	return nil
}
