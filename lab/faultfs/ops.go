package faultfs

import (
	"errors"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"
)

// Order is what a power loss may do to names.
type Order int

// The orders. Posix is the meanest.
const (
	Posix Order = iota
	Journaled
)

// dying is how long the power takes to go. Without it no write would be under way.
const dying = 2 * time.Millisecond

// forever: only the kernel changes what it has in its caches.
const forever = time.Hour

// world is the file system as the kernel sees it. An operation holds power for reading while it is carried out, not
// while it is delayed.
type world struct {
	fuse.RawFileSystem // answers ENOSYS to all that is not here

	power sync.RWMutex
	off   bool
	dark  chan struct{} // closed while the power is off
	// the power goes: writes still reach the disk, but are not confirmed, and nothing is durable any more
	dying atomic.Bool

	noCache bool
	takeAll bool

	mu      sync.Mutex // of what follows; taken before that of a content
	tree    *tree
	handles map[uint64]*handle
	nextFH  uint64

	faults *faults
	rnd    *rand.Rand
}

// handle is an open file or directory.
type handle struct {
	n      *node
	listed []fuse.DirEntry // of a directory
}

func newWorld(o Options, backing string) *world {
	return &world{RawFileSystem: fuse.NewDefaultRawFileSystem(), dark: make(chan struct{}), noCache: o.NoCache,
		takeAll: o.TakeAll, tree: newTree(o.Names, backing), handles: map[uint64]*handle{}, faults: newFaults(),
		rnd: rand.New(rand.NewPCG(o.Seed, 0))}
}

// powerOff ends all operations, and leaves what a disk may have.
func (w *world) powerOff() (loss Loss, err error) {
	w.dying.Store(true)
	time.Sleep(dying)
	w.power.Lock()
	defer w.power.Unlock()
	if w.off {
		return loss, nil
	}
	w.off = true
	close(w.dark)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.handles = map[uint64]*handle{}
	err = w.tree.lose(w.rnd, newTemper(w.rnd, w.takeAll), &loss)
	return loss, err
}

func (w *world) powerOn() {
	w.power.Lock()
	defer w.power.Unlock()
	if w.off {
		w.off, w.dark = false, make(chan struct{})
		w.dying.Store(false)
	}
}

// syncAll makes everything durable.
func (w *world) syncAll() {
	w.power.Lock()
	defer w.power.Unlock()
	w.mu.Lock()
	defer w.mu.Unlock()
	w.tree.syncNames(nil)
	for _, n := range w.tree.nodes {
		if n.file != nil {
			n.file.sync()
		}
	}
}

// begin an operation: it waits as the faults say. Without an error the caller holds power until it calls end.
func (w *world) begin(ops Op, name string, n Count) fuse.Status {
	v := w.faults.judge(ops, name, n)
	w.power.RLock()
	dark := w.dark
	if w.off {
		w.power.RUnlock()
		return fuse.EIO
	}
	if v.delay == 0 && !v.hang {
		if v.err != 0 {
			w.power.RUnlock()
			return fuse.Status(v.err)
		}
		return fuse.OK
	}
	w.power.RUnlock()
	w.wait(v, dark)
	w.power.RLock()
	switch {
	case w.off || dark != w.dark:
		w.power.RUnlock()
		return fuse.EIO
	case v.err != 0:
		w.power.RUnlock()
		return fuse.Status(v.err)
	}
	return fuse.OK
}

func (w *world) wait(v verdict, dark chan struct{}) {
	var after <-chan time.Time
	if !v.hang {
		timer := time.NewTimer(v.delay)
		defer timer.Stop()
		after = timer.C
	}
	select {
	case <-after:
	case <-v.changed:
		if !v.hang { // a delay that has begun is not taken back
			select {
			case <-after:
			case <-dark:
			}
		}
	case <-dark:
	}
}

func (w *world) end() { w.power.RUnlock() }

// node that the kernel knows; the root is its number 1.
func (w *world) node(ino uint64) (*node, fuse.Status) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if n := w.tree.nodes[ino]; n != nil {
		return n, fuse.OK
	}
	return nil, fuse.EIO // gone with the power
}

