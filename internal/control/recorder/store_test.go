package recorder

import (
	"bytes"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"trireme/internal/api"
	"trireme/internal/mysql/mysqld"
)

var began = time.Date(2026, 11, 23, 2, 0, 0, 0, time.UTC)

// frameAt is what a busy node records in ten seconds.
func frameAt(at time.Time) *Frame {
	h := api.Histogram{Count: 10, SumS: 0.02, Buckets: make([]uint64, len(api.LatencyBounds)+1)}
	h.Buckets[8] = 10
	return &Frame{Interval: api.Interval{At: at, Seconds: 10, MySQLSeconds: 10, LeaderS: 10, Transactions: 100,
		Bytes: 1000, Commits: map[string]api.Histogram{api.StageTotal: h}, LogWrites: h,
		MySQL: map[string]uint64{"Queries": 500}, Connections: 7, LagS: 0.5, LagBytes: 10,
		Links: []api.LinkView{{To: "n2", RTTMS: 0.2, P99MS: 0.4}}, Looks: 10, Active: map[string]int{WaitRunning: 20}},
		Sessions:   []api.SessionLoad{{Wait: WaitRunning, State: "updating", User: "app", Digest: "d1", Seen: 20}},
		Statements: []api.StatementLoad{{Schema: "app", Digest: "d1", Count: 5, TimeS: 1}},
		Files:      []api.FileWait{{Event: "innodb/innodb_data_file, read", Count: 3, TimeS: 0.1}},
		Daemon:     &Process{CPUMS: 700, Memory: 90 << 20}, Mysqld: &Process{CPUMS: 4300, Memory: 900 << 20}}
}

func openStore(t testing.TB, dir string, keep int64) *Store {
	t.Helper()
	s, err := Open(dir, keep)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return s
}

func mustAppend(t testing.TB, s *Store, f *Frame) {
	t.Helper()
	if err := s.Append(f); err != nil {
		t.Fatal(err)
	}
}

