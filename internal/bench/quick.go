package bench

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"trireme/internal/gtid"
	"trireme/internal/mysqld"
)

// QuickOptions of `trireme bench`.
type QuickOptions struct {
	MySQL   string        // mysqld to use; empty: found
	Binary  string        // trireme's own program; empty: this one
	Dir     string        // scratch; empty: a new one in the temporary directory, removed afterwards
	Out     string        // directory of the reports; empty: docs/benchmarks
	Systems []string      // of SystemNames; empty: all
	Threads []int         // empty: 1, 16, 64
	Rounds  int           // 0: 3
	Warmup  time.Duration // 0: 4 s
	Time    time.Duration // 0: 10 s
	Say     io.Writer     // progress; nil: standard output
}

// SystemNames in the order in which they run.
var SystemNames = []string{"standalone", "semisync", "trireme"}

type systemKind struct {
	name     string
	title    string
	start    func(context.Context, *environment, string) (system, error)
	variants []variant
}

var systemKinds = []systemKind{
	{"standalone", "standalone server, double-1", startStandalone, []variant{{Name: "default"}}},
	{"semisync", "semi-sync, two replicas, AFTER_SYNC, double-1", startSemisync, []variant{{"4 appliers", 4}, {"64 appliers", 64}}},
	{"trireme", "Trireme, 3 nodes", startTrireme, []variant{{Name: "default"}}},
}

const (
	catchUpLimit = 5 * time.Minute
	idleTime     = 5 * time.Second
	portFloor    = 22000 // bench looks for free ports from here
)

func (o QuickOptions) withDefaults() (QuickOptions, error) {
	if o.Binary == "" {
		self, err := os.Executable()
		if err != nil {
			return o, err
		}
		o.Binary = self
	}
	if o.Out == "" {
		o.Out = filepath.Join("docs", "benchmarks")
	}
	if len(o.Systems) == 0 {
		o.Systems = SystemNames
	}
	for _, s := range o.Systems {
		if !slices.Contains(SystemNames, s) {
			return o, fmt.Errorf("no system %q; there are: %s", s, strings.Join(SystemNames, ", "))
		}
	}
	if len(o.Threads) == 0 {
		o.Threads = []int{1, 16, 64}
	}
	if o.Rounds == 0 {
		o.Rounds = 3
	}
	if o.Warmup == 0 {
		o.Warmup = 4 * time.Second
	}
	if o.Time == 0 {
		o.Time = 10 * time.Second
	}
	if o.Say == nil {
		o.Say = os.Stdout
	}
	return o, nil
}

// environment is what systems are started with.
type environment struct {
	mysqld   string
	version  string
	binary   string
	template string
	nextPort int
}

func newEnvironment(ctx context.Context, hint, binary, dir string) (*environment, error) {
	bin, err := mysqld.Find(ctx, hint)
	if err != nil {
		return nil, err
	}
	return &environment{mysqld: bin.Path, version: bin.Version.String(), binary: binary, template: filepath.Join(dir, "template"), nextPort: portFloor}, nil
}

// takePorts finds n consecutive free ports that were not given out before.
func (e *environment) takePorts(n int) int {
	for base := e.nextPort; base+n < 32000; base++ {
		busy := -1
		for p := base; p < base+n; p++ {
			l, err := net.Listen("tcp", "127.0.0.1:"+strconv.Itoa(p))
			if err != nil {
				busy = p
				break
			}
			l.Close()
		}
		if busy < 0 {
			e.nextPort = base + n
			return base
		}
		base = busy
	}
	e.nextPort = portFloor // all were given out: begin again, the first ones are free by now
	return portFloor
}

func (e *environment) startServer(ctx context.Context, dir string, id int, options map[string]string) (*server, error) {
	if _, err := os.Stat(e.template); err != nil {
		if err := makeTemplate(ctx, e.mysqld, e.template); err != nil {
			return nil, err
		}
	}
	return startServer(ctx, e.mysqld, e.template, dir, e.takePorts(1), id, options)
}

