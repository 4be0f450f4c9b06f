package backup

import (
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
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
	"trireme/internal/mysql/mysqld"
	"trireme/lab/needs"
)

// TestNotOurs: a backup clears up in its directory, so it takes none with anything of somebody else's in it.
func TestNotOurs(t *testing.T) {
	for _, name := range []string{"work/thesis", "base/album/photo", "notes"} {
		to := newDir(t)
		path := to.path(name)
		check(t, os.MkdirAll(filepath.Dir(path), 0o755))
		check(t, os.WriteFile(path, []byte("mine"), 0o600))
		if err := claim(to, testID); !errors.Is(err, ErrNotOurs) {
			t.Errorf("a directory with %s: %v", name, err)
		}
		if _, err := Run(t.Context(),
			Options{Source: Source{Identity: config.Identity{Cluster: "shop", ClusterID: testCluster}}, To: to}); !errors.Is(err, ErrNotOurs) {
			t.Errorf("a backup into a directory with %s: %v", name, err)
		}
		if _, err := os.Stat(path); err != nil {
			t.Error(err)
		}
	}
	to := newDir(t)
	check(t, os.Mkdir(to.path("lost+found"), 0o700))
	check(t, os.WriteFile(to.path(tempPrefix+"1"), nil, 0o600))
	check(t, claim(to, testID))
	check(t, claim(to, testID))
}

// TestHostileManifest: what a manifest says cannot lead a restoration anywhere but to its own files, and the rest of
// the backup stays of use.
func TestHostileManifest(t *testing.T) {
	s := newScript(t)
	to := newDir(t)
	s.some(10)
	s.archive(to)
	good := testBase(t, s, to, 3, 3)
	b := testBase(t, s, to, 5, 6)
	for what, change := range map[string]func(*Base){
		"another cluster":            func(b *Base) { b.ClusterID++ },
		"a file outside":             func(b *Base) { b.Files = []File{{Path: "../../etc/passwd"}} },
		"options in a file":          func(b *Base) { b.Files = []File{{Path: "mysqld-auto.cnf"}} },
		"options, by another way":    func(b *Base) { b.Files = []File{{Path: "sys/../mysqld-auto.cnf"}} },
		"options, by a long way":     func(b *Base) { b.Files = []File{{Path: "./mysqld-auto.cnf"}} },
		"somebody else's account":    func(b *Base) { b.Account.User = "root" },
		"a folder outside":           func(b *Base) { b.Folders = []string{"/etc"} },
		"another name":               func(b *Base) { b.Name = "another" },
		"a newer version":            func(b *Base) { b.Version++ },
		"an option that runs things": func(b *Base) { b.Options = map[string]string{"init_file": "/tmp/evil.sql"} },
		"a second line": func(b *Base) {
			b.Options = map[string]string{"innodb_page_size": "16k\nplugin_load=evil.so"}
		},
		"a place": func(b *Base) {
			b.Options = map[string]string{"innodb_data_file_path": "/etc/ibdata1:12M"}
		},
		"statements":              func(b *Base) { b.Account.User = "x@y; DROP DATABASE mysql; --" },
		"a negative size":         func(b *Base) { b.Files = []File{{Path: "ibdata1", Size: -1}} },
		"an end before its index": func(b *Base) { b.Last = b.Index - 1 },
	} {
		bad := *b
		change(&bad)
		check(t, putSealed(to, b.manifest(), &bad))
		c, err := Read(to)
		check(t, err)
		if len(c.Bases) != 1 || c.Bases[0].Name != good.Name || len(c.Damaged) != 1 || c.Damaged[0].Object != b.manifest() {
			t.Errorf("%s: copies %v, damaged %v", what, c.Bases, c.Damaged)
		}
		p, err := c.Find(Target{Index: 7})
		check(t, err)
		if use, _, _, err := c.base(&p); err != nil || use.Name != good.Name {
			t.Errorf("%s: the other copy is not used: %v", what, err)
		}
	}
	fine := *b
	fine.Options = map[string]string{"innodb_data_file_path": "ibdata1:12M:autoextend", "lower_case_table_names": "1"}
	check(t, fine.check())
	of := map[string]string{"loose-innodb-directories": "/srv", "Innodb_Page_Size": "32k", "max_connections": "9"}
	if got := optionsIn(placeOptions, of); !maps.Equal(got, map[string]string{"innodb_directories": "/srv"}) {
		t.Errorf("options that place data: %v", got)
	}
	if got := optionsIn(shapeOptions, of); !maps.Equal(got, map[string]string{"innodb_page_size": "32k"}) {
		t.Errorf("options that shape data: %v", got)
	}
}

