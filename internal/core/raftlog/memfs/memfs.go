// Package memfs is a file system in memory that can fail as disks do: it forgets what was not synced, tears writes,
// flips bits, runs full, and returns errors when told to. It serves the tests of the log and the simulation.
//
// A crash keeps what Fdatasync and SyncDir made durable. Of everything else each operation since the last sync is kept
// or lost at the random source's will, a write also in part: the unit that a disk writes at once is SectorBytes.
package memfs

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"sync"
	"syscall"

	"trireme/internal/core/raftlog"
)

// SectorBytes is what a disk writes whole or not at all.
const SectorBytes = 512

// Op names an operation for FS.Hook.
type Op string

// The operations.
const (
	OpCreate    Op = "create"
	OpOpen      Op = "open"
	OpRename    Op = "rename"
	OpRemove    Op = "remove"
	OpSyncDir   Op = "syncdir"
	OpRead      Op = "read"
	OpWrite     Op = "write"
	OpFdatasync Op = "fdatasync"
	OpTruncate  Op = "truncate"
)

// ErrInjected is a convenient error for hooks to return.
var ErrInjected = errors.New("memfs: injected failure")

// ErrLostWrites is for a hook to return from OpFdatasync: what was written since the last sync does not reach the disk,
// by any later sync either, and is read as if it had until the machine goes down. Linux does that when writing back
// fails: the pages count as clean.
var ErrLostWrites = errors.New("memfs: input/output error in writing back")

// FS is a file system. The zero value is not usable: see New.
type FS struct {
	mu    sync.Mutex
	files map[string]*node // what a program sees
	disk  map[string]*node // the names that are durable
	names []nameChange     // what lies between
	dirs  map[string]bool
	locks map[string]bool
	life  int // counts crashes: files of an earlier life are dead
	limit int64

	// Hook, when set, is called before every operation with the file's path; an error is returned to the caller, and the
	// operation is not done. It may block, to play a slow disk. It must not call the file system.
	Hook func(op Op, name string) error

	// Rot lets Crash turn a bit now and then in what was written and not synced, where it changes what was there.
	Rot bool
}

// node is a file's content: data is what a program sees, disk what is durable, and pending what lies between.
type node struct {
	data, disk []byte
	pending    []change
}

// nameChange gives node n the name to, takes the name from away from it, or does both at once.
type nameChange struct {
	from, to string
	n        *node
}

func (c nameChange) apply(names map[string]*node) {
	if c.from != "" && names[c.from] == c.n {
		delete(names, c.from)
	}
	if c.to != "" {
		names[c.to] = c.n
	}
}

// change is a write of bytes at off, or with bytes nil a change of size to off.
type change struct {
	off   int64
	bytes []byte
}

// New makes an empty file system.
func New() *FS {
	return &FS{files: map[string]*node{}, disk: map[string]*node{}, dirs: map[string]bool{}, locks: map[string]bool{}}
}

// SetLimit bounds the sum of all files' sizes; a write beyond it fails with ENOSPC. 0: no bound.
func (f *FS) SetLimit(bytes int64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.limit = bytes
}

// Kill plays the death of the process: files that are open fail from then on, locks are gone, nothing is lost.
func (f *FS) Kill() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.life++
	f.locks = map[string]bool{}
}

// Crash plays a loss of power: what was not durable is kept or lost at rnd's will; with rnd nil all of it is lost.
// Files that are open fail from then on, locks are gone.
func (f *FS) Crash(rnd *rand.Rand) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.life++
	f.locks = map[string]bool{}
	names := f.disk
	for _, c := range f.names {
		if rnd != nil && rnd.IntN(2) == 0 {
			c.apply(names)
		}
	}
	done := map[*node]bool{}
	for _, name := range slices.Sorted(maps.Keys(names)) { // in an order that a seed gives again
		if n := names[name]; !done[n] {
			n.crash(rnd, f.Rot)
			done[n] = true
		}
	}
	f.files, f.disk, f.names = map[string]*node{}, map[string]*node{}, nil
	for name, n := range names {
		f.files[name], f.disk[name] = n, n
	}
}