// Quick runs the comparison and writes <Out>/quick.json and quick.md.
func Quick(ctx context.Context, o QuickOptions) (err error) {
	o, err = o.withDefaults()
	if err != nil {
		return err
	}
	if err := lookSysbench(); err != nil {
		return err
	}
	if o.Dir == "" {
		if o.Dir, err = os.MkdirTemp("", "trireme-bench-"); err != nil {
			return err
		}
		defer func() { removeUnlessFailed(o.Dir, err, o.Say) }()
	}
	e, err := newEnvironment(ctx, o.MySQL, o.Binary, o.Dir)
	if err != nil {
		return err
	}
	res := Result{Machine: describeMachine(), MySQL: e.version, Started: time.Now().UTC(), Load: defaultLoad, Rounds: o.Rounds,
		WarmupSeconds: o.Warmup.Seconds(), Seconds: o.Time.Seconds(), Options: sharedOptions()}
	for round := range o.Rounds {
		for _, k := range systemKinds {
			if !slices.Contains(o.Systems, k.name) {
				continue
			}
			fmt.Fprintf(o.Say, "round %d of %d: %s\n", round+1, o.Rounds, k.title)
			cells, idle, err := runSystem(ctx, e, o, k, filepath.Join(o.Dir, fmt.Sprintf("%s-%d", k.name, round)))
			if err != nil {
				return fmt.Errorf("%s, round %d: %w", k.title, round+1, err)
			}
			res.Cells = append(res.Cells, cells...)
			res.Idle = append(res.Idle, idle)
		}
	}
	return res.write(o.Out, "quick", o.Say)
}

// removeUnlessFailed removes the scratch directory, or says where it is: the logs in it tell why a run failed.
func removeUnlessFailed(dir string, err error, say io.Writer) {
	if err == nil {
		os.RemoveAll(dir)
		return
	}
	fmt.Fprintf(say, "the servers' and daemons' logs are in %s\n", dir)
}

// runSystem starts one system fresh, measures every thread count and variant, and ends it.
func runSystem(ctx context.Context, e *environment, o QuickOptions, k systemKind, dir string) (cells []Cell, idle Idle, err error) {
	defer func() {
		if err == nil {
			os.RemoveAll(dir)
		}
	}()
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, idle, err
	}
	s, err := k.start(ctx, e, dir)
	if err != nil {
		return nil, idle, err
	}
	defer s.stop()
	if err = defaultLoad.prepare(ctx, s.account()); err != nil {
		return nil, idle, err
	}
	for _, threads := range o.Threads {
		for _, v := range k.variants {
			if err := s.set(ctx, v); err != nil {
				return nil, idle, err
			}
			c, err := measure(ctx, s, o, threads)
			if err != nil {
				return nil, idle, fmt.Errorf("%d threads, %s: %w", threads, v.Name, err)
			}
			c.System, c.Title, c.Variant = k.name, k.title, v.Name
			fmt.Fprintf(o.Say, "  %2d threads, %-11s %s\n", threads, v.Name, c)
			cells = append(cells, c)
		}
	}
	idle, err = measureIdle(ctx, s)
	idle.System, idle.Title = k.name, k.title
	return cells, idle, err
}

