package raftlog_test

import (
	"bytes"
	"errors"
	"fmt"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"go.etcd.io/raft/v3/raftpb"

	"trireme/internal/core/raftlog"
	"trireme/internal/core/raftlog/memfs"
)

const spare = dir + "/spare.new"

// begun opens a log with changed options, of a node in term 1.
func begun(t testing.TB, fsys *memfs.FS, change func(*raftlog.Options)) (*raftlog.Log, *writer) {
	t.Helper()
	o := options(fsys)
	if change != nil {
		change(&o)
	}
	l, err := raftlog.Open(o)
	ok(t, err)
	setState(t, l, 1, 1, 0)
	return l, newWriter()
}

// untilRotation appends and syncs entries until a segment has been closed.
func untilRotation(t testing.TB, l *raftlog.Log, w *writer, fsys *memfs.FS) (all []*raftpb.Entry) {
	t.Helper()
	for before := len(files(t, fsys, ".log")); len(files(t, fsys, ".log")) == before; {
		all = append(all, fill(t, l, w, 1, true)...)
	}
	return all
}

// TestRotationWaitsForLittle: with the next segment's file made ahead, what a commit that closes a segment waits for
// is the fsync of a header and that of the directory, besides its own.
func TestRotationWaitsForLittle(t *testing.T) {
	for _, ahead := range []bool{true, false} {
		fsys := memfs.New()
		var jobs []func()
		l, w := begun(t, fsys, func(o *raftlog.Options) { o.Later = func(job func()) { jobs = append(jobs, job) } })
		untilRotation(t, l, w, fsys)
		var ops []string
		fsys.Hook = func(op memfs.Op, name string) error {
			if op != memfs.OpRead {
				ops = append(ops, string(op)+" "+strings.TrimPrefix(name, dir+"/"))
			}
			return nil
		}
		for !slices.ContainsFunc(ops, func(op string) bool { return strings.HasPrefix(op, "rename") }) {
			for ahead && len(jobs) > 0 {
				jobs[0]()
				jobs = jobs[1:]
			}
			ops = nil
			fill(t, l, w, 1, true)
		}
		fsys.Hook = nil
		waits, creates := 0, 0
		for _, op := range ops {
			if strings.HasPrefix(op, "fdatasync") || strings.HasPrefix(op, "syncdir") {
				waits++
			}
			if strings.HasPrefix(op, "create") {
				creates++
			}
		}
		if want := map[bool][2]int{true: {3, 0}, false: {4, 1}}[ahead]; [...]int{waits, creates} != want {
			t.Errorf(
				"made ahead: %t: a commit that closes a segment waits %d times for the disk and makes %d files, want %v: %q", ahead,
				waits, creates, want, ops)
		}
		ok(t, l.Close())
	}
}

// TestSpareOnAFullDisk: where there is no room for a file that is made ahead, nothing of it stays and nothing else
// happens; with room again, the next one is made. A rotation that has no room ends the log, as it always did.
func TestSpareOnAFullDisk(t *testing.T) {
	fsys := memfs.New()
	l, w := begun(t, fsys, nil)
	all := untilRotation(t, l, w, fsys)
	tried := 0
	fsys.Hook = func(op memfs.Op, name string) error {
		if op == memfs.OpCreate && name == spare {
			tried++
			fsys.SetLimit(fsys.Used() + 100)
		}
		if op == memfs.OpRemove && name == spare {
			fsys.SetLimit(0)
		}
		return nil
	}
	all = append(all, untilRotation(t, l, w, fsys)...)
	if tried != 1 || slices.Contains(files(t, fsys, ".new"), spare) {
		t.Fatalf("it was tried %d times in one segment; files: %v", tried, files(t, fsys, ".new"))
	}
	fsys.Hook = nil
	for !slices.Contains(files(t, fsys, ".new"), spare) {
		all = append(all, fill(t, l, w, 1, true)...)
	}
	ok(t, same(t, l, all))
	durable := l.DurableIndex()

	// The file is there: the next segment takes it, and no room.
	fsys.SetLimit(fsys.Used() + 2500)
	var err error
	segments := len(files(t, fsys, ".log"))
	for err == nil {
		durable = l.DurableIndex()
		err = errors.Join(l.Append([]*raftpb.Entry{w.trx(300, 0)}), l.Sync())
	}
	want(t, err, raftlog.ErrNoSpace)
	if n := len(files(t, fsys, ".log")); n != segments+1 {
		t.Errorf("%d segments on a full disk, %d before", n, segments)
	}
	_ = l.Close()
	l = open(t, fsys)
	if last, _ := l.LastIndex(); last < durable {
		t.Errorf("the log ends at %d, %d was synced", last, durable)
	}
	ok(t, l.Close())
}

