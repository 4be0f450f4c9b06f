package backup

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.etcd.io/raft/v3/raftpb"

	"trireme/internal/api"
	"trireme/internal/base/config"
	"trireme/internal/core/raftlog"
	"trireme/internal/mysql/gtid"
	"trireme/lab/needs"
)

// TestBesideWriter: what the node adds to a segment after it was read up to its end is archived, too.
func TestBesideWriter(t *testing.T) {
	s, to := newScript(t), newDir(t)
	check(t, claim(to, testID))
	a := s.archiver(to)
	check(t, a.resume(t.Context(), 1))
	for range 30 {
		check(t, a.step(t.Context(), true))
		s.some(3)
		s.applied.Store(s.last() - 1) // one more is on disk
	}
	s.applied.Store(s.last())
	check(t, a.step(t.Context(), true))
	s.same(to, s.last())
}

// TestArchive follows a log over its segments while it is written, and never goes beyond what was applied.
func TestArchive(t *testing.T) {
	s := newScript(t)
	to := newDir(t)
	s.some(10)
	s.pieces(1, 900)
	cut := s.last() - 1 // within a transaction
	s.applied.Store(cut)
	s.archive(to)
	s.same(to, cut)

	s.some(60)
	s.term++
	s.setTerm()
	s.barrier()
	s.some(30)
	s.archive(to)
	s.same(to, s.last())

	// What is stored says what it is.
	c, err := Read(to)
	check(t, err)
	if err := c.Gap(0, len(c.Segments)-1); err != nil || !c.Segments[0].Begins || len(c.Segments) != 2 ||
		c.Segments[1].Begins {
		t.Errorf("%d segments, %v", len(c.Segments), err)
	}
	if next := &c.Segments[1]; next.Open != cut {
		t.Errorf("entry %d continues a transaction of %d, want %d", next.First, next.Open, cut)
	}
	set := s.log.GTIDSet()
	if !c.Reached.GTIDs.Equal(set) || c.Reached.Index != s.last() ||
		!c.Reached.Newest.Equal(began.Add(time.Duration(s.seconds-1)*time.Second)) {
		t.Errorf("reached %+v, want %d %v", c.Reached, s.last(), set)
	}
	if since := time.Since(c.Reached.At); since < clockDoubt || since > time.Hour {
		t.Errorf("complete up to %v", c.Reached.At)
	}
	v, err := Verify(t.Context(), to, nil)
	check(t, err)
	if len(v.Problems) > 0 || v.Segments != 2 {
		t.Errorf("verified: %+v", v)
	}
}

// TestArchiveOfVoids: segments name what settings in them declare void, and a restoration takes it from any of them.
func TestArchiveOfVoids(t *testing.T) {
	s, to := newScript(t), newDir(t)
	s.some(3)
	s.archive(to)
	c, err := Read(to)
	check(t, err)
	ranges := c.Segments[0].GTIDs.Ranges()
	first, second := gtid.GTID{SID: ranges[0].SID, GNO: ranges[0].First},
		gtid.GTID{SID: ranges[0].SID, GNO: ranges[0].First + 1}
	tolerant := gtid.GTID{SID: second.SID, GNO: second.GNO + 1}
	for range 2 {
		b, err := json.Marshal(config.Cluster{Version: 3, Voids: []config.Void{{GTID: first.String(), Tolerant: true},
			{GTID: first.String()},
			{GTID: tolerant.String(), Tolerant: true}}})
		check(t, err)
		s.append(0, append(raftlog.AppendMeta(nil, &raftlog.Meta{Kind: raftlog.Settings}), b...))
	}
	s.some(1)
	s.archive(to)
	c, err = Read(to)
	check(t, err)
	last := len(c.Segments) - 1
	if before, after := c.Segments[0].Voids, c.Segments[last].Voids; last == 0 || len(before) != 0 || len(after) != 3 {
		t.Errorf("%d segments: %v, %v", last+1, before, after)
	}
	l := newFeedLog(c, 0, 0, Point{Index: c.Segments[0].Last})
	if !l.void(first) || l.void(second) || l.void(tolerant) {
		t.Errorf("%s: %t, %s: %t, %s: %t", first, l.void(first), second, l.void(second), tolerant, l.void(tolerant))
	}
	if l.tolerant(first) || l.tolerant(second) || !l.tolerant(tolerant) {
		t.Errorf("tolerant: %t, %t, %t", l.tolerant(first), l.tolerant(second), l.tolerant(tolerant))
	}
}

