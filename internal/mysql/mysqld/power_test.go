package mysqld

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"trireme/lab/faultfs"
)

// cruelDisk loses all that is not durable with its power.
func cruelDisk(t *testing.T) *faultfs.FS {
	t.Helper()
	return diskAt(t, filepath.Join(t.TempDir(), "disk"))
}

func diskAt(t *testing.T, dir string) *faultfs.FS {
	t.Helper()
	disk, err := faultfs.New(t.Context(), dir, faultfs.Options{Names: faultfs.Journaled, NoCache: true, TakeAll: true})
	// needs.Cannot
	if errors.Is(err, faultfs.ErrUnavailable) && (os.Getenv("TRIREME_REQUIRE_MYSQL") == "" || os.Geteuid() != 0) {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := disk.Close(); err != nil {
			t.Error(err)
		}
	})
	return disk
}

// What a mysqld could not fsync, and the next one is shown, no later power loss takes away again.
func TestRedoAfterFailedFsync(t *testing.T) {
	disk := cruelDisk(t)
	l := redoLog{t, Config{Dir: filepath.Join(disk.Dir(), "mysql")}}
	check := func(errs ...error) {
		t.Helper()
		if err := errors.Join(errs...); err != nil {
			t.Fatal(err)
		}
	}
	check(os.MkdirAll(l.cfg.redoDir(), 0o700))
	l.fill(5)
	check(l.cfg.noteStarted(os.Getpid()), disk.Sync())
	check(disk.Inject(faultfs.Fault{Path: "#ib_redo*", Ops: faultfs.Fsync, Err: syscall.EIO}))
	l.fill(20)
	for name := range l.read() {
		f, err := os.OpenFile(l.path(name), os.O_RDWR, 0)
		check(err)
		if err := f.Sync(); !errors.Is(err, syscall.EIO) {
			t.Fatalf("fsync of %s: %v", name, err)
		}
		check(f.Close())
	}
	check(disk.Inject(), l.cfg.mendRedo(t.Context()))
	before := l.read()
	check(disk.PowerOff(), disk.PowerOn())
	for name, b := range l.read() {
		if !bytes.Equal(b, before[name]) {
			t.Errorf("the power loss changed %s", name)
		}
	}
}

// Of the doublewrite files of a server that is up no power loss takes anything, neither their length nor a copy that is
// in them, whether the start before the first one, that one or a later one has made them.
func TestDoublewriteFilesAreDurable(t *testing.T) {
	t.Parallel()
	disk := cruelDisk(t)
	cfg := testConfig(t, filepath.Join(disk.Dir(), "mysql"))
	if err := Initialize(testContext(t), cfg); err != nil {
		t.Fatal(err)
	}
	s := started(t, cfg)
	for i := range 3 {
		writePages(t, s, disk, fmt.Sprint("d", i))
		if err := s.Kill(); err != nil {
			t.Fatal(err)
		}
		before := doublewriteSums(t, cfg)
		if len(before) < 2 {
			t.Fatalf("doublewrite files: %v", before)
		}
		if err := errors.Join(disk.PowerOff(), disk.PowerOn()); err != nil {
			t.Fatal(err)
		}
		if !disk.Loss().Bytes() {
			t.Errorf("power loss %d took nothing: this proved little", i+1)
		}
		if after := doublewriteSums(t, cfg); !maps.Equal(before, after) {
			t.Errorf("power loss %d: doublewrite files were\n%v and are\n%v", i+1, before, after)
		}
		for f := range before { // the next start makes them, or makes them longer
			if err := os.Truncate(filepath.Join(cfg.DataDir(), f), int64(i)*(40<<10)); err != nil {
				t.Fatal(err)
			}
		}
		if err := s.Start(testContext(t), uuidN(2+i)); err != nil {
			t.Fatal(err)
		}
		if err := s.Admin().AdmitClients(testContext(t)); err != nil {
			t.Fatal(err)
		}
	}
}

// writePages makes the server write pages, and so their copies.
func writePages(t *testing.T, s *Server, disk *faultfs.FS, schema string) {
	t.Helper()
	openForTest(t, s)
	l := session(t, s, s.cfg.Admin)
	copies := func() int { return must[faultfs.Counts](t)(disk.Counts()).Sum("*.dblwr").Writes }
	began := copies()
	mustExec(t, l, "SET GLOBAL innodb_max_dirty_pages_pct = 0", "CREATE DATABASE "+schema, "CREATE TABLE "+schema+
		".t (a VARCHAR(4000))",
		"INSERT INTO "+schema+".t VALUES (REPEAT('x', 4000))")
	for range 8 {
		mustExec(t, l, "INSERT INTO "+schema+".t SELECT * FROM "+schema+".t")
	}
	eventually(t, "pages are written", func() bool { return copies() >= began+8 })
}

// doublewriteSums of what is in the files, with their lengths.
func doublewriteSums(t *testing.T, c Config) map[string]string {
	t.Helper()
	out := map[string]string{}
	if err := c.eachDoublewrite(func(path string, _ int64) error {
		b, err := os.ReadFile(path)
		out[filepath.Base(path)] = fmt.Sprintf("%d bytes, %x", len(b), sha256.Sum256(b))
		return err
	}); err != nil {
		t.Fatal(err)
	}
	return out
}