// TestSpareAtAnyTime: jobs that no writer waits for run at the worst moments: while a rotation makes a segment of the
// file, and twice.
func TestSpareAtAnyTime(t *testing.T) {
	for _, at := range []memfs.Op{memfs.OpWrite, memfs.OpFdatasync, memfs.OpRename} {
		fsys := memfs.New()
		var jobs []func()
		l, w := begun(t, fsys, func(o *raftlog.Options) { o.Later = func(job func()) { jobs = append(jobs, job) } })
		all := untilRotation(t, l, w, fsys) // without it
		all = append(all, fill(t, l, w, 4, true)...)
		if len(jobs) < 2 {
			t.Fatalf("%d jobs", len(jobs))
		}
		jobs[0]()
		if !slices.Contains(files(t, fsys, ".new"), spare) {
			t.Fatal("no file was made ahead")
		}
		hit := false
		fsys.Hook = func(op memfs.Op, name string) error {
			if op == at && name == spare && !hit {
				hit = true
				var wg sync.WaitGroup
				for _, job := range jobs {
					wg.Go(job)
				}
				wg.Wait()
			}
			return nil
		}
		all = append(all, untilRotation(t, l, w, fsys)...)
		fsys.Hook = nil
		if !hit {
			t.Fatalf("no %s of the file", at)
		}
		all = append(all, fill(t, l, w, 3, true)...)
		fsys.Crash(nil)
		l = open(t, fsys)
		ok(t, same(t, l, all))
		ok(t, l.Close())
	}
}

// TestSpareTooSmall: a header that has no room in the file that was made ahead begins a segment of its own making.
func TestSpareTooSmall(t *testing.T) {
	fsys := memfs.New()
	l, w := begun(t, fsys, func(o *raftlog.Options) { o.ZeroAheadBytes = 60 })
	all := append(untilRotation(t, l, w, fsys), untilRotation(t, l, w, fsys)...)
	if !slices.Contains(files(t, fsys, ".new"), spare) {
		t.Error("no file was made ahead")
	}
	ok(t, same(t, l, all))
	ok(t, l.Close())
	l = open(t, fsys)
	ok(t, same(t, l, all))
	ok(t, l.Close())
}

// TestCutComesBack: the cut of a closed segment is not waited for, and a power loss may undo it, in whole or in part:
// the segment opens with and without its index file, and is cut again.
func TestCutComesBack(t *testing.T) {
	fsys := memfs.New()
	l, w := begun(t, fsys, nil)
	var before []byte // the first segment before it was closed
	path := dir + "/0000000000000001.log"
	var all []*raftpb.Entry
	for len(files(t, fsys, ".log")) == 1 {
		var err error
		before, err = fsys.ReadFile(path)
		ok(t, err)
		all = append(all, fill(t, l, w, 1, true)...)
	}
	ok(t, l.Close())
	cut, err := fsys.ReadFile(path)
	ok(t, err)
	index, err := fsys.ReadFile(dir + "/0000000000000001.idx")
	ok(t, err)
	if len(before) <= len(cut)+25 || !bytes.Equal(before[:len(cut)], cut) {
		t.Fatalf("the segment has %d bytes, before it was closed %d", len(cut), len(before))
	}
	zeroed := func(n int) []byte { // a file system clears the rest of a block first
		b := bytes.Clone(before)
		clear(b[len(cut) : len(cut)+n])
		return b
	}
	for what, b := range map[string][]byte{
		"all of it": before, "zeros": zeroed(25), "part of the filler": zeroed(7), "its magic": zeroed(22),
		"the beginning": before[:len(cut)+5], "another size": append(bytes.Clone(before), make([]byte, 3000)...),
	} {
		for _, withIndex := range []bool{true, false} {
			fsys.WriteFile(path, b)
			if withIndex {
				fsys.WriteFile(dir+"/0000000000000001.idx", index)
			} else if len(files(t, fsys, "1.idx")) > 0 {
				ok(t, fsys.Remove(dir+"/0000000000000001.idx"))
			}
			rep, err := raftlog.Verify(fsys, dir, keys)
			if err != nil || rep.Last != uint64(len(all)) {
				t.Fatalf("%s, index %t: Verify: %+v, %v", what, withIndex, rep, err)
			}
			l := open(t, fsys)
			ok(t, same(t, l, all))
			ok(t, l.Close())
			if got, err := fsys.ReadFile(path); err != nil || !bytes.Equal(got, cut) {
				t.Errorf("%s, index %t: the segment was not cut: %d bytes, %v", what, withIndex, len(got), err)
			}
			tidy(t, fsys, rep)
		}
	}
}

