package backup

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"trireme/internal/base/durable"
	"trireme/internal/mysql/mysqld"
)

// Store holds the objects of a backup. Names are relative slash paths. Methods may be called from any goroutine.
type Store interface {
	// Put makes an object of what fill writes: whole and durable when it returns nil, else not there at all. One that
	// is there is replaced.
	Put(name string, fill func(io.Writer) error) error
	// Open reads an object. The error is ErrMissing if it does not exist.
	Open(name string) (io.ReadCloser, error)
	// List returns the names of all objects below a prefix that ends in a slash, sorted.
	List(prefix string) ([]string, error)
	// Remove takes an object away; one that is not there is no error.
	Remove(name string) error
	// String says where it is, for people.
	String() string
}

// Place is a Store that backups are made in and restored from: a directory or a bucket.
type Place interface {
	Store
	keyed
	vacant
	holder
	// Encrypt has everything that is written be encrypted, and what is read decrypted; with the zero Key nothing. It
	// goes before everything else.
	Encrypt(Key)
	// Lock takes the right to write a part until Close or the end of the process, and clears what writers before have
	// left unfinished there. The error is ErrLocked when another process has it.
	Lock(part string) (io.Closer, error)
}

// Dir is a Place in a directory. The directory may be another user's than ours, who may be root: nothing below it is
// opened, made or removed but relative to it, so that no link leads out of it. It is opened again each time: its file
// system may go and come back. Where somebody else than root could put another one in its place, it must stay the
// same.
type Dir struct {
	root string
	same fs.FileInfo // nil: need not be checked
	sealing
	// through, in tests, stands between an object and its file.
	through func(io.Writer) io.Writer
}

// tempPrefix marks files that are not objects yet.
const tempPrefix = ".tmp-"

// NewDir makes the directory if it is missing. mysqld, which may run as another user, has to get through it to its
// working directory, and nothing else is readable for others.
func NewDir(root string) (*Dir, error) {
	root, err := filepath.Abs(root)
	if err != nil {
		return nil, err
	}
	if err := os.MkdirAll(root, 0o711); err != nil {
		return nil, fmt.Errorf("backup: make the directory: %w", err)
	}
	d := &Dir{root: root}
	if os.Geteuid() == 0 && !mysqld.RootsAlone(root) {
		if d.same, err = os.Stat(root); err != nil {
			return nil, fmt.Errorf("backup: %w", err)
		}
	}
	return d, nil
}

// open the directory itself.
func (d *Dir) open() (*os.Root, error) {
	root, err := os.OpenRoot(d.root)
	if err != nil || d.same == nil {
		return root, err
	}
	st, err := root.Stat(".")
	if err == nil && !os.SameFile(st, d.same) {
		err = fmt.Errorf("%w: %s was replaced by another directory meanwhile", ErrMissing, d.root)
	}
	if err != nil {
		return nil, errors.Join(err, root.Close())
	}
	return root, nil
}

// OpenDir is NewDir for a directory that must be there. The error is ErrNone when it is not.
func OpenDir(root string) (*Dir, error) {
	st, err := os.Stat(root)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, fmt.Errorf("%w: there is no %s", ErrNone, root)
	case err != nil:
		return nil, fmt.Errorf("backup: %w", err)
	case !st.IsDir():
		return nil, fmt.Errorf("%w: %s is no directory", ErrNone, root)
	}
	return NewDir(root)
}

// Work is a directory in it for the copy that is being made; the lock of the copies covers it. It is empty when we are
// root and others may write there, or put something else in its place: mysqld's files are given away by their paths.
func (d *Dir) Work() string {
	if os.Geteuid() == 0 && !mysqld.RootsAlone(d.root) {
		return ""
	}
	return filepath.Join(d.root, "work")
}

func (d *Dir) String() string { return d.root }

func (d *Dir) path(name string) string { return filepath.Join(d.root, filepath.FromSlash(name)) }