// crash leaves of the pending changes what rnd says.
func (n *node) crash(rnd *rand.Rand, rot bool) {
	out := append([]byte(nil), n.disk...)
	lost := false
	for _, c := range n.pending {
		if rnd != nil && c.bytes == nil && rnd.IntN(2) == 0 {
			lost = true
		}
		switch {
		case rnd == nil:
		case c.bytes == nil && lost:
			if rnd.IntN(2) == 0 && c.off < int64(len(out)) { // the rest of the sector is cleared
				clear(out[c.off:min(int64(len(out)), (c.off+511)/512*512)])
			}
		case c.bytes == nil:
			// Changes of size are journaled in order, together with the blocks they free.
			out = resize(out, c.off)
		case rot && len(c.bytes) > 0 && rnd.IntN(8) == 0:
			out = tear(out, change{c.off, turned(out, c, rnd)}, rnd)
		default:
			out = tear(out, c, rnd)
		}
	}
	n.data, n.disk, n.pending = out, append([]byte(nil), out...), nil
}

// turned is what c writes with one bit turned.
func turned(out []byte, c change, rnd *rand.Rand) []byte {
	at := rnd.IntN(len(c.bytes))
	if disk := c.off + int64(at); disk < int64(len(out)) && out[disk] == c.bytes[at] {
		return c.bytes
	}
	b := append([]byte(nil), c.bytes...)
	b[at] ^= 1 << rnd.IntN(8)
	return b
}

// tear writes some of the sectors that c touches.
func tear(out []byte, c change, rnd *rand.Rand) []byte {
	mode := rnd.IntN(3) // all, none, or some
	for at := int64(0); at < int64(len(c.bytes)); {
		n := min(SectorBytes-(c.off+at)%SectorBytes, int64(len(c.bytes))-at)
		if mode == 0 || (mode == 2 && rnd.IntN(2) == 0) {
			if end := c.off + at + n; end > int64(len(out)) {
				out = resize(out, end)
			}
			copy(out[c.off+at:], c.bytes[at:at+n])
		}
		at += n
	}
	return out
}

// resize returns b with the given length, zeros added.
func resize(b []byte, size int64) []byte {
	old := int64(len(b))
	if size > int64(cap(b)) {
		return append(b, make([]byte, size-old)...)
	}
	b = b[:size]
	if size > old {
		clear(b[old:])
	}
	return b
}

// Flip turns over the bit at bit number bit of the file's content, durable and not.
func (f *FS) Flip(name string, bit int64) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	n, ok := f.files[filepath.Clean(name)]
	if !ok || bit/8 >= int64(len(n.data)) {
		return fmt.Errorf("memfs: flip bit %d of %s: %w", bit, name, fs.ErrNotExist)
	}
	n.data = append([]byte(nil), n.data...)
	n.data[bit/8] ^= 1 << (bit % 8)
	if bit/8 < int64(len(n.disk)) {
		n.disk[bit/8] ^= 1 << (bit % 8)
	}
	return nil
}

// ReadFile returns what a program would read.
func (f *FS) ReadFile(name string) ([]byte, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	n, ok := f.files[filepath.Clean(name)]
	if !ok {
		return nil, pathError("read", name, fs.ErrNotExist)
	}
	return append([]byte(nil), n.data...), nil
}

// WriteFile makes a durable file.
func (f *FS) WriteFile(name string, data []byte) {
	f.mu.Lock()
	defer f.mu.Unlock()
	n := &node{data: append([]byte(nil), data...), disk: append([]byte(nil), data...)}
	name = filepath.Clean(name)
	f.files[name], f.disk[name] = n, n
	f.dirs[filepath.Dir(name)] = true
}

func pathError(op, name string, err error) error { return &fs.PathError{Op: op, Path: name, Err: err} }

// hook runs f.Hook. It is called without f.mu.
func (f *FS) hook(op Op, name string) error {
	if f.Hook == nil {
		return nil
	}
	if err := f.Hook(op, name); err != nil {
		return pathError(string(op), name, err)
	}
	return nil
}

func (f *FS) used() int64 {
	var n int64
	for _, file := range f.files {
		n += int64(len(file.data))
	}
	return n
}

// MkdirAll implements raftlog.FS.
func (f *FS) MkdirAll(dir string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.dirs[filepath.Clean(dir)] = true
	return nil
}