// TestFollow: while a log is written, its entries get into the archive; what is wrong for a time is waited for.
// TestEncryptedLog: segments of the log that are encrypted are archived like others, from the moment on at which their
// key is there.
func TestEncryptedLog(t *testing.T) {
	s, d := newScript(t), newDir(t)
	s.some(60)
	a := s.archiver(d)
	check(t, claim(d, testID))
	check(t, a.resume(t.Context(), 1))
	check(t, a.step(t.Context(), true))
	plain := s.last()
	keys, err := raftlog.ParseKeys([]byte("one " + strings.Repeat("0a", 32)))
	check(t, err)
	check(t, s.log.SetKeys(keys))
	s.some(60)
	s.barrier()
	for range 2 {
		if err := a.step(t.Context(), true); !errors.Is(err, raftlog.ErrKey) || errors.Is(err, ErrCorrupt) {
			t.Fatalf("without the key: %v", err)
		}
		s.same(d, plain)
	}
	s.keys = keys
	check(t, a.step(t.Context(), true))
	s.same(d, s.last())
	s.some(60)
	s.archive(d) // begun again, in an encrypted segment
	s.same(d, s.last())
}

func TestFollow(t *testing.T) {
	s := newScript(t)
	to := newDir(t)
	check(t, claim(to, testID))
	var full, told bool
	to.through = func(w io.Writer) io.Writer {
		if !full {
			full = true
			return errWriter{syscall.ENOSPC}
		}
		return w
	}
	a := s.archiver(to)
	check(t, a.resume(t.Context(), 1))
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	s.some(7)
	ended := make(chan error, 1)
	go func() {
		ended <- a.follow(ctx, func(_ Reached, err error) {
			told = told || errors.Is(err, ErrNoSpace)
		})
	}()
	for last := uint64(0); last < s.last(); {
		select {
		case err := <-ended:
			t.Fatalf("it ended at entry %d: %v", last, err)
		case <-time.After(20 * time.Millisecond):
		}
		seg, err := lastSegment(to)
		check(t, err)
		if seg != nil {
			last = seg.Last
		}
	}
	cancel()
	check(t, <-ended)
	if !full || !told {
		t.Errorf("full: %t, and it was said: %t", full, told)
	}
	s.same(to, s.last())
}

type errWriter struct{ err error }

func (w errWriter) Write([]byte) (int, error) { return 0, w.err }

// TestFullDisk: what does not fit is not there, what was there is whole, and once there is room it goes on without a
// gap.
func TestFullDisk(t *testing.T) {
	s := newScript(t)
	to := newDir(t)
	s.some(10)
	s.archive(to)
	whole := s.last()
	s.some(10)
	a := s.archiver(to)
	check(t, a.resume(t.Context(), 1))
	for _, room := range []int{0, 10, 300} {
		to.through = func(w io.Writer) io.Writer { return &fullWriter{w, room} }
		err := a.step(t.Context(), true)
		if !errors.Is(err, ErrNoSpace) || !strings.Contains(err.Error(), "make room") {
			t.Fatalf("on a full disk: %v", err)
		}
		s.same(to, whole)
		files, err := filepath.Glob(filepath.Join(to.root, "log", tempPrefix+"*"))
		check(t, err)
		if len(files) > 0 {
			t.Errorf("left: %v", files)
		}
	}
	to.through = nil
	check(t, a.step(t.Context(), true))
	s.same(to, s.last())
}

