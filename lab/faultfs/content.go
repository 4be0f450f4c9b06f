package faultfs

import (
	"errors"
	"io"
	"math/rand/v2"
	"os"
	"slices"
	"sync"

	"golang.org/x/sys/unix"
)

const (
	// SectorBytes is what a disk writes whole or not at all.
	SectorBytes = 512

	dirtyLimit = 64 << 20 // bytes of one file that are remembered; beyond, the older half counts as written back
)

// content is the bytes of one file: what programs see is in f, and what takes it back to what is durable is in memory.
type content struct {
	mu      sync.RWMutex
	f       *os.File // unnamed
	size    int64    // of f
	alloc   int64    // reserved without a change of size
	pending []change // since the last fsync, oldest first
	dirty   int      // bytes held by pending

	// doomed sectors were to be written by an fsync that failed: what the disk has in their place.
	doomed map[int64][]byte
}

// change is one that is not durable: n bytes from off on were written, or cut off.
type change struct {
	off, n    int64
	old       []byte // what was there; what it is shorter than n was beyond the end
	was, size int64  // the file's, before and after
	cut       bool
}

func (c *content) read(b []byte, off int64) (int, error) {
	c.mu.RLock()
	defer c.mu.RUnlock()
	n, err := c.f.ReadAt(b, off)
	if errors.Is(err, io.EOF) {
		err = nil
	}
	return n, err
}

// old returns what is in a range now.
func (c *content) old(off, n int64) ([]byte, error) {
	if n = min(n, c.size-off); n <= 0 {
		return nil, nil
	}
	b := make([]byte, n)
	_, err := c.f.ReadAt(b, off)
	return b, err
}

func (c *content) note(ch change) {
	c.pending = append(c.pending, ch)
	c.dirty += len(ch.old)
	if c.dirty <= dirtyLimit && len(c.pending) <= dirtyLimit/SectorBytes {
		return
	}
	c.written(c.pending[:len(c.pending)/2])
	c.pending = append([]change(nil), c.pending[len(c.pending)/2:]...)
	c.dirty = 0
	for _, ch := range c.pending {
		c.dirty += len(ch.old)
	}
}

// written takes what has reached the disk out of doubt.
func (c *content) written(list []change) {
	if len(c.doomed) == 0 {
		return
	}
	for _, ch := range list {
		for s := ch.off / SectorBytes; s*SectorBytes < ch.off+ch.n; s++ {
			delete(c.doomed, s)
		}
	}
}

func (c *content) write(b []byte, off int64) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	n := int64(len(b))
	old, err := c.old(off, n)
	if err != nil {
		return err
	}
	if _, err := c.f.WriteAt(b, off); err != nil {
		return err
	}
	was := c.size
	c.size = max(c.size, off+n)
	c.note(change{off: off, n: n, old: old, was: was, size: c.size})
	return nil
}

func (c *content) truncate(size int64) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if size == c.size {
		return nil
	}
	ch := change{off: size, n: max(0, c.size-size), was: c.size, size: size, cut: size < c.size}
	var err error
	if ch.old, err = c.old(size, ch.n); err != nil {
		return err
	}
	if err := c.f.Truncate(size); err != nil {
		return err
	}
	c.size = size
	if ch.cut {
		c.alloc = min(c.alloc, size)
	}
	c.note(ch)
	return nil
}

// allocate reserves a range, or with FALLOC_FL_PUNCH_HOLE or FALLOC_FL_ZERO_RANGE fills it with zeros.
func (c *content) allocate(off, n int64, mode uint32) error {
	keep := mode&unix.FALLOC_FL_KEEP_SIZE != 0
	switch mode &^ unix.FALLOC_FL_KEEP_SIZE {
	case unix.FALLOC_FL_PUNCH_HOLE, unix.FALLOC_FL_ZERO_RANGE:
		c.mu.Lock()
		old, err := c.old(off, n)
		if err == nil && len(old) > 0 {
			_, err = c.f.WriteAt(make([]byte, len(old)), off)
			c.note(change{off: off, n: int64(len(old)), old: old, was: c.size, size: c.size})
		}
		c.mu.Unlock()
		if err != nil {
			return err
		}
	case 0:
	default:
		return unix.EOPNOTSUPP
	}
	c.mu.Lock()
	c.alloc = max(c.alloc, off+n)
	grow := !keep && off+n > c.size
	c.mu.Unlock()
	if grow {
		return c.truncate(off + n)
	}
	return nil
}

// grows: a write up to there needs space that was not reserved.
func (c *content) grows(end int64) bool {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return end > max(c.size, c.alloc)
}

// sync makes everything durable.
func (c *content) sync() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.written(c.pending)
	c.pending, c.dirty = nil, 0
}

