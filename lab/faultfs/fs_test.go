package faultfs_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"trireme/lab/child"
	"trireme/lab/faultfs"
	"trireme/lab/needs"
)

func TestMain(m *testing.M) {
	child.Main(faultfs.Server)
	os.Exit(m.Run())
}

type testFS struct {
	*faultfs.FS
	t *testing.T
}

// newFS is one of a test, with what may be skipped skipped.
func newFS(t *testing.T, o faultfs.Options) testFS {
	t.Helper()
	f, err := faultfs.New(t.Context(), filepath.Join(t.TempDir(), "fs"), o)
	if errors.Is(err, faultfs.ErrUnavailable) {
		needs.Cannot(t, err)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := f.Close(); err != nil {
			t.Error(err)
		}
	})
	return testFS{f, t}
}

func (f testFS) path(name string) string { return filepath.Join(f.Dir(), name) }

func (f testFS) ok(err error) {
	f.t.Helper()
	if err != nil {
		f.t.Fatal(err)
	}
}

// cycle is a power loss and its end.
func (f testFS) cycle() faultfs.Loss {
	f.t.Helper()
	f.ok(f.PowerOff())
	f.ok(f.PowerOn())
	return f.Loss()
}

// write a file, synced, and its name.
func (f testFS) write(name, content string) {
	f.t.Helper()
	file, err := os.Create(f.path(name))
	f.ok(err)
	_, err = file.WriteString(content)
	f.ok(errors.Join(err, file.Sync(), file.Close()))
	f.syncDir(filepath.Dir(name))
}

func (f testFS) syncDir(name string) {
	f.t.Helper()
	dir, err := os.Open(f.path(name))
	f.ok(err)
	f.ok(errors.Join(dir.Sync(), dir.Close()))
}

// read a file; one that is not there is empty.
func (f testFS) read(name string) string {
	f.t.Helper()
	b, err := os.ReadFile(f.path(name))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		f.t.Fatal(err)
	}
	return string(b)
}

func (f testFS) open(name string, flags int) *os.File {
	f.t.Helper()
	file, err := os.OpenFile(f.path(name), flags, 0o600)
	f.ok(err)
	f.t.Cleanup(func() { file.Close() })
	return file
}

func TestPowerCut(t *testing.T) {
	f := newFS(t, faultfs.Options{Seed: 1})
	f.write("synced", "old")
	held := f.open("synced", os.O_RDWR)
	_, err := held.WriteAt([]byte("new"), 0)
	f.ok(err)
	f.ok(f.PowerOff())
	if _, err := held.WriteAt([]byte("x"), 0); !errors.Is(err, unix.EIO) {
		t.Errorf("a write without power: %v", err)
	}
	if err := held.Sync(); !errors.Is(err, unix.EIO) {
		t.Errorf("fsync without power: %v", err)
	}
	if _, err := os.Create(f.path("late")); !errors.Is(err, unix.EIO) {
		t.Errorf("a file was made without power: %v", err)
	}
	held.Close()
	f.ok(f.PowerOn())
	if got := f.read("synced"); got != "old" && got != "new" {
		t.Errorf("synced: %q", got)
	}
	f.write("after", "it works again")
	f.cycle()
	if got := f.read("after"); got != "it works again" {
		t.Errorf("after: %q", got)
	}
}

// TestSeedRepeats: the same seed and the same operations give the same losses, another seed others.
func TestSeedRepeats(t *testing.T) {
	run := func(seed uint64) (out string) {
		f := newFS(t, faultfs.Options{Seed: seed})
		for round := range 6 {
			f.write("file", strings.Repeat("a", 64<<10))
			file := f.open("file", os.O_RDWR)
			for i := range 8 {
				_, err := file.WriteAt(bytes.Repeat([]byte{byte('b' + i)}, 16<<10), int64(i)*5000)
				f.ok(err)
			}
			f.ok(file.Close())
			f.ok(os.WriteFile(f.path(fmt.Sprint("name", round)), nil, 0o600))
			loss := f.cycle()
			out += fmt.Sprint(loss, f.read("file"))
		}
		return out
	}
	one := run(7)
	if again := run(7); again != one {
		t.Error("one seed, two outcomes")
	}
	if other := run(8); other == one {
		t.Error("two seeds, one outcome")
	}
}