// fullWriter has room for some bytes.
type fullWriter struct {
	w    io.Writer
	room int
}

func (w *fullWriter) Write(p []byte) (int, error) {
	if len(p) > w.room {
		n, _ := w.w.Write(p[:w.room])
		w.room = 0
		return n, syscall.ENOSPC
	}
	w.room -= len(p)
	return w.w.Write(p)
}

// TestKilled: what a writer leaves that was killed is no part of a backup, and goes when the next one begins.
func TestKilled(t *testing.T) {
	s := newScript(t)
	to := newDir(t)
	s.some(10)
	s.archive(to)
	lock, err := to.Lock(lockLog)
	check(t, err)
	if _, err := to.Lock(lockLog); !errors.Is(err, ErrLocked) {
		t.Errorf("locked twice: %v", err)
	}
	other, err := to.Lock(lockBase)
	check(t, err)
	check(t, errors.Join(lock.Close(), other.Close()))

	b := testBase(t, s, to, 5, 5)
	half := Base{Version: formatVersion, Name: "20261122T130000Z"}
	data := t.TempDir()
	check(t, os.WriteFile(filepath.Join(data, "ibdata1"), []byte("pages"), 0o600))
	check(t, half.storeFile(t.Context(), to, data, &File{Path: "ibdata1"}))
	torn := []string{filepath.Join(to.root, "log", tempPrefix+"17"),
		filepath.Join(to.root, "base", half.Name, "data", tempPrefix+"18")}
	for _, p := range torn {
		check(t, os.WriteFile(p, []byte("half"), 0o600))
	}
	c, err := Read(to)
	check(t, err)
	if len(c.Bases) != 1 || c.Bases[0].Name != b.Name || len(c.Segments) != 1 {
		t.Errorf("%d copies, %d segments", len(c.Bases), len(c.Segments))
	}
	for _, part := range []string{lockLog, lockBase} {
		lock, err := to.Lock(part)
		check(t, err)
		defer lock.Close()
	}
	check(t, dropUnfinished(to))
	for _, p := range append(torn, to.path(half.object(&File{Path: "ibdata1"}))) {
		if _, err := os.Stat(p); err == nil {
			t.Errorf("%s is left", p)
		}
	}
	v, err := Verify(t.Context(), to, nil)
	check(t, err)
	if len(v.Problems) > 0 || v.Restorable[b.Name].Stretch != (Stretch{5, s.last()}) {
		t.Errorf("%+v", v)
	}
}

// testBase stores a copy whose files are some text.
func testBase(t *testing.T, s *script, to Store, index, last uint64) *Base {
	t.Helper()
	data := t.TempDir()
	check(t, os.Mkdir(filepath.Join(data, "shop"), 0o755))
	for name, text := range map[string]string{"ibdata1": strings.Repeat("page", 5000), "mysql.ibd": "rows",
		"shop/empty": "", "auto.cnf": "never"} {
		check(t, os.WriteFile(filepath.Join(data, name), []byte(text), 0o644))
	}
	b := &Base{Version: formatVersion, Name: fmt.Sprintf("20261122T1200%02dZ", index), Cluster: testID.Name,
		ClusterID: testID.ID, Donor: "db2", MySQL: "9.7.4",
		Index: index, Last: last, Executed: gtid.Set{}, Account: mysqldAccount}
	check(t, b.store(t.Context(), to, data, func(int64) {}))
	check(t, putSealed(to, b.manifest(), b))
	if len(b.Files) != 3 || b.Bytes != 20004 {
		t.Fatalf("%d files, %d bytes", len(b.Files), b.Bytes)
	}
	return b
}

