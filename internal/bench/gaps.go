package bench

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"trireme/internal/api"
	"trireme/internal/demo"
	"trireme/internal/verify"
)

// GapOptions of `trireme bench gaps`.
type GapOptions struct {
	MySQL   string
	Binary  string
	Dir     string   // scratch; empty: a new one in the temporary directory, removed afterwards
	Out     string   // directory of the reports; empty: docs/benchmarks
	Kinds   []string // names of faultKinds; empty: all
	Faults  int      // of each kind; 0: 10
	Writers int      // 0: 16
	Say     io.Writer
}

// Fault is one fault and what the clients of the router saw of it.
type Fault struct {
	Kind        string  `json:"kind"`
	GapMS       float64 `json:"gap_ms"`        // longest time without an acknowledged write
	Failed      int64   `json:"failed"`        // attempts refused or without an answer
	HealthySecs float64 `json:"healthy_after"` // until every member was healthy again, without help
}

// GapResult is docs/benchmarks/gaps.json.
type GapResult struct {
	Machine  Machine       `json:"machine"`
	MySQL    string        `json:"mysql"`
	Started  time.Time     `json:"started"`
	Writers  int           `json:"writers"`
	Faults   []Fault       `json:"faults"`
	SteadyMS float64       `json:"steady_gap_ms"` // longest pause in five seconds without a fault
	Report   verify.Report `json:"report"`
}

// faultKind is one way to hit a node.
type faultKind struct {
	name     string
	expect   string // in words
	follower bool   // a follower is hit, and leadership must stay
	do       func(context.Context, *demo.Cluster, *demo.Node) error
	undo     func(*demo.Cluster, *demo.Node) error // once writes go on; nil: nothing
}

// faultKinds in the order in which they are measured.
var faultKinds = []faultKind{
	{name: "mysqld killed", expect: "the daemon sees it at once and hands over", do: killMySQL},
	{name: "daemon killed", expect: "closed connections: the others elect at once", do: signalDaemon(syscall.SIGKILL)},
	{name: "both killed", expect: "as a killed daemon", do: signalHost(syscall.SIGKILL)},
	{name: "daemon ended (SIGTERM)", expect: "hands over first", do: signalDaemon(syscall.SIGTERM)},
	{name: "daemon stopped (SIGSTOP)", expect: "heartbeats missed; its guard kills its mysqld", do: signalDaemon(syscall.SIGSTOP), undo: goOn},
	{name: "host stopped (SIGSTOP of all)", expect: "heartbeats missed: the others elect", do: signalHost(syscall.SIGSTOP), undo: goOn},
	{name: "mysqld stopped (SIGSTOP)", expect: "the probe finds it after 5 s, fence and hand over", do: stopMySQL},
	{name: "switchover", expect: "planned: drained, no restart", do: func(ctx context.Context, c *demo.Cluster, _ *demo.Node) error {
		_, err := c.Switchover(ctx, "")
		return err
	}},
	{name: "follower's mysqld killed", expect: "the leader does not notice", follower: true, do: killMySQL},
	{name: "follower's daemon killed", expect: "the leader does not notice", follower: true, do: signalDaemon(syscall.SIGKILL)},
}

func killMySQL(_ context.Context, c *demo.Cluster, n *demo.Node) error {
	if c.KillMySQL(n) == 0 {
		return fmt.Errorf("%s has no mysqld", n.Name)
	}
	return nil
}

func stopMySQL(_ context.Context, _ *demo.Cluster, n *demo.Node) error {
	pid := n.MySQLPID()
	if pid == 0 {
		return fmt.Errorf("%s has no mysqld", n.Name)
	}
	return syscall.Kill(pid, syscall.SIGSTOP)
}

func signalDaemon(s syscall.Signal) func(context.Context, *demo.Cluster, *demo.Node) error {
	return func(_ context.Context, c *demo.Cluster, n *demo.Node) error { return c.Signal(n, s) }
}

func signalHost(s syscall.Signal) func(context.Context, *demo.Cluster, *demo.Node) error {
	return func(_ context.Context, c *demo.Cluster, n *demo.Node) error { return c.SignalHost(n, s) }
}