// TestLinksLeadNowhere: the directory may belong to another user than root, who backs up into it. Links in it lead to
// nothing outside of it, and a pipe blocks nothing.
func TestLinksLeadNowhere(t *testing.T) {
	outside := t.TempDir()
	check(t, os.WriteFile(filepath.Join(outside, "secret"), []byte("secret"), 0o600))
	check(t, os.WriteFile(filepath.Join(outside, tempPrefix+"1"), []byte("mine"), 0o600))
	to := newDir(t)
	check(t, claim(to, testID))
	for name, target := range map[string]string{
		"log": outside, "base": filepath.Dir(outside), "secret": filepath.Join(outside, "secret"),
		readersName: filepath.Join(outside, "readers"),
	} {
		check(t, os.Symlink(target, to.path(name)))
	}
	check(t, syscall.Mkfifo(to.path("pipe"), 0o600))
	put := func(w io.Writer) error {
		_, err := io.WriteString(w, "new")
		return err
	}
	under := "base/" + filepath.Base(outside) + "/"
	for what, f := range map[string]func() error{
		"write":            func() error { return to.Put("log/secret", put) },
		"write below":      func() error { return to.Put(under+"new/file", put) },
		"remove":           func() error { return to.Remove("log/secret") },
		"lock":             func() error { _, err := to.Lock(lockLog); return err },
		"hold exclusively": func() error { _, err := to.hold(true); return err },
		"read":             func() error { _, err := to.Open("secret"); return err },
		"read below":       func() error { _, err := to.Open("log/secret"); return err },
		"read a pipe":      func() error { _, err := to.Open("pipe"); return err },
	} {
		if err := f(); err == nil {
			t.Errorf("%s: no error", what)
		}
	}
	if names, _ := to.List("log/"); len(names) > 0 && names[0] != "log" {
		t.Errorf("listed: %v", names)
	}
	if still, err := to.hold(false); err == nil {
		check(t, still.Close())
	}
	_ = to.clear(lockLog, "")
	left, err := os.ReadDir(outside)
	check(t, err)
	if secret, err := os.ReadFile(filepath.Join(outside, "secret")); len(left) != 2 || err != nil ||
		string(secret) != "secret" {
		t.Errorf("outside: %v, %q, %v", left, secret, err)
	}
	if os.Geteuid() == 0 {
		if to.Work() == "" {
			t.Error("no place for the copy in a directory that is root's")
		}
		check(t, os.Chown(to.String(), 65534, 65534))
		if work := to.Work(); work != "" {
			t.Errorf("the copy is made in %s, which is another user's", work)
		}
	}
}

// TestAnotherDirectoryInItsPlace: who owns the folder above a backup's directory puts a link to one of root's in its
// place, while root writes. Nothing is made, read or removed there.
func TestAnotherDirectoryInItsPlace(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root writes where others cannot")
	}
	parent, roots := t.TempDir(), newDir(t)
	check(t, claim(roots, testID))
	check(t, os.Chown(parent, 65534, 65534))
	to, err := NewDir(filepath.Join(parent, "shop"))
	check(t, err)
	if work := to.Work(); work != "" {
		t.Errorf("the copy is made in %s, which another user can replace", work)
	}
	check(t, claim(to, testID))
	check(t, os.Rename(to.String(), to.String()+".away"))
	check(t, os.Symlink(roots.String(), to.String()))
	put := func(io.Writer) error { return nil }
	for what, f := range map[string]func() error{
		"write":  func() error { return to.Put("log/new", put) },
		"lock":   func() error { _, err := to.Lock(lockLog); return err },
		"hold":   func() error { _, err := to.hold(true); return err },
		"read":   func() error { _, err := to.Open(identityName); return err },
		"remove": func() error { return to.Remove(identityName) },
		"list":   func() error { _, err := to.List("log/"); return err },
	} {
		if err := f(); !errors.Is(err, ErrMissing) {
			t.Errorf("%s: %v", what, err)
		}
	}
	left, err := os.ReadDir(roots.String())
	check(t, err)
	if len(left) != 1 || left[0].Name() != identityName {
		t.Errorf("root's directory: %v", left)
	}
	check(t, errors.Join(os.Remove(to.String()), os.Rename(to.String()+".away", to.String())))
	check(t, to.Put("log/new", put)) // its file system came back
}

