package bench

import (
	"context"
	"fmt"
	"net"
	"strconv"
	"strings"
	"time"

	"trireme/lab/report"
	"trireme/lab/rivals"
	"trireme/lab/tpcc"
)

// Names of values of the TPC-C suite.
const (
	valTpmC       = "tpmc_like"
	valNewOrder   = "new_order_p95_ms"
	valRetries    = "retries_percent" // attempts that a server aborted, per committed transaction
	valViolations = "violations"      // of consistency conditions, at the end of a start
)

var tpccMetrics = []metric{
	{Name: valTpmC, Title: "tpmC-like", Unit: " tpmC-like", Brief: true},
	{Name: valNewOrder, Title: "New-Order p95 ms", Lower: true, Digits: 1},
	{Name: valRetries, Title: "retries %", Unit: " % retries", Lower: true, Digits: 2},
	{Name: valViolations, Title: "violations", Unit: " violations", Lower: true, Brief: true},
}

const maxWarehouses = 1000

var tpccSuite = Suite{
	Name: "tpcc", Title: "TPC-C",
	About: "The five transactions of TPC-C by a driver of our own (`lab/tpcc`), without think times and not audited: **tpmC-like** figures can be compared with each other only. " +
		"Cases are numbers of warehouses, threads are terminals. After the last measurement of each start, the twelve consistency conditions of the specification are checked, " +
		"on the leader and, when everything is applied, on a replica.",
	Defaults: func(quick bool) Settings {
		s := oltpDefaults(quick)
		s.Workloads, s.Tables, s.Rows, s.Cases, s.AllVariants = nil, 0, 0, []string{"10"}, false
		s.Threads, s.WarmupSeconds, s.Seconds = []int{1, 4, 16, 64, 200}, 10, 30
		if quick {
			s.Cases, s.Threads, s.WarmupSeconds, s.Seconds = []string{"2"}, []int{1, 16}, 3, 10
		}
		return s
	},
	Check: func(s Settings) error {
		for _, c := range s.Cases {
			if n, err := strconv.Atoi(c); err != nil || n < 1 || n > maxWarehouses {
				return fmt.Errorf("case %q: a number of warehouses, 1 to %d", c, maxWarehouses)
			}
		}
		return nil
	},
	Plan: func(s Settings) ([]Group, error) {
		return s.groups(func(g *Group, base Key) error {
			warehouses, err := strconv.Atoi(base.Case)
			if err != nil {
				return err
			}
			g.Prepare = func(ctx context.Context, b *Bed) error { return prepareTPCC(ctx, b, warehouses) }
			for i, threads := range s.Threads {
				k := base
				k.Threads = threads
				last := i == len(s.Threads)-1
				g.Cells = append(g.Cells,
					Cell{Key: k, Takes: s.takes(), Measure: func(ctx context.Context, b *Bed) (Record, error) {
						return measureTPCC(ctx, b, &tpccLoad{warehouses: warehouses}, threads, last)
					}})
			}
			return nil
		})
	},
	Compare: []Comparison{{valTpmC}, {valSustained}, {valNewOrder}, {valCPUAll}},
	Blocks: func(r *Results) []report.Block {
		all := best(r.summaries(), valSustained)
		return []report.Block{
			pivot(all, valTpmC, "tpmC-like: New-Orders per minute"),
			pivot(all, valSustained, "Sustained TPS, all five transactions"),
			pivot(all, valNewOrder, "New-Order, p95 ms"),
			pivot(all, valRetries, "Attempts that the server aborted, percent of the committed transactions"),
			lines(all, "Everything", append([]string{valTpmC, valNewOrder, valRetries}, detailMetrics...)),
			report.Text("Consistency conditions, at the end of each start:"), conditionList(r.summaries()),
		}
	},
}

// conditionList says of each system what the check found.
func conditionList(all []summary) report.List {
	var out report.List
	for _, s := range all {
		for _, note := range s.Notes {
			out = append(out, fmt.Sprintf("%s at scale %s: %s", shortName(s.System), s.Case, note))
		}
	}
	return out
}

