package raftlog

import (
	"os"
	"strconv"
	"strings"
	"testing"

	"go.etcd.io/raft/v3/raftpb"
)

// TestSmallFolios: a page cache that takes large writes as large folios must not count, and walk, a whole MiB for every
// small record that is written into the zeros ahead.
func TestSmallFolios(t *testing.T) {
	l := mustOpen(t, Options{Dir: t.TempDir(), Cluster: testCluster, NodeID: testNode})
	defer l.Close()
	setTerm(t, l, 1, 0)
	s := newStream(1, 1)
	check(t, l.Append([]*raftpb.Entry{s.barrier(1, 1), benchTrx(s, 2, 1200)}))
	check(t, l.Sync())
	const records, most = 200, 64 << 10
	before := writtenBytes(t)
	for i := range uint64(records) {
		check(t, l.Append([]*raftpb.Entry{benchTrx(s, i+3, 1)}))
		check(t, l.Sync())
	}
	if n := (writtenBytes(t) - before) / records; n > most {
		t.Errorf("%d bytes were counted as written for a record of 2 kB, more than %d", n, most)
	}
}

// TestLargeWriteWithoutZeros: a large write is not followed by zeros, which the next one would only write over, and the
// log is whole when it is opened again. Small records get their zeros.
func TestLargeWriteWithoutZeros(t *testing.T) {
	opts := Options{Dir: t.TempDir(), Cluster: testCluster, NodeID: testNode}
	l := mustOpen(t, opts)
	setTerm(t, l, 1, 0)
	s := newStream(1, 1)
	size := func() (ahead int64) {
		t.Helper()
		check(t, l.Sync())
		return l.fileEnd - l.active().end
	}
	check(t, l.Append([]*raftpb.Entry{s.barrier(1, 1), benchTrx(s, 2, 1)}))
	for i := range uint64(5) {
		check(t, l.Append([]*raftpb.Entry{benchTrx(s, i+3, 1200)}))
		if n := size(); n != minFiller {
			t.Errorf("the file has %d bytes after a large record, want %d", n, minFiller)
		}
	}
	check(t, l.Close())
	l = mustOpen(t, opts)
	defer l.Close()
	if last, err := l.LastIndex(); err != nil || last != 7 {
		t.Errorf("the log ends at %d (%v), want 7", last, err)
	}
	check(t, l.Append([]*raftpb.Entry{benchTrx(s, 8, 1)}))
	if n := size(); n <= minFiller {
		t.Errorf("the file has %d bytes after a small record: each would change its size", n)
	}
}

// writtenBytes is write_bytes of /proc/self/io (proc(5)): what was made dirty in the page cache.
func writtenBytes(t *testing.T) int64 {
	b, err := os.ReadFile("/proc/self/io")
	if err != nil {
		t.Skip(err)
	}
	_, rest, _ := strings.Cut(string(b), "\nwrite_bytes: ")
	line, _, _ := strings.Cut(rest, "\n")
	n, err := strconv.ParseInt(line, 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return n
}
