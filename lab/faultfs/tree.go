package faultfs

import (
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"
)

const (
	namesLimit   = 10_000 // changes of names that are remembered; beyond, the older half counts as written back
	orphansLimit = 64
)

// node is a file, directory, link or socket.
type node struct {
	ino    uint64
	attr   fuse.Attr // without size and links
	target string    // of a symbolic link
	file   *content  // of a regular file

	names map[string]*node // of a directory: what programs see
	kept  map[string]*node // and what is durable

	in      *node // where it has (or had) its newest name
	name    string
	links   int
	lookups uint64 // that the kernel holds
	opens   int
}

// entry is one name that got another node; nil: none.
type entry struct {
	dir  *node
	name string
	n    *node
}

// nameChange happens as a whole.
type nameChange []entry

func (c nameChange) touches(dir *node) bool {
	return slices.ContainsFunc(c, func(e entry) bool { return e.dir == dir })
}

type key struct {
	dir  *node
	name string
}

func (c nameChange) keep() {
	for _, e := range c {
		if e.n == nil {
			delete(e.dir.kept, e.name)
		} else {
			e.dir.kept[e.name] = e.n
		}
	}
}

// tree is the names.
type tree struct {
	order   Order
	backing string // directory for contents
	root    *node
	nodes   map[uint64]*node // that the kernel may ask for
	last    uint64           // inode number
	pending []nameChange
	orphans map[*node]bool // without a name that programs see
}

func newTree(order Order, backing string) *tree {
	t := &tree{order: order, backing: backing, nodes: map[uint64]*node{}, orphans: map[*node]bool{}}
	t.root, _ = t.newNode(unix.S_IFDIR|0o755, fuse.Owner{}) // a directory has no content that could fail
	t.root.links = 2
	return t
}

// newNode without a name.
func (t *tree) newNode(mode uint32, owner fuse.Owner) (*node, error) {
	t.last++
	n := &node{ino: t.last, attr: fuse.Attr{Ino: t.last, Mode: mode, Owner: owner, Blksize: 4096}}
	now := time.Now()
	n.attr.SetTimes(&now, &now, &now)
	switch mode & unix.S_IFMT {
	case unix.S_IFDIR:
		n.names, n.kept = map[string]*node{}, map[string]*node{}
	case unix.S_IFREG:
		f, err := unnamed(t.backing)
		if err != nil {
			return nil, err
		}
		n.file = &content{f: f}
	}
	t.nodes[n.ino] = n
	return n, nil
}

func unnamed(dir string) (*os.File, error) {
	f, err := os.CreateTemp(dir, "content-")
	if err != nil {
		return nil, err
	}
	return f, os.Remove(f.Name())
}

// change names now, to be durable later.
func (t *tree) change(c nameChange) {
	t.pending = append(t.pending, c) // first: what it names is not swept away
	now := time.Now()
	for _, e := range c {
		if old := e.dir.names[e.name]; old != nil {
			delete(e.dir.names, e.name)
			t.unlinked(old)
		}
	}
	for _, e := range c {
		if e.n != nil {
			e.dir.names[e.name] = e.n
			e.n.in, e.n.name = e.dir, e.name
			e.n.links++
			delete(t.orphans, e.n)
		}
		e.dir.attr.SetTimes(nil, &now, &now)
	}
	if len(t.pending) > namesLimit {
		for _, c := range t.pending[:namesLimit/2] {
			c.keep()
		}
		t.pending = append([]nameChange(nil), t.pending[namesLimit/2:]...)
	}
}

func (t *tree) unlinked(n *node) {
	if n.links--; n.links == 0 {
		t.orphans[n] = true
		if len(t.orphans) > orphansLimit {
			t.sweep()
		}
	}
}

// sweep closes what can never be reached again, not even after a power loss.
func (t *tree) sweep() {
	reachable := map[*node]bool{}
	var walk func(n *node)
	walk = func(n *node) {
		if reachable[n] {
			return
		}
		reachable[n] = true
		for _, names := range []map[string]*node{n.names, n.kept} {
			for _, child := range names {
				walk(child)
			}
		}
	}
	walk(t.root)
	for _, c := range t.pending {
		for _, e := range c {
			walk(e.dir)
			if e.n != nil {
				walk(e.n)
			}
		}
	}
	for n := range t.orphans {
		if n.lookups == 0 && n.opens == 0 && !reachable[n] {
			t.drop(n)
		}
	}
}

func (t *tree) drop(n *node) {
	delete(t.orphans, n)
	delete(t.nodes, n.ino)
	if n.file != nil {
		n.file.f.Close()
	}
}