// TestDamage changes each byte of a segment in turn, cuts it, and takes it away: it is never taken for whole.
func TestDamage(t *testing.T) {
	s := newScript(t)
	to := newDir(t)
	s.some(3)
	s.archive(to)
	names, err := segmentNames(to)
	check(t, err)
	path := to.path(names[0])
	good, err := os.ReadFile(path)
	check(t, err)
	for i := range good {
		bad := append([]byte(nil), good...)
		bad[i] ^= 0x20
		check(t, os.WriteFile(path, bad, 0o600))
		_, err := readSegment(to, names[0], func(Entry) error { return nil })
		if !errors.Is(err, ErrCorrupt) {
			t.Fatalf("byte %d of %d changed: %v", i, len(good), err)
		}
	}
	for _, n := range []int{0, 1, 100, len(good) / 2, len(good) - 1} {
		check(t, os.WriteFile(path, good[:n], 0o600))
		if _, err := readSegment(to, names[0], func(Entry) error { return nil }); !errors.Is(err, ErrCorrupt) {
			t.Errorf("cut to %d bytes: %v", n, err)
		}
	}
	check(t, os.WriteFile(path, append(good, 'x'), 0o600))
	v, err := Verify(t.Context(), to, nil)
	check(t, err)
	if len(v.Problems) != 2 || v.Segments != 0 || v.Problems[0].Object != names[0] || v.Problems[1].Object != logPrefix {
		t.Errorf("a byte after it: %+v", v)
	}
}

// TestMissing: a segment that is gone is missed, the manifest of another backup is refused, and what a newer version
// wrote is no damage.
func TestMissing(t *testing.T) {
	s := newScript(t)
	to := newDir(t)
	for range 3 {
		s.some(5)
		s.archive(to)
	}
	b := testBase(t, s, to, 3, 3)
	names, err := segmentNames(to)
	check(t, err)
	heads, err := Read(to)
	check(t, err)
	middle := heads.Segments[1]
	gone, err := os.ReadFile(to.path(names[1]))
	check(t, err)
	check(t, to.Remove(names[1]))
	v, err := Verify(t.Context(), to, nil)
	check(t, err)
	if len(v.Problems) != 1 ||
		!strings.Contains(v.Problems[0].What, fmt.Sprintf("entries %d to %d", middle.First, middle.Last)) ||
		v.Restorable[b.Name].To != middle.First-1 {
		t.Errorf("%+v", v)
	}
	c, err := Read(to)
	check(t, err)
	p, err := c.Find(Target{})
	check(t, err)
	if _, _, _, err := c.base(&p); !errors.Is(err, ErrTarget) || !errors.Is(err, ErrMissing) {
		t.Errorf("a way across what is missing: %v", err)
	}
	check(t, os.WriteFile(to.path(names[1]), gone, 0o600))
	check(t, to.Remove(names[0]))
	if v, err = Verify(t.Context(), to, nil); err != nil || len(v.Problems) != 2 || len(v.Restorable) != 0 {
		t.Errorf("without the first segment: %+v, %v", v, err)
	}

	// A copy's file, and its manifest.
	check(t, os.WriteFile(to.path(b.object(&b.Files[0])), []byte("no zstd"), 0o600))
	if v, err = Verify(t.Context(), to, nil); err != nil || v.Bases != 0 ||
		!strings.Contains(v.Problems[1].What, "corrupt") {
		t.Errorf("a damaged copy: %+v, %v", v, err)
	}
	if err := claim(to, clusterID{"other", 1}); !errors.Is(err, ErrForeign) {
		t.Errorf("the directory of another cluster: %v", err)
	}
	if _, err := Read(newDir(t)); !errors.Is(err, ErrNone) {
		t.Errorf("an empty directory: %v", err)
	}
}