func (w *world) pathOf(ino uint64, name string) string {
	w.mu.Lock()
	defer w.mu.Unlock()
	n := w.tree.nodes[ino]
	switch {
	case n == nil:
		return name
	case name == "":
		return n.path()
	}
	return n.child(name)
}

func status(err error) fuse.Status {
	var no unix.Errno
	switch {
	case err == nil:
		return fuse.OK
	case errors.As(err, &no):
		return fuse.Status(no)
	}
	return fuse.EIO
}

// entryOut gives a node to the kernel. Call it with mu held.
func (w *world) entryOut(n *node, out *fuse.EntryOut) {
	n.lookups++
	out.NodeId, out.Generation = n.ino, 1
	out.SetEntryTimeout(forever)
	out.SetAttrTimeout(forever)
	n.stat(&out.Attr)
}

// Lookup of a name.
func (w *world) Lookup(_ <-chan struct{}, header *fuse.InHeader, name string, out *fuse.EntryOut) fuse.Status {
	if s := w.begin(0, "", Count{}); s != fuse.OK {
		return s
	}
	defer w.end()
	w.mu.Lock()
	defer w.mu.Unlock()
	dir := w.tree.nodes[header.NodeId]
	if dir == nil || dir.names[name] == nil {
		return fuse.ENOENT
	}
	w.entryOut(dir.names[name], out)
	return fuse.OK
}

// Forget what the kernel does not hold any more.
func (w *world) Forget(ino, lookups uint64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if n := w.tree.nodes[ino]; n != nil {
		n.lookups -= min(lookups, n.lookups)
	}
}