func period(t testing.TB, s *Store, from, to time.Time) api.PeriodView {
	t.Helper()
	v, err := s.Period(t.Context(), "n1", from, to)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

func TestPeriod(t *testing.T) {
	dir := t.TempDir()
	s := openStore(t, dir, 64<<20)
	for i := range 360 { // an hour
		f := frameAt(began.Add(time.Duration(i) * 10 * time.Second))
		if i == 0 {
			f.Texts = map[string]string{"d1": "UPDATE t SET a = ?"}
		}
		mustAppend(t, s, f)
	}
	v := period(t, s, began.Add(30*time.Minute), began.Add(40*time.Minute))
	if len(v.Buckets) != 60 || v.StepS != 10 || !v.Buckets[0].At.Equal(began.Add(30*time.Minute)) {
		t.Fatalf("%d buckets of %v s from %v", len(v.Buckets), v.StepS, v.Buckets[0].At)
	}
	if b := v.Buckets[59]; b.Transactions != 100 || b.Commits[api.StageTotal].Count != 10 || b.Connections != 7 ||
		b.Links[0].P99MS != 0.4 || b.Active[WaitRunning] != 20 {
		t.Errorf("%+v", b)
	}
	// The text was written before the period.
	if st := v.Statements[0]; st.Text != "UPDATE t SET a = ?" || st.Count != 300 || math.Abs(st.TimeS-60) > 1e-9 {
		t.Errorf("%+v", st)
	}
	if se := v.Sessions[0]; se.Seen != 1200 || se.Text != "UPDATE t SET a = ?" {
		t.Errorf("%+v", se)
	}
	if f := v.FileWaits[0]; f.Count != 180 {
		t.Errorf("%+v", f)
	}
	if v.Oldest == nil || !v.Oldest.Equal(began) {
		t.Errorf("oldest: %v", v.Oldest)
	}
	whole := period(t, s, began, began.Add(7*24*time.Hour))
	if len(whole.Buckets) > api.MaxBuckets || whole.Statements[0].Count != 1800 || whole.StepS != 3600 {
		t.Errorf("%d buckets of %v s: %+v", len(whole.Buckets), whole.StepS, whole.Statements)
	}
	if none := period(t, s, began.Add(-time.Hour), began); len(none.Buckets) != 0 || none.Buckets == nil {
		t.Errorf("%+v", none)
	}
}

// TestTornTail: a killed daemon leaves what it had written, wherever its last write ended; the next daemon continues
// after it.
func TestTornTail(t *testing.T) {
	dir := t.TempDir()
	s := openStore(t, dir, 64<<20)
	var ends []int64
	for i := range 3 {
		mustAppend(t, s, frameAt(began.Add(time.Duration(i)*10*time.Second)))
		ends = append(ends, s.size)
	}
	s.Close()
	path := filepath.Join(dir, name(1))
	content, err := os.ReadFile(path)
	if err != nil || int64(len(content)) != ends[2] {
		t.Fatal(len(content), ends, err)
	}
	newer, err := frameAt(began.Add(time.Minute)).encode()
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, name(2)), append([]byte(magic), newer...), 0o600); err != nil {
		t.Fatal(err)
	}
	near := func(cut int) bool {
		return slices.ContainsFunc(ends, func(end int64) bool { d := int64(cut) - end; return d > -3 && d < headerSize+2 })
	}
	for cut := range len(content) {
		if cut > headerSize && cut%41 != 0 && !near(cut) {
			continue
		}
		if err := os.WriteFile(path, content[:cut], 0o600); err != nil {
			t.Fatal(err)
		}
		want := 1
		for _, end := range ends {
			if int64(cut) >= end {
				want++
			}
		}
		if v := period(t, s, began, began.Add(30*time.Minute)); len(v.Buckets) != want {
			t.Fatalf("cut at %d of %d: %d buckets, want %d", cut, len(content), len(v.Buckets), want)
		}
	}
	next := openStore(t, dir, 64<<20)
	mustAppend(t, next, frameAt(began.Add(2*time.Minute)))
	if next.number != 3 {
		t.Errorf("the next daemon writes to file %d", next.number)
	}
}

// TestDamage: no byte can be changed so that a frame says something else.
func TestDamage(t *testing.T) {
	b, err := frameAt(began).encode()
	if err != nil {
		t.Fatal(err)
	}
	content := append([]byte(magic), b...)
	for i := range content {
		damaged := bytes.Clone(content)
		damaged[i] ^= 0x40
		if err := frames(damaged, func(time.Time, bool, []byte) error { t.Errorf("byte %d is not noticed", i); return nil }); err != nil {
			t.Error(err)
		}
	}
}

// TestBounded: samples never take more than they may, and it is the oldest that go.
func TestBounded(t *testing.T) {
	dir := t.TempDir()
	const keep = 8 * fileLeast
	s := openStore(t, dir, keep)
	r := New(s)
	at := began
	noise := rand.New(rand.NewPCG(1, 2))
	for i := range 1200 {
		r.Statements("1", []mysqld.StatementCount{{Digest: "d1", Count: uint64(i + 1), TimeS: float64(i + 1)}})
		for _, d := range r.Lacks() {
			r.Texts(map[string]string{d: "SELECT ?"})
		}
		f := api.LoadView{Transactions: uint64(i * i)}
		if err := r.Write(Reading{At: at, Took: 10 * time.Second, Load: f,
			Self: api.MemberView{Links: []api.LinkView{{To: fmt.Sprintf("%x", noise.Perm(500)), P99MS: float64(i)}}}}); err != nil {
			t.Fatal(err)
		}
		at = at.Add(10 * time.Second)
	}
	files, err := s.files()
	if err != nil {
		t.Fatal(err)
	}
	var total int64
	for _, f := range files {
		total += f.size
	}
	if total > keep || len(files) < 3 || files[0].number == 1 {
		t.Errorf("%d files from number %d, %d bytes of %d", len(files), files[0].number, total, keep)
	}
	v := period(t, s, at.Add(-10*time.Minute), at)
	if len(v.Buckets) != 59 || v.Statements[0].Text != "SELECT ?" {
		t.Errorf("%d buckets, %+v", len(v.Buckets), v.Statements)
	}
	// whatever is removed: each file has the texts that it needs, but perhaps of its first frame
	for _, f := range files[:len(files)-1] {
		found := false
		content, err := os.ReadFile(f.path)
		if err != nil {
			t.Fatal(err)
		}
		_ = frames(content, func(_ time.Time, texts bool, _ []byte) error { found = found || texts; return nil })
		if !found {
			t.Errorf("%s has no texts", f.path)
		}
	}
}

