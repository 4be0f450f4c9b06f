package disk

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"trireme/lab/needs"
)

const (
	testSize = 64 << 20

	// What the test binary does as a child: it holds a disk under this directory until it is killed, or writes to this
	// file.
	holderEnv = "TRIREME_DISK_TEST_DIR"
	writerEnv = "TRIREME_DISK_TEST_FILE"
)

func TestMain(m *testing.M) {
	if dir := os.Getenv(holderEnv); dir != "" {
		d, err := New(context.Background(), dir, testSize)
		fmt.Println("ready", err)
		for err == nil { // a select without cases would be a deadlock to the runtime, which ends the process
			time.Sleep(time.Hour)
			runtime.KeepAlive(d)
		}
		os.Exit(1)
	}
	if path := os.Getenv(writerEnv); path != "" {
		fmt.Println("ended", appendRecords(path))
		os.Exit(1)
	}
	os.Exit(m.Run())
}

func newDisk(t *testing.T) *Disk {
	t.Helper()
	d, err := New(t.Context(), filepath.Join(t.TempDir(), "a disk"), testSize)
	if errors.Is(err, ErrUnavailable) {
		needs.Cannot(t, err)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := d.Close(); err != nil {
			t.Error(err)
		}
	})
	return d
}

// cycle cuts the power and gives it back.
func (d *Disk) cycle(t *testing.T) {
	t.Helper()
	if err := d.PowerOff(); err != nil {
		t.Fatal(err)
	}
	if err := d.PowerOn(); err != nil {
		t.Fatal(err)
	}
}

func (d *Disk) path(name string) string { return filepath.Join(d.dir, name) }

// write a file, and fsync it with its directory.
func (d *Disk) write(t *testing.T, name, text string) {
	t.Helper()
	f, err := os.Create(d.path(name))
	if err != nil {
		t.Fatal(err)
	}
	_, err = f.WriteString(text)
	if err := errors.Join(err, f.Sync(), f.Close(), syncDir(d.dir)); err != nil {
		t.Fatal(err)
	}
}

func (d *Disk) read(t *testing.T, name string) string {
	t.Helper()
	b, err := os.ReadFile(d.path(name))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		t.Fatal(err)
	}
	return string(b)
}

