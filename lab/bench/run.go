package bench

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"time"

	"trireme/lab/rivals"
)

// RunOptions of `trireme-lab bench run`.
type RunOptions struct {
	Suites   []string
	Quick    bool
	Settings Settings // fields that are set replace the suite's own; CPUs: negative for the suite's own
	MySQL    string   // mysqld to use; empty: found
	Binary   string   // trireme's own program; empty: found (rivals.FindTrireme)
	Version  string   // of it
	Dir      string   // scratch; empty: a new one in the temporary directory, removed afterwards
	Out      string   // directory of results and reports; empty: docs/benchmarks
	Resume   bool
	Fresh    bool
	Say      io.Writer // progress; nil: standard output
}

const (
	startTakes = 25 * time.Second // estimate of a system's start, with data
	needBytes  = 8 << 30          // of scratch
)

// Run measures suites and writes their reports. An interrupted run can be resumed. A promise that Trireme broke is an
// error, once everything is measured and drawn.
func Run(ctx context.Context, o RunOptions) (err error) {
	if o.Out == "" {
		o.Out = DefaultOut
	}
	if o.Say == nil {
		o.Say = os.Stdout
	}
	suites, err := findSuites(o.Suites)
	if err != nil {
		return err
	}
	for _, s := range suites { // all mistakes before the first measurement
		if _, err := o.settings(s); err != nil {
			return fmt.Errorf("%s: %w", s.Name, err)
		}
	}
	own := o.Dir == ""
	if own {
		if o.Dir, err = newScratch(os.TempDir(), o.Say); err != nil {
			return err
		}
		defer func() {
			if err != nil && ctx.Err() == nil {
				fmt.Fprintf(o.Say, "the servers' and daemons' logs are in %s\n", o.Dir)
				return
			}
			err = errors.Join(err, os.RemoveAll(o.Dir))
		}()
	} else if err := os.MkdirAll(o.Dir, 0o755); err != nil {
		return err
	}
	if err := enoughSpace(o.Dir); err != nil {
		return err
	}
	results := filepath.Join(o.Out, "results")
	if err := os.MkdirAll(results, 0o755); err != nil {
		return err
	}
	for _, dir := range []string{o.Dir, results} {
		unlock, err := lockDir(dir)
		if err != nil {
			return err
		}
		defer unlock()
	}
	if own {
		unmark, err := markRunning(o.Dir)
		if err != nil {
			return err
		}
		defer unmark()
	}
	l, err := rivals.New(ctx, rivals.Options{MySQL: o.MySQL, Binary: o.Binary, Dir: o.Dir})
	if err != nil {
		return err
	}
	defer func() {
		if err == nil || ctx.Err() != nil { // otherwise the logs in it tell why
			err = errors.Join(err, os.RemoveAll(systemDir(o.Dir)))
		}
	}()
	var failed error
	for _, s := range suites {
		err := o.runSuite(ctx, l, s)
		switch {
		case ctx.Err() != nil:
			return fmt.Errorf("%s: interrupted; what was measured is kept, go on with --resume", s.Name)
		case errors.Is(err, errComplete):
			fmt.Fprintf(o.Say, "%s: %v\n", s.Name, err)
		case err != nil:
			fmt.Fprintf(o.Say, "%s: %v\n", s.Name, err)
			failed = errors.Join(failed, fmt.Errorf("%s: %w", s.Name, err))
		}
	}
	return errors.Join(failed, Report(ReportOptions{Out: o.Out, Say: o.Say}))
}

// DefaultOut is where results and reports go.
var DefaultOut = filepath.Join("docs", "benchmarks")

func (o RunOptions) settings(suite Suite) (Settings, error) {
	s := suite.Defaults(o.Quick).over(o.Settings)
	s.Suite, s.Quick = suite.Name, o.Quick
	if s.CPUs < 0 {
		s.CPUs = budget(runtime.NumCPU(), 3)
	}
	return s, s.check(suite)
}

// budget shares the CPUs of the machine between so many hosts, and leaves as much as one of them has to clients and
// network.
func budget(cpus, hosts int) float64 {
	return float64(int(100*float64(cpus)/float64(hosts+1))) / 100
}

func enoughSpace(dir string) error {
	var fs syscall.Statfs_t
	if err := syscall.Statfs(dir, &fs); err != nil {
		return fmt.Errorf("%s: %w", dir, err)
	}
	if free := fs.Bavail * uint64(fs.Bsize); free < needBytes {
		return fmt.Errorf("%s has %d MiB free; a run needs %d: name a directory on a larger disk with --dir", dir, free>>20,
			needBytes>>20)
	}
	return nil
}

