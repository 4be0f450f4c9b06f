package bench

import (
	"context"
	"database/sql"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"trireme/lab/faultfs"
	"trireme/lab/rivals"
	"trireme/lab/wan"
)

// fake is a system that takes no time.
type fake struct{ stopped *int }

func (f fake) Targets(rivals.Via) ([]rivals.Target, error) { return nil, nil }
func (f fake) Hosts() []rivals.HostParts                   { return nil }
func (f fake) DB(string) *sql.DB                           { return nil }
func (f fake) Settle(context.Context) error                { return nil }
func (f fake) Backlog(context.Context) (int64, error)      { return 0, nil }
func (f fake) Disk(string) *faultfs.FS                     { return nil }
func (f fake) Network() *wan.Net                           { return nil }
func (f fake) Stop() error                                 { *f.stopped++; return nil }

// fakeRun is a runner over a fake system with cells "a" and "b" whose measurements are counted.
func fakeRun(t *testing.T, out string, resume bool, measure func(k Key) (Record, error)) (*runner, *int) {
	t.Helper()
	h := Header{Settings: Settings{Suite: "fake", Rounds: 2, Seconds: 1}, Machine: Machine{CPUs: 2}, MySQL: "9.7.4"}
	st, err := openStore(out, h, resume, false)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { st.file.Close() })
	stopped := 0
	g := Group{System: rivals.System{Name: "fake", Start: func(context.Context, *rivals.Lab, rivals.Shape) (rivals.Running,
		error) {
		return fake{&stopped}, nil
	}}}
	for _, c := range []string{"a", "b"} {
		k := Key{System: "fake", Case: c}
		g.Cells = append(g.Cells,
			Cell{Key: k, Takes: time.Second, Measure: func(context.Context, *Bed) (Record, error) { return measure(k) }})
	}
	r := &runner{settings: h.Settings, store: st, dir: t.TempDir(), say: testWriter{t}}
	r.schedule([]Group{g})
	return r, &stopped
}

func (r *runner) all(ctx context.Context) error {
	for _, g := range r.todo {
		if err := r.runGroup(ctx, g); err != nil {
			return err
		}
	}
	return nil
}

// TestResume interrupts a run in the middle: what was measured stays, and only the rest is measured when it is resumed.
// What failed is an outcome.
func TestResume(t *testing.T) {
	out := t.TempDir()
	ctx, cancel := context.WithCancel(t.Context())
	n := 0
	value := func(Key) (Record, error) { n++; return Record{Values: map[string]float64{valTPS: float64(n)}}, nil }
	r, stopped := fakeRun(t, out, false, func(k Key) (Record, error) {
		if n == 3 {
			cancel()
			return Record{}, ctx.Err()
		}
		if n == 1 {
			n++
			return Record{}, errors.New("once")
		}
		return value(k)
	})
	if err := r.all(ctx); !errors.Is(err, context.Canceled) {
		t.Fatalf("interrupted: %v", err)
	}
	if *stopped != 2 {
		t.Fatalf("%d systems of 2 were stopped", *stopped)
	}
	if _, err := openStore(out, r.store.results.Header, false, false); !errors.Is(err, errUnfinished) {
		t.Fatalf("an unfinished run was overwritten: %v", err)
	}
	other := r.store.results.Header
	other.Settings.Seconds = 99
	if _, err := openStore(out, other, true, false); err == nil || !strings.Contains(err.Error(), "other settings") {
		t.Fatalf("resumed with other settings: %v", err)
	}
	n = 10
	r, _ = fakeRun(t, out, true, value)
	if r.cells != 1 {
		t.Fatalf("%d cells are left, want the one that was interrupted", r.cells)
	}
	if err := errors.Join(r.all(t.Context()), r.store.finish(time.Now())); err != nil {
		t.Fatal(err)
	}
	got, err := readResults(resultsPath(out, "fake"))
	if err != nil || len(got.Records) != 4 || got.Ended.IsZero() {
		t.Fatalf("%d records of 4, ended %v, %v", len(got.Records), got.Ended, err)
	}
	if _, err := os.Stat(resultsPath(out, "fake") + ".part"); err == nil {
		t.Fatal("the unfinished file is still there")
	}
}

// TestNotRun: a system that does not start, or a cell that fails, is recorded with the reason, and the rest goes on.
func TestNotRun(t *testing.T) {
	r, _ := fakeRun(t, t.TempDir(), false, func(k Key) (Record, error) {
		if k.Case == "a" {
			return Record{}, errors.New("no disk")
		}
		return Record{Values: map[string]float64{valTPS: 1}}, nil
	})
	r.todo[1].System.Start = func(context.Context, *rivals.Lab, rivals.Shape) (rivals.Running, error) {
		return nil, errors.New("port in use")
	}
	if err := r.all(t.Context()); err != nil {
		t.Fatal(err)
	}
	var why []string
	for _, rec := range r.store.results.Records {
		why = append(why, rec.NotRun+rec.Failed)
	}
	if got := strings.Join(why, "; "); got != "no disk; ; it did not start: port in use; it did not start: port in use" {
		t.Fatal(got)
	}
}