func goOn(c *demo.Cluster, n *demo.Node) error { return c.SignalHost(n, syscall.SIGCONT) }

// kindsOf are the kinds with the given names, all of them when there are none.
func kindsOf(names []string) ([]faultKind, error) {
	if len(names) == 0 {
		return faultKinds, nil
	}
	var out []faultKind
	var known []string
	for _, k := range faultKinds {
		known = append(known, k.name)
		if slices.Contains(names, k.name) {
			out = append(out, k)
		}
	}
	for _, name := range names {
		if !slices.Contains(known, name) {
			return nil, fmt.Errorf("no kind of fault %q; there are: %s", name, strings.Join(known, ", "))
		}
	}
	return out, nil
}

const (
	steadyTime   = 5 * time.Second
	restartPause = 500 * time.Millisecond // what a service manager takes
	faultLimit   = 90 * time.Second
)

func (o GapOptions) withDefaults() GapOptions {
	if o.Out == "" {
		o.Out = filepath.Join("docs", "benchmarks")
	}
	if o.Faults == 0 {
		o.Faults = 10
	}
	if o.Writers == 0 {
		o.Writers = 16
	}
	if o.Say == nil {
		o.Say = os.Stdout
	}
	return o
}

// Gaps measures write gaps and writes <Out>/gaps.json and gaps.md. It fails if a promise was broken on the way.
func Gaps(ctx context.Context, o GapOptions) (err error) {
	o = o.withDefaults()
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
	c, err := demo.Create(ctx, demo.Options{Nodes: 3, Dir: filepath.Join(o.Dir, "cluster"), PortBase: e.takePorts(30), MySQL: e.mysqld, Binary: e.binary,
		MySQLOptions: sharedOptions()})
	if err != nil {
		return err
	}
	defer c.Close()
	c.KeepRunning(restartPause, nil)
	w, err := verify.New(verify.Config{Login: c.Routed(), Writers: o.Writers})
	if err != nil {
		return err
	}
	defer w.Close()
	if err := w.Prepare(ctx); err != nil {
		return err
	}
	r := GapResult{Machine: describeMachine(), MySQL: e.version, Started: time.Now().UTC(), Writers: o.Writers}
	w.Start(ctx)
	err = r.measure(ctx, c, w, o, kinds)
	if err = errors.Join(err, w.Stop()); err != nil {
		return err
	}
	if err := r.check(ctx, c, w); err != nil {
		return err
	}
	return writeReports(o.Out, "gaps", r, r.markdown(), o.Say)
}

func (r *GapResult) measure(ctx context.Context, c *demo.Cluster, w *verify.Workload, o GapOptions, kinds []faultKind) error {
	if err := pause(ctx, steadyTime); err != nil {
		return err
	}
	begin := time.Now()
	if err := pause(ctx, steadyTime); err != nil {
		return err
	}
	r.SteadyMS = milliseconds(w.Meter().LongestGap(begin).Length())
	for _, k := range kinds {
		for i := range o.Faults {
			f, err := oneFault(ctx, c, w, k)
			if err != nil {
				return fmt.Errorf("%s, number %d: %w", k.name, i+1, err)
			}
			f.Kind = k.name
			fmt.Fprintf(o.Say, "%-29s %2d: write gap %6.0f ms, %3d attempts failed, all healthy after %.1f s\n", k.name, i+1, f.GapMS, f.Failed, f.HealthySecs)
			r.Faults = append(r.Faults, f)
		}
	}
	return nil
}