// TestTorn: writes larger than a sector are torn, later writes survive earlier ones, tails are cut within a write.
func TestTorn(t *testing.T) {
	f := newFS(t, faultfs.Options{Seed: 3})
	var torn, reordered, tails, none, all int
	for range 60 {
		f.write("file", strings.Repeat("0", 4096))
		file := f.open("file", os.O_RDWR)
		for i, b := range []byte("123") {
			_, err := file.WriteAt(bytes.Repeat([]byte{b}, 4096), int64(i)*2048)
			f.ok(err)
		}
		f.ok(file.Close())
		f.cycle()
		got := f.read("file")
		if len(got) < 4096 || len(got) > 8192 || len(got) > 4096 && len(got)%faultfs.SectorBytes != 0 {
			t.Fatalf("%d bytes are left of the file", len(got))
		}
		var sectors string
		for i := 0; i < len(got); i += faultfs.SectorBytes {
			s := got[i : i+faultfs.SectorBytes]
			if strings.Trim(s, s[:1]) != "" {
				t.Fatalf("sector %d is torn: %q", i/faultfs.SectorBytes, s)
			}
			sectors += s[:1]
		}
		first, second := sectors[:4], sectors[4:8] // of write 1 alone; of writes 1 and 2
		if strings.Contains(first, "0") && strings.Contains(first, "1") {
			torn++
		}
		if strings.Contains(first, "0") && strings.Contains(second, "2") {
			reordered++
		}
		if len(got) > 4096 && len(got) < 8192 {
			tails++
		}
		switch sectors {
		case "00000000":
			none++
		case "1111222233333333":
			all++
		}
	}
	t.Logf("of 60: %d torn, %d reordered, %d torn tails, %d lost, %d kept", torn, reordered, tails, none, all)
	if torn == 0 || reordered == 0 || tails == 0 || none == 0 || all == 0 {
		t.Error("one of these never came")
	}
}

// TestRename: a rename happens wholly or not at all; without an fsync of the directory it may be either. What was
// renamed without an fsync of the content may be empty.
func TestRename(t *testing.T) {
	f := newFS(t, faultfs.Options{Seed: 5})
	var old, moved, empty int
	for range 40 {
		f.write("f", "old")
		f.ok(os.WriteFile(f.path("f.new"), []byte("new"), 0o600))
		f.ok(os.Rename(f.path("f.new"), f.path("f")))
		f.cycle()
		switch got := f.read("f"); got {
		case "old":
			old++
		case "new":
			moved++
		case "", "\x00\x00\x00":
			empty++
		default:
			t.Fatalf("%q", got)
		}
		f.write("f", "old")
		f.write("f.new", "new")
		f.ok(os.Rename(f.path("f.new"), f.path("f")))
		f.syncDir("")
		f.cycle()
		if got := f.read("f"); got != "new" {
			t.Fatalf("a synced rename: %q", got)
		}
	}
	if old == 0 || moved == 0 || empty == 0 {
		t.Errorf("old %d, moved %d, without content %d", old, moved, empty)
	}
}

// TestNames: the fsync of a new file keeps its name with Journaled, and not with Posix.
func TestNames(t *testing.T) {
	for _, order := range []faultfs.Order{faultfs.Posix, faultfs.Journaled} {
		f := newFS(t, faultfs.Options{Seed: 9, Names: order})
		lost := 0
		for i := range 20 {
			name := fmt.Sprint("f", i)
			file := f.open(name, os.O_CREATE|os.O_RDWR)
			_, err := file.WriteString("1")
			f.ok(errors.Join(err, file.Sync(), file.Close()))
			f.cycle()
			if f.read(name) == "" {
				lost++
			}
		}
		if (lost > 0) != (order == faultfs.Posix) {
			t.Errorf("order %d: %d of 20 names lost", order, lost)
		}
	}
}