// TestNothing: a run without a figure is an error, and does not replace results that are there.
func TestNothing(t *testing.T) {
	r, _ := fakeRun(t, t.TempDir(), false, func(Key) (Record, error) { return Record{}, errors.New("not root") })
	if err := errors.Join(r.all(t.Context()), r.store.finish(time.Now())); !errors.Is(err, errNothing) ||
		!strings.Contains(err.Error(), "not root") {
		t.Fatal(err)
	}
	for _, name := range []string{r.store.path, r.store.path + ".part"} {
		if _, err := os.Stat(name); err == nil {
			t.Errorf("%s is there", name)
		}
	}
}

func TestReadResults(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x.jsonl")
	write := func(text string) {
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	header := `{"settings":{"suite":"x"},"mysql":"9.7.4"}` + "\n"
	write(header + `{"system":"trireme","round":1}` + "\n" + `{"system":"tri`)
	if r, err := readResults(path); err != nil || len(r.Records) != 1 {
		t.Fatalf("a line that was cut off: %d records, %v", len(r.Records), err)
	}
	write(header + "nonsense\n")
	if _, err := readResults(path); err == nil || !strings.Contains(err.Error(), "line 2") {
		t.Fatalf("nonsense: %v", err)
	}
	write("")
	if _, err := readResults(path); err == nil {
		t.Fatal("an empty file was read")
	}
}

func TestBadSettings(t *testing.T) {
	for _, c := range []struct {
		o    RunOptions
		want string
	}{
		{RunOptions{Suites: []string{"nosuch"}}, "there are: topologies"},
		{RunOptions{Suites: []string{"cpu"}, Settings: Settings{Systems: []string{"oracle"}}}, "there are: standalone"},
		{RunOptions{Suites: []string{"cpu"}, Settings: Settings{Topologies: []string{"moon"}}}, "moon"},
		{RunOptions{Suites: []string{"cpu"}, Settings: Settings{Workloads: []string{"tpch"}}}, "there are: oltp_read_only"},
		{RunOptions{Suites: []string{"cpu"}, Settings: Settings{Threads: []int{0}}}, "at least 1"},
		{RunOptions{Suites: []string{"cpu"}, Settings: Settings{Threads: []int{4, 4}}}, "twice"},
		{RunOptions{Suites: []string{"cpu"}, Settings: Settings{Cases: []string{"5"}}}, "no cases"},
		{RunOptions{Suites: []string{"scaling"}, Settings: Settings{Cases: []string{"12"}}}, "2 to 9"},
		{RunOptions{Suites: []string{"failover"}, Settings: Settings{Cases: []string{"earthquake"}}},
			"there are: mysqld killed"},
		{RunOptions{Suites: []string{"failover"}, Settings: Settings{Threads: []int{1, 64}}}, "one number of threads"},
		{RunOptions{Suites: []string{"failover"}, Settings: Settings{Repeats: -1}}, "positive number of repeats"},
		{RunOptions{Suites: []string{"rpo"}, Settings: Settings{Cases: []string{"flood"}}}, "there are: majority killed"},
	} {
		c.o.Say, c.o.Out = testWriter{t}, t.TempDir()
		if err := Run(t.Context(), c.o); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%+v: %v, want %q", c.o.Settings, err, c.want)
		}
	}
}

// TestOneRunAtATime: a second run into the same directory would mix up results and files of servers.
func TestOneRunAtATime(t *testing.T) {
	dir := t.TempDir()
	unlock, err := lockDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := lockDir(dir); err == nil || !strings.Contains(err.Error(), "in use by another run") {
		t.Fatalf("a second run: %v", err)
	}
	if err := unlock(); err != nil {
		t.Fatal(err)
	}
	again, err := lockDir(dir)
	if err != nil {
		t.Fatalf("after the first one: %v", err)
	}
	again()
}

// TestKeepsBroken: the files of a system that broke a promise outlive the next start.
func TestKeepsBroken(t *testing.T) {
	r, _ := fakeRun(t, t.TempDir(), false, func(k Key) (Record, error) {
		rec := Record{Values: map[string]float64{valTPS: 1}}
		if k.Case == "b" {
			rec.Broken = "a write is lost"
		}
		return rec, nil
	})
	start := r.todo[0].System.Start
	for i := range r.todo {
		r.todo[i].System.Start = func(ctx context.Context, l *rivals.Lab, s rivals.Shape) (rivals.Running, error) {
			if err := os.WriteFile(filepath.Join(s.Dir, "server.log"), []byte("why"), 0o644); err != nil {
				return nil, err
			}
			return start(ctx, l, s)
		}
	}
	if err := r.all(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"broken-fake-2", "broken-fake-4"} { // one of each round
		if b, err := os.ReadFile(filepath.Join(r.dir, name, "server.log")); err != nil || string(b) != "why" {
			t.Errorf("%s: %q, %v", name, b, err)
		}
	}
}
