package bench

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"trireme/internal/demo"
	"trireme/internal/verify"
)

// GapOptions of `trireme bench gaps`.
type GapOptions struct {
	MySQL       string
	Binary      string
	Dir         string        // scratch; empty: a new one in the temporary directory, removed afterwards
	Out         string        // directory of the reports; empty: docs/benchmarks
	Kinds       []string      // names of faultKinds; empty: all
	Faults      int           // of each kind that has a target; 0: 10. Of the others at most fewFaults.
	Rivals      []string      // of rivalNames
	RivalFaults int           // of each kind; 0: Faults, at most 15
	Writers     int           // 0: 64
	Data        int64         // bytes of data in the database besides what the writers write
	Limit       time.Duration // for everything; what does not fit is left out, of all kinds alike; 0: none
	Say         io.Writer
}

// fewFaults is how many faults kinds without a target get: enough for the table of what happens.
const fewFaults = 10

// GapResult is docs/benchmarks/gaps.json.
type GapResult struct {
	Machine Machine     `json:"machine"`
	MySQL   string      `json:"mysql"`
	Started time.Time   `json:"started"`
	Minutes float64     `json:"minutes"` // all of it
	Writers int         `json:"writers"`
	Data    int64       `json:"data_bytes"`
	Systems []GapSystem `json:"systems"`
}

// GapSystem is one system's part of it.
type GapSystem struct {
	Name      string            `json:"name"`
	Settings  map[string]string `json:"settings,omitempty"` // of a rival, beside those of rivalOptions
	SteadyMS  float64           `json:"steady_gap_ms"`      // longest pause in five seconds without a fault
	SteadyTPS float64           `json:"steady_tps"`         // in these seconds
	Faults    []Fault           `json:"faults"`
	Report    verify.Report     `json:"report"`
	Problem   string            `json:"problem,omitempty"` // why it was ended early, or not checked
}

// series is one way to run a system: as it is, or with a setting changed in place.
type series struct {
	name  string // shown
	kinds []faultKind
	half  bool // every second fault only
	takes func(faultKind) time.Duration
	set   func(context.Context) error // nil: nothing to change
}

// plan is a system and what is done to it.
type plan struct {
	name     string
	settings map[string]string
	start    func(context.Context, *environment, string) (contender, error)
	series   func(contender) []series
	faults   int           // of each kind
	estimate time.Duration // of all of it
	mustKeep bool          // a broken promise fails the run
}

const (
	steadyTime   = 5 * time.Second
	restartPause = 500 * time.Millisecond // what a service manager takes
	faultLimit   = 90 * time.Second
	checkLimit   = 5 * time.Minute
	// Of the estimate: start, steady state, checks (checkTime of it), end; and for each GiB of data.
	fixedTime   = 45 * time.Second
	checkTime   = 20 * time.Second
	timePerGiB  = 100 * time.Second
	rivalFaults = 15
)

// rivalNames are the systems that gaps can put beside Trireme.
var rivalNames = []string{"mgr"}

func (o GapOptions) withDefaults() (GapOptions, error) {
	if o.Out == "" {
		o.Out = filepath.Join("docs", "benchmarks")
	}
	if o.Faults == 0 {
		o.Faults = 10
	}
	if o.RivalFaults == 0 {
		o.RivalFaults = min(o.Faults, rivalFaults)
	}
	if o.Writers == 0 {
		o.Writers = 64
	}
	if o.Say == nil {
		o.Say = os.Stdout
	}
	for _, r := range o.Rivals {
		if !slices.Contains(rivalNames, r) {
			return o, fmt.Errorf("no rival %q; there are: %s", r, strings.Join(rivalNames, ", "))
		}
	}
	if o.Faults < 0 || o.RivalFaults < 0 || o.Writers < 0 || o.Data < 0 || o.Limit < 0 {
		return o, errors.New("a number of faults or writers, a size or a limit is negative")
	}
	return o, nil
}

// Gaps measures write gaps and writes <Out>/gaps.json and gaps.md. It fails if Trireme broke a promise on the way; the reports are written
// all the same.
func Gaps(ctx context.Context, o GapOptions) (err error) {
	o, err = o.withDefaults()
	if err != nil {
		return err
	}
	kinds, err := kindsOf(o.Kinds)
	if err != nil {
		return err
	}
	if o.Dir == "" {
		if o.Dir, err = os.MkdirTemp("", "trireme-gaps-"); err != nil {
			return err
		}
		defer func() { removeUnlessFailed(o.Dir, err, o.Say) }()
	}
	e, err := newEnvironment(ctx, o.MySQL, o.Binary, o.Dir)
	if err != nil {
		return err
	}
	plans := o.plans(kinds)
	var total time.Duration
	for _, p := range plans {
		total += p.estimate
		fmt.Fprintf(o.Say, "%s: ≈ %.0f min\n", p.name, p.estimate.Minutes())
	}
	fmt.Fprintf(o.Say, "≈ %.0f min in all", total.Minutes())
	if o.Limit > 0 {
		fmt.Fprintf(o.Say, ", at most %.0f", o.Limit.Minutes())
	}
	fmt.Fprintln(o.Say)
	r := GapResult{Machine: describeMachine(), MySQL: e.version, Started: time.Now().UTC(), Writers: o.Writers, Data: o.Data}
	var broken error
	for _, p := range plans {
		var deadline time.Time // of its faults
		if o.Limit > 0 {
			left := o.Limit - time.Since(r.Started)
			share := float64(p.estimate) / float64(total)
			deadline = time.Now().Add(time.Duration(float64(left)*share) - checkTime)
		}
		total -= p.estimate
		s, err := o.runPlan(ctx, e, p, deadline)
		if err != nil {
			return fmt.Errorf("%s: %w", p.name, err)
		}
		r.Systems = append(r.Systems, s)
		if p.mustKeep && s.Problem != "" {
			broken = errors.Join(broken, fmt.Errorf("%s: %s", p.name, s.Problem))
		}
	}
	r.Minutes = time.Since(r.Started).Minutes()
	return errors.Join(broken, writeReports(o.Out, "gaps", r, r.markdown(), o.Say))
}