// TestDamageIsLocal: an object that is damaged takes away the moments that need it and no others.
func TestDamageIsLocal(t *testing.T) {
	s := newScript(t)
	to := newDir(t)
	for range 4 {
		s.some(5)
		s.archive(to)
	}
	c, err := Read(to)
	check(t, err)
	old, middle := c.Segments[0], c.Segments[2]
	b := testBase(t, s, to, old.Last+1, old.Last+1)
	spoil := func(name string) (repair func()) {
		path := to.path(name)
		was, err := os.ReadFile(path)
		check(t, err)
		check(t, os.WriteFile(path, append([]byte("x"), was...), 0o600))
		return func() { check(t, os.WriteFile(path, was, 0o600)) }
	}
	way := func(target Target) error {
		c, err := Read(to)
		check(t, err)
		p, err := c.Find(target)
		if err == nil {
			_, _, _, err = c.base(&p)
		}
		return c.named(err)
	}
	repair := spoil(old.Name())
	if err := way(Target{}); err != nil {
		t.Errorf("a segment from before the copy is damaged: %v", err)
	}
	repair()
	repair = spoil(middle.Name())
	if err := way(Target{Index: middle.First - 1}); err != nil {
		t.Errorf("a segment from after that moment is damaged: %v", err)
	}
	if err := way(Target{}); !errors.Is(err, ErrMissing) || !strings.Contains(err.Error(), middle.Name()) {
		t.Errorf("a way across a damaged segment: %v", err)
	}
	repair()
	repair = spoil(reachedName)
	if err := way(Target{}); !errors.Is(err, ErrCorrupt) {
		t.Errorf("it is not known how far the log went: %v", err)
	}
	if err := way(Target{Index: s.last()}); err != nil {
		t.Errorf("an entry that is there: %v", err)
	}
	repair()
	check(t, way(Target{}))
	if v, err := Verify(t.Context(), to, nil); err != nil || len(v.Problems) > 0 || v.Restorable[b.Name].To != s.last() {
		t.Errorf("repaired: %+v, %v", v, err)
	}
}

// TestUnreadableEntry: an entry that this program cannot read ends the archive before it. It leaves no hole, however
// often it is tried.
func TestUnreadableEntry(t *testing.T) {
	s := newScript(t)
	to := newDir(t)
	s.some(5)
	whole := s.last()
	m := raftlog.Meta{}
	s.gno++
	m.AddGTID(s.gtid())
	s.piece(&m, []byte("these are no events, of whatever version they are"))
	s.some(5)
	check(t, claim(to, testID))
	a := s.archiver(to)
	check(t, a.resume(t.Context(), 1))
	for range 12 {
		if err := a.step(t.Context(), true); !errors.Is(err, ErrCorrupt) {
			t.Fatalf("an entry that cannot be read: %v", err)
		}
		names, err := segmentNames(to)
		check(t, err)
		if len(names) > 0 {
			s.same(to, whole)
		}
	}
	if err := a.follow(t.Context(), func(Reached, error) {}); !errors.Is(err, ErrCorrupt) {
		t.Errorf("followed: %v", err)
	}
	// One that comes first is not stored as a segment without entries.
	b := s.archiver(newDir(t))
	err := b.start(1)
	check(t, err)
	b.w, b.broken = nil, nil
	for b.tail.At().Index < whole {
		_, err := b.next(s.last())
		check(t, err)
	}
	for range 3 {
		if err := b.step(t.Context(), true); !errors.Is(err, ErrCorrupt) {
			t.Errorf("the first entry: %v", err)
		}
	}
	if names, err := segmentNames(b.store); err != nil || len(names) > 0 {
		t.Errorf("stored: %v, %v", names, err)
	}
	// Nor is one whose first entry is not there yet: the daemon has been restarted, and has applied less for a moment.
	back := newDir(t)
	check(t, claim(back, testID))
	b = s.archiver(back)
	check(t, b.start(1))
	b.w, err = newSegmentWriter(testID, b.tail.At(), true)
	check(t, err)
	s.applied.Store(0)
	check(t, b.step(t.Context(), true))
	if names, err := segmentNames(back); err != nil || len(names) > 0 {
		t.Errorf("stored: %v, %v", names, err)
	}
	s.applied.Store(whole)
	check(t, b.step(t.Context(), true))
	s.same(back, whole)
	if err := logError(raftlog.ErrMetaVersion); !errors.Is(err, ErrNewer) || errors.Is(err, ErrCorrupt) {
		t.Errorf("of a newer version: %v", err)
	}
}