// TestClockJumps: a clock that is set far ahead for a moment takes one old file, not all; what is recorded with odd
// times is read as such.
func TestClockJumps(t *testing.T) {
	dir := t.TempDir()
	s := openStore(t, dir, 64<<20)
	now := time.Now().Truncate(time.Second)
	for i := range 5 {
		mustAppend(t, s, frameAt(now.Add(time.Duration(i)*10*time.Second)))
		s.Close()
	}
	later := now.Add(10 * 365 * 24 * time.Hour)
	mustAppend(t, s, frameAt(later))
	// another file: it would cover more than a day
	mustAppend(t, s, frameAt(now.Add(-time.Hour)))
	// 4 of 5, and the last one
	if v := period(t, s, now.Add(-2*time.Hour), now.Add(time.Hour)); total(v).Transactions != 500 {
		t.Errorf("%d transactions are left", total(v).Transactions)
	}
	if v := period(t, s, later, later.Add(time.Minute)); len(v.Buckets) != 1 {
		t.Errorf("%d buckets", len(v.Buckets))
	}
	if files, err := s.files(); err != nil || len(files) != 6 {
		t.Errorf("%d files, %v", len(files), err)
	}
}

// TestForeignFiles: what is not ours is left alone, and so is a file of a later version.
func TestForeignFiles(t *testing.T) {
	dir := t.TempDir()
	for _, n := range []string{"notes.txt", "1.rec", "0000000001.rec.old"} {
		if err := os.WriteFile(filepath.Join(dir, n), []byte("hello"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(dir, name(7)), []byte("TRIREC\x00\x02something"), 0o600); err != nil {
		t.Fatal(err)
	}
	s := openStore(t, dir, 64<<20)
	mustAppend(t, s, frameAt(began))
	if _, err := os.Stat(filepath.Join(dir, name(8))); err != nil {
		t.Error(err)
	}
	if v := period(t, s, began, began.Add(time.Minute)); len(v.Buckets) != 1 {
		t.Errorf("%+v", v)
	}
}

func TestDiskRefuses(t *testing.T) {
	dir := t.TempDir()
	s := openStore(t, dir, 64<<20)
	mustAppend(t, s, frameAt(began))
	_ = s.file.Close() // every write fails from now on
	if err := s.Append(frameAt(began)); err == nil {
		t.Fatal("written to a closed file")
	}
	mustAppend(t, s, frameAt(began.Add(10*time.Second)))
	if v := period(t, s, began, began.Add(time.Minute)); len(v.Buckets) != 2 {
		t.Errorf("%d buckets", len(v.Buckets))
	}
}

func FuzzFrames(f *testing.F) {
	b, err := frameAt(began).encode()
	if err != nil {
		f.Fatal(err)
	}
	f.Add(append([]byte(magic), b...))
	f.Fuzz(func(t *testing.T, content []byte) {
		_ = frames(content, func(_ time.Time, _ bool, body []byte) error {
			_, _ = decode(body)
			return nil
		})
		_, _ = decode(content)
	})
}