// fixed is the time that a system takes besides its faults.
func (o GapOptions) fixed() time.Duration {
	return fixedTime + time.Duration(float64(timePerGiB)*float64(o.Data)/(1<<30))
}

func (o GapOptions) plans(kinds []faultKind) []plan {
	ours := plan{name: "Trireme", start: startTriremeCluster, faults: o.Faults, mustKeep: true, estimate: o.fixed(),
		series: func(contender) []series {
			return []series{{name: "Trireme", kinds: kinds, takes: func(k faultKind) time.Duration { return k.takes }}}
		}}
	for _, k := range kinds {
		ours.estimate += time.Duration(k.count(o.Faults)) * k.takes
	}
	out := []plan{ours}
	if !slices.Contains(o.Rivals, "mgr") {
		return out
	}
	var all, tuned []faultKind
	rival := plan{name: "Group Replication", settings: mgrOptions(), start: startMGR, faults: o.RivalFaults, estimate: o.fixed()}
	for _, k := range kinds {
		if k.mgrTakes == 0 {
			continue
		}
		all = append(all, k)
		rival.estimate += time.Duration(k.count(o.RivalFaults)) * k.mgrTakes
		if k.mgrTunedTakes != 0 {
			tuned = append(tuned, k)
			rival.estimate += time.Duration((k.count(o.RivalFaults)+1)/2) * k.mgrTunedTakes
		}
	}
	rival.series = func(c contender) []series {
		expel := func(value string) func(context.Context) error {
			return func(ctx context.Context) error {
				return c.(*mgr).set(ctx, "group_replication_member_expel_timeout", value)
			}
		}
		return []series{
			{name: "MGR", kinds: all, set: expel("DEFAULT"), takes: func(k faultKind) time.Duration { return k.mgrTakes }},
			{name: "MGR, expel 0", kinds: tuned, half: true, set: expel("0"), takes: func(k faultKind) time.Duration { return k.mgrTunedTakes }},
		}
	}
	return append(out, rival)
}

// runPlan runs one system. Errors of a rival that has started are part of the result.
func (o GapOptions) runPlan(ctx context.Context, e *environment, p plan, deadline time.Time) (GapSystem, error) {
	s := GapSystem{Name: p.name, Settings: p.settings}
	fmt.Fprintf(o.Say, "%s: starting\n", p.name)
	c, err := p.start(ctx, e, filepath.Join(o.Dir, strings.ReplaceAll(p.name, " ", "-")))
	if err != nil {
		return s, err
	}
	defer c.stop()
	begin := time.Now()
	if err := loadData(ctx, c, o.Data); err != nil {
		return s, err
	}
	if o.Data > 0 {
		fmt.Fprintf(o.Say, "%s: %d MiB of data in %.0f s\n", p.name, o.Data>>20, time.Since(begin).Seconds())
	}
	w, err := verify.New(verify.Config{Login: c.login(), Writers: o.Writers})
	if err != nil {
		return s, err
	}
	defer w.Close()
	if err := w.Prepare(ctx); err != nil {
		return s, err
	}
	m := &gapRun{c: c, w: w, say: o.Say, rival: !p.mustKeep, deadline: deadline}
	w.Start(ctx)
	err = m.measure(ctx, p)
	s.SteadyMS, s.SteadyTPS, s.Faults = m.steadyMS, m.steadyTPS, m.faults
	if ctx.Err() != nil {
		return s, errors.Join(err, w.Stop())
	}
	if err == nil {
		err = w.Stop()
	} else {
		_ = w.Stop() // the first error counts
	}
	if err == nil {
		err = m.check(ctx, &s)
	}
	if err != nil {
		s.Problem = err.Error()
		fmt.Fprintf(o.Say, "%s: %v\n", p.name, err)
	}
	return s, nil
}

// check compares what the clients were told with what the servers hold, and files what is missing or doubled under the fault around which
// it was written.
func (m *gapRun) check(ctx context.Context, s *GapSystem) error {
	ctx, cancel := context.WithTimeout(ctx, checkLimit)
	defer cancel()
	if _, err := m.c.settled(ctx); err != nil {
		return err
	}
	nodes, err := m.c.endpoints()
	if err != nil {
		return err
	}
	defer demo.CloseEndpoints(nodes)
	if s.Report, err = m.w.Check(ctx, nodes); err != nil {
		return err
	}
	for _, p := range s.Report.Problems {
		if i := m.faultOf(p.Attempt); i >= 0 {
			switch p.Kind {
			case verify.Lost:
				s.Faults[i].Lost++
			case verify.Doubled:
				s.Faults[i].Doubled++
			}
		}
	}
	if !s.Report.OK() {
		return fmt.Errorf("a promise was broken: %s", s.Report)
	}
	return nil
}

// faultOf is the fault after whose beginning, and before the next one's, a write was attempted; -1 for none.
func (m *gapRun) faultOf(a verify.Attempt) int {
	if a.Seq == 0 {
		return -1
	}
	for i := len(m.begun) - 1; i >= 0; i-- {
		if a.Seq >= m.begun[i][a.Writer] {
			return i
		}
	}
	return -1
}

func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}