// TestComplete: the archive says that it is complete only by the word of a majority, for the moment at which that was
// asked for, and does not forget it.
func TestComplete(t *testing.T) {
	s := newScript(t)
	to := newDir(t)
	s.some(10)
	s.cutOff = true // this node has applied all that it knows of
	s.archive(to)
	noted := func() (r Reached) {
		check(t, getSealed(to, reachedName, &r))
		return r
	}
	if r := noted(); r.Index != s.last() || !r.At.IsZero() {
		t.Errorf("it is not known what was committed, and %+v was noted", r)
	}
	s.cutOff = false
	s.some(5)
	s.applied.Store(s.last() - 1)
	a := s.archiver(to)
	check(t, a.resume(t.Context(), 1))
	check(t, a.step(t.Context(), true))
	asked := a.asked.at
	if r := noted(); !r.At.IsZero() || asked.IsZero() {
		t.Errorf("something that is committed is missing, and %+v was noted", r)
	}
	s.applied.Store(s.last())
	check(t, a.step(t.Context(), true))
	before := noted()
	if !before.At.Equal(asked.Add(-clockDoubt)) || before.Newest.IsZero() {
		t.Errorf("noted %+v, asked at %v", before, asked)
	}
	a.close()

	// The next one continues from there, even if the newest segment holds no transaction and no node answers.
	s.cutOff = true
	s.settings()
	s.archive(to)
	s.settings()
	s.archive(to)
	if r := noted(); !r.At.Equal(before.At) || !r.Newest.Equal(before.Newest) || r.Index != s.last() {
		t.Errorf("noted %+v, knew %+v", r, before)
	}
}

// TestTooEarly: a moment from before a copy is not restored as what the copy holds, when nothing shows that the copy is
// older.
func TestTooEarly(t *testing.T) {
	s := newScript(t)
	to := newDir(t)
	check(t, claim(to, testID))
	s.settings()
	s.settings()
	b := testBase(t, s, to, 2, 2)
	b.Made = began.Add(-time.Hour)
	check(t, putSealed(to, b.manifest(), b))
	way := func(at time.Time) error {
		c, err := Read(to)
		check(t, err)
		p, err := c.Find(Target{Time: at})
		if err == nil {
			_, _, _, err = c.base(&p)
		}
		return err
	}
	s.archive(to)
	for range 2 { // without a transaction, and with one
		if err := way(b.Made.Add(-time.Minute)); !errors.Is(err, ErrTarget) {
			t.Errorf("before the copy: %v", err)
		}
		if err := way(b.Made.Add(time.Minute)); err != nil {
			t.Errorf("after the copy: %v", err)
		}
		s.some(5)
		s.archive(to)
	}
	check(t, way(began))

	// A transaction from before a gap shows nothing of what comes after the gap.
	c, err := Read(to)
	check(t, err)
	last := c.Segments[len(c.Segments)-1]
	last.First, last.Last, last.Begins, last.GTIDs = last.Last+10, last.Last+11, true, gtid.Set{}
	w, err := newSegmentWriter(testID, raftlog.Boundary{Index: last.First - 1, Term: last.LastTerm, GTIDs: last.Before}, true)
	check(t, err)
	check(t, w.add(&Entry{Index: last.First, Term: last.LastTerm, Type: raftpb.EntryConfChangeV2}))
	check(t, w.put(to))
	c, err = Read(to)
	check(t, err)
	p, err := c.Find(Target{Index: last.First})
	check(t, err)
	if !p.Newest.IsZero() {
		t.Errorf("after a gap: the newest transaction is said to be of %v", p.Newest)
	}
}

