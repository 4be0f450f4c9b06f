package raftlog

import (
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.etcd.io/raft/v3/raftpb"
)

// slowRemoval is a file system that removes files when remove has returned.
type slowRemoval struct {
	FS
	remove func()
}

func (f slowRemoval) Remove(name string) error {
	f.remove()
	return f.FS.Remove(name)
}

// TestPurgeHoldsNoWriterUp: an entry is written while the files of purged segments are being removed, which may take
// long.
func TestPurgeHoldsNoWriterUp(t *testing.T) {
	removing, written, late := make(chan struct{}), make(chan struct{}), make(chan struct{})
	var once sync.Once
	var slow atomic.Bool
	disk := slowRemoval{OSFS{}, func() {
		if !slow.Load() {
			return
		}
		once.Do(func() { close(removing) })
		select {
		case <-written:
		case <-late:
		}
	}}
	l := mustOpen(t, Options{Dir: t.TempDir(), FS: disk, SegmentBytes: 4 << 10, Cluster: testCluster, NodeID: testNode})
	defer l.Close()
	setTerm(t, l, 1, 0)
	s := newStream(1, 1)
	check(t, errors.Join(l.Append([]*raftpb.Entry{s.barrier(1, 1)}), l.Sync()))
	index := uint64(1)
	put := func() {
		index++
		check(t, errors.Join(l.Append([]*raftpb.Entry{benchTrx(s, index, 1)}), l.Sync()))
	}
	for range 20 {
		put()
	}
	setTerm(t, l, 1, index)
	slow.Store(true)
	purged := make(chan error, 1)
	go func() {
		_, err := l.Purge(index, 0)
		purged <- err
	}()
	<-removing
	go func() {
		put()
		close(written)
	}()
	select {
	case <-written:
	case <-time.After(10 * time.Second):
		t.Error("a writer waits for the removal of files")
		close(late)
		<-written
	}
	check(t, <-purged)
	if first, err := l.FirstIndex(); err != nil || first == 1 {
		t.Errorf("the log begins at %d, %v", first, err)
	}
}

// TestSpareBytes: the space that a killed daemon's spare file takes is counted as space that can be freed. A daemon
// that ends in order leaves no spare file.
func TestSpareBytes(t *testing.T) {
	const segment = 1 << 20
	opts := Options{Dir: t.TempDir(), SegmentBytes: segment, Cluster: testCluster, NodeID: testNode,
		Later: func(job func()) { job() }}
	l := mustOpen(t, opts)
	setTerm(t, l, 1, 0)
	s := newStream(1, 1)
	check(t, errors.Join(l.Append([]*raftpb.Entry{s.barrier(1, 1), benchTrx(s, 2, 200)}), l.Sync()))
	if n := SpareBytes(opts.Dir); n < segment {
		t.Errorf("the file that was made ahead takes %d bytes", n)
	}
	check(t, l.Close())
	if n := SpareBytes(opts.Dir); n != 0 {
		t.Errorf("a closed log leaves %d bytes of it", n)
	}
}