// GetAttr is stat.
func (w *world) GetAttr(_ <-chan struct{}, in *fuse.GetAttrIn, out *fuse.AttrOut) fuse.Status {
	if s := w.begin(0, "", Count{}); s != fuse.OK {
		return s
	}
	defer w.end()
	n, s := w.node(in.NodeId)
	if s != fuse.OK {
		return s
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	n.stat(&out.Attr)
	out.SetTimeout(forever)
	return fuse.OK
}

// SetAttr is chmod, chown, utimes and truncate.
func (w *world) SetAttr(_ <-chan struct{}, in *fuse.SetAttrIn, out *fuse.AttrOut) fuse.Status {
	n, s := w.node(in.NodeId)
	if s != fuse.OK {
		return s
	}
	size, sized := in.GetSize()
	ops, count := Op(0), Count{}
	if sized {
		ops, count.Writes = Write, 1
	}
	if s := w.begin(ops, w.pathOf(in.NodeId, ""), count); s != fuse.OK {
		return s
	}
	defer w.end()
	if sized {
		if n.file == nil {
			return fuse.EINVAL
		}
		if err := n.file.truncate(int64(size)); err != nil {
			return status(err)
		}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	n.touched()
	if mode, ok := in.GetMode(); ok {
		n.attr.Mode = n.attr.Mode&unix.S_IFMT | mode
	}
	if uid, ok := in.GetUID(); ok {
		n.attr.Uid = uid
	}
	if gid, ok := in.GetGID(); ok {
		n.attr.Gid = gid
	}
	if at, ok := in.GetATime(); ok {
		n.attr.SetTimes(&at, nil, nil)
	}
	if at, ok := in.GetMTime(); ok {
		n.attr.SetTimes(nil, &at, nil)
	}
	n.stat(&out.Attr)
	out.SetTimeout(forever)
	return fuse.OK
}

// StatFs shows the space of the file system below; none where a fault says so.
func (w *world) StatFs(_ <-chan struct{}, in *fuse.InHeader, out *fuse.StatfsOut) fuse.Status {
	if s := w.begin(0, "", Count{}); s != fuse.OK {
		return s
	}
	defer w.end()
	var st unix.Statfs_t
	if err := unix.Statfs(w.tree.backing, &st); err != nil {
		return status(err)
	}
	out.Blocks, out.Bfree, out.Bavail, out.Bsize, out.Frsize = st.Blocks, st.Bfree, st.Bavail, uint32(st.Bsize),
		uint32(st.Frsize)
	out.Files, out.Ffree, out.NameLen = st.Files, st.Ffree, uint32(st.Namelen)
	if w.faults.full(w.pathOf(in.NodeId, "")) {
		out.Bfree, out.Bavail = 0, 0
	}
	return fuse.OK
}

// Fsync of a file.
func (w *world) Fsync(_ <-chan struct{}, in *fuse.FsyncIn) fuse.Status {
	n, s := w.node(in.NodeId)
	if s != fuse.OK {
		return s
	}
	if s := w.begin(Fsync, w.pathOf(in.NodeId, ""), Count{Fsyncs: 1}); s != fuse.OK {
		return w.failed(n, s)
	}
	defer w.end()
	if w.dying.Load() {
		return fuse.EIO
	}
	if n.file != nil {
		n.file.sync()
	}
	if w.tree.order == Journaled {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.tree.syncNames(nil)
	}
	return fuse.OK
}

// failed says so, and dooms what an fsync was to write.
func (w *world) failed(n *node, s fuse.Status) fuse.Status {
	w.power.RLock()
	defer w.power.RUnlock()
	if !w.off && n.file != nil {
		if err := n.file.fail(); err != nil {
			return status(err)
		}
	}
	return s
}

// FsyncDir of a directory.
func (w *world) FsyncDir(_ <-chan struct{}, in *fuse.FsyncIn) fuse.Status {
	if s := w.begin(Fsync, w.pathOf(in.NodeId, ""), Count{Fsyncs: 1}); s != fuse.OK {
		return s
	}
	defer w.end()
	if w.dying.Load() {
		return fuse.EIO
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if dir := w.tree.nodes[in.NodeId]; dir != nil {
		w.tree.syncNames(dir)
	}
	return fuse.OK
}

// OpenDir takes the list of names as it is now.
func (w *world) OpenDir(_ <-chan struct{}, in *fuse.OpenIn, out *fuse.OpenOut) fuse.Status {
	if s := w.begin(0, "", Count{}); s != fuse.OK {
		return s
	}
	defer w.end()
	w.mu.Lock()
	defer w.mu.Unlock()
	dir := w.tree.nodes[in.NodeId]
	if dir == nil || dir.names == nil {
		return fuse.ENOTDIR
	}
	h := &handle{n: dir}
	for _, name := range sortedKeys(dir.names) {
		h.listed = append(h.listed, fuse.DirEntry{Name: name, Mode: dir.names[name].attr.Mode, Ino: dir.names[name].ino})
	}
	slices.Reverse(h.listed) // no reader should rely on an order
	out.Fh = w.open(h)
	return fuse.OK
}

// ReadDir lists names.
func (w *world) ReadDir(_ <-chan struct{}, in *fuse.ReadIn, out *fuse.DirEntryList) fuse.Status {
	if s := w.begin(0, "", Count{}); s != fuse.OK {
		return s
	}
	defer w.end()
	w.mu.Lock()
	defer w.mu.Unlock()
	h := w.handles[in.Fh]
	if h == nil {
		return fuse.EBADF
	}
	for i := in.Offset; i < uint64(len(h.listed)); i++ {
		if !out.AddDirEntry(h.listed[i]) {
			break
		}
	}
	return fuse.OK
}

// open makes a handle known. Call it with mu held.
func (w *world) open(h *handle) uint64 {
	w.nextFH++
	w.handles[w.nextFH] = h
	h.n.opens++
	return w.nextFH
}

// ReleaseDir ends a handle.
func (w *world) ReleaseDir(in *fuse.ReleaseIn) { w.release(in.Fh) }

// Release ends a handle.
func (w *world) Release(_ <-chan struct{}, in *fuse.ReleaseIn) { w.release(in.Fh) }

func (w *world) release(fh uint64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if h := w.handles[fh]; h != nil {
		h.n.opens--
		delete(w.handles, fh)
	}
}