type lock struct {
	f    *FS
	name string
	life int
}

// Lock implements raftlog.FS.
func (f *FS) Lock(name string) (io.Closer, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	name = filepath.Clean(name)
	if f.locks[name] {
		return nil, fmt.Errorf("%w: %s", raftlog.ErrLocked, name)
	}
	f.locks[name] = true
	return &lock{f, name, f.life}, nil
}

func (l *lock) Close() error {
	l.f.mu.Lock()
	defer l.f.mu.Unlock()
	if l.life == l.f.life {
		delete(l.f.locks, l.name)
	}
	return nil
}

// Create implements raftlog.FS.
func (f *FS) Create(name string) (raftlog.File, error) {
	if err := f.hook(OpCreate, name); err != nil {
		return nil, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	name = filepath.Clean(name)
	if !f.dirs[filepath.Dir(name)] {
		return nil, pathError("create", name, fs.ErrNotExist)
	}
	n := f.files[name]
	if n == nil {
		n = &node{}
		f.files[name] = n
		f.names = append(f.names, nameChange{to: name, n: n})
	} else if len(n.data) > 0 {
		n.data = nil
		n.pending = append(n.pending, change{})
	}
	return &file{fs: f, name: name, n: n, life: f.life}, nil
}

// Open implements raftlog.FS.
func (f *FS) Open(name string) (raftlog.File, error) { return f.open(name, false) }

// OpenRead implements raftlog.FS.
func (f *FS) OpenRead(name string) (raftlog.File, error) { return f.open(name, true) }

func (f *FS) open(name string, readOnly bool) (raftlog.File, error) {
	if err := f.hook(OpOpen, name); err != nil {
		return nil, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	name = filepath.Clean(name)
	n := f.files[name]
	if n == nil {
		return nil, pathError("open", name, fs.ErrNotExist)
	}
	return &file{fs: f, name: name, n: n, life: f.life, readOnly: readOnly}, nil
}

// Rename implements raftlog.FS.
func (f *FS) Rename(oldName, newName string) error {
	if err := f.hook(OpRename, oldName); err != nil {
		return err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	oldName, newName = filepath.Clean(oldName), filepath.Clean(newName)
	n := f.files[oldName]
	if n == nil {
		return pathError("rename", oldName, fs.ErrNotExist)
	}
	c := nameChange{from: oldName, to: newName, n: n}
	c.apply(f.files)
	f.names = append(f.names, c)
	return nil
}

// Remove implements raftlog.FS.
func (f *FS) Remove(name string) error {
	if err := f.hook(OpRemove, name); err != nil {
		return err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	name = filepath.Clean(name)
	n := f.files[name]
	if n == nil {
		return pathError("remove", name, fs.ErrNotExist)
	}
	delete(f.files, name)
	f.names = append(f.names, nameChange{from: name, n: n})
	return nil
}

// SyncDir implements raftlog.FS.
func (f *FS) SyncDir(dir string) error {
	if err := f.hook(OpSyncDir, dir); err != nil {
		return err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	dir = filepath.Clean(dir)
	rest := f.names[:0]
	for _, c := range f.names {
		if filepath.Dir(c.from) == dir || filepath.Dir(c.to) == dir {
			c.apply(f.disk)
		} else {
			rest = append(rest, c)
		}
	}
	f.names = rest
	return nil
}

// ReadDir implements raftlog.FS.
func (f *FS) ReadDir(dir string) ([]string, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	dir = filepath.Clean(dir)
	if !f.dirs[dir] {
		return nil, pathError("readdir", dir, fs.ErrNotExist)
	}
	var names []string
	for name := range f.files {
		if filepath.Dir(name) == dir {
			names = append(names, filepath.Base(name))
		}
	}
	slices.Sort(names) // so that a seed gives the same run again
	return names, nil
}

// Free implements raftlog.FS.
func (f *FS) Free(string) (uint64, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.limit == 0 {
		return 1 << 40, nil
	}
	return uint64(max(0, f.limit-f.used())), nil
}

var errNoSpace error = syscall.ENOSPC

// Used is the sum of all files' sizes.
func (f *FS) Used() int64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.used()
}