// tpccLoad is the load generator of lab/tpcc.
type tpccLoad struct {
	warehouses int
	runs       uint64
	last       tpcc.Result
}

// config is for the database that every system has, on which clients of Trireme have every privilege.
func (l *tpccLoad) config(targets []rivals.Target) tpcc.Config {
	c := tpcc.Config{Database: rivals.Database, Warehouses: l.warehouses, Seed: l.runs}
	for _, t := range targets {
		c.Targets = append(c.Targets, tpcc.Target{Addr: net.JoinHostPort(t.Host, strconv.Itoa(t.Port)), User: t.User,
			Password: t.Password})
	}
	return c
}

// run is loader's.
func (l *tpccLoad) run(ctx context.Context, targets []rivals.Target, threads int, d time.Duration) (LoadResult, error) {
	l.runs++
	cfg := l.config(targets)
	cfg.Terminals = threads
	r, cpu, err := tpcc.RunProcess(ctx, cfg, 0, d)
	if err != nil {
		return LoadResult{}, err
	}
	l.last = r
	out := LoadResult{Seconds: r.Length.Seconds(), Average: r.Latency.Average, P95: r.Latency.P95, P99: r.Latency.P99,
		CPU: cpu}
	for _, t := range r.Types {
		out.Transactions += t.Committed
		out.Errors += t.Retries.All()
	}
	for _, n := range r.PerSecond {
		out.TPS = append(out.TPS, float64(n))
	}
	if out.Transactions == 0 {
		return out, fmt.Errorf("no transaction of TPC-C was committed within %v", d)
	}
	return out, nil
}

// prepareTPCC fills the tables.
func prepareTPCC(ctx context.Context, b *Bed, warehouses int) error {
	targets, err := b.Targets(rivals.Direct)
	if err != nil {
		return err
	}
	if err := tpcc.Load(ctx, (&tpccLoad{warehouses: warehouses}).config(targets), nil); err != nil {
		return err
	}
	_, err = caughtUp(ctx, b, catchUpLimit)
	return err
}

// measureTPCC is one number of terminals; check the data afterwards.
func measureTPCC(ctx context.Context, b *Bed, l *tpccLoad, threads int, check bool) (Record, error) {
	rec, err := throughput(ctx, b, l, rivals.Direct, threads)
	if err != nil {
		return rec, err
	}
	delete(rec.Values, valQPS) // not counted
	var committed, retries int64
	for _, t := range l.last.Types {
		name := strings.ReplaceAll(strings.ToLower(t.Name), "-", "_")
		rec.Values[name+"_p95_ms"] = milliseconds(t.Latency.P95)
		rec.Values[name+"_retries"] = float64(t.Retries.All())
		committed, retries = committed+t.Committed, retries+t.Retries.All()
	}
	rec.Values[valTpmC], rec.Values[valRetries] = l.last.TpmC, 100*float64(retries)/float64(committed)
	if !check {
		return rec, nil
	}
	violations, err := checkTPCC(ctx, b, l)
	rec.Note = "all conditions hold on the leader and a replica"
	switch {
	case err != nil:
		rec.Note = "the conditions could not be checked: " + err.Error()
	case len(violations) > 0:
		rec.Note = "VIOLATED: " + strings.Join(violations[:min(len(violations), 3)], "; ")
	case len(b.Hosts()) == 1:
		rec.Note = "all conditions hold"
	}
	if err == nil {
		rec.Values[valViolations] = float64(len(violations))
	}
	if b.System.Ours && (err != nil || len(violations) > 0) {
		rec.Broken = rec.Note
	}
	return rec, nil
}

// checkTPCC looks at the leader and at the first other server with data. Everything is applied.
func checkTPCC(ctx context.Context, b *Bed, l *tpccLoad) (violations []string, err error) {
	checked := 0
	for _, h := range b.Hosts() { // the leader's first
		db := b.DB(h.Name)
		if db == nil || checked == 2 {
			continue
		}
		checked++
		found, err := tpcc.Check(ctx, l.config([]rivals.Target{{}}), db)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", h.Name, err)
		}
		for _, v := range found {
			violations = append(violations, h.Name+": "+v.String())
		}
	}
	return violations, nil
}
