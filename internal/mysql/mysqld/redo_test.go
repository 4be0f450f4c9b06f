package mysqld

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"os"
	"path/filepath"
	"testing"
)

// redoLog writes a redo log as InnoDB does, for tests.
type redoLog struct {
	t   *testing.T
	cfg Config
}

const testRedoSize = redoHeader + 16*redoBlock // of one file

func newRedoLog(t *testing.T) redoLog {
	l := redoLog{t, Config{Dir: t.TempDir()}}
	if err := os.MkdirAll(l.cfg.redoDir(), 0o700); err != nil {
		t.Fatal(err)
	}
	return l
}

func (l redoLog) path(name string) string { return filepath.Join(l.cfg.redoDir(), name) }

func sealed(b []byte) []byte {
	binary.BigEndian.PutUint32(b[redoSum:], crc32.Checksum(b[:redoSum], redoCRC))
	return b
}

// file makes #ib_redoN of a log that begins with #ib_redo0 at block first, with a checkpoint at the given LSN in it
// unless that is 0.
func (l redoLog) file(n int, first, checkpoint uint64) {
	b := make([]byte, testRedoSize)
	binary.BigEndian.PutUint32(b, redoFormat)
	binary.BigEndian.PutUint32(b[4:], 77)
	binary.BigEndian.PutUint64(b[8:], (first+16*uint64(n))*redoBlock)
	sealed(b[:redoBlock])
	binary.BigEndian.PutUint64(b[redoBlock+8:], checkpoint)
	sealed(b[redoBlock : 2*redoBlock])
	sealed(b[3*redoBlock : 4*redoBlock])
	if err := os.WriteFile(l.path(fmt.Sprint("#ib_redo", n)), b, 0o600); err != nil {
		l.t.Fatal(err)
	}
}

// block gives the data block that has that many bytes used.
func redoBlockAt(block uint64, used int, fill string) []byte {
	b := append(make([]byte, redoMinBlock), bytes.Repeat([]byte(fill), redoBlock-redoMinBlock)...)
	number, epoch := redoNumber(block * redoBlock)
	binary.BigEndian.PutUint32(b, number)
	binary.BigEndian.PutUint16(b[4:], uint16(used))
	binary.BigEndian.PutUint32(b[8:], epoch)
	return sealed(b)
}