// TestFailedFsync: what an fsync could not write no later fsync makes durable; writing it again does.
func TestFailedFsync(t *testing.T) {
	f := newFS(t, faultfs.Options{Seed: 11})
	lost := 0
	for range 20 {
		f.write("f", "old")
		file := f.open("f", os.O_RDWR)
		_, err := file.WriteAt([]byte("new"), 0)
		f.ok(err)
		f.ok(f.Inject(faultfs.Fault{Path: "f", Ops: faultfs.Fsync, Err: syscall.EIO, Times: 1}))
		if err := file.Sync(); !errors.Is(err, unix.EIO) {
			t.Fatalf("fsync: %v", err)
		}
		f.ok(file.Sync())
		f.ok(file.Close())
		f.cycle()
		switch got := f.read("f"); got {
		case "old":
			lost++
		case "new":
		default:
			t.Fatalf("%q", got)
		}
	}
	if lost == 0 {
		t.Error("a later fsync wrote it")
	}
	for range 20 {
		f.write("f", "old")
		file := f.open("f", os.O_RDWR)
		_, err := file.WriteAt([]byte("new"), 0)
		f.ok(err)
		f.ok(f.Inject(faultfs.Fault{Ops: faultfs.Fsync, Err: syscall.EIO, Times: 1}))
		if err := file.Sync(); err == nil {
			t.Fatal("fsync")
		}
		_, err = file.WriteAt([]byte("new"), 0)
		f.ok(errors.Join(err, file.Sync(), file.Close()))
		f.cycle()
		if got := f.read("f"); got != "new" {
			t.Fatalf("written again and synced: %q", got)
		}
	}
}

func TestFaults(t *testing.T) {
	f := newFS(t, faultfs.Options{})
	f.ok(os.MkdirAll(f.path("a/b"), 0o700))
	f.write("a/b/file", strings.Repeat("x", 4096))
	file := f.open("a/b/file", os.O_RDWR|unix.O_DIRECT)
	block := aligned(4096)
	write := func(off int64) error { _, err := file.WriteAt(block, off); return err }
	read := func() error { _, err := file.ReadAt(block, 0); return err }
	for _, c := range []struct {
		what  string
		fault faultfs.Fault
		op    func() error
		want  error
	}{
		{"none of its kind", faultfs.Fault{Ops: faultfs.Write, Err: syscall.EIO}, file.Sync, nil},
		{"other path", faultfs.Fault{Path: "c", Ops: faultfs.Write, Err: syscall.EIO}, func() error { return write(0) }, nil},
		{"write", faultfs.Fault{Path: "b", Ops: faultfs.Write, Err: syscall.EIO}, func() error { return write(0) }, unix.EIO},
		{"read", faultfs.Fault{Path: "a/*/file", Ops: faultfs.Read, Err: syscall.EIO}, read, unix.EIO},
		{"fsync", faultfs.Fault{Path: "fi*", Ops: faultfs.Fsync, Err: syscall.EIO}, file.Sync, unix.EIO},
		{"full, in place", faultfs.Full("a"), func() error { return write(0) }, nil},
		{"full, growing", faultfs.Full("a"), func() error { return write(4096) }, unix.ENOSPC},
		{"full, fallocate", faultfs.Full("a"), func() error { return unix.Fallocate(int(file.Fd()), 0, 0, 1<<20) },
			unix.ENOSPC},
		{"read-only", faultfs.ReadOnly("a"), func() error { return os.Remove(f.path("a/b/file")) }, unix.EROFS},
		{"skipped", faultfs.Fault{Ops: faultfs.Write, Err: syscall.EIO, Skip: 1}, func() error { return write(0) }, nil},
	} {
		f.ok(f.Inject(c.fault))
		if err := c.op(); !errors.Is(err, c.want) {
			t.Errorf("%s: %v, not %v", c.what, err, c.want)
		}
		if hits, err := f.Hits(); err != nil || hits[0] > 0 != (c.want != nil) {
			t.Errorf("%s: %d hits, %v", c.what, hits, err)
		}
	}
	f.ok(f.Inject(faultfs.Full("a")))
	if free, none := freeBytes(t, f.Dir()), freeBytes(t, f.path("a")); free == 0 || none != 0 {
		t.Errorf("free space %d, on the full part %d", free, none)
	}
	f.ok(f.Inject())
	f.ok(unix.Fallocate(int(file.Fd()), unix.FALLOC_FL_KEEP_SIZE, 0, 1<<20))
	f.ok(f.Inject(faultfs.Full("")))
	f.ok(write(8192)) // reserved
	f.ok(f.Inject(faultfs.Fault{Ops: faultfs.Fsync, Delay: 100 * time.Millisecond}))
	began := time.Now()
	f.ok(file.Sync())
	if took := time.Since(began); took < 100*time.Millisecond {
		t.Errorf("a slow fsync took %v", took)
	}
}