// Put implements Store: a temporary file, fsync, rename, fsync of the directory.
func (d *Dir) Put(name string, fill func(io.Writer) error) error {
	if err := d.put(name, fill); err != nil {
		return d.explain("write "+name, err)
	}
	return nil
}

func (d *Dir) put(name string, fill func(io.Writer) error) (err error) {
	root, err := d.open()
	if err != nil {
		return err
	}
	defer func() { _ = root.Close() }()
	if err := d.mounted(root, name); err != nil {
		return err
	}
	if err := makeParents(root, path.Dir(name)); err != nil {
		return err
	}
	temp := path.Join(path.Dir(name), tempPrefix+rand.Text())
	f, err := root.OpenFile(temp, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			_ = root.Remove(temp)
		}
	}()
	var w io.Writer = f
	if d.through != nil {
		w = d.through(f)
	}
	if err = d.write(name, w, fill); err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return err
	}
	if err := root.Rename(temp, name); err != nil {
		return err
	}
	return syncIn(root, path.Dir(name))
}

// vacant is ErrNotOurs when there is anything but what a first run leaves that was killed.
func (d *Dir) vacant() error {
	all, err := os.ReadDir(d.root)
	if err != nil {
		return fmt.Errorf("backup: %w", err)
	}
	for _, e := range all {
		if !strings.HasPrefix(e.Name(), tempPrefix) && e.Name() != readersName && e.Name() != "lost+found" {
			return fmt.Errorf("%w: %s holds %s: name an empty directory, or one that is not there", ErrNotOurs, d.root, e.Name())
		}
	}
	return nil
}

// mounted refuses to write to what is no backup any more: the folder below a file system that was unmounted looks like
// an empty one.
func (d *Dir) mounted(root *os.Root, name string) error {
	if name == identityName {
		return nil
	}
	_, err := root.Stat(identityName)
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%w: %s has no %s any more: is its file system mounted?", ErrMissing, d.root, identityName)
	}
	return err
}

// makeParents makes folders that are missing, durably.
func makeParents(root *os.Root, dir string) error {
	if _, err := root.Stat(dir); err == nil {
		return nil
	}
	if err := makeParents(root, path.Dir(dir)); err != nil {
		return err
	}
	if err := root.Mkdir(dir, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	return syncIn(root, path.Dir(dir))
}

// Open implements Store.
func (d *Dir) Open(name string) (io.ReadCloser, error) {
	root, err := d.open()
	if err != nil {
		return nil, fmt.Errorf("backup: %w", err)
	}
	defer func() { _ = root.Close() }()
	f, err := mysqld.OpenOwnedIn(root, name, os.O_RDONLY, -1)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%w: %s in %s", ErrMissing, name, d.root)
	}
	if err != nil {
		return nil, fmt.Errorf("backup: %w", err)
	}
	return d.read(name, f)
}

