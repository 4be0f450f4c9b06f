package bench

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
)

const (
	scratchPattern = "trireme-bench-*"
	runningMark    = "running" // in a scratch directory while its run goes on
)

// newScratch makes a scratch directory in dir. It removes the directories of killed runs, which take some GiB each. It
// keeps a directory that a run left deliberately because its logs tell of a failure.
func newScratch(dir string, say io.Writer) (string, error) {
	old, err := filepath.Glob(filepath.Join(dir, scratchPattern))
	if err != nil {
		return "", err
	}
	for _, d := range old {
		if _, err := os.Stat(filepath.Join(d, runningMark)); err != nil {
			continue
		}
		unlock, err := lockDir(d)
		if err != nil {
			continue // it is running
		}
		if err := errors.Join(os.RemoveAll(d), unlock()); err != nil {
			fmt.Fprintf(say, "scratch of a run that was killed stays: %v\n", err)
		} else {
			fmt.Fprintf(say, "removed %s, scratch of a run that was killed\n", d)
		}
	}
	return os.MkdirTemp(dir, scratchPattern)
}

// markRunning locks this directory: a later run may remove it only if it finds it unlocked.
func markRunning(dir string) (unmark func(), err error) {
	name := filepath.Join(dir, runningMark)
	if err := os.WriteFile(name, nil, 0o644); err != nil {
		return nil, err
	}
	return func() {
		if err := os.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
			fmt.Fprintln(os.Stderr, err)
		}
	}, nil
}

// lockDir keeps a second run out, until this one ends in whatever way.
func lockDir(dir string) (unlock func() error, err error) {
	f, err := os.Open(dir)
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		f.Close()
		return nil, fmt.Errorf("%s is in use by another run: wait for it, or name other directories with --out and --dir",
			dir)
	}
	return f.Close, nil
}