func TestPowerCut(t *testing.T) {
	d := newDisk(t)
	if content, err := os.ReadDir(d.Dir()); err != nil || len(content) != 0 {
		t.Errorf("a new disk holds %v %v", content, err)
	}
	d.write(t, "synced", "old")
	unsynced, err := os.Create(d.path("unsynced"))
	if err != nil {
		t.Fatal(err)
	}
	defer unsynced.Close()
	grown, err := os.OpenFile(d.path("synced"), os.O_WRONLY|os.O_APPEND, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer grown.Close()
	for _, f := range []*os.File{unsynced, grown} {
		if _, err := f.WriteString(" and new"); err != nil {
			t.Fatal(err)
		}
	}
	if err := d.PowerOff(); err != nil {
		t.Fatal(err)
	}
	if _, err := grown.WriteString("more"); !errors.Is(err, unix.EIO) {
		t.Errorf("a write without power: %v", err)
	}
	if err := grown.Sync(); !errors.Is(err, unix.EIO) {
		t.Errorf("fsync without power: %v", err)
	}
	if _, err := os.Create(d.path("late")); err == nil {
		t.Error("a file was made without power")
	}
	unsynced.Close()
	grown.Close()
	if err := d.PowerOn(); err != nil {
		t.Fatal(err)
	}
	if got := d.read(t, "synced"); got != "old" {
		t.Errorf("synced: %q", got)
	}
	if got := d.read(t, "unsynced"); got != "" {
		t.Errorf("unsynced: %q", got)
	}
	d.write(t, "after", "it works again")
	d.cycle(t)
	if got := d.read(t, "after"); got != "it works again" {
		t.Errorf("after: %q", got)
	}
}

func TestDirect(t *testing.T) {
	d := newDisk(t)
	f, err := os.OpenFile(d.path("log"), os.O_CREATE|os.O_WRONLY|unix.O_DIRECT, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	block := aligned(4096)
	copy(block, bytes.Repeat([]byte("x"), len(block)))
	_, err = f.Write(block)
	if err := errors.Join(err, unix.Fdatasync(int(f.Fd())), f.Close()); err != nil {
		t.Fatal(err)
	}
	if err := syncDir(d.dir); err != nil {
		t.Fatal(err)
	}
	d.cycle(t)
	if got := d.read(t, "log"); got != string(block) {
		t.Errorf("%d bytes of the block are there", len(got))
	}
}

// aligned memory, as O_DIRECT wants it.
func aligned(size int) []byte {
	b := make([]byte, 2*size)
	skip := -int(uintptr(unsafe.Pointer(&b[0]))) & (size - 1)
	return b[skip : skip+size]
}

func TestSync(t *testing.T) {
	d := newDisk(t)
	if err := os.WriteFile(d.path("file"), []byte("1"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := d.Sync(); err != nil {
		t.Fatal(err)
	}
	d.cycle(t)
	if got := d.read(t, "file"); got != "1" {
		t.Errorf("%q", got)
	}
}

// TestRename: a rename happens wholly or not at all; without an fsync of the directory it may be either.
func TestRename(t *testing.T) {
	d := newDisk(t)
	d.write(t, "loose", "1")
	d.write(t, "tight", "2")
	if err := os.Rename(d.path("tight"), d.path("tight moved")); err != nil {
		t.Fatal(err)
	}
	if err := syncDir(d.dir); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(d.path("loose"), d.path("loose moved")); err != nil {
		t.Fatal(err)
	}
	d.cycle(t)
	if got := d.read(t, "loose") + d.read(t, "loose moved"); got != "1" {
		t.Errorf("under both names together: %q", got)
	}
	if old, moved := d.read(t, "tight"), d.read(t, "tight moved"); old != "" || moved != "2" {
		t.Errorf("a synced rename: %q %q", old, moved)
	}
}

// TestNothingSyncedIsLost cuts the power again and again under a process that says what fsync had confirmed.
func TestNothingSyncedIsLost(t *testing.T) {
	d := newDisk(t)
	var held, lostTails int
	for round := range 100 {
		d.write(t, "log", "") // truncated
		synced, written := d.writeUntilCut(t, round%10)
		if err := d.PowerOn(); err != nil {
			t.Fatal(err)
		}
		lines := strings.SplitAfter(d.read(t, "log"), "\n")
		for i := range synced {
			if i >= len(lines) || lines[i] != record(i) {
				t.Fatalf("round %d: record %d of %d that were synced is not there", round, i, synced)
			}
		}
		held += synced
		if len(lines) <= written {
			lostTails++
		}
	}
	t.Logf("%d records held; in %d rounds written ones that were not synced were lost", held, lostTails)
	if held == 0 || lostTails == 0 {
		t.Error("no round proved anything")
	}
}

// writeUntilCut starts a writer, cuts the power when it has said a number of things, and counts what it has said by
// then.
func (d *Disk) writeUntilCut(t *testing.T, things int) (synced, written int) {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), writerEnv+"="+d.path("log"))
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	said := bufio.NewScanner(out)
	said.Scan() // it has begun
	next := func() bool {
		if !said.Scan() {
			return false
		}
		what, n, _ := strings.Cut(said.Text(), " ")
		switch what {
		case "synced":
			synced, _ = strconv.Atoi(n)
		case "written":
			written, _ = strconv.Atoi(n)
		}
		return true
	}
	for range things {
		next()
	}
	if err := errors.Join(cmd.Process.Kill(), d.PowerOff()); err != nil {
		t.Fatal(err)
	}
	for next() {
	}
	_ = cmd.Wait()
	return synced, written
}

// appendRecords appends forever, with an fsync after every second record.
func appendRecords(path string) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_APPEND, 0)
	fmt.Println("begins", err)
	for n := 0; err == nil; {
		if _, err = f.WriteString(record(n)); err != nil {
			break
		}
		n++
		fmt.Println("written", n)
		if n%2 == 0 {
			if err = f.Sync(); err == nil {
				fmt.Println("synced", n)
			}
		}
	}
	return err
}