// TestSpareIsLeft: a file that was made ahead and is left by a life that ended is removed, whatever it holds.
func TestSpareIsLeft(t *testing.T) {
	segment, err := goldenDisk(t, newest).ReadFile(dir + "/000000000000000a.log")
	ok(t, err)
	want := describe(t, goldenDisk(t, newest))
	for what, b := range map[string][]byte{
		"nothing": nil, "zeros": make([]byte, 1<<20), "a header": append(bytes.Clone(segment[:200]), make([]byte, 1000)...),
		"a segment": segment, "anything": bytes.Repeat([]byte{0xA5}, 5000),
	} {
		fsys := goldenDisk(t, newest)
		fsys.WriteFile(spare, b)
		if got := describe(t, fsys); got != want {
			t.Errorf("with %s in it the log holds\n%s\nwant\n%s", what, got, want)
		}
		if left := files(t, fsys, ".new"); len(left) != 0 {
			t.Errorf("%v is left", left)
		}
	}
}

// TestIndexFilesAreWrittenBeside: who closes a segment waits for no index file, and none is left for a segment that
// is gone.
func TestIndexFilesAreWrittenBeside(t *testing.T) {
	fsys := memfs.New()
	var jobs []func()
	l, w := begun(t, fsys, func(o *raftlog.Options) { o.Later = func(job func()) { jobs = append(jobs, job) } })
	all := append(untilRotation(t, l, w, fsys), untilRotation(t, l, w, fsys)...)
	if got := files(t, fsys, ".idx"); len(got) != 0 {
		t.Errorf("%v was waited for", got)
	}
	setState(t, l, 1, 1, uint64(len(all)))
	first, err := l.Purge(uint64(len(all))/2, 0)
	ok(t, err)
	if first == 1 {
		t.Fatal("nothing was purged")
	}
	for _, job := range jobs {
		job()
	}
	want := []string{filepath.Join(dir, fmt.Sprintf("%016x.idx", first))}
	if got := files(t, fsys, ".idx"); !slices.Equal(got, want) {
		t.Errorf("index files %v, want %v", got, want)
	}
	ok(t, l.Close())
	for _, job := range jobs {
		job() // a goroutine that comes late
	}
	rep, err := raftlog.Verify(fsys, dir, keys)
	ok(t, err)
	tidy(t, fsys, rep)
}

// TestRotationHasTheRoomOfTheSpare: on a disk with room for one more segment, a rotation that comes while the spare
// file is being made waits for it, and does not end the log for want of room.
func TestRotationHasTheRoomOfTheSpare(t *testing.T) {
	fsys := memfs.New()
	var jobs sync.WaitGroup
	asked := false
	l, w := begun(t, fsys, func(o *raftlog.Options) { o.Later = func(job func()) { asked = true; jobs.Go(job) } })
	making, given := make(chan struct{}), make(chan struct{})
	var once sync.Once
	fsys.Hook = func(op memfs.Op, name string) error {
		switch inline := strings.HasSuffix(name, ".log.new"); {
		case op == memfs.OpFdatasync && name == spare:
			once.Do(func() { close(making) })
			<-given
		case op == memfs.OpWrite && inline:
			select {
			case <-given:
			default:
				return syscall.ENOSPC
			}
		case op == memfs.OpRemove && inline:
			close(given)
		}
		return nil
	}
	var all []*raftpb.Entry
	for !asked {
		all = append(all, fill(t, l, w, 1, true)...)
	}
	<-making
	all = append(all, untilRotation(t, l, w, fsys)...)
	jobs.Wait()
	fsys.Hook = nil
	ok(t, same(t, l, all))
	ok(t, l.Close())
	ok(t, same(t, open(t, fsys), all))
}