// List implements Store.
func (d *Dir) List(prefix string) ([]string, error) {
	var names []string
	err := d.walk(prefix, func(_ *os.Root, name string) error {
		if !strings.HasPrefix(path.Base(name), tempPrefix) {
			names = append(names, name)
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("backup: list %s: %w", d.path(prefix), err)
	}
	slices.Sort(names)
	return names, nil
}

// walk visits the files below a folder.
func (d *Dir) walk(folder string, visit func(root *os.Root, name string) error) error {
	root, err := d.open()
	if err != nil {
		return err
	}
	defer func() { _ = root.Close() }()
	return fs.WalkDir(root.FS(), path.Clean(folder), func(name string, e fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) {
			return nil // another process is clearing up
		}
		if err != nil || e.IsDir() {
			return err
		}
		return visit(root, name)
	})
}

// Remove implements Store.
func (d *Dir) Remove(name string) error {
	root, err := d.open()
	if err != nil {
		return fmt.Errorf("backup: %w", err)
	}
	defer func() { _ = root.Close() }()
	if err := root.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("backup: %w", err)
	}
	if isManifest(name) { // its copy's files go after it
		if err := syncIn(root, path.Dir(name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	// Folders are no objects: those that are empty now go too.
	for dir := path.Dir(name); dir != "." && root.Remove(dir) == nil; {
		dir = path.Dir(dir)
	}
	return nil
}

// The parts of a backup that one process at a time may write.
const (
	lockLog  = "log"
	lockBase = "base"
)

// Lock implements Place.
func (d *Dir) Lock(part string) (io.Closer, error) {
	root, err := d.open()
	if err != nil {
		return nil, d.explain("lock "+part, err)
	}
	defer func() { _ = root.Close() }()
	if err := makeParents(root, part); err != nil {
		return nil, d.explain("lock "+part, err)
	}
	name := path.Join(part, tempPrefix+"lock")
	f, err := root.OpenFile(name, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, d.explain("lock "+part, err)
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		_ = f.Close()
		if errors.Is(err, unix.EWOULDBLOCK) {
			return nil, fmt.Errorf("%w: another process writes %s", ErrLocked, d.path(part))
		}
		return nil, d.explain("lock "+part, err)
	}
	if err := d.clear(part, name); err != nil {
		_ = f.Close()
		return nil, err
	}
	return f, nil
}

// holder is a store whose objects somebody may remove while others read them.
type holder interface {
	hold(exclusive bool) (io.Closer, error)
}

// holdStill keeps objects from being removed until Close, as far as the store can; exclusive is for who removes them,
// and ErrLocked while anybody reads.
func holdStill(s Store, exclusive bool) (io.Closer, error) {
	if h, ok := s.(holder); ok {
		return h.hold(exclusive)
	}
	return io.NopCloser(nil), nil
}

const readersName = "readers.lock"

func (d *Dir) hold(exclusive bool) (io.Closer, error) {
	root, err := d.open()
	if err != nil {
		return nil, d.explain("lock", err)
	}
	defer func() { _ = root.Close() }()
	f, err := root.OpenFile(readersName, os.O_RDONLY|os.O_CREATE|unix.O_NONBLOCK, 0o600)
	if err != nil && !exclusive {
		// A backup that this process may only read: what is there can be locked, and where nothing is, nothing has been
		// removed yet.
		if f, err = root.OpenFile(readersName, os.O_RDONLY|unix.O_NONBLOCK, 0); err != nil {
			return io.NopCloser(nil), nil
		}
	}
	if err != nil {
		return nil, d.explain("lock", err)
	}
	how := unix.LOCK_SH
	if exclusive {
		how = unix.LOCK_EX | unix.LOCK_NB
	}
	if err := unix.Flock(int(f.Fd()), how); err != nil {
		_ = f.Close()
		if errors.Is(err, unix.EWOULDBLOCK) {
			return nil, fmt.Errorf("%w: another process reads %s", ErrLocked, d.root)
		}
		return nil, d.explain("lock", err)
	}
	return f, nil
}

// clear removes temporary files of writers that were killed.
func (d *Dir) clear(part, keep string) error {
	err := d.walk(part, func(root *os.Root, name string) error {
		if name == keep || !strings.HasPrefix(path.Base(name), tempPrefix) {
			return nil
		}
		return root.Remove(name)
	})
	if err != nil {
		return fmt.Errorf("backup: clear up %s: %w", d.path(part), err)
	}
	return nil
}

// explain makes a full disk known as such.
func (d *Dir) explain(doing string, err error) error {
	if errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) {
		left, _ := durable.Free(d.root)
		return fmt.Errorf(
			"%w: %s: %d MiB are free in %s; what was written before is whole: make room and run the same command again: %w",
			ErrNoSpace, doing, left>>20, d.root, err)
	}
	return fmt.Errorf("backup: %s: %w", doing, err)
}

// syncIn is durable.SyncDir for a folder below root.
func syncIn(root *os.Root, dir string) error {
	f, err := root.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}
