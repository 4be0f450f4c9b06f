package mysqld

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// killLimit is how long a killed process may take to be gone. A big buffer pool takes half a second to be freed; a
// process in an uninterruptible disk wait takes as long as the disk does.
const killLimit = 30 * time.Second

// startedName is the file in Config.Dir that names the mysqld that was started last. The folder is the daemon's:
// mysqld's user cannot write it.
const startedName = "mysqld.started"

// startedChild names one process uniquely: a pid is given to others later, never with the same start time within one
// boot.
type startedChild struct {
	Pid   int    `json:"pid"`
	Start uint64 `json:"start"` // clock ticks since the boot, of /proc/PID/stat
	Boot  string `json:"boot"`  // boot_id of the kernel
	// Dev and Inode are Config.Dir's, which a copy of it has not. 0: written by an older version.
	Dev   uint64 `json:"dev,omitempty"`
	Inode uint64 `json:"inode,omitempty"`
}

// here reports whether it was started on c's directory, and not on one that this is a copy of.
func (s startedChild) here(c Config) bool {
	dev, inode, err := place(c.Dir)
	return s.Inode == 0 || err == nil && s.Dev == dev && s.Inode == inode
}

// place is what no other directory has at the same time.
func place(dir string) (dev, inode uint64, err error) {
	var st unix.Stat_t
	if err := unix.Stat(dir, &st); err != nil {
		return 0, 0, &os.PathError{Op: "stat", Path: dir, Err: err}
	}
	return uint64(st.Dev), st.Ino, nil
}

// noteStarted writes down which process was started, for a daemon that finds it after this one was killed.
func (c Config) noteStarted(pid int) error {
	boot, err := bootID()
	if err != nil {
		return err
	}
	start, ok := startTime(pid)
	if !ok {
		return nil // it has ended already
	}
	dev, inode, err := place(c.Dir)
	if err != nil {
		return err
	}
	b, err := json.Marshal(startedChild{Pid: pid, Start: start, Boot: boot, Dev: dev, Inode: inode})
	if err != nil {
		return err
	}
	path := filepath.Join(c.Dir, startedName)
	if err := os.WriteFile(path+".tmp", b, 0o600); err != nil { // no process outlives a power loss: nothing to sync
		return err
	}
	return os.Rename(path+".tmp", path)
}

// lastStarted is the process that a daemon on this directory has started last, ok only within this boot.
func (c Config) lastStarted() (last startedChild, ok bool, err error) {
	b, err := os.ReadFile(filepath.Join(c.Dir, startedName))
	if errors.Is(err, fs.ErrNotExist) {
		return last, false, nil
	}
	if err != nil {
		return last, false, err
	}
	if json.Unmarshal(b, &last) != nil || last.Pid <= 0 {
		return startedChild{}, false, nil
	}
	boot, err := bootID()
	return last, err == nil && boot == last.Boot, err
}

func bootID() (string, error) {
	b, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	return strings.TrimSpace(string(b)), err
}

// startTime of a process that is no zombie: field 22 of its stat; field 3 is its state.
func startTime(pid int) (uint64, bool) {
	f, err := statFields(strconv.Itoa(pid), "stat")
	if err != nil || len(f) < 20 || f[0] == "Z" || f[0] == "X" {
		return 0, false
	}
	at, err := strconv.ParseUint(f[19], 10, 64)
	return at, err == nil
}

// killOrphans ends the mysqld that an earlier daemon left on this directory, and waits until it is gone. A mysqld that
// holds a data directory and is not of a daemon's making is not touched: ErrInUse. Which process it is the kernel
// tells: by the lock on the data directory, and by the pid, start time and folder that were written down. What a
// command line says counts for nothing.
func (c Config) killOrphans(ctx context.Context) error { return c.endLeftover(ctx, c.DataDir()) }

// endLeftover is killOrphans for any data directory below Dir.
func (c Config) endLeftover(ctx context.Context, datadir string) error {
	last, known, err := c.lastStarted()
	if err != nil {
		return fmt.Errorf("look for a mysqld of an earlier daemon: %w", err)
	}
	if known && last.here(c) {
		if err := c.killLeftover(ctx, last.Pid, func() bool { at, ok := startTime(last.Pid); return ok && at == last.Start }); err != nil {
			return err
		}
	}
	held, holder, err := lockOn(datadir)
	if err != nil || !held {
		return err
	}
	// A program that runs mysqld as a child has another pid, and the process group that launch made.
	ours := func() bool { group, err := unix.Getpgid(holder); return err == nil && group == last.Pid }
	if !known || holder <= 0 || !ours() {
		return fmt.Errorf("%w: %s; stop it first", ErrInUse, describe(holder))
	}
	return c.killLeftover(ctx, holder, ours)
}

// lockOn reports whether a process has the data directory: InnoDB locks its system tablespace (os_file_lock in
// os0file.cc of mysql-server). holder is 0 or less where the kernel does not show it, as from another pid namespace.
func lockOn(datadir string) (held bool, holder int, err error) {
	f, err := OpenOwned(datadir, "ibdata1", os.O_RDONLY, -1)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ENOTDIR) {
		return false, 0, nil
	}
	if err != nil {
		return false, 0, fmt.Errorf("data directory: %w", err)
	}
	// Closing it drops no lock: this process has none on it.
	defer func() { _ = f.Close() }()
	lock := unix.Flock_t{Type: unix.F_WRLCK, Whence: io.SeekStart}
	if err := unix.FcntlFlock(f.Fd(), unix.F_GETLK, &lock); err != nil {
		return false, 0, fmt.Errorf("who has locked %s: %w", f.Name(), err)
	}
	return lock.Type != unix.F_UNLCK, int(lock.Pid), nil
}

// killLeftover sends SIGKILL to a process that same recognises, and waits for its end.
func (c Config) killLeftover(ctx context.Context, pid int, same func() bool) error {
	fd, err := unix.PidfdOpen(pid, 0)
	if errors.Is(err, unix.ESRCH) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("kill mysqld %d: %w", pid, err)
	}
	defer func() { _ = unix.Close(fd) }()
	if !same() { // the pid may have been given to another process before the descriptor held it
		return nil
	}
	c.log().Warn("killing the mysqld of an earlier daemon", "pid", pid, "dir", c.Dir)
	if err := unix.PidfdSendSignal(fd, unix.SIGKILL, nil, 0); err != nil && !errors.Is(err, unix.ESRCH) {
		return fmt.Errorf("kill mysqld %d: %w", pid, err)
	}
	deadline := time.Now().Add(killLimit)
	for {
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, 100)
		switch {
		case err == nil && n > 0:
			return nil
		case err != nil && !errors.Is(err, unix.EINTR):
			return fmt.Errorf("wait for mysqld %d to die: %w", pid, err)
		case ctx.Err() != nil:
			return fmt.Errorf("wait for mysqld %d to die: %w", pid, ctx.Err())
		case time.Now().After(deadline):
			return fmt.Errorf("%w: pid %d, SIGKILL sent %s ago; look for a hanging disk", ErrNotReaped, pid, killLimit)
		}
	}
}