// TestSpareLeavesRoom: what can be done without does not take the room of others on the disk.
func TestSpareLeavesRoom(t *testing.T) {
	fsys := memfs.New()
	l, w := begun(t, fsys, nil)
	fsys.SetLimit(fsys.Used() + 8<<20)
	fsys.Hook = func(op memfs.Op, name string) error {
		if op == memfs.OpCreate && name == spare {
			t.Error("it is made")
		}
		return nil
	}
	ok(t, same(t, l, untilRotation(t, l, w, fsys)))
	fsys.Hook = nil
	ok(t, l.Close())
}

// TestSpareIsRemovedByHand: it holds nothing, so an operator may make room with it.
func TestSpareIsRemovedByHand(t *testing.T) {
	fsys := memfs.New()
	l, w := begun(t, fsys, nil)
	var all []*raftpb.Entry
	for !slices.Contains(files(t, fsys, ".new"), spare) {
		all = append(all, fill(t, l, w, 1, true)...)
	}
	ok(t, fsys.Remove(spare))
	all = append(all, untilRotation(t, l, w, fsys)...)
	ok(t, same(t, l, all))
	ok(t, l.Close())
}

// TestIndexOfWhatGoes: a segment that is removed while its index file is written leaves no such file, whatever removes
// it.
func TestIndexOfWhatGoes(t *testing.T) {
	for what, remove := range map[string]func(*raftlog.Log, *raftpb.Entry) error{
		"purge": func(l *raftlog.Log, last *raftpb.Entry) error {
			_, err := l.Purge(last.GetIndex(), 0)
			return err
		},
		"tail": func(l *raftlog.Log, _ *raftpb.Entry) error {
			w := newWriter()
			w.term, w.inc = 2, 2
			err := l.SetHardState(&raftpb.HardState{Term: new(uint64(2)), Vote: new(uint64(1)), Commit: new(uint64(0))})
			return errors.Join(err, l.Append([]*raftpb.Entry{w.barrier()}))
		},
		"reset": func(l *raftlog.Log, _ *raftpb.Entry) error {
			snap, err := l.Snapshot()
			return errors.Join(err, l.ResetTo(snap))
		},
	} {
		fsys := memfs.New()
		var jobs []func()
		l, w := begun(t, fsys, func(o *raftlog.Options) { o.Later = func(job func()) { jobs = append(jobs, job) } })
		all := append(untilRotation(t, l, w, fsys), untilRotation(t, l, w, fsys)...)
		last := all[len(all)-1]
		if what != "tail" {
			setState(t, l, 1, 1, last.GetIndex())
			ok(t, l.SetConfState(&raftpb.ConfState{Voters: []uint64{1}}, last.GetIndex()))
		}
		goes := files(t, fsys, ".log")[map[string]int{"tail": 1}[what]]
		end := make(chan error, 1)
		begin := sync.OnceFunc(func() {
			go func() { end <- remove(l, last) }()
			limit := time.Now().Add(200 * time.Millisecond)
			for len(end) == 0 && time.Now().Before(limit) { // it waits, as it should
				runtime.Gosched()
			}
		})
		begun := false
		fsys.Hook = func(op memfs.Op, name string) error {
			if op == memfs.OpCreate && name == strings.TrimSuffix(goes, ".log")+".idx" {
				begun = true
				begin()
			}
			return nil
		}
		for _, job := range jobs {
			job()
		}
		if !begun {
			t.Fatalf("%s: no index file was written for %s", what, goes)
		}
		ok(t, <-end)
		fsys.Hook = nil
		for _, path := range files(t, fsys, ".idx") {
			if segment := strings.TrimSuffix(path, ".idx") + ".log"; !slices.Contains(files(t, fsys, ".log"), segment) {
				t.Errorf("%s: %s is left without its segment", what, path)
			}
		}
		ok(t, l.Close())
	}
}