// put writes data at a block of a file, counted from its first data block.
func (l redoLog) put(name string, at int, b []byte) {
	f, err := os.OpenFile(l.path(name), os.O_WRONLY, 0)
	if err != nil {
		l.t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	if _, err := f.WriteAt(b, int64(redoHeader+at*redoBlock)); err != nil {
		l.t.Fatal(err)
	}
}

func (l redoLog) read() map[string][]byte {
	out := map[string][]byte{}
	for _, f := range must[[]redoFile](l.t)(l.cfg.redoFiles()) {
		out[filepath.Base(f.path)] = must[[]byte](l.t)(os.ReadFile(f.path))
	}
	return out
}

// mended checks that mendRedo gives zeros in the named blocks and changes nothing else.
func (l redoLog) mended(zeros map[string][]int) {
	l.t.Helper()
	want := l.read()
	for name, blocks := range zeros {
		for _, at := range blocks {
			clear(want[name][redoHeader+at*redoBlock : redoHeader+(at+1)*redoBlock])
		}
	}
	for range 2 {
		if err := l.cfg.mendRedo(l.t.Context()); err != nil {
			l.t.Fatal(err)
		}
		for name, b := range l.read() {
			for at := 0; at < len(b); at += redoBlock {
				if end := min(at+redoBlock, len(b)); !bytes.Equal(b[at:end], want[name][at:end]) {
					l.t.Errorf("%s: block %d is %x…", name, (at-redoHeader)/redoBlock, b[at:at+16])
				}
			}
		}
	}
}

// The log of the tests: two files from block 100 on, with the checkpoint in block 103.
func (l redoLog) fill(full uint64) {
	l.file(0, 100, 103*redoBlock+40)
	l.file(1, 100, 0)
	for i := range full {
		l.put(fmt.Sprint("#ib_redo", i/16), int(i%16), redoBlockAt(100+i, redoBlock, "r"))
	}
}

// endOf gives the LSN at which recovery ends.
func endOf(t *testing.T, files []redoFile) uint64 {
	t.Helper()
	_, end, err := redoEnd(t.Context(), files)
	if err != nil {
		t.Fatal(err)
	}
	return end
}

func TestMendRedo(t *testing.T) {
	t.Run("none", func(t *testing.T) {
		if err := (Config{Dir: t.TempDir()}).mendRedo(t.Context()); err != nil {
			t.Fatal(err)
		}
	})
	t.Run("lost block", func(t *testing.T) {
		l := newRedoLog(t)
		l.fill(20)
		l.put("#ib_redo0", 7, make([]byte, redoBlock))
		l.mended(map[string][]int{"#ib_redo0": {8, 9, 10, 11, 12, 13, 14, 15}, "#ib_redo1": {0, 1, 2, 3}})
	})
	t.Run("torn block", func(t *testing.T) {
		l := newRedoLog(t)
		l.fill(20)
		l.put("#ib_redo0", 14, append(redoBlockAt(114, redoBlock, "r")[:200], make([]byte, 312)...))
		l.mended(map[string][]int{"#ib_redo0": {14, 15}, "#ib_redo1": {0, 1, 2, 3}})
	})
	t.Run("block in use", func(t *testing.T) {
		l := newRedoLog(t)
		l.fill(9)
		l.put("#ib_redo0", 9, redoBlockAt(109, 300, "r"))
		l.put("#ib_redo0", 10, redoBlockAt(110, redoBlock, "s"))
		l.mended(map[string][]int{"#ib_redo0": {10}})
	})
	t.Run("at its checkpoint", func(t *testing.T) {
		l := newRedoLog(t)
		l.fill(3)
		l.put("#ib_redo0", 3, redoBlockAt(103, 40, "r"))
		l.put("#ib_redo0", 5, redoBlockAt(105, redoBlock, "s"))
		l.mended(map[string][]int{"#ib_redo0": {5}})
	})
	t.Run("old blocks and spare files", func(t *testing.T) {
		l := newRedoLog(t)
		l.fill(18)
		l.put("#ib_redo1", 5, redoBlockAt(30, redoBlock, "o")) // of the log that the file had before
		spare := append(make([]byte, redoHeader), redoBlockAt(31, redoBlock, "o")...)
		spare = append(append(spare, redoBlockAt(117, redoBlock, "o")...), redoBlockAt(118, redoBlock, "s")...)
		if err := os.WriteFile(l.path("#ib_redo2_tmp"), append(spare, 1, 2, 3), 0o600); err != nil {
			t.Fatal(err)
		}
		l.mended(map[string][]int{"#ib_redo2_tmp": {2}})
	})
	t.Run("marked as the first of a write", func(t *testing.T) {
		l := newRedoLog(t)
		l.fill(9)
		for _, at := range []int{5, 8, 10} {
			b := redoBlockAt(100+uint64(at), redoBlock, "r")
			b[0] |= 0x80
			l.put("#ib_redo0", at, sealed(b))
		}
		l.mended(map[string][]int{"#ib_redo0": {10}})
	})
	t.Run("stopped", func(t *testing.T) {
		l := newRedoLog(t)
		l.fill(20)
		l.put("#ib_redo0", 7, make([]byte, redoBlock))
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if err := l.cfg.mendRedo(ctx); !errors.Is(err, context.Canceled) {
			t.Fatal(err)
		}
	})
	t.Run("whole file", func(t *testing.T) {
		l := newRedoLog(t)
		l.fill(16)
		l.put("#ib_redo1", 1, redoBlockAt(117, redoBlock, "s"))
		l.mended(map[string][]int{"#ib_redo1": {1}})
	})
	t.Run("last file is full", func(t *testing.T) {
		l := newRedoLog(t)
		l.fill(32)
		l.mended(nil)
	})
	t.Run("epochs", func(t *testing.T) { // the numbers start again at block 2^30
		l := newRedoLog(t)
		l.file(0, redoNumbers-4, (redoNumbers-4)*redoBlock+12)
		for i := range 10 {
			l.put("#ib_redo0", i, redoBlockAt(redoNumbers-4+uint64(i), redoBlock, "r"))
		}
		l.put("#ib_redo0", 7, make([]byte, redoBlock))
		l.mended(map[string][]int{"#ib_redo0": {8, 9}})
	})
	// What recovery may see otherwise stays as it is.
	header := func(change func(b []byte)) func(l redoLog) {
		return func(l redoLog) {
			b := must[[]byte](l.t)(os.ReadFile(l.path("#ib_redo0")))
			change(b)
			sealed(b[:redoBlock])
			if err := os.WriteFile(l.path("#ib_redo0"), b, 0o600); err != nil {
				l.t.Fatal(err)
			}
		}
	}
	for name, spoil := range map[string]func(l redoLog){
		"format":            header(func(b []byte) { b[3] = 7 }),
		"redo log disabled": header(func(b []byte) { b[51] = 1 }),
		"other log's file":  header(func(b []byte) { b[7]++ }),
		"start":             header(func(b []byte) { b[14]++ }),
		"encrypted":         header(func(b []byte) { b[2*redoBlock] = 'l' }),
		"no checkpoint":     header(func(b []byte) { clear(b[redoBlock : 2*redoBlock]) }),
		"checkpoint elsewhere": header(func(b []byte) {
			binary.BigEndian.PutUint64(b[redoBlock+8:], 200*redoBlock)
			sealed(b[redoBlock : 2*redoBlock])
		}),
		"header": func(l redoLog) {
			if err := os.WriteFile(l.path("#ib_redo1"), make([]byte, testRedoSize), 0o600); err != nil {
				l.t.Fatal(err)
			}
		},
		"missing file": func(l redoLog) {
			if err := os.Rename(l.path("#ib_redo1"), l.path("#ib_redo2")); err != nil {
				l.t.Fatal(err)
			}
		},
		"size": func(l redoLog) {
			if err := os.Truncate(l.path("#ib_redo1"), testRedoSize-1); err != nil {
				l.t.Fatal(err)
			}
		},
		"checkpoint's block": func(l redoLog) { l.put("#ib_redo0", 3, make([]byte, redoBlock)) },
		"encrypted block":    func(l redoLog) { l.put("#ib_redo0", 6, redoBlockAt(106, 0x8000|redoBlock, "e")) },
		"bytes used":         func(l redoLog) { l.put("#ib_redo0", 6, redoBlockAt(106, 11, "e")) },
		"no checksums": func(l redoLog) {
			b := redoBlockAt(106, redoBlock, "e")
			binary.BigEndian.PutUint32(b[redoSum:], redoNoSum)
			l.put("#ib_redo0", 6, b)
		},
		"epoch": func(l redoLog) {
			b := redoBlockAt(106, redoBlock, "e")
			b[11]++
			l.put("#ib_redo0", 6, sealed(b))
		},
	} {
		t.Run(name, func(t *testing.T) {
			l := newRedoLog(t)
			l.fill(20)
			l.put("#ib_redo0", 9, make([]byte, redoBlock))
			spoil(l)
			l.mended(nil)
		})
	}
}

// Blocks that a power loss has left after the end of the redo log are gone when the next life's log ends before them.
func TestRedoOfAnEarlierLife(t *testing.T) {
	t.Parallel()
	cfg := initialized(t)
	// No page may be written before its part of the log is taken away, however long a busy machine needs: pages are
	// flushed by the rate of the log of the last so many rounds, and not before they are over.
	cfg.Extra = map[string]string{"innodb_flushing_avg_loops": "1000", "innodb_adaptive_flushing": "OFF",
		"innodb_idle_flush_pct": "0"}
	s := started(t, cfg)
	life := func(fill string, rows int) {
		openForTest(t, s)
		l := session(t, s, s.cfg.Admin)
		mustExec(t, l, "CREATE DATABASE IF NOT EXISTS d",
			"CREATE TABLE IF NOT EXISTS d.t (id INT AUTO_INCREMENT PRIMARY KEY, a VARCHAR(4000))",
			"INSERT INTO d.t (a) VALUES ('first')")
		if err := s.Admin().FlushEngineLogs(testContext(t)); err != nil {
			t.Fatal(err)
		}
		for range rows {
			mustExec(t, l, "INSERT INTO d.t (a) VALUES (REPEAT('"+fill+"', 3500))")
		}
	}
	end := func() uint64 {
		t.Helper()
		return endOf(t, must[[]redoFile](t)(cfg.redoFiles()))
	}
	// What this test takes away of the log, no page on disk may have, and InnoDB writes pages when it likes: so all of
	// that in one moment. It returns where the log ended before, and where it ends then.
	die := func(fill string, rows int) (flushed, last uint64) {
		t.Helper()
		flushed = end()
		mustExec(t, session(t, s, s.cfg.Admin), fmt.Sprintf(
			"INSERT INTO d.t (a) WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < %d) "+
				"SELECT REPEAT('%s', 3500) FROM n", rows, fill))
		// it is not durable: what of it gets lost is up to this test
		if err := s.Admin().FlushEngineLogs(testContext(t)); err != nil {
			t.Fatal(err)
		}
		if err := s.Kill(); err != nil {
			t.Fatal(err)
		}
		return flushed, end()
	}
	life("u", 0)
	flushed, firstEnd := die("u", 200)
	lost := flushed + 20*redoBlock
	redoAt(t, cfg, lost, make([]byte, redoBlock))
	if got := end(); got != lost {
		t.Fatalf("the log ends at LSN %d, not at %d: it does not hold what this test needs", got, lost)
	}

	if err := cfg.prepare(testContext(t), uuidN(2)); err != nil { // what Start does, and once more
		t.Fatal(err)
	}
	durable := redoLog{t, cfg}.read()
	again := func(n int) {
		t.Helper()
		if err := s.Start(testContext(t), uuidN(n)); err != nil {
			t.Fatal(err)
		}
		if err := s.Admin().AdmitClients(testContext(t)); err != nil {
			t.Fatal(err)
		}
	}
	again(2)
	life("v", 20)
	if err := s.Admin().FlushEngineLogs(testContext(t)); err != nil {
		t.Fatal(err)
	}
	kept, secondEnd := die("v", 40)
	// The power loss removes what comes after a block of the second life's log: what was durable before is there again.
	cut := (kept+secondEnd)/2/redoBlock*redoBlock + redoBlock
	t.Logf("LSNs: flushed %d, lost %d, first end %d, second end %d, cut %d", flushed, lost, firstEnd, secondEnd, cut)
	if secondEnd <= lost || secondEnd >= firstEnd {
		t.Fatal("the second life's log does not end within the first one's")
	}
	for lsn := cut; lsn < firstEnd; lsn += redoBlock {
		if name, at, ok := redoPlace(t, cfg, lsn); ok && durable[name] != nil {
			redoAt(t, cfg, lsn, durable[name][at:at+redoBlock])
		}
	}
	again(3)
	var first, second int
	l := session(t, s, cfg.Admin)
	if err := l.row(testContext(t), []any{&first, &second}, "SELECT SUM(a = 'first'), SUM(a LIKE 'v%') FROM d.t"); err != nil {
		t.Fatal(err)
	}
	t.Logf("rows: %d, and %d of the second life", first, second)
	if first == 0 || second != 20 {
		t.Error("that is not what the log held")
	}
}

// The end is found in a log whose files were used before, and that was made larger and smaller; what is in front of it
// is kept.
func TestRedoOfReusedFiles(t *testing.T) {
	t.Parallel()
	cfg := initialized(t)
	cfg.Extra = map[string]string{"innodb_redo_log_capacity": "8M"}
	s := started(t, cfg)
	rows := 0
	for i, capacity := range []int{8 << 20, 24 << 20, 8 << 20} {
		openForTest(t, s)
		l := session(t, s, s.cfg.Admin)
		mustExec(t, l, "CREATE DATABASE IF NOT EXISTS d",
			"CREATE TABLE IF NOT EXISTS d.t (id INT AUTO_INCREMENT PRIMARY KEY, a LONGTEXT)",
			fmt.Sprint("SET GLOBAL innodb_redo_log_capacity = ", capacity))
		for range 20 {
			mustExec(t, l, "INSERT INTO d.t (a) VALUES (REPEAT('u', 1000000))")
			rows++
		}
		if err := s.Admin().FlushEngineLogs(testContext(t)); err != nil {
			t.Fatal(err)
		}
		var flushed uint64
		if err := l.row(testContext(t), []any{&flushed},
			"SELECT VARIABLE_VALUE FROM performance_schema.global_status WHERE VARIABLE_NAME = 'Innodb_redo_log_flushed_to_disk_lsn'"); err != nil {
			t.Fatal(err)
		}
		if err := s.Kill(); err != nil {
			t.Fatal(err)
		}
		files := must[[]redoFile](t)(cfg.redoFiles())
		end := endOf(t, files)
		t.Logf("%d files, from %s; flushed up to LSN %d, the end is %d", len(files), filepath.Base(files[0].path), flushed,
			end)
		if flushed == 0 || end < flushed || files[0].id == 0 {
			t.Errorf("flushed up to LSN %d, the end is %d, the first file is %s", flushed, end, files[0].path)
		}
		if err := s.Start(testContext(t), uuidN(2+i)); err != nil {
			t.Fatal(err)
		}
		if err := s.Admin().AdmitClients(testContext(t)); err != nil {
			t.Fatal(err)
		}
		var got int
		if err := session(t, s, cfg.Admin).row(testContext(t), []any{&got}, "SELECT COUNT(*) FROM d.t"); err != nil ||
			got != rows {
			t.Errorf("%d rows of %d (%v)", got, rows, err)
		}
	}
}

// redoPlace gives the file of the log and the offset in it of the block at lsn.
func redoPlace(t *testing.T, cfg Config, lsn uint64) (name string, at int64, ok bool) {
	t.Helper()
	for _, f := range must[[]redoFile](t)(cfg.redoFiles()) {
		if f.spare {
			continue
		}
		if _, _, err := f.readHeader(); err != nil {
			t.Fatal(err)
		}
		if lsn >= f.start && lsn < f.end() {
			return filepath.Base(f.path), redoHeader + int64(lsn-f.start), true
		}
	}
	return "", 0, false
}

func redoAt(t *testing.T, cfg Config, lsn uint64, b []byte) {
	t.Helper()
	name, at, ok := redoPlace(t, cfg, lsn)
	if !ok {
		t.Fatalf("no block at LSN %d", lsn)
	}
	f := must[*os.File](t)(os.OpenFile(filepath.Join(cfg.redoDir(), name), os.O_WRONLY, 0))
	defer func() { _ = f.Close() }()
	if _, err := f.WriteAt(b, at); err != nil {
		t.Fatal(err)
	}
}
