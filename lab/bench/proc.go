package bench

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// clockTick is USER_HZ, the unit of the times in /proc/<pid>/stat: 100 on every Linux architecture that Go supports.
const clockTick = 10 * time.Millisecond

// cpuTime is the user and system time that a process has used, from fields 14 and 15 of /proc/<pid>/stat (proc(5)).
func cpuTime(pid int) (time.Duration, error) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, err
	}
	return parseStat(string(b))
}

// switchesOf is how often the kernel has taken a process's threads off a CPU: both lines of context switches in each
// thread's status. Those of threads that have ended are not in it; a Go program ends hardly any.
func switchesOf(pid int) (n int64, err error) {
	tasks, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/status", pid))
	if err != nil {
		return 0, err
	}
	for _, task := range tasks {
		b, err := os.ReadFile(task)
		if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ESRCH) {
			continue
		}
		if err != nil {
			return 0, err
		}
		for line := range strings.Lines(string(b)) {
			if _, v, ok := strings.Cut(line, "voluntary_ctxt_switches:"); ok { // nonvoluntary_… too
				k, err := strconv.ParseInt(strings.TrimSpace(v), 10, 64)
				if err != nil {
					return 0, err
				}
				n += k
			}
		}
	}
	return n, nil
}

func parseStat(stat string) (time.Duration, error) {
	user, err := statTicks(stat, 14)
	if err != nil {
		return 0, err
	}
	system, err := statTicks(stat, 15)
	return user + system, err
}

// statTicks is a field of /proc/<pid>/stat that counts clock ticks.
func statTicks(stat string, field int) (time.Duration, error) {
	end := strings.LastIndexByte(stat, ')') // the command name, field 2, may hold anything
	f := strings.Fields(stat[end+1:])
	if end < 0 || len(f) < field-2 {
		return 0, fmt.Errorf("%q is no line of /proc/<pid>/stat", stat)
	}
	n, err := strconv.ParseInt(f[field-3], 10, 64)
	return time.Duration(n) * clockTick, err
}

// resident is the resident memory of a process in bytes: now (VmRSS) and at its highest (VmHWM).
func resident(pid int) (now, peak int64, err error) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0, 0, err
	}
	now, err = statusKiB(string(b), "VmRSS:")
	if err != nil {
		return 0, 0, err
	}
	peak, err = statusKiB(string(b), "VmHWM:")
	return now, peak, err
}

func statusKiB(status, key string) (int64, error) {
	_, rest, ok := strings.Cut(status, key)
	if !ok {
		return 0, fmt.Errorf("no %s in /proc status", key)
	}
	n, err := strconv.ParseInt(strings.Fields(rest)[0], 10, 64)
	return n << 10, err
}

// startedAt is when a process was started, from field 22 of /proc/<pid>/stat (clock ticks since the boot), exact to a
// tick.
func startedAt(pid int) (time.Time, error) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return time.Time{}, err
	}
	at, err := statTicks(string(b), 22)
	if err != nil {
		return time.Time{}, err
	}
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &now); err != nil {
		return time.Time{}, err
	}
	return time.Now().Add(at - time.Duration(now.Nano())), nil
}
