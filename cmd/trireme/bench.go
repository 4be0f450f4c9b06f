package main

import (
	"time"

	"trireme/internal/bench"
	"trireme/internal/config"
)

// benchCmd is `trireme bench`.
type benchCmd struct {
	What  string `arg:"" optional:"" enum:"compare,gaps,wan" default:"compare" help:"compare: TPS and CPU beside a standalone server and semi-sync replication. gaps: write gaps of faults and switchovers. wan: whether the emulated network is what was asked for. Default: compare."`
	Quick bool   `help:"The comparison on this machine; the only one there is so far."`

	Mysqld  string        `placeholder:"PATH" help:"mysqld to run. Default: $$MYSQLD, then PATH."`
	Dir     string        `type:"path" placeholder:"DIR" help:"Scratch directory. Default: a new one, removed afterwards."`
	Out     string        `type:"path" placeholder:"DIR" help:"Where the reports go. Default: docs/benchmarks."`
	Systems []string      `placeholder:"NAME" help:"compare: of standalone, semisync, trireme. Default: all."`
	Threads []int         `placeholder:"N" help:"compare: client threads. Default: 1,16,64."`
	Rounds  int           `placeholder:"N" help:"compare: interleaved rounds; the median counts. Default: 3."`
	Warmup  time.Duration `placeholder:"TIME" help:"compare: load before the measurement. Default: 4s."`
	Time    time.Duration `placeholder:"TIME" help:"compare, wan: length of a measurement. Default: 10s, 5s."`
	WAN     string        `name:"wan" placeholder:"NAME|FILE" help:"wan: topology whose links are measured (docs/benchmarks/README.md). Default: all presets."`
	Kinds   []string      `placeholder:"NAME,…" help:"gaps: kinds of faults. Default: all."`
	Faults  int           `placeholder:"N" help:"gaps: faults of each kind that has a target; of the others at most 10. Default: 10."`
	Writers int           `placeholder:"N" help:"gaps: clients that write. Default: 64."`
	Rival   []string      `placeholder:"NAME" help:"gaps: beside Trireme, on the same machine in the same run: mgr (MySQL Group Replication)."`

	RivalFaults int           `placeholder:"N" help:"gaps: faults of each kind for a rival. Default: as --faults, at most 15."`
	Data        string        `placeholder:"SIZE" default:"0B" help:"gaps: data in the database beside what the clients write, such as 1GiB. Default: none."`
	Limit       time.Duration `placeholder:"TIME" help:"gaps: what does not fit is left out, of all kinds alike. Default: none."`
}

// Run measures and writes the reports.
func (c *benchCmd) Run(e *env) error {
	data, err := config.ParseBytes(c.Data)
	if err != nil {
		return usagef("--data: %v", err)
	}
	if c.What == "gaps" {
		return bench.Gaps(e.ctx, bench.GapOptions{MySQL: c.Mysqld, Dir: c.Dir, Out: c.Out, Kinds: c.Kinds, Faults: c.Faults, Writers: c.Writers,
			Rivals: c.Rival, RivalFaults: c.RivalFaults, Data: int64(data), Limit: c.Limit, Say: e.out})
	}
	if c.What == "wan" {
		return bench.WAN(e.ctx, bench.WANOptions{Topology: c.WAN, Out: c.Out, Time: c.Time, Say: e.out})
	}
	return bench.Quick(e.ctx, bench.QuickOptions{
		MySQL: c.Mysqld, Dir: c.Dir, Out: c.Out, Systems: c.Systems, Threads: c.Threads, Rounds: c.Rounds,
		Warmup: c.Warmup, Time: c.Time, Say: e.out,
	})
}