func freeBytes(t *testing.T, dir string) uint64 {
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil {
		t.Fatal(err)
	}
	return st.Bavail
}

// TestHang: what hangs goes on with the next faults, and fails with the power.
func TestHang(t *testing.T) {
	f := newFS(t, faultfs.Options{})
	f.write("f", "1")
	file := f.open("f", os.O_RDWR)
	for _, c := range []struct {
		end  func() error
		want error
	}{{func() error { return f.Inject() }, nil}, {f.PowerOff, unix.EIO}} {
		f.ok(f.Inject(faultfs.Fault{Ops: faultfs.Fsync, Hang: true}))
		done := make(chan error)
		go func() { done <- file.Sync() }()
		select {
		case err := <-done:
			t.Fatalf("it did not hang: %v", err)
		case <-time.After(50 * time.Millisecond):
		}
		f.ok(c.end())
		if err := <-done; !errors.Is(err, c.want) {
			t.Errorf("%v, not %v", err, c.want)
		}
	}
	file.Close()
	f.ok(f.PowerOn())
}

func TestCounts(t *testing.T) {
	f := newFS(t, faultfs.Options{})
	file := f.open("log", os.O_CREATE|os.O_RDWR)
	sync := f.open("dsync", os.O_CREATE|os.O_RDWR|unix.O_DSYNC)
	direct := f.open("direct", os.O_CREATE|os.O_RDWR|unix.O_DSYNC|unix.O_DIRECT)
	for range 5 {
		_, err := file.WriteString("12345")
		f.ok(errors.Join(err, unix.Fdatasync(int(file.Fd()))))
		_, err = sync.WriteString("12345")
		f.ok(err)
		_, err = direct.Write(aligned(512))
		f.ok(err)
	}
	counts, err := f.Counts()
	f.ok(err)
	for pattern, want := range map[string]faultfs.Count{
		"log": {Writes: 5, WriteBytes: 25, Fsyncs: 5, Names: 1}, "dsync": {Writes: 5, WriteBytes: 25, Fsyncs: 5, Names: 1},
		"direct": {Writes: 5, WriteBytes: 5 * 512, Fsyncs: 5, Names: 1}, "d*": {Writes: 10, WriteBytes: 25 + 5*512,
			Fsyncs: 10, Names: 2},
	} {
		if got := counts.Sum(pattern); got != want {
			t.Errorf("%s: %+v, not %+v", pattern, got, want)
		}
	}
}