// TestPurgedAndForced: an archive whose next entry is purged begins again and says so; an archive whose entries the
// cluster has given up is not continued.
func TestPurgedAndForced(t *testing.T) {
	s := newScript(t)
	to := newDir(t)
	s.some(5)
	s.archive(to)
	s.some(200)
	s.setTerm() // and the commit index
	first, err := s.log.Purge(s.last()-20, 0)
	check(t, err)
	if first <= s.last()/2 {
		t.Fatalf("nothing was purged: the log begins at %d", first)
	}
	a := s.archiver(to)
	check(t, a.resume(t.Context(), s.last()))
	if !a.begins {
		t.Error("a gap, and it does not say so")
	}
	check(t, a.step(t.Context(), true))
	c, err := Read(to)
	check(t, err)
	if n := len(c.Segments); n != 2 || !c.Segments[1].Begins || !errors.Is(c.Gap(0, 1), ErrMissing) ||
		c.Segments[1].Last != s.last() {
		t.Errorf("%d segments: %v", n, c.Gap(0, 1))
	}
	if v, err := Verify(t.Context(), to, nil); err != nil || len(v.Problems) > 0 {
		t.Errorf("a gap that is known is no damage: %+v, %v", v, err)
	}

	// A node that has applied less than the archive has is waited for: what its log holds there may not be what was
	// committed.
	s.applied.Store(s.last() - 1)
	short, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if err := s.archiver(to).resume(short, 1); err == nil || !strings.Contains(err.Error(), "another node") {
		t.Errorf("a node that lags: %v", err)
	}
	s.applied.Store(s.last())

	// The same indexes in another term.
	other := newScript(t)
	for range 2 {
		other.term++
	}
	other.setTerm()
	for other.last() < s.last()+5 {
		other.append(raftpb.EntryNormal, nil)
	}
	if err := other.archiver(to).resume(t.Context(), 1); !errors.Is(err, ErrForeign) {
		t.Errorf("another history: %v", err)
	}
}

// TestMerge: many small segments become one, also when a merge was interrupted; those around a gap stay apart.
func TestMerge(t *testing.T) {
	needs.NoRace(t)
	s := newScript(t)
	to := newDir(t)
	check(t, claim(to, testID))
	a := s.archiver(to)
	check(t, a.resume(t.Context(), 1))
	s.some(mergeMin + 50)
	last := s.last()
	for i := uint64(1); i <= last; i++ { // one entry each, so that some begin within a transaction
		s.applied.Store(i)
		a.stored = 0
		check(t, a.step(t.Context(), true))
	}
	names, err := segmentNames(to)
	check(t, err)
	if len(names) != int(last) {
		t.Fatalf("%d segments of %d entries", len(names), last)
	}
	again := map[string][]byte{}
	for _, name := range names[3:20] {
		again[name], err = os.ReadFile(to.path(name))
		check(t, err)
	}
	before, err := Read(to)
	check(t, err)
	reader, err := to.hold(false)
	check(t, err)
	if _, err := merge(to, testID, 0); !errors.Is(err, ErrLocked) {
		t.Errorf("merged while somebody reads: %v", err)
	}
	check(t, reader.Close())
	_, err = merge(to, testID, 0)
	check(t, err)
	for name, b := range again {
		check(t, os.WriteFile(to.path(name), b, 0o600))
	}
	s.same(to, last)
	c, err := Read(to)
	check(t, err)
	if len(c.Segments) != 1 || !c.Segments[0].Begins || !c.Reached.GTIDs.Equal(before.Reached.GTIDs) ||
		!c.Reached.Newest.Equal(before.Reached.Newest) {
		t.Errorf("%d segments, reached %+v, was %+v", len(c.Segments), c.Reached, before.Reached)
	}
	// What holds the entries of pieces that a merge has left must be whole before they go.
	large := to.path(c.Segments[0].Name())
	good, err := os.ReadFile(large)
	check(t, err)
	bad := append([]byte(nil), good...)
	bad[len(bad)-3] ^= 1
	check(t, os.WriteFile(large, bad, 0o600))
	if _, err := merge(to, testID, 0); !errors.Is(err, ErrCorrupt) {
		t.Errorf("the merged segment is damaged: %v", err)
	}
	for name := range again {
		if _, err := os.Stat(to.path(name)); err != nil {
			t.Fatalf("the only copy of entries is gone: %v", err)
		}
	}
	check(t, os.WriteFile(large, good, 0o600))
	next, err := merge(to, testID, 0)
	check(t, err)
	if next != 1 {
		t.Errorf("the next merge begins at entry %d: the segment is small still", next)
	}
	if left, err := to.List(logPrefix); err != nil || len(left) != 2 {
		t.Errorf("left: %v, %v", left, err)
	}
	s.some(5)
	s.archive(to)
	s.same(to, s.last())
	if v, err := Verify(t.Context(), to, nil); err != nil || len(v.Problems) > 0 || v.Segments != 2 {
		t.Errorf("%+v, %v", v, err)
	}
	// What is no segment by its name is not taken for one.
	row, _ := newestOf([]string{c.Segments[0].Name(), "log/junk.seg", "log/x-y.seg", "log/reached.json"})
	if len(row) != 1 {
		t.Errorf("taken for segments: %v", row)
	}
}