// TestWithinTransactions: where each segment begins within a transaction, the log before it is used, so that whole ones
// are fed; a copy from that time can be restored, and one without that log is said to be of no use.
func TestWithinTransactions(t *testing.T) {
	s := newScript(t)
	to := newDir(t)
	check(t, claim(to, testID))
	a := s.archiver(to)
	check(t, a.resume(t.Context(), 1))
	for range 3 {
		s.pieces(1, 900)
	}
	for _, upTo := range []uint64{2, 4, 6, s.last()} { // each ends within a transaction
		s.applied.Store(upTo)
		check(t, a.step(t.Context(), true))
	}
	c, err := Read(to)
	check(t, err)
	for i := 1; i < len(c.Segments); i++ {
		if c.Segments[i].Open == 0 {
			t.Fatalf("segment %d begins within no transaction: the test shows nothing", i)
		}
	}
	b := testBase(t, s, to, 4, 4)
	c, err = Read(to)
	check(t, err)
	p, err := c.Find(Target{})
	check(t, err)
	use, first, last, err := c.base(&p)
	check(t, err)
	if use.Name != b.Name {
		t.Errorf("the copy %s", use.Name)
	}
	has := c.Segments[2].Before // what the copy holds
	if next, _, err := newFeedLog(c, first, last, p).SeekGTID(has); err != nil || next != 1 {
		t.Errorf("a feed begins at entry %d: %v", next, err)
	}
	if fed := feedAll(t, c, p); len(fed) != int(s.gno) {
		t.Errorf("%d transactions are fed, want %d", len(fed), s.gno)
	}
	check(t, to.Remove(c.Segments[0].Name()))
	c, err = Read(to)
	check(t, err)
	if _, _, _, err := c.base(&p); !errors.Is(err, ErrMissing) {
		t.Errorf("without the begin of a transaction: %v", err)
	}
	if got, err := c.Restorable(b); err != nil || got != (Stretch{b.Last, b.Last}) {
		t.Errorf("without the begin of a transaction %+v can be restored, %v: the copy is all there is", got, err)
	}
	at := Point{Index: b.Last}
	if use, _, _, err := c.base(&at); err != nil || use.Name != b.Name {
		t.Errorf("the copy itself: %v", err)
	}
	more := *b
	more.Last = s.last()
	if _, err := c.Restorable(&more); !errors.Is(err, ErrMissing) {
		t.Errorf("without the begin of a transaction that the copy lacks: %v", err)
	}
}

// TestFullRows: segments that fill a merged one are merged, however few they are.
func TestFullRows(t *testing.T) {
	needs.NoRace(t)
	to := newDir(t)
	check(t, claim(to, testID))
	at := raftlog.Boundary{Term: 1}
	const pieces = 25
	for i := range pieces {
		w, err := newSegmentWriter(testID, at, i == 0)
		check(t, err)
		check(t,
			w.add(&Entry{Index: at.Index + 1, Term: 1, Type: raftpb.EntryConfChangeV2, Data: make([]byte, segmentRaw/10)}))
		check(t, w.put(to))
		at.Index++
	}
	// A merged segment that cannot be read does not take the place of what it was made of.
	to.through = func(w io.Writer) io.Writer { return flipWriter{w} }
	if _, err := merge(to, testID, 0); !errors.Is(err, ErrCorrupt) {
		t.Errorf("a disk that changes what is written: %v", err)
	}
	if names, err := to.List(logPrefix); err != nil || len(names) != pieces {
		t.Fatalf("%d of %d segments are left, %v", len(names), pieces, err)
	}
	to.through = nil
	next, err := merge(to, testID, 0)
	check(t, err)
	names, err := segmentNames(to)
	check(t, err)
	if len(names) >= pieces/2 {
		t.Errorf("%d segments are left", len(names))
	}
	if next <= 1 || next > pieces {
		t.Errorf("the next merge begins at entry %d", next)
	}
	if _, last, _ := spanOf(names[len(names)-1]); last != pieces {
		t.Errorf("the last entry is %d", last)
	}
}