// oneFault hits the leader, or a follower, of a healthy, steadily writing cluster.
func oneFault(ctx context.Context, c *demo.Cluster, w *verify.Workload, k faultKind) (Fault, error) {
	ctx, cancel := context.WithTimeout(ctx, faultLimit)
	defer cancel()
	var f Fault
	v, err := c.WaitHealthy(ctx)
	if err != nil {
		return f, err
	}
	if err := pause(ctx, time.Second); err != nil {
		return f, err
	}
	before := w.Log().Counts()
	victim, what := c.Node(v.Leader), "a new leader and writes"
	if k.follower {
		victim, what = follower(c, v), "the follower's fault to be seen"
	}
	at := time.Now()
	if err := k.do(ctx, c, victim); err != nil {
		return f, err
	}
	err = poll(ctx, faultLimit, what, func(ctx context.Context) (bool, error) {
		now, err := c.View(ctx)
		if err != nil {
			return false, err
		}
		if k.follower {
			return !healthy(now, victim.Name), nil
		}
		return now.Term > v.Term && now.Leader != "" && w.Meter().AckedSince(at), nil
	})
	if k.undo != nil {
		err = errors.Join(err, k.undo(c, victim))
	}
	if err != nil {
		return f, err
	}
	after, err := c.WaitHealthy(ctx)
	if err != nil {
		return f, err
	}
	if k.follower && (after.Term != v.Term || after.Leader != v.Leader) {
		return f, fmt.Errorf("%s led term %d, now %s leads term %d, because of a follower", v.Leader, v.Term, after.Leader, after.Term)
	}
	f.HealthySecs = time.Since(at).Seconds()
	f.GapMS = milliseconds(w.Meter().LongestGap(at).Length())
	counts := w.Log().Counts()
	f.Failed = counts.Failed + counts.Unknown - before.Failed - before.Unknown
	return f, nil
}

// follower is a data node that does not lead.
func follower(c *demo.Cluster, v api.ClusterView) *demo.Node {
	for _, n := range c.DataNodes() {
		if n.Name != v.Leader {
			return n
		}
	}
	return nil
}

func healthy(v api.ClusterView, name string) bool {
	return slices.ContainsFunc(v.Members, func(m api.MemberView) bool { return m.Name == name && m.State == api.StateHealthy })
}

func (r *GapResult) check(ctx context.Context, c *demo.Cluster, w *verify.Workload) error {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	nodes, err := c.Endpoints()
	if err != nil {
		return err
	}
	defer demo.CloseEndpoints(nodes)
	if r.Report, err = w.Check(ctx, nodes); err != nil {
		return err
	}
	if !r.Report.OK() {
		return fmt.Errorf("a promise was broken: %s", r.Report)
	}
	return nil
}

func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}

func milliseconds(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

// quantile of values by the nearest-rank method.
func quantile(values []float64, q float64) float64 {
	if len(values) == 0 {
		return 0
	}
	v := slices.Sorted(slices.Values(values))
	return v[max(0, int(math.Ceil(q*float64(len(v))))-1)]
}

func (r GapResult) markdown() string {
	var b strings.Builder
	fmt.Fprintf(&b, "# Write gaps\n\nGenerated by `trireme bench gaps` on %s; do not edit. Every single fault: gaps.json.\n\n", r.Started.Format("2006-01-02 15:04 MST"))
	fmt.Fprintf(&b, "Machine: %s. Three nodes and %d writers on it, MySQL %s. The writers go through the router of any node and connect again (5 to 40 ms pause) after an error. Unless the table says otherwise the leader is hit. "+
		"The gap is the longest time without any acknowledged write; without a fault it was %.0f ms. A daemon that ended is started again after %v; what was stopped goes on once others take writes.\n\n",
		r.Machine, r.Writers, r.MySQL, r.SteadyMS, restartPause)
	b.WriteString("| fault | expected | number | median gap ms | p99 | longest | attempts failed, median | all healthy again, median s | longest |\n|-|-|-|-|-|-|-|-|-|\n")
	for _, k := range faultKinds {
		var gaps, failed, healthy []float64
		for _, f := range r.Faults {
			if f.Kind == k.name {
				gaps, failed, healthy = append(gaps, f.GapMS), append(failed, float64(f.Failed)), append(healthy, f.HealthySecs)
			}
		}
		if len(gaps) == 0 {
			continue
		}
		fmt.Fprintf(&b, "| %s | %s | %d | %.0f | %.0f | %.0f | %.0f | %.1f | %.1f |\n", k.name, k.expect, len(gaps), median(gaps), quantile(gaps, 0.99), slices.Max(gaps),
			median(failed), median(healthy), slices.Max(healthy))
	}
	fmt.Fprintf(&b, "\nAfterwards: %s.\n", r.Report)
	return b.String()
}