// TestCalls that servers make on their files.
func TestCalls(t *testing.T) {
	f := newFS(t, faultfs.Options{Seed: 2})
	file := f.open("f", os.O_CREATE|os.O_RDWR)
	fd := int(file.Fd())
	f.ok(file.Truncate(64 << 10))
	mem, err := unix.Mmap(fd, 0, 64<<10, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	f.ok(err)
	copy(mem[5000:], "mapped")
	f.ok(unix.Msync(mem, unix.MS_SYNC))
	f.ok(unix.Munmap(mem))
	f.ok(unix.SyncFileRange(fd, 0, 4096, unix.SYNC_FILE_RANGE_WRITE))
	f.ok(unix.Fallocate(fd, unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, 8192, 4096))
	f.ok(unix.Flock(fd, unix.LOCK_EX|unix.LOCK_NB))
	if err := unix.Flock(int(f.open("f", os.O_RDWR).Fd()), unix.LOCK_EX|unix.LOCK_NB); !errors.Is(err, unix.EWOULDBLOCK) {
		t.Errorf("a second lock: %v", err)
	}
	f.ok(unix.FcntlFlock(uintptr(fd), unix.F_SETLK, &unix.Flock_t{Type: unix.F_WRLCK}))
	f.ok(os.Link(f.path("f"), f.path("hard")))
	f.ok(os.Symlink("f", f.path("soft")))
	f.ok(os.Mkdir(f.path("dir"), 0o700))
	f.ok(os.Rename(f.path("hard"), f.path("dir/hard")))
	f.ok(unix.Mkfifo(f.path("pipe"), 0o600))
	direct := f.open("soft", os.O_RDWR|unix.O_DIRECT)
	block := aligned(4096)
	copy(block, "direct")
	_, err = direct.WriteAt(block, 0)
	f.ok(errors.Join(err, unix.Fdatasync(int(direct.Fd()))))
	f.ok(errors.Join(file.Close(), direct.Close()))
	f.syncDir("")
	f.syncDir("dir")
	if got := f.read("dir/hard"); len(got) != 64<<10 || got[:6] != "direct" || got[5000:5006] != "mapped" {
		t.Errorf("%d bytes: %.10q", len(got), got)
	}
	out, err := exec.Command("ls", "-1", f.Dir()).Output()
	if string(out) != "dir\nf\npipe\nsoft\n" || err != nil {
		t.Errorf("%s %v", out, err)
	}
}

// aligned memory, as O_DIRECT wants it.
func aligned(size int) []byte {
	b := make([]byte, 2*size)
	skip := -int(uintptr(unsafe.Pointer(&b[0]))) & (size - 1)
	return b[skip : skip+size]
}

// TestServerGone: the mount of a server that was killed goes with the next New.
func TestServerGone(t *testing.T) {
	f := newFS(t, faultfs.Options{})
	other, err := faultfs.New(t.Context(), filepath.Join(t.TempDir(), "fs"), faultfs.Options{})
	f.ok(err)
	f.ok(other.Kill())
	if _, err := os.Open(other.Dir()); !errors.Is(err, unix.ENOTCONN) {
		t.Fatalf("its server is gone: %v", err)
	}
	newFS(t, faultfs.Options{})
	if content, err := os.ReadDir(other.Dir()); err != nil || len(content) > 0 {
		t.Error(content, err)
	}
	f.write("a living one", "stays")
}

func TestBadInput(t *testing.T) {
	f := newFS(t, faultfs.Options{})
	f.write("f", "1")
	for _, dir := range []string{f.Dir(), f.path("f")} {
		if _, err := faultfs.New(context.Background(), dir, faultfs.Options{}); err == nil {
			t.Errorf("%s was taken", dir)
		}
	}
	if got := f.read("f"); got != "1" {
		t.Errorf("%q", got)
	}
}

// TestTakeAll: every power loss takes all that is not durable, and nothing else.
func TestTakeAll(t *testing.T) {
	f := newFS(t, faultfs.Options{TakeAll: true})
	f.write("synced", "old")
	for range 20 {
		held := f.open("synced", os.O_RDWR)
		_, err := held.WriteAt([]byte("new"), 0)
		f.ok(err)
		held.Close()
		if loss := f.cycle(); !loss.Bytes() {
			t.Errorf("lost: %+v", loss)
		}
		if got := f.read("synced"); got != "old" {
			t.Fatalf("synced: %q", got)
		}
	}
}

// TestNoCache: on a disk without a volatile cache a direct write in place is durable when it returns; the one that is
// under way when the power goes may be torn.
func TestNoCache(t *testing.T) {
	const size = 16 << 10
	f := newFS(t, faultfs.Options{Seed: 31, NoCache: true})
	f.write("f", strings.Repeat("\x00", size))
	torn := 0
	for round := range 40 {
		file := f.open("f", os.O_RDWR|unix.O_DIRECT)
		var acked byte
		done := make(chan struct{})
		go func() {
			defer close(done)
			block := aligned(size)
			for i := byte(1); ; i++ {
				copy(block, bytes.Repeat([]byte{i}, size))
				if _, err := file.WriteAt(block, 0); err != nil {
					return
				}
				acked = i
			}
		}()
		time.Sleep(time.Duration(round%7) * time.Millisecond)
		f.ok(f.PowerOff())
		<-done
		file.Close()
		f.ok(f.PowerOn())
		got := f.read("f")
		for at := range got {
			if b := got[at]; acked > 0 && b != acked && b != acked+1 {
				t.Fatalf("round %d: byte %d is of write %d; %d was acknowledged", round, at, b, acked)
			}
			if got[at] != got[0] {
				torn++
				break
			}
		}
	}
	t.Logf("%d of 40 torn", torn)
	if torn == 0 {
		t.Error("no write was torn")
	}
}
