package mysqld

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"trireme/internal/base/durable"

	"golang.org/x/sys/unix"
)

// Some folders belong to mysqld's user, who may put a symbolic link, a pipe or a second name of another file in any
// place of them, at any time. The daemon may be root, so it opens what lies there only by the functions of this file:
// relative to the folder, never outside of it, and it looks at the file that it has opened before it reads, writes or
// gives it away. The folders themselves lie in one that is the daemon's.

var errNotOwn = errors.New("it is not a regular file of mysqld's user")

// OpenOwned opens a file of mysqld's user below dir; flag must not create it. A negative uid: of any user.
func OpenOwned(dir, name string, flag, uid int) (*os.File, error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, err
	}
	defer func() { _ = root.Close() }()
	return OpenOwnedIn(root, name, flag, uid)
}

// OpenOwnedIn is OpenOwned below a folder that is open.
func OpenOwnedIn(root *os.Root, name string, flag, uid int) (*os.File, error) {
	f, err := root.OpenFile(name, flag|unix.O_NONBLOCK, 0) // a pipe must not hold the daemon up
	if err != nil {
		return nil, err
	}
	st, err := f.Stat()
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	sys, ok := st.Sys().(*syscall.Stat_t)
	if !st.Mode().IsRegular() || !ok || uid >= 0 && int(sys.Uid) != uid {
		return nil, errors.Join(fmt.Errorf("%s: %w", filepath.Join(root.Name(), name), errNotOwn), f.Close())
	}
	return f, nil
}

// CreateOwned makes a file below dir and gives it to mysqld's user; negative: it stays the daemon's. What is there
// already is an error.
func CreateOwned(dir, name string, mode fs.FileMode, uid, gid int) (*os.File, error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, err
	}
	defer func() { _ = root.Close() }()
	f, err := root.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, mode)
	if err != nil {
		return nil, err
	}
	if err := f.Chown(uid, gid); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// MkdirOwned makes a folder below dir, unless it exists, and gives it to mysqld's user. The parent folder must still be
// the daemon's.
func MkdirOwned(dir, name string, mode fs.FileMode, uid, gid int) error {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer func() { _ = root.Close() }()
	if err := root.Mkdir(name, mode); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	st, err := root.Lstat(name)
	if err == nil && !st.IsDir() {
		err = fmt.Errorf("%s is not a folder", filepath.Join(dir, name))
	}
	return errors.Join(err, root.Lchown(name, uid, gid))
}

// owner is whom mysqld's files belong to, as OpenOwned and CreateOwned want it: negative where mysqld runs as the
// daemon's user.
func (c Config) owner() (uid, gid int, err error) {
	uid, gid, other, err := c.runsAs()
	if err != nil || !other {
		return -1, -1, err
	}
	return uid, gid, nil
}

// replaceOwned replaces a file of mysqld's, whole or not at all, and makes it durable.
func (c Config) replaceOwned(path string, data []byte, mode fs.FileMode) error {
	uid, gid, err := c.owner()
	if err != nil {
		return err
	}
	dir, name := filepath.Split(path)
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer func() { _ = root.Close() }()
	tmp := name + ".tmp"
	if err := root.RemoveAll(tmp); err != nil {
		return err
	}
	f, err := CreateOwned(dir, tmp, mode, uid, gid)
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	if err = errors.Join(err, f.Sync(), f.Close()); err != nil {
		return err
	}
	if err := root.Rename(tmp, name); err != nil {
		return err
	}
	return durable.SyncDir(dir)
}

// appendOwned opens a log of mysqld's to append to it, and makes it if it is missing.
func (c Config) appendOwned(path string) (*os.File, error) {
	uid, gid, err := c.owner()
	if err != nil {
		return nil, err
	}
	dir, name := filepath.Split(path)
	for range 4 { // mysqld's user may make or remove it meanwhile
		f, oerr := OpenOwned(dir, name, os.O_WRONLY|os.O_APPEND, uid)
		if !errors.Is(oerr, fs.ErrNotExist) {
			return f, oerr
		}
		f, err = CreateOwned(dir, name, 0o640, uid, gid)
		if err == nil {
			err = f.Close()
		} else if !errors.Is(err, fs.ErrExist) {
			return nil, err
		}
	}
	return nil, errors.Join(fmt.Errorf("%s: %w", path, errNotOwn), err)
}