// settle makes the newest write durable, in place: it needs no fsync unless it has changed the size, or lies on what is
// not durable.
func (c *content) settle() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.pending) == 0 {
		return
	}
	last := len(c.pending) - 1
	ch := c.pending[last]
	if ch.size != ch.was ||
		slices.ContainsFunc(c.pending[:last], func(o change) bool { return o.off < ch.off+ch.n && ch.off < o.off+o.n }) {
		return
	}
	c.written(c.pending[last:])
	c.pending, c.dirty = c.pending[:last], c.dirty-len(ch.old)
}

// fail is an fsync that did not write: nothing will try again.
func (c *content) fail() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.doomed == nil {
		c.doomed = map[int64][]byte{}
	}
	mine := map[int64][]byte{} // sectors of this fsync, as they are, and then as they were
	for _, ch := range c.pending {
		for s := ch.off / SectorBytes; s*SectorBytes < ch.off+ch.n; s++ {
			if mine[s] == nil {
				mine[s] = make([]byte, SectorBytes)
				if _, err := c.f.ReadAt(mine[s], s*SectorBytes); err != nil && !errors.Is(err, io.EOF) {
					return err
				}
			}
		}
	}
	for i := len(c.pending) - 1; i >= 0; i-- {
		ch := c.pending[i]
		for s := ch.off / SectorBytes; s*SectorBytes < ch.off+ch.n; s++ {
			for at := max(ch.off, s*SectorBytes); at < min(ch.off+ch.n, (s+1)*SectorBytes); at++ {
				var was byte
				if k := at - ch.off; k < int64(len(ch.old)) {
					was = ch.old[k]
				}
				mine[s][at-s*SectorBytes] = was
			}
		}
	}
	for s, b := range mine {
		if c.doomed[s] == nil { // otherwise it was in doubt before
			c.doomed[s] = b
		}
	}
	c.pending, c.dirty = nil, 0
	return nil
}

// lose plays a power loss: of what is pending each sector is kept or lost.
func (c *content) lose(rnd *rand.Rand, temper temper, loss *Loss) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.alloc = 0
	sizes := temper.prefix(rnd, len(c.pending)) // changes of size before this one are kept
	size := c.size
	if sizes < len(c.pending) {
		ch := c.pending[sizes]
		size = ch.was
		if ch.size > ch.was && !temper.lose && rnd.IntN(2) == 0 { // torn
			size = min(ch.size, (ch.was/SectorBytes+rnd.Int64N((ch.size-ch.was)/SectorBytes+1)+1)*SectorBytes)
		}
	}
	settled := map[int64]bool{} // sectors with a later write that was kept
	for i := len(c.pending) - 1; i >= 0; i-- {
		ch := c.pending[i]
		var err error
		switch {
		case ch.cut && i >= sizes:
			err = c.uncut(ch, settled)
			loss.Cuts++
		case ch.cut:
			each(ch, func(s, _, _ int64) { settled[s] = true })
		default:
			err = c.tear(rnd, temper, ch, settled, loss)
		}
		if err != nil {
			return err
		}
	}
	for _, s := range sortedKeys(c.doomed) {
		if settled[s] || !temper.loses(rnd) {
			continue
		}
		loss.Sectors++
		if _, err := c.f.WriteAt(c.doomed[s], s*SectorBytes); err != nil {
			return err
		}
	}
	c.pending, c.dirty, c.doomed = nil, 0, nil
	c.size = size
	return c.f.Truncate(size)
}

// each calls f for every sector that a change touches, with the part of it that lies in the sector.
func each(ch change, f func(sector, from, to int64)) {
	for s := ch.off / SectorBytes; s*SectorBytes < ch.off+ch.n; s++ {
		f(s, max(ch.off, s*SectorBytes), min(ch.off+ch.n, (s+1)*SectorBytes))
	}
}

// uncut takes back a change of size to less. What was written there later went to blocks that are not the file's then;
// but where the cut went through a sector, that stayed.
func (c *content) uncut(ch change, settled map[int64]bool) (err error) {
	each(ch, func(s, from, to int64) {
		if err != nil || from%SectorBytes != 0 && settled[s] {
			return
		}
		delete(settled, s)
		err = c.restore(ch, from, to-from)
	})
	return err
}

// tear takes back a write: wholly, in part or not at all.
func (c *content) tear(rnd *rand.Rand, t temper, ch change, settled map[int64]bool, loss *Loss) error {
	how := t.write(rnd)
	kept, lost := 0, 0
	var err error
	each(ch, func(s, from, to int64) {
		if settled[s] || err != nil {
			return
		}
		if how == keepAll || how == keepSome && rnd.IntN(2) == 0 {
			settled[s] = true
			kept++
			return
		}
		lost++
		err = c.restore(ch, from, to-from)
	})
	loss.Sectors += lost
	switch {
	case lost > 0 && kept > 0:
		loss.Torn++
	case lost > 0:
		loss.Writes++
	}
	return err
}

// restore a part of what a change replaced.
func (c *content) restore(ch change, from, n int64) error {
	b := make([]byte, n)
	if k := from - ch.off; k < int64(len(ch.old)) {
		copy(b, ch.old[k:])
	}
	_, err := c.f.WriteAt(b, from)
	return err
}