// measure one cell: see the package comment.
func measure(ctx context.Context, s system, o QuickOptions, threads int) (Cell, error) {
	c := Cell{Threads: threads}
	if err := s.settle(ctx); err != nil {
		return c, err
	}
	if _, err := defaultLoad.run(ctx, s.account(), threads, o.Warmup); err != nil {
		return c, fmt.Errorf("warm-up: %w", err)
	}
	if _, err := caughtUp(ctx, s, catchUpLimit); err != nil {
		return c, err
	}
	hosts := s.hosts()
	before, err := cpuOfHosts(hosts)
	if err != nil {
		return c, err
	}
	load, err := defaultLoad.run(ctx, s.account(), threads, o.Time)
	if err != nil {
		return c, err
	}
	if c.LagTransactions, err = lag(ctx, s); err != nil {
		return c, err
	}
	rest, err := caughtUp(ctx, s, catchUpLimit)
	if err != nil {
		return c, err
	}
	after, err := cpuOfHosts(hosts)
	if err != nil {
		return c, err
	}
	n := float64(load.Transactions)
	c.Transactions, c.Errors, c.P95ms = load.Transactions, load.Errors, float64(load.P95.Microseconds())/1000
	c.TPS, c.SustainedTPS, c.CatchUpSeconds = n/load.Seconds, n/(load.Seconds+rest.Seconds()), rest.Seconds()
	c.SysbenchCPUus = float64(load.CPU.Microseconds()) / n
	for i, h := range hosts {
		hc := HostCPU{Name: h.Name, Leader: h.Leader,
			MySQLus:  float64((after[i].mysql - before[i].mysql).Microseconds()) / n,
			Daemonus: float64((after[i].daemon - before[i].daemon).Microseconds()) / n}
		hc.Relative = (hc.MySQLus + hc.Daemonus) / c.SysbenchCPUus
		c.RelativeCPU += hc.Relative
		if h.Leader {
			c.LeaderRelativeCPU = hc.Relative
		}
		if h.Daemon != 0 {
			now, peak, err := resident(h.Daemon)
			if err != nil {
				return c, err
			}
			hc.DaemonRSS, hc.DaemonPeakRSS = now, peak
		}
		c.Hosts = append(c.Hosts, hc)
	}
	return c, nil
}

type hostTimes struct{ mysql, daemon time.Duration }

func cpuOfHosts(hosts []hostProcs) ([]hostTimes, error) {
	out := make([]hostTimes, len(hosts))
	for i, h := range hosts {
		for _, p := range []struct {
			pid  int
			into *time.Duration
		}{{h.MySQL, &out[i].mysql}, {h.Daemon, &out[i].daemon}} {
			if p.pid == 0 {
				continue
			}
			d, err := cpuTime(p.pid)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", h.Name, err)
			}
			*p.into = d
		}
	}
	return out, nil
}

// lag counts the leader's transactions that the slowest replica has not executed yet.
func lag(ctx context.Context, s system) (int64, error) {
	var set string
	if err := s.leader().QueryRowContext(ctx, "SELECT @@GLOBAL.gtid_executed").Scan(&set); err != nil {
		return 0, err
	}
	var worst int64
	for _, r := range s.replicas() {
		var rest string
		if err := r.QueryRowContext(ctx, "SELECT GTID_SUBTRACT(?, @@GLOBAL.gtid_executed)", set).Scan(&rest); err != nil {
			return 0, err
		}
		var missing gtid.Set
		if err := missing.UnmarshalText([]byte(rest)); err != nil {
			return 0, fmt.Errorf("GTID set of the lag: %w", err)
		}
		worst = max(worst, int64(missing.Count()))
	}
	return worst, nil
}

// measureIdle samples the system's CPU without load.
func measureIdle(ctx context.Context, s system) (Idle, error) {
	var idle Idle
	if err := s.settle(ctx); err != nil {
		return idle, err
	}
	if _, err := caughtUp(ctx, s, catchUpLimit); err != nil {
		return idle, err
	}
	hosts := s.hosts()
	before, err := cpuOfHosts(hosts)
	if err != nil {
		return idle, err
	}
	begin := time.Now()
	select {
	case <-ctx.Done():
		return idle, errors.Join(ctx.Err())
	case <-time.After(idleTime):
	}
	after, err := cpuOfHosts(hosts)
	if err != nil {
		return idle, err
	}
	wall := time.Since(begin).Seconds()
	for i, h := range hosts {
		idle.Hosts = append(idle.Hosts, IdleHost{Name: h.Name, Leader: h.Leader,
			MySQLPercent:  100 * (after[i].mysql - before[i].mysql).Seconds() / wall,
			DaemonPercent: 100 * (after[i].daemon - before[i].daemon).Seconds() / wall})
	}
	return idle, nil
}
