package main

import (
	"time"

	"trireme/lab/bench"
)

// benchCmd is `trireme-lab bench`.
type benchCmd struct {
	Run    benchRunCmd    `cmd:"" help:"Measure a suite: Trireme and its rivals, each started again in each round, with reports."`
	Report benchReportCmd `cmd:"" help:"Write the reports again from existing results."`
}

// benchRunCmd is `trireme-lab bench run`. Flags that are not given have the suite's own values.
type benchRunCmd struct {
	Suites []string `arg:"" name:"suite" help:"Suites: topologies, jitter, consistency, access, scaling, cpu, failover, rpo, replay, trx-size, slow-peer, lag, backup, tpcc, or all."`
	Quick  bool     `help:"A short run of each suite, for an indication: fewer systems, topologies and threads, one round."`
	Resume bool     `help:"Continue an interrupted run; cells that were not run are tried again."`
	Fresh  bool     `help:"Discard what an interrupted run has measured."`

	Systems      []string      `placeholder:"NAME,…" help:"Systems to run. A wrong name lists them all."`
	AllVariants  bool          `help:"Run every variant of a rival, not only the one that suits most cells; full runs do so anyway."`
	Topologies   []string      `placeholder:"NAME,…" help:"Presets or files of emulated networks; none: all on the loopback address."`
	Workloads    []string      `placeholder:"NAME,…" help:"Workloads of sysbench."`
	Cases        []string      `placeholder:"CASE,…" help:"What else a suite varies, such as numbers of nodes or faults."`
	Threads      []int         `placeholder:"N,…" help:"Client threads."`
	Rounds       int           `placeholder:"N" help:"Rounds; the median counts."`
	Repeats      int           `placeholder:"N" help:"Repeats on one start: of each fault, of each block of suite access."`
	Workers      []int         `placeholder:"N,…" help:"Suite replay: applier workers of rivals."`
	Transactions int           `placeholder:"N" help:"Suite replay: transactions of the backlog."`
	Warmup       time.Duration `placeholder:"TIME" help:"Load before each measurement."`
	Time         time.Duration `placeholder:"TIME" help:"Length of a measurement."`
	CPUs         float64       `name:"cpus" default:"-1" placeholder:"N" help:"CPUs that each emulated host may use; 0: no limit. Default: those of the machine divided by four, where the suite limits them."`
	Tables       int           `placeholder:"N" help:"Tables of sysbench."`
	Rows         int           `placeholder:"N" help:"Rows of each table."`

	Mysqld string `placeholder:"PATH" help:"mysqld to run. Default: $$MYSQLD, then PATH."`
	Dir    string `type:"path" placeholder:"DIR" help:"Scratch directory. Default: a new one, removed afterwards."`
	Out    string `type:"path" placeholder:"DIR" help:"Where results and reports go. Default: docs/benchmarks."`
	JSON   bool   `help:"Print the figures of all suites that are there as JSON; progress goes to standard error."`
}

// Run measures and writes the reports.
func (c *benchRunCmd) Run(e *env) error {
	trireme, build, err := hit(e.ctx)
	if err != nil {
		return err
	}
	err = bench.Run(e.ctx, bench.RunOptions{Binary: trireme, Suites: c.Suites, Quick: c.Quick, Resume: c.Resume,
		Fresh: c.Fresh, MySQL: c.Mysqld, Dir: c.Dir, Out: c.Out, Version: build.Version, Say: e.progress(c.JSON),
		Settings: bench.Settings{Systems: c.Systems, AllVariants: c.AllVariants, Topologies: c.Topologies,
			Workloads: c.Workloads, Cases: c.Cases, Threads: c.Threads, Rounds: c.Rounds, Repeats: c.Repeats, Workers: c.Workers,
			Transactions: c.Transactions, WarmupSeconds: int(c.Warmup.Seconds()), Seconds: int(c.Time.Seconds()), CPUs: c.CPUs,
			Tables: c.Tables, Rows: c.Rows}})
	if c.JSON && err == nil {
		return digest(e, c.Out)
	}
	return err
}

// digest prints what the results come to.
func digest(e *env, out string) error {
	d, err := bench.ReadDigest(out)
	if err != nil {
		return err
	}
	return printJSON(e.out, d)
}

// benchReportCmd is `trireme-lab bench report`.
type benchReportCmd struct {
	Out  string `type:"path" placeholder:"DIR" help:"Where the results are, and the reports go. Default: docs/benchmarks."`
	JSON bool   `help:"Print the figures as JSON; which files were written goes to standard error."`
}

// Run draws the reports.
func (c *benchReportCmd) Run(e *env) error {
	if err := bench.Report(bench.ReportOptions{Out: c.Out, Say: e.progress(c.JSON)}); err != nil || !c.JSON {
		return err
	}
	return digest(e, c.Out)
}
