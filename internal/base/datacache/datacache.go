// Package datacache keeps data directories that a mysqld has initialised, in the cache folder: `mysqld --initialize`
// takes seconds, a copy a fraction of one. Tests and benchmarks begin their servers with copies.
//
//	dir, err := datacache.Dir(ctx, mysqld.CacheDir(), server.Path, recipe, func(ctx context.Context, dir string) error { … })
//
// A directory is found again by the server's program and by its recipe: the server's version and all that it was told
// while the directory was made, in full. A recipe comes from the code that carries it out, so that a change of that
// code is a miss.
package datacache

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"trireme/internal/base/durable"
	"trireme/internal/base/poll"

	"golang.org/x/sys/unix"
)

const (
	keep       = 8      // directories, the ones used last; one that a running process has asked for stays in any case
	unfinished = "new-" // begins the name of a directory that is being made
	// in the cache: held while a directory is looked up or made; in a directory: shared by the processes that use it
	lockName = "lock"
)

// inUse holds the shared locks of this process; it ends with them.
var inUse struct {
	sync.Mutex
	locks map[string]*os.File
}

// Dir gives the directory of the cache folder that a server's program has made by a recipe. If it is not there, fill
// makes it, once, also when several processes ask. It is there until this process ends; copy from it, and change
// nothing in it.
func Dir(ctx context.Context, cache, program, recipe string, fill func(ctx context.Context, dir string) error) (string,
	error) {
	if cache == "" {
		return "", errors.New("no cache folder: set TRIREME_CACHE or HOME")
	}
	return dir(ctx, filepath.Join(cache, "data"), program, recipe, fill)
}

func dir(ctx context.Context, root string, program, recipe string,
	fill func(ctx context.Context, dir string) error) (string, error) {
	key, err := keyOf(program, recipe)
	if err != nil {
		return "", err
	}
	path := filepath.Join(root, key)
	inUse.Lock()
	defer inUse.Unlock()
	if inUse.locks[path] != nil {
		return path, nil
	}
	if err := os.MkdirAll(root, 0o700); err != nil {
		return "", err
	}
	all, err := lock(ctx, filepath.Join(root, lockName), unix.LOCK_EX)
	if err != nil {
		return "", err
	}
	defer all.Close()
	if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) {
		err = create(ctx, root, path, fill)
		if err != nil {
			return "", err
		}
	}
	now := time.Now()
	if err := os.Chtimes(path, now, now); err != nil {
		return "", err
	}
	used, err := lock(ctx, filepath.Join(path, lockName), unix.LOCK_SH)
	if err != nil {
		return "", err
	}
	if inUse.locks == nil {
		inUse.locks = map[string]*os.File{}
	}
	inUse.locks[path] = used
	return path, prune(root)
}

// keyOf names a directory. A server that takes the place of another one has another time of change or size.
func keyOf(program, recipe string) (string, error) {
	path, err := filepath.EvalSymlinks(program)
	if err != nil {
		return "", err
	}
	st, err := os.Stat(path)
	if err != nil {
		return "", err
	}
	sum := sha256.Sum256(fmt.Appendf(nil, "%q %d %d %d %q", path, st.Size(), st.ModTime().UnixNano(), os.Getuid(), recipe))
	return hex.EncodeToString(sum[:12]), nil
}

// create makes a directory, whole or not at all. The lock of the cache is held.
func create(ctx context.Context, root, path string, fill func(ctx context.Context, dir string) error) error {
	left, _ := filepath.Glob(filepath.Join(root, unfinished+"*"))
	for _, dir := range left { // of a process that was killed
		if err := os.RemoveAll(dir); err != nil {
			return err
		}
	}
	tmp, err := os.MkdirTemp(root, unfinished)
	if err != nil {
		return err
	}
	err = fill(ctx, tmp)
	if err == nil {
		err = durable.SyncFS(tmp) // after a power cut it is whole, or was never renamed
	}
	if err == nil {
		err = os.WriteFile(filepath.Join(tmp, lockName), nil, 0o600)
	}
	if err == nil {
		err = os.Rename(tmp, path)
	}
	if err != nil {
		return errors.Join(err, os.RemoveAll(tmp))
	}
	return nil
}

// prune removes what was not used for the longest time. The lock of the cache is held.
func prune(root string) error {
	entries, err := os.ReadDir(root)
	if err != nil {
		return err
	}
	type made struct {
		path string
		used time.Time
	}
	var old []made
	for _, e := range entries {
		if info, err := e.Info(); err == nil && e.IsDir() && !strings.HasPrefix(e.Name(), unfinished) {
			old = append(old, made{filepath.Join(root, e.Name()), info.ModTime()})
		}
	}
	slices.SortFunc(old, func(a, b made) int { return b.used.Compare(a.used) })
	for _, m := range old[min(keep, len(old)):] {
		f, err := durable.Lock(filepath.Join(m.path, lockName))
		if errors.Is(err, durable.ErrLocked) {
			continue
		} else if err != nil {
			return err
		}
		if err := errors.Join(os.RemoveAll(m.path), f.Close()); err != nil {
			return err
		}
	}
	return nil
}

// lock waits for the lock of a file until ctx ends. Closing the file gives it up.
func lock(ctx context.Context, path string, how int) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	for {
		err := unix.Flock(int(f.Fd()), how|unix.LOCK_NB)
		if err == nil {
			return f, nil
		}
		if !errors.Is(err, unix.EWOULDBLOCK) && !errors.Is(err, unix.EINTR) {
			return nil, errors.Join(fmt.Errorf("lock %s: %w", path, err), f.Close())
		}
		if err := poll.Pause(ctx, 20*time.Millisecond); err != nil {
			return nil, errors.Join(fmt.Errorf("lock %s: %w", path, err), f.Close())
		}
	}
}