// flipWriter changes the last byte of each write.
type flipWriter struct{ w io.Writer }

func (f flipWriter) Write(p []byte) (int, error) {
	p = append([]byte(nil), p...)
	p[len(p)-1] ^= 1
	return f.w.Write(p)
}

// TestUnmounted: a target whose file system is unmounted is waited for. Nothing is written below it, and no hole is
// left.
func TestUnmounted(t *testing.T) {
	s := newScript(t)
	to := newDir(t)
	s.some(5)
	s.archive(to)
	s.some(5)
	a := s.archiver(to)
	check(t, a.resume(t.Context(), 1))
	check(t, os.Rename(to.root, to.root+".away"))
	check(t, os.Mkdir(to.root, 0o755))
	for range 2 {
		if err := a.step(t.Context(), true); !errors.Is(err, ErrMissing) || !strings.Contains(err.Error(), "mounted") {
			t.Errorf("unmounted: %v", err)
		}
		s.some(5)
	}
	if left, err := os.ReadDir(to.root); err != nil || len(left) > 0 {
		t.Errorf("written: %v, %v", left, err)
	}
	check(t, os.Remove(to.root))
	check(t, os.Rename(to.root+".away", to.root))
	check(t, a.step(t.Context(), true))
	s.same(to, s.last())
}

// TestCopyLock: a process that has taken a copy, or failed to, and follows the log does not block another copy.
func TestCopyLock(t *testing.T) {
	daemon := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_ = json.NewEncoder(w).Encode(api.ClusterView{})
	}))
	defer daemon.Close()
	to := newDir(t)
	r := &run{id: testID, Options: Options{To: to, Logger: slog.New(slog.DiscardHandler),
		Source: Source{Node: config.Node{},
			Daemon: api.NewClient(daemon.URL, "", nil)}}}
	r.Node.MySQL.Binary = fakeMysqld(t, "exit 1")
	defer r.unlock()
	if _, err := r.takeBase(t.Context()); err == nil || !strings.Contains(err.Error(), "no node can be copied") {
		t.Fatalf("a cluster without nodes: %v", err)
	}
	l, err := to.Lock(lockBase)
	check(t, err)
	check(t, l.Close())
}

// TestOccupied: what somebody writes to the directory while the log is checked is neither restored over nor cleared up.
func TestOccupied(t *testing.T) {
	s := newScript(t)
	to := newDir(t)
	s.some(10)
	s.archive(to)
	testBase(t, s, to, 5, 5)
	dir := t.TempDir()
	mine := filepath.Join(dir, "mine")
	_, err := Restore(t.Context(), RestoreOptions{From: to, Dir: dir, Mysqld: fakeMysqld(t, "exit 1"), Port: 3306,
		Logger: slog.New(slog.DiscardHandler),
		Say:    func(string, ...any) {},
		Done:   func(string, uint64, uint64) { check(t, os.WriteFile(mine, []byte("mine"), 0o600)) }})
	if !errors.Is(err, ErrNotEmpty) {
		t.Errorf("into a directory that was written to: %v", err)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) != 1 || left[0].Name() != "mine" {
		t.Errorf("left: %v, %v", left, err)
	}
}

// TestStands: a receiver that cannot connect is noticed as well as an applier that fails.
func TestStands(t *testing.T) {
	if err := stands(&mysqld.ReplicaStatus{SQLRunning: true, IOState: "Yes"}); err != nil {
		t.Error(err)
	}
	for want, st := range map[string]mysqld.ReplicaStatus{
		"no such table":  {SQLErrno: 1146, SQLError: "no such table", IOState: "Yes"},
		"error 0":        {IOState: "Yes"},
		"access denied":  {SQLRunning: true, IOState: "Connecting", IOErrno: 1045, IOError: "access denied"},
		"the log: error": {SQLRunning: true, IOState: "No"},
	} {
		if err := stands(&st); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", want, err)
		}
	}
}