// runSuite measures all cells that have no result yet.
func (o RunOptions) runSuite(ctx context.Context, l *rivals.Lab, suite Suite) error {
	settings, err := o.settings(suite)
	if err != nil {
		return err
	}
	groups, err := suite.Plan(settings)
	if err != nil {
		return err
	}
	machine := describeMachine()
	if err := machine.describeDisk(o.Dir); err != nil {
		return err
	}
	machine.Programs = l.Programs(ctx)
	h := Header{Settings: settings, Machine: machine, MySQL: l.Version, Trireme: o.Version, Servers: settings.servers(),
		Started: time.Now().UTC()}
	st, err := openStore(o.Out, h, o.Resume, o.Fresh)
	if err != nil {
		return err
	}
	r := &runner{lab: l, settings: settings, store: st, dir: o.Dir, say: o.Say}
	r.schedule(groups)
	fmt.Fprintf(o.Say, "%s: %s; %d cells on %d starts, ≈ %.0f min\n", suite.Name, suite.Title, r.cells, len(r.todo),
		r.estimate().Minutes())
	for _, g := range r.todo {
		if err := r.runGroup(ctx, g); err != nil {
			return errors.Join(err, st.file.Close())
		}
	}
	return errors.Join(st.finish(time.Now().UTC()), r.broken, st.results.broken())
}

// errNothing: not one cell could be run.
var errNothing = errors.New("nothing could be measured")

// broken lists what Trireme did not keep.
func (r *Results) broken() error {
	var errs []error
	for _, rec := range r.Records {
		if rec.Broken != "" {
			errs = append(errs, fmt.Errorf("%s, round %d: %s", rec.Key, rec.Round, rec.Broken))
		}
	}
	return errors.Join(errs...)
}

// runner carries out a plan.
type runner struct {
	lab      *rivals.Lab
	settings Settings
	store    *store
	dir      string
	say      io.Writer

	todo        []Group
	broken      error // starts of Trireme that failed
	cells, done int
	left, spent time.Duration // estimate of what is left; real time of what is done
	planned     time.Duration // estimate of what is done
}

// schedule repeats the groups for each round, without what has a result already. Groups follow each other in turns: all
// systems in round 1, then all in round 2, so that a drift of the machine hits all alike.
func (r *runner) schedule(groups []Group) {
	for round := range r.settings.Rounds {
		for _, g := range groups {
			var cells []Cell
			for _, c := range g.Cells {
				if c.Key.Round = round + 1; !r.store.has(c.Key) {
					cells = append(cells, c)
					r.left += c.Takes
				}
			}
			if len(cells) > 0 {
				g.Cells = cells
				r.todo = append(r.todo, g)
				r.cells += len(cells)
				r.left += startTakes
			}
		}
	}
}

// estimate of the time left, corrected by how long things took so far.
func (r *runner) estimate() time.Duration {
	if r.planned < time.Minute {
		return r.left
	}
	return time.Duration(float64(r.left) * float64(r.spent) / float64(r.planned))
}

// progress counts something as done and tells of it.
func (r *runner) progress(took, planned time.Duration, format string, args ...any) {
	r.spent, r.planned, r.left = r.spent+took, r.planned+planned, max(0, r.left-planned)
	const width = 20
	full := 0
	if r.cells > 0 {
		full = width * r.done / r.cells
	}
	fmt.Fprintf(r.say, "[%s%s] %d/%d, %.0f min left  %s\n", strings.Repeat("#", full), strings.Repeat(".", width-full),
		r.done, r.cells, r.estimate().Minutes(), fmt.Sprintf(format, args...))
}

