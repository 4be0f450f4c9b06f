package mysqld

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync/atomic"

	"golang.org/x/sys/unix"
)

// watchSocket closes gone when path disappears while done is open and asked is false. It returns once the watch stands,
// so that nothing that happens afterwards is missed. A killed server leaves its socket file; one that is being shut
// down removes it first.
func watchSocket(path string, done <-chan struct{}, asked *atomic.Bool, gone chan<- struct{}) error {
	fd, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
	if err != nil {
		return fmt.Errorf("watch mysqld's socket: %w", err)
	}
	f := os.NewFile(uintptr(fd), "inotify") // non-blocking: the runtime polls it, and Close ends a Read
	if _, err := unix.InotifyAddWatch(fd, filepath.Dir(path),
		unix.IN_DELETE|unix.IN_MOVED_FROM|unix.IN_ONLYDIR|unix.IN_DELETE_SELF); err != nil {
		_ = f.Close()
		return fmt.Errorf("watch mysqld's socket: %w", err)
	}
	over := make(chan struct{})
	go func() {
		defer close(over)
		buf := make([]byte, 4096)
		for {
			// An event may be for another file of the folder: only the file itself counts.
			if _, err := os.Lstat(path); errors.Is(err, fs.ErrNotExist) {
				if !asked.Load() {
					close(gone)
				}
				return
			}
			if _, err := f.Read(buf); err != nil {
				return
			}
		}
	}()
	go func() {
		select {
		case <-done:
		case <-over:
		}
		_ = f.Close()
	}()
	return nil
}
