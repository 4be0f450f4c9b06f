package faultfs

import (
	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"
)

// openFlags: no flush at close, pages stay (only the kernel changes them), direct writes in parallel.
const openFlags = fuse.FOPEN_KEEP_CACHE | fuse.FOPEN_NOFLUSH | fuse.FOPEN_PARALLEL_DIRECT_WRITES

// Open a file.
func (w *world) Open(_ <-chan struct{}, in *fuse.OpenIn, out *fuse.OpenOut) fuse.Status {
	if s := w.begin(0, "", Count{}); s != fuse.OK {
		return s
	}
	defer w.end()
	n, s := w.node(in.NodeId)
	if s != fuse.OK {
		return s
	}
	if n.file == nil {
		return fuse.EINVAL
	}
	if in.Flags&unix.O_TRUNC != 0 {
		if err := n.file.truncate(0); err != nil {
			return status(err)
		}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	out.Fh, out.OpenFlags = w.open(&handle{n: n}), openFlags
	return fuse.OK
}

// Create a file, or open it if somebody was faster.
func (w *world) Create(_ <-chan struct{}, in *fuse.CreateIn, name string, out *fuse.CreateOut) fuse.Status {
	if s := w.begin(Names|Grow, w.pathOf(in.NodeId, name), Count{Names: 1}); s != fuse.OK {
		return s
	}
	defer w.end()
	w.mu.Lock()
	defer w.mu.Unlock()
	dir := w.tree.nodes[in.NodeId]
	if dir == nil {
		return fuse.ENOENT
	}
	n := dir.names[name]
	switch {
	case n == nil:
		var err error
		if n, err = w.tree.newNode(unix.S_IFREG|in.Mode&0o7777, in.Owner); err != nil {
			return status(err)
		}
		w.tree.change(nameChange{{dir, name, n}})
	case in.Flags&unix.O_EXCL != 0:
		return fuse.Status(unix.EEXIST)
	case n.file == nil:
		return fuse.EISDIR
	case in.Flags&unix.O_TRUNC != 0:
		if err := n.file.truncate(0); err != nil {
			return status(err)
		}
	}
	w.entryOut(n, &out.EntryOut)
	out.Fh, out.OpenFlags = w.open(&handle{n: n}), openFlags
	return fuse.OK
}

// Read from a file.
func (w *world) Read(_ <-chan struct{}, in *fuse.ReadIn, buf []byte) (fuse.ReadResult, fuse.Status) {
	n, s := w.node(in.NodeId)
	if s != fuse.OK {
		return nil, s
	}
	if s := w.begin(Read, w.pathOf(in.NodeId, ""), Count{Reads: 1, ReadBytes: int64(in.Size)}); s != fuse.OK {
		return nil, s
	}
	defer w.end()
	k, err := n.file.read(buf, int64(in.Offset))
	return fuse.ReadResultData(buf[:k]), status(err)
}

// Write to a file. With O_SYNC or O_DSYNC the kernel sends an fsync after it.
func (w *world) Write(_ <-chan struct{}, in *fuse.WriteIn, data []byte) (uint32, fuse.Status) {
	n, s := w.node(in.NodeId)
	if s != fuse.OK {
		return 0, s
	}
	ops := Write
	if n.file.grows(int64(in.Offset) + int64(len(data))) {
		ops |= Grow
	}
	if s := w.begin(ops, w.pathOf(in.NodeId, ""), Count{Writes: 1, WriteBytes: int64(len(data))}); s != fuse.OK {
		return 0, s
	}
	defer w.end()
	err := n.file.write(data, int64(in.Offset))
	w.mu.Lock()
	n.touched()
	w.mu.Unlock()
	switch {
	case err != nil:
		return 0, status(err)
	case w.dying.Load():
		return 0, fuse.EIO
	case w.noCache && in.Flags&unix.O_DIRECT != 0:
		n.file.settle()
	}
	return uint32(len(data)), fuse.OK
}

// Fallocate reserves space, or fills with zeros.
func (w *world) Fallocate(_ <-chan struct{}, in *fuse.FallocateIn) fuse.Status {
	n, s := w.node(in.NodeId)
	if s != fuse.OK {
		return s
	}
	ops := Write
	if in.Mode&unix.FALLOC_FL_PUNCH_HOLE == 0 && n.file.grows(int64(in.Offset+in.Length)) {
		ops |= Grow
	}
	if s := w.begin(ops, w.pathOf(in.NodeId, ""), Count{Writes: 1}); s != fuse.OK {
		return s
	}
	defer w.end()
	return status(n.file.allocate(int64(in.Offset), int64(in.Length), in.Mode))
}

// Mknod makes a file, a socket or a pipe.
func (w *world) Mknod(_ <-chan struct{}, in *fuse.MknodIn, name string, out *fuse.EntryOut) fuse.Status {
	return w.add(in.NodeId, name, in.Mode, in.Owner, "", out)
}

// Mkdir makes a directory.
func (w *world) Mkdir(_ <-chan struct{}, in *fuse.MkdirIn, name string, out *fuse.EntryOut) fuse.Status {
	return w.add(in.NodeId, name, unix.S_IFDIR|in.Mode&0o7777, in.Owner, "", out)
}

// Symlink makes a symbolic link.
func (w *world) Symlink(_ <-chan struct{}, header *fuse.InHeader, to, name string, out *fuse.EntryOut) fuse.Status {
	return w.add(header.NodeId, name, unix.S_IFLNK|0o777, header.Owner, to, out)
}

func (w *world) add(in uint64, name string, mode uint32, owner fuse.Owner, target string,
	out *fuse.EntryOut) fuse.Status {
	if s := w.begin(Names|Grow, w.pathOf(in, name), Count{Names: 1}); s != fuse.OK {
		return s
	}
	defer w.end()
	w.mu.Lock()
	defer w.mu.Unlock()
	dir := w.tree.nodes[in]
	switch {
	case dir == nil:
		return fuse.ENOENT
	case dir.names[name] != nil:
		return fuse.Status(unix.EEXIST)
	}
	n, err := w.tree.newNode(mode, owner)
	if err != nil {
		return status(err)
	}
	n.target = target
	w.tree.change(nameChange{{dir, name, n}})
	w.entryOut(n, out)
	return fuse.OK
}

// Readlink of a symbolic link.
func (w *world) Readlink(_ <-chan struct{}, header *fuse.InHeader) ([]byte, fuse.Status) {
	n, s := w.node(header.NodeId)
	if s != fuse.OK {
		return nil, s
	}
	return []byte(n.target), fuse.OK
}

// Link gives a file one more name.
func (w *world) Link(_ <-chan struct{}, in *fuse.LinkIn, name string, out *fuse.EntryOut) fuse.Status {
	if s := w.begin(Names|Grow, w.pathOf(in.NodeId, name), Count{Names: 1}); s != fuse.OK {
		return s
	}
	defer w.end()
	w.mu.Lock()
	defer w.mu.Unlock()
	dir, n := w.tree.nodes[in.NodeId], w.tree.nodes[in.Oldnodeid]
	switch {
	case dir == nil || n == nil || n.links == 0:
		return fuse.ENOENT
	case dir.names[name] != nil:
		return fuse.Status(unix.EEXIST)
	}
	w.tree.change(nameChange{{dir, name, n}})
	w.entryOut(n, out)
	return fuse.OK
}

// Unlink a file.
func (w *world) Unlink(_ <-chan struct{}, header *fuse.InHeader, name string) fuse.Status {
	return w.remove(header.NodeId, name)
}

// Rmdir removes a directory.
func (w *world) Rmdir(_ <-chan struct{}, header *fuse.InHeader, name string) fuse.Status {
	return w.remove(header.NodeId, name)
}

func (w *world) remove(in uint64, name string) fuse.Status {
	if s := w.begin(Names, w.pathOf(in, name), Count{Names: 1}); s != fuse.OK {
		return s
	}
	defer w.end()
	w.mu.Lock()
	defer w.mu.Unlock()
	dir := w.tree.nodes[in]
	switch {
	case dir == nil || dir.names[name] == nil:
		return fuse.ENOENT
	case len(dir.names[name].names) > 0:
		return fuse.Status(unix.ENOTEMPTY)
	}
	w.tree.change(nameChange{{dir, name, nil}})
	return fuse.OK
}

// Rename moves a name, or exchanges two.
func (w *world) Rename(_ <-chan struct{}, in *fuse.RenameIn, oldName, newName string) fuse.Status {
	if s := w.begin(Names, w.pathOf(in.NodeId, oldName), Count{Names: 1}); s != fuse.OK {
		return s
	}
	defer w.end()
	w.mu.Lock()
	defer w.mu.Unlock()
	from, to := w.tree.nodes[in.NodeId], w.tree.nodes[in.Newdir]
	if from == nil || to == nil || from.names[oldName] == nil {
		return fuse.ENOENT
	}
	n, other := from.names[oldName], to.names[newName]
	c := nameChange{{from, oldName, nil}, {to, newName, n}}
	switch {
	case n.names != nil && to.within(n):
		return fuse.EINVAL
	case in.Flags&unix.RENAME_NOREPLACE != 0 && other != nil:
		return fuse.Status(unix.EEXIST)
	case in.Flags&unix.RENAME_EXCHANGE != 0:
		if other == nil {
			return fuse.ENOENT
		}
		c[0].n = other
	case n == other:
		return fuse.OK
	case other != nil && len(other.names) > 0:
		return fuse.Status(unix.ENOTEMPTY)
	}
	w.tree.change(c)
	return fuse.OK
}
