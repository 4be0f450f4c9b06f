package raftlog

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"

	"go.etcd.io/raft/v3/raftpb"
	"golang.org/x/sys/unix"
)

func mustOpenRing(t *testing.T) *ring {
	t.Helper()
	r, err := openRing()
	if err != nil {
		t.Skipf("no io_uring here: %v", err)
	}
	t.Cleanup(r.close)
	return r
}

func TestRing(t *testing.T) {
	r := mustOpenRing(t)
	f, err := os.Create(filepath.Join(t.TempDir(), "f"))
	check(t, err)
	defer f.Close()
	var want []byte
	for i := range 300 {
		bufs := [][]byte{bytes.Repeat([]byte{byte(i)}, 100+i), nil, bytes.Repeat([]byte{byte(i + 1)}, 7000)}
		check(t, r.writeSync(osFile{f}, bufs, int64(len(want))))
		want = append(append(want, bufs[0]...), bufs[2]...)
	}
	got, err := os.ReadFile(f.Name())
	check(t, err)
	if !bytes.Equal(got, want) {
		t.Errorf("%d bytes were written, %d are there, or other ones", len(want), len(got))
	}
}

// TestRingErrors: what fails fails as pwritev and fdatasync do, and the ring goes on working.
func TestRingErrors(t *testing.T) {
	r := mustOpenRing(t)
	one := [][]byte{[]byte("x")}
	full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	check(t, err)
	defer full.Close()
	dir := t.TempDir()
	check(t, os.WriteFile(filepath.Join(dir, "f"), nil, 0o600))
	readOnly, err := os.Open(filepath.Join(dir, "f"))
	check(t, err)
	defer readOnly.Close()
	good, err := os.Create(filepath.Join(dir, "g"))
	check(t, err)
	defer good.Close()
	for range 20 {
		wantErr(t, r.writeSync(osFile{full}, one, 0), unix.ENOSPC)
		wantErr(t, r.writeSync(osFile{readOnly}, one, 0), unix.EBADF)
		check(t, r.writeSync(osFile{good}, one, 0))
	}
	wantErr(t, r.writeSync(osFile{good}, make([][]byte, 3), 0), errAgain)
	var pathErr *os.PathError
	if err := r.writeSync(osFile{full}, one, 0); !errors.As(err, &pathErr) || pathErr.Op != "pwritev" {
		t.Errorf("a failed write is %v", err)
	}
}

// TestRingOldCompletion: a word about an earlier sync is not taken for one about this write.
func TestRingOldCompletion(t *testing.T) {
	r := mustOpenRing(t)
	full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	check(t, err)
	defer full.Close()
	tail := *r.sqTail
	for i := range uint32(2) {
		slot := (tail + i) & *r.sqMask
		r.sqes[slot], r.slots[slot] = sqe{userData: tagSync}, slot // opcode 0 is a request that succeeds at once
	}
	atomic.StoreUint32(r.sqTail, tail+2)
	if n, _, errno := unix.Syscall6(unix.SYS_IO_URING_ENTER, r.ring.Fd(), 2, 0, 0, 0, 0); n != 2 {
		t.Fatalf("io_uring_enter: %d, %v", n, errno)
	}
	wantErr(t, r.writeSync(osFile{full}, [][]byte{[]byte("x")}, 0), unix.ENOSPC)
}

func TestRingVerdict(t *testing.T) {
	for _, c := range []struct {
		tag uint64
		res int32
		op  string // of the error; "again": errAgain
	}{
		{tagSync, 0, ""},
		{tagSync, -int32(unix.EIO), "fdatasync"},
		{tagSync, -int32(unix.ENOSPC), "fdatasync"},
		{tagSync, -int32(unix.EAGAIN), "fdatasync"},
		{tagSync, -int32(unix.ECANCELED), "again"},
		{tagSync, -int32(unix.EINTR), "again"},
		{tagWrite, -int32(unix.EIO), "pwritev"},
		{tagWrite, -int32(unix.ENOSPC), "pwritev"},
		{tagWrite, -int32(unix.ECANCELED), "again"},
		{tagWrite, -int32(unix.EINTR), "again"},
		{tagWrite, -int32(unix.EOPNOTSUPP), "again"},
		{tagWrite, 17, "again"}, // cut short
	} {
		err, op := verdict("f", cqe{userData: c.tag, res: c.res}), ""
		var pathErr *os.PathError
		switch {
		case err == errAgain:
			op = "again"
		case errors.As(err, &pathErr):
			op = pathErr.Op
		}
		if op != c.op {
			t.Errorf("request %d ended with %d: %v", c.tag, c.res, err)
		}
	}
}

// TestAppendSync: with and without a ring the log is the same, and durable when it returns.
func TestAppendSync(t *testing.T) {
	var contents [2][]byte
	for i, noRing := range []bool{false, true} {
		opts := testOptions(t.TempDir(), nil)
		l := mustOpen(t, opts)
		l.noRing = noRing
		setTerm(t, l, 1, 0)
		s := newStream(1, 1)
		all := []*raftpb.Entry{s.barrier(1, 1)}
		check(t, l.AppendSync(all))
		for index := uint64(2); index <= 300; index++ {
			e := []*raftpb.Entry{s.trx(index, 1, 1, 1500)}
			all = append(all, e...)
			if index%5 == 0 {
				check(t, l.Append(e)) // the next one syncs it as well
				continue
			}
			check(t, l.AppendSync(e))
			if l.DurableIndex() != index {
				t.Fatalf("entry %d is durable after AppendSync of entry %d", l.DurableIndex(), index)
			}
		}
		check(t, l.AppendSync(all[200:])) // known: nothing is written, all is synced
		if l.DurableIndex() != 300 {
			t.Fatalf("entry %d is durable, 300 were synced", l.DurableIndex())
		}
		sameEntries(t, l, all)
		check(t, l.Close())
		wantErr(t, l.AppendSync(all), ErrClosed)
		contents[i] = allSegments(t, opts.Dir)
		l = mustOpen(t, opts)
		sameEntries(t, l, all)
		check(t, l.Close())
	}
	if !bytes.Equal(contents[0], contents[1]) {
		t.Error("a log that was written through a ring is another one")
	}
}

func allSegments(t *testing.T, dir string) (all []byte) {
	t.Helper()
	names, err := filepath.Glob(filepath.Join(dir, "*"+segmentSuffix))
	check(t, err)
	if len(names) < 2 {
		t.Fatalf("segments: %v", names)
	}
	for _, name := range names {
		b, err := os.ReadFile(name)
		check(t, err)
		all = append(all, b...)
	}
	return all
}
