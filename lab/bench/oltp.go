package bench

import (
	"context"
	"time"

	"trireme/lab/rivals"
)

// prepareTables fills the tables of sysbench.
func prepareTables(ctx context.Context, b *Bed) error {
	targets, err := b.Targets(rivals.Direct)
	if err != nil {
		return err
	}
	if err := b.Settings.load("").prepare(ctx, targets); err != nil {
		return err
	}
	_, err = caughtUp(ctx, b, catchUpLimit)
	return err
}

func (s Settings) load(workload string) Load {
	if workload == "" {
		workload = "oltp_write_only"
	}
	return Load{Workload: workload, Tables: s.Tables, Rows: s.Rows}
}

// takes is the estimate of one throughput cell.
func (s Settings) takes() time.Duration {
	const around = 4 * time.Second // catching up, starts of sysbench
	return time.Duration(s.WarmupSeconds+s.Seconds)*time.Second + around
}

// oltpCells are one cell for each workload and number of threads.
func (s Settings) oltpCells(base Key, via rivals.Via) []Cell {
	var out []Cell
	for _, w := range orOne(s.Workloads) {
		for _, threads := range s.Threads {
			k := base
			k.Workload, k.Threads = w, threads
			out = append(out, Cell{Key: k, Takes: s.takes(), Measure: func(ctx context.Context, b *Bed) (Record, error) {
				return throughput(ctx, b, s.load(w), via, threads)
			}})
		}
	}
	return out
}

// oltpPlan measures each workload and number of threads on each system; how changes a group by its case.
func oltpPlan(how func(g *Group, c string) error) func(Settings) ([]Group, error) {
	return func(s Settings) ([]Group, error) {
		if err := lookSysbench(); err != nil {
			return nil, err
		}
		return s.groups(func(g *Group, base Key) error {
			g.Via = rivals.Direct
			if how != nil {
				if err := how(g, base.Case); err != nil {
					return err
				}
			}
			g.Prepare = prepareTables
			g.Cells = s.oltpCells(base, g.Via)
			return nil
		})
	}
}

// oltpDefaults are those of most suites: TARGETS of docs/benchmarks/README.md.
func oltpDefaults(quick bool) Settings {
	s := Settings{Topologies: []string{"lan"}, Workloads: []string{"oltp_write_only"}, Threads: []int{1, 4, 16, 64, 256},
		Rounds: 3, WarmupSeconds: 4, Seconds: 10, CPUs: -1, Tables: 8, Rows: 20000, AllVariants: true,
		Systems: []string{"standalone", "async", "semisync", "mgr-eventual", "mgr-after", "mgr-multi", "trireme",
			"trireme-double", "trireme-logger"}}
	if quick {
		s.Threads, s.Rounds, s.WarmupSeconds, s.Seconds, s.AllVariants = []int{1, 64}, 1, 3, 8, false
		s.Systems = []string{"semisync", "mgr-after", "trireme"}
	}
	return s
}
