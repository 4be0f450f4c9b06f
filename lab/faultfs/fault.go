package faultfs

import (
	"path"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"
)

// Op is a set of kinds of operations.
type Op uint

// The operations that a fault may hit.
const (
	Read  Op = 1 << iota
	Write    // also truncation and fallocate
	Fsync    // of files and directories, and each write to a file that was opened with O_SYNC or O_DSYNC
	Names    // create, rename, link, remove
	Grow     // what needs space that a file does not have yet: such writes, fallocate, create
)

// Change is everything that a read-only file system refuses.
const Change = Write | Names

// Fault is what happens to operations. The delay comes first, then the error; without one the operation is carried out.
type Fault struct {
	// Path is a pattern as of path.Match, of one element or more. It hits what has such elements one after the other
	// somewhere in its path from the root: "raft" all that is in a directory of that name, "*.ibd" all such files,
	// "raft/*.log" some files. Empty: everything.
	Path  string
	Ops   Op
	Err   syscall.Errno
	Delay time.Duration
	Hang  bool // until the faults are others, or the power is off
	Skip  int  // operations that it spares first
	Times int  // operations that it hits; 0: all
}

// Full makes what matches a full disk: nothing may grow, and there is no free space.
func Full(pattern string) Fault { return Fault{Path: pattern, Ops: Grow, Err: syscall.ENOSPC} }

// ReadOnly makes what matches a read-only file system.
func ReadOnly(pattern string) Fault { return Fault{Path: pattern, Ops: Change, Err: syscall.EROFS} }

// Match reports whether a pattern hits a path.
func Match(pattern, name string) bool {
	if pattern == "" {
		return true
	}
	p, elements := strings.Count(pattern, "/")+1, strings.Split(name, "/")
	for i := 0; i+p <= len(elements); i++ {
		if ok, _ := path.Match(pattern, strings.Join(elements[i:i+p], "/")); ok {
			return true
		}
	}
	return false
}

// Count is what was done to a file or to all that match a pattern.
type Count struct {
	Reads, Writes, Fsyncs, Names int
	ReadBytes, WriteBytes        int64
}

func (c *Count) add(o Count) {
	c.Reads += o.Reads
	c.Writes += o.Writes
	c.Fsyncs += o.Fsyncs
	c.Names += o.Names
	c.ReadBytes += o.ReadBytes
	c.WriteBytes += o.WriteBytes
}

// Counts are by path from the root, since the file system was made.
type Counts map[string]Count

// Sum of all that a pattern hits.
func (c Counts) Sum(pattern string) (sum Count) {
	for name, n := range c {
		if Match(pattern, name) {
			sum.add(n)
		}
	}
	return sum
}

// faults are those in force, and the counts.
type faults struct {
	mu      sync.Mutex
	list    []Fault
	seen    []int // by each fault
	hit     []int
	changed chan struct{} // closed when the list is another one
	counts  Counts
}

func newFaults() *faults { return &faults{changed: make(chan struct{}), counts: Counts{}} }

func (f *faults) set(list []Fault) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.list, f.seen, f.hit = list, make([]int, len(list)), make([]int, len(list))
	close(f.changed)
	f.changed = make(chan struct{})
}

// verdict is what the faults say about one operation.
type verdict struct {
	delay   time.Duration
	hang    bool
	err     syscall.Errno
	changed chan struct{}
}

// judge an operation and count it.
func (f *faults) judge(ops Op, name string, n Count) (v verdict) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if ops != 0 {
		c := f.counts[name]
		c.add(n)
		f.counts[name] = c
	}
	v.changed = f.changed
	for i, fault := range f.list {
		if fault.Ops&ops == 0 || !Match(fault.Path, name) {
			continue
		}
		f.seen[i]++
		if k := f.seen[i] - fault.Skip; k <= 0 || fault.Times > 0 && k > fault.Times {
			continue
		}
		f.hit[i]++
		v.delay += fault.Delay
		v.hang = v.hang || fault.Hang
		if v.err == 0 {
			v.err = fault.Err
		}
	}
	return v
}

// full reports whether a path has no space.
func (f *faults) full(name string) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, fault := range f.list {
		if fault.Ops&Grow != 0 && fault.Err == syscall.ENOSPC && Match(fault.Path, name) {
			return true
		}
	}
	return false
}

// hits of each fault so far.
func (f *faults) hits() []int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.hit)
}

// copyCounts as they are now.
func (f *faults) copyCounts() Counts {
	f.mu.Lock()
	defer f.mu.Unlock()
	out := make(Counts, len(f.counts))
	for name, n := range f.counts {
		out[name] = n
	}
	return out
}
