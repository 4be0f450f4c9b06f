package mysqld

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"trireme/internal/base/durable"
)

// DirLock keeps a directory for one daemon. The kernel drops it when the process dies, however it dies.
type DirLock struct{ f *os.File }

// Lock takes dir (made if missing) for this process. ErrLocked names the process that has it. The lock is a flock of
// the file trireme.lock; children do not inherit it.
func Lock(dir string) (*DirLock, error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, fmt.Errorf("lock %s: %w", dir, err)
	}
	path := filepath.Join(dir, "trireme.lock")
	f, err := durable.Lock(path)
	if errors.Is(err, durable.ErrLocked) {
		return nil, fmt.Errorf("%w: %s is held by %s; stop it first, or give this node a directory of its own", ErrLocked,
			dir, lockHolder(path))
	} else if err != nil {
		return nil, err
	}
	// The pid is for the message above only; the lock itself is the kernel's.
	err = f.Truncate(0)
	if err == nil {
		_, err = f.WriteAt([]byte(strconv.Itoa(os.Getpid())+"\n"), 0)
	}
	if err != nil {
		_ = f.Close()
		return nil, fmt.Errorf("lock %s: %w", dir, err)
	}
	return &DirLock{f}, nil
}

// Unlock gives the directory back. A second call does nothing.
func (l *DirLock) Unlock() {
	_ = l.f.Close()
}

func lockHolder(path string) string {
	b, _ := os.ReadFile(path)
	pid, err := strconv.Atoi(strings.TrimSpace(string(b)))
	if err != nil || pid <= 0 {
		return "another process"
	}
	return describe(pid)
}

// ownerOf gives a folder's user and permission bits, without following a link.
func ownerOf(path string) (uid int, mode os.FileMode, err error) {
	st, err := os.Lstat(path)
	if err != nil {
		return 0, 0, err
	}
	if !st.IsDir() {
		return 0, 0, fmt.Errorf("%s is not a folder", path)
	}
	sys, ok := st.Sys().(*syscall.Stat_t)
	if !ok {
		return 0, 0, fmt.Errorf("%s: no owner known", path)
	}
	return int(sys.Uid), st.Mode().Perm(), nil
}