// runGroup starts a system and measures its cells. Only an interruption, or a result that cannot be kept, is an error.
func (r *runner) runGroup(ctx context.Context, g Group) error {
	if g.System.Missing != nil {
		if err := g.System.Missing(r.lab); err != nil {
			return r.notRun(g.Cells, startTakes, err)
		}
	}
	g.Shape.Dir = systemDir(r.dir)
	if err := os.RemoveAll(g.Shape.Dir); err != nil {
		return err
	}
	if err := os.MkdirAll(g.Shape.Dir, 0o755); err != nil {
		return err
	}
	begin := time.Now()
	kept := "" // where the files of a system that broke a promise go
	running, err := g.System.Start(ctx, r.lab, g.Shape)
	if err == nil {
		defer func() {
			if err := running.Stop(); err != nil {
				fmt.Fprintf(r.say, "ending %s: %v\n", g.System.Name, err)
			}
			if kept != "" {
				r.keep(g.Shape.Dir, kept)
			}
		}()
	}
	bed := &Bed{Running: running, Lab: r.lab, System: g.System, Shape: g.Shape, Settings: r.settings}
	if err == nil && g.Prepare != nil {
		err = g.Prepare(ctx, bed)
	}
	if err != nil {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		err = fmt.Errorf("it did not start: %w", err)
		if g.System.Ours && !errors.Is(err, rivals.ErrNotHere) {
			r.broken = errors.Join(r.broken, fmt.Errorf("%s %w", g.Cells[0].Key.start(), err))
		}
		return r.notRun(g.Cells, startTakes, err)
	}
	r.progress(time.Since(begin), startTakes, "%s is up after %.0f s", g.Cells[0].Key.start(), time.Since(begin).Seconds())
	for i, c := range g.Cells {
		begin, cpu := time.Now(), rivals.ReadTicks()
		rec, err := c.Measure(ctx, bed)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		rec.Key, rec.At, rec.Seconds, rec.Stolen = c.Key, begin.UTC(), time.Since(begin).Seconds(), rivals.ReadTicks().
			Stolen(cpu)
		switch {
		case errors.Is(err, rivals.ErrNotHere):
			rec.NotRun = err.Error()
		case err != nil:
			rec.Failed = err.Error()
			if g.System.Ours {
				rec.Broken = rec.Failed
			}
		}
		if rec.Broken != "" {
			kept = filepath.Join(r.dir, fmt.Sprintf("broken-%s-%d", r.settings.Suite, r.done+1))
		}
		if err := r.store.add(rec); err != nil {
			return err
		}
		r.done++
		r.progress(time.Since(begin), c.Takes, "%s: %s", c.Key, rec.summary())
		if err != nil && (errors.Is(err, errBroken) || running.Settle(ctx) != nil) {
			return r.notRun(g.Cells[i+1:], 0, fmt.Errorf("the system was not usable any more: %w", err))
		}
	}
	return nil
}

// keep puts a system's files, its logs among them, where the next start does not remove them.
func (r *runner) keep(dir, as string) {
	err := os.RemoveAll(as)
	if err == nil {
		err = os.Rename(dir, as)
	}
	if err != nil {
		fmt.Fprintf(r.say, "its logs are lost with the next start: %v\n", err)
	}
}

// start is what a group has in common.
func (k Key) start() string {
	k.Threads, k.Workload = 0, ""
	return fmt.Sprintf("%s, round %d:", k, k.Round)
}

// notRun records why cells have no result.
func (r *runner) notRun(cells []Cell, planned time.Duration, why error) error {
	if len(cells) == 0 {
		return nil
	}
	for _, c := range cells {
		rec := Record{Key: c.Key, At: time.Now().UTC(), NotRun: why.Error()}
		if err := r.store.add(rec); err != nil {
			return err
		}
		r.done++
		planned += c.Takes
	}
	r.progress(0, planned, "%s not run: %v", cells[0].Key, why)
	return nil
}

// systemDir is where the system that is measured has its files.
func systemDir(scratch string) string { return filepath.Join(scratch, "system") }

// summary is the record in a line.
func (r Record) summary() string {
	var out []string
	for _, m := range metrics {
		if v, ok := r.Values[m.Name]; ok && m.Brief {
			out = append(out, m.text(v))
		}
	}
	if r.Stolen >= stolenFrom {
		out = append(out, fmt.Sprintf("%.0f %% of the machine's CPU was stolen", r.Stolen))
	}
	for _, text := range []string{r.Note, r.NotRun, r.Failed} {
		if text != "" {
			out = append(out, text)
		}
	}
	return strings.Join(out, ", ")
}

func findSuites(names []string) ([]Suite, error) {
	all := Suites()
	if slices.Equal(names, []string{"all"}) {
		return all, nil
	}
	var out []Suite
	for _, name := range names {
		s, err := named("suite", name, all, func(s Suite) string { return s.Name })
		if err != nil {
			return nil, fmt.Errorf("%w, or all", err)
		}
		out = append(out, s)
	}
	return out, nil
}