// syncNames makes a directory's names durable, with what must have happened before; with Journaled, or dir nil,
// everything's.
func (t *tree) syncNames(dir *node) {
	if t.order == Journaled || dir == nil {
		for _, c := range t.pending {
			c.keep()
		}
		t.pending = nil
		return
	}
	var rest []nameChange
	t.pending, rest = t.closure(func(c nameChange) bool { return c.touches(dir) })
	for _, c := range t.pending {
		c.keep()
	}
	t.pending = rest
}

// closure splits what is pending: what is chosen, with everything that happened to the same names before; and the rest.
func (t *tree) closure(chosen func(nameChange) bool) (in, out []nameChange) {
	keys := map[key]bool{}
	for i := len(t.pending) - 1; i >= 0; i-- {
		c := t.pending[i]
		take := chosen(c) || slices.ContainsFunc(c, func(e entry) bool { return keys[key{e.dir, e.name}] })
		if !take {
			out = append(out, c)
			continue
		}
		in = append(in, c)
		for _, e := range c {
			keys[key{e.dir, e.name}] = true
		}
	}
	slices.Reverse(in)
	slices.Reverse(out)
	return in, out
}

// lose plays a power loss.
func (t *tree) lose(rnd *rand.Rand, temper temper, loss *Loss) error {
	var kept, lost []nameChange
	if t.order == Journaled {
		n := temper.prefix(rnd, len(t.pending))
		kept, lost = t.pending[:n], t.pending[n:]
	} else {
		kept, lost = t.closure(func(nameChange) bool { return !temper.loses(rnd) })
	}
	for _, c := range kept {
		c.keep()
	}
	loss.Names += len(lost)
	t.pending = nil
	old := t.nodes
	t.nodes, t.orphans = map[uint64]*node{}, map[*node]bool{}
	t.restore(t.root)
	t.root.links = 2
	for _, n := range old {
		if t.nodes[n.ino] == nil && n.file != nil {
			n.file.f.Close()
		}
	}
	for _, ino := range sortedKeys(t.nodes) {
		n := t.nodes[ino]
		if n.file == nil {
			continue
		}
		if len(n.file.pending)+len(n.file.doomed) > 0 {
			loss.Files++
		}
		if err := n.file.lose(rnd, temper, loss); err != nil {
			return err
		}
	}
	return nil
}

// restore a directory and what is below it to what is durable.
func (t *tree) restore(dir *node) {
	t.nodes[dir.ino] = dir
	dir.names = maps.Clone(dir.kept)
	dir.opens, dir.lookups = 0, 0
	for _, name := range sortedKeys(dir.names) {
		n := dir.names[name]
		known := t.nodes[n.ino] != nil
		if known && n.names != nil { // a directory has one name
			delete(dir.names, name)
			delete(dir.kept, name)
			continue
		}
		if !known {
			t.nodes[n.ino], n.links, n.opens, n.lookups = n, 0, 0, 0
		}
		n.links++
		n.in, n.name = dir, name
		if n.names != nil {
			n.links = 1
			t.restore(n)
		}
	}
}

// path of a node from the root, without a slash before it.
func (n *node) path() string {
	if n.in == nil {
		return ""
	}
	parts := []string{n.name}
	for d := n.in; d != nil && d.in != nil; d = d.in {
		parts = append(parts, d.name)
	}
	slices.Reverse(parts)
	return filepath.Join(parts...)
}

// child's path, which may not exist.
func (n *node) child(name string) string { return filepath.Join(n.path(), name) }

// fill in what a stat shows.
func (n *node) stat(out *fuse.Attr) {
	*out = n.attr
	out.Nlink = uint32(n.links)
	switch {
	case n.names != nil:
		out.Size = 4096
	case n.file != nil:
		n.file.mu.RLock()
		out.Size = uint64(n.file.size)
		var st unix.Stat_t
		if unix.Fstat(int(n.file.f.Fd()), &st) == nil {
			out.Blocks = uint64(max(st.Blocks, (n.file.alloc+SectorBytes-1)/SectorBytes))
		}
		n.file.mu.RUnlock()
	default:
		out.Size = uint64(len(n.target))
	}
}

func (n *node) touched() {
	now := time.Now()
	n.attr.SetTimes(nil, &now, &now)
}

// within reports whether a directory is another one or below it.
func (n *node) within(top *node) bool {
	for d := n; d != nil; d = d.in {
		if d == top {
			return true
		}
	}
	return false
}