func record(i int) string { return fmt.Sprintf("record %d\n", i) }

// TestBusy: no process gets the old file system instead of the recovered one.
func TestBusy(t *testing.T) {
	if testing.Short() {
		t.Skip("waits for a process that does not end")
	}
	d := newDisk(t)
	f, err := os.Create(d.path("open"))
	if err != nil {
		t.Fatal(err)
	}
	if err := d.PowerOff(); err != nil {
		t.Fatal(err)
	}
	if err := d.PowerOn(); err == nil || !strings.Contains(err.Error(), fmt.Sprint(os.Getpid())) {
		t.Errorf("with an open file: %v", err)
	}
	f.Close()
	if err := d.PowerOn(); err != nil {
		t.Error(err)
	}
	d.write(t, "new", "1")
}

func TestClose(t *testing.T) {
	d := newDisk(t)
	d.write(t, "file", "1")
	device := filepath.Base(d.loop.Name())
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	if mounted(t, d.dir) {
		t.Error("still mounted")
	}
	if _, err := os.Stat(d.dir + imageSuffix); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("its file: %v", err)
	}
	waitFree(t, device, d.dir)
	if err := d.Close(); err != nil {
		t.Errorf("once more: %v", err)
	}
}

// TestLeftovers: the disk of a process that was killed goes with the next New; one of a living process stays.
func TestLeftovers(t *testing.T) {
	newDisk(t) // skips if this machine has no loop devices
	dir := filepath.Join(t.TempDir(), "disk")
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), holderEnv+"="+dir)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	line, _ := bufio.NewReader(out).ReadString('\n')
	newDisk(t)
	if line != "ready <nil>\n" || !mounted(t, dir) {
		t.Errorf("a living process's disk: %q, mounted %v", line, mounted(t, dir))
	}
	_ = cmd.Process.Kill()
	_ = cmd.Wait()
	if !mounted(t, dir) {
		t.Fatal("no mount was left")
	}
	newDisk(t)
	if mounted(t, dir) {
		t.Error("still mounted")
	}
	if _, err := os.Stat(dir + imageSuffix); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("its file: %v", err)
	}
}

func TestBadInput(t *testing.T) {
	newDisk(t) // skips if this machine has no loop devices
	full := t.TempDir()
	if err := os.WriteFile(filepath.Join(full, "file"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	taken := filepath.Join(t.TempDir(), "dir")
	if err := os.WriteFile(taken+imageSuffix, []byte("precious"), 0o600); err != nil {
		t.Fatal(err)
	}
	for dir, c := range map[string]struct {
		size int64
		want string
	}{
		full:                            {testSize, "is not empty"},
		filepath.Join(t.TempDir(), "s"): {1 << 20, "at least"},
		filepath.Join(t.TempDir(), "l"): {1 << 60, "does not fit"},
		taken:                           {testSize, "exists"},
	} {
		if d, err := New(t.Context(), dir, c.size); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s of %d bytes: %v %v, not %q", dir, c.size, d, err, c.want)
		}
	}
	if b, err := os.ReadFile(taken + imageSuffix); string(b) != "precious" {
		t.Errorf("a file that was there before: %q %v", b, err)
	}
}

func mounted(t *testing.T, dir string) bool {
	t.Helper()
	b, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		t.Fatal(err)
	}
	return strings.Contains(unescape(string(b)), " "+dir+" ")
}

// waitFree: others may have taken the device again by now.
func waitFree(t *testing.T, device, dir string) {
	t.Helper()
	for deadline := time.Now().Add(10 * time.Second); ; {
		b, err := os.ReadFile(filepath.Join("/sys/block", device, "loop/backing_file"))
		if err != nil || !strings.HasPrefix(string(b), dir) {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("%s is still attached to %s", device, b)
		}
		<-time.After(10 * time.Millisecond)
	}
}