// TestDamagedLog: what is damaged in the node's log is not archived as if it were whole.
func TestDamagedLog(t *testing.T) {
	s := newScript(t)
	s.some(10)
	files, err := filepath.Glob(filepath.Join(s.dir, "*.log"))
	check(t, err)
	f, err := os.OpenFile(files[0], os.O_RDWR, 0)
	check(t, err)
	defer f.Close()
	st, err := f.Stat()
	check(t, err)
	good := make([]byte, st.Size())
	_, err = f.ReadAt(good, 0)
	check(t, err)
	end := len(strings.TrimRight(string(good), "\x00")) - 40 // without the filler
	for at := 4; at < end; at += 97 {
		_, err = f.WriteAt([]byte{good[at] ^ 1}, int64(at))
		check(t, err)
		to := newDir(t)
		a := s.archiver(to)
		err := a.resume(t.Context(), 1)
		if err == nil {
			err = a.step(t.Context(), true)
		}
		if !errors.Is(err, ErrCorrupt) {
			t.Fatalf("byte %d of %d changed: %v", at, end, err)
		}
		_, err = f.WriteAt(good[at:at+1], int64(at))
		check(t, err)
	}
}

// TestArchiveIsTold: the cluster hears how far the archive goes, and nothing while that is not known.
func TestArchiveIsTold(t *testing.T) {
	s, to := newScript(t), newDir(t)
	s.some(6)
	s.cutOff = true
	s.archive(to)
	if len(s.told) != 0 {
		t.Errorf("told of an archive that may not be complete: %+v", s.told)
	}
	s.cutOff = false
	s.archive(to)
	c, err := Read(to)
	check(t, err)
	if len(s.told) != 1 || s.told[0].Index != c.Reached.Index || s.told[0].At.IsZero() ||
		!s.told[0].At.Equal(c.Reached.At) {
		t.Errorf("told %+v; the archive goes to %+v", s.told, c.Reached)
	}
}

// TestCopyIsTold: what is told of a copy.
func TestCopyIsTold(t *testing.T) {
	to := newDir(t)
	var told []api.BackupReport
	r := &run{Options: Options{To: to, Tell: func(r api.BackupReport) { told = append(told, r) }}}
	r.tellCopy(&Base{Name: "c1", Donor: "n2", Made: began, Bytes: 100, Stored: 10})
	want := api.BackupCopy{Name: "c1", Place: to.String(), Donor: "n2", Made: began, Bytes: 100, StoredBytes: 10}
	if len(told) != 1 || told[0].Copy == nil || *told[0].Copy != want || told[0].Archive != nil {
		t.Errorf("told %+v", told)
	}
	r.Tell = nil
	r.tellCopy(&Base{})
	r.Told(Reached{})
}
