package bench

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"trireme/lab/report"
	"trireme/lab/rivals"
)

// faultKind is one way to hit a node.
type faultKind struct {
	name     string // a case of the suite
	expect   string // of Trireme, in words
	fault    rivals.Fault
	follower bool          // a follower is hit, and leadership must stay
	planned  bool          // nothing fails, so no failure has to be detected
	target   target        // zero: none
	takes    time.Duration // of Trireme, until all is well again
	rival    time.Duration // of a rival
}

// target is what Trireme must reach; zero fields are not checked.
type target struct {
	p50MS, p99MS float64
	dip          float64 // percent of the rate lost in the next second
}

// backSeconds is the target for a node's return, whichever fault it was.
const backSeconds = 10

// faultKinds in the order in which they are measured.
var faultKinds = []faultKind{
	{name: "mysqld killed", expect: "the daemon sees it at once and hands over", fault: rivals.KillMySQL,
		target: target{p50MS: 500, p99MS: 1000}, rival: 20 * time.Second},
	{name: "daemon killed", expect: "closed connections: the others elect at once", fault: rivals.KillDaemon,
		target: target{p50MS: 500, p99MS: 1000}},
	{name: "host dies", expect: "as a killed daemon", fault: rivals.KillHost, target: target{p50MS: 500, p99MS: 1000}},
	{name: "stopped gracefully", expect: "hands over first", fault: rivals.EndNode, rival: 5 * time.Second},
	{name: "host frozen", expect: "heartbeats missed: the others elect", fault: rivals.StopHost,
		target: target{p99MS: 2000}, rival: 25 * time.Second},
	{name: "host lost", expect: "heartbeats missed: the others elect", fault: rivals.LoseHost, target: target{p99MS: 2000},
		rival: 30 * time.Second},
	{name: "partition", expect: "heartbeats missed: the others elect, the old leader fences itself",
		fault: rivals.Partition, target: target{p99MS: 2000}, rival: 30 * time.Second},
	{name: "daemon frozen", expect: "heartbeats missed; its guard kills its mysqld", fault: rivals.StopDaemon},
	{name: "mysqld frozen", expect: "the probe finds it after 5 s, fence and hand over", fault: rivals.StopMySQL},
	{name: "switchover", expect: "drained, no restart", fault: rivals.Switchover, target: target{p99MS: 300}},
	{name: "follower killed", expect: "the leader does not notice", fault: rivals.KillMySQL, follower: true,
		target: target{dip: 5}, rival: 10 * time.Second},
	{name: "follower restarted", expect: "the leader does not notice", fault: rivals.EndNode, follower: true,
		target: target{dip: 5}, rival: 5 * time.Second},
	{name: "node added", expect: "a copy of the data, then a vote", fault: rivals.AddNode, planned: true,
		takes: 20 * time.Second, rival: 20 * time.Second},
}

// once says that a system is not the same afterwards: such a fault gets a start of its own.
func (k faultKind) once() bool { return k.fault == rivals.AddNode }

func kindOf(name string) (faultKind, error) {
	return named("fault", name, faultKinds, func(k faultKind) string { return k.name })
}

var failoverSuite = Suite{
	Name: "failover", Title: "Faults and switchovers",
	About: "Sessions write through the system's router while a node is hit; they connect again (5 to 40 ms pause) after an error. The leader is hit unless the name says otherwise. " +
		"The gap is the longest time without any acknowledged write. A process that ended is started again after 0.5 s, as a service manager would. What was frozen or cut off is released once another server takes writes. " +
		"Afterwards the writers' log is compared with every server. `InnoDB Cluster` goes through MySQL Router, as its users have it; the other Group Replication through a pass-through that asks every member for the primary every 20 ms. " +
		"A member of a group that has given up is told to join again, as an operator would do. Trireme gets no help.",
	Defaults: func(quick bool) Settings {
		s := Settings{Topologies: []string{"lan"}, Threads: []int{64}, Rounds: 1, Repeats: 10, WarmupSeconds: 10, Seconds: 20,
			AllVariants: true, Systems: []string{"semisync", "mgr-after", "mgr-router", "trireme", "trireme-logger"}}
		for _, k := range faultKinds {
			s.Cases = append(s.Cases, k.name)
		}
		if quick {
			s.Cases, s.Repeats, s.AllVariants = []string{"mysqld killed", "host lost"}, 1, false
			s.Systems = []string{"mgr-after", "mgr-router", "trireme"}
		}
		return s
	},
	Check: func(s Settings) error {
		for _, c := range s.Cases {
			if _, err := kindOf(c); err != nil {
				return err
			}
		}
		if s.Repeats < 1 || len(s.Threads) != 1 {
			return errors.New("faults need a positive number of repeats, and one number of threads: that of the writers")
		}
		return nil
	},
	Plan: failoverPlan, Blocks: failoverBlocks, Sections: failoverSections, Compare: []Comparison{{valGap}},
}

// failoverPlan makes the faults of all kinds in turns on one start; those after which a system is another one get a
// start of their own.
func failoverPlan(s Settings) ([]Group, error) {
	var kinds []faultKind
	for _, c := range s.Cases {
		k, err := kindOf(c)
		if err != nil {
			return nil, err
		}
		kinds = append(kinds, k)
	}
	all := s
	all.Cases, all.AllVariants = nil, false
	groups, err := all.groups(func(g *Group, base Key) error {
		for i := range s.Repeats {
			for _, k := range kinds {
				if !k.once() {
					g.Cells = append(g.Cells, k.cell(s, g.System, base, i+1))
				}
			}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	if s.AllVariants {
		groups = withQuickExpulsion(groups)
	}
	for _, k := range kinds {
		if !k.once() {
			continue
		}
		more, err := all.groups(func(g *Group, base Key) error {
			g.Shape.Spare = 1
			g.Cells = []Cell{k.cell(s, g.System, base, 1)}
			return nil
		})
		if err != nil {
			return nil, err
		}
		groups = append(groups, more...)
	}
	return groups, nil
}

// withQuickExpulsion adds Group Replication with members that are expelled as soon as they are suspected: its best
// setting for faults that close no connection.
func withQuickExpulsion(groups []Group) []Group {
	const name = "expel 0"
	var out []Group
	for _, g := range groups {
		out = append(out, g)
		if !strings.HasPrefix(g.System.Name, "mgr-") {
			continue
		}
		g.Shape.Options = maps.Clone(g.Shape.Options)
		if g.Shape.Options == nil {
			g.Shape.Options = map[string]string{}
		}
		g.Shape.Options["group_replication_member_expel_timeout"] = "0"
		g.Cells = slices.Clone(g.Cells)
		for i := range g.Cells {
			g.Cells[i].Key.Variant += ", " + name
		}
		out = append(out, g)
	}
	return out
}

func (k faultKind) cell(s Settings, system rivals.System, base Key, repeat int) Cell {
	const around = 10 * time.Second // tables, the fault itself, the check
	base.Case, base.Threads, base.Repeat = k.name, s.Threads[0], repeat
	takes := k.rival
	if system.Ours {
		takes = k.takes
	}
	return Cell{Key: base, Takes: time.Duration(s.WarmupSeconds+s.Seconds)*time.Second + around + takes,
		Measure: func(ctx context.Context, b *Bed) (Record, error) {
			return k.measure(ctx, b)
		}}
}

// breakable is the system of a bed under faults, or the reason why the system cannot be one.
func breakable(ctx context.Context, b *Bed) (rivals.Breakable, error) {
	switch r, ok := b.Running.(rivals.Breaker); {
	case ok:
		return r.Break(ctx)
	case b.System.Name == "semisync" || b.System.Name == "async":
		return nil, fmt.Errorf("%w: MySQL's replication has no failover of its own", rivals.ErrNotHere)
	case b.System.Name == "standalone":
		return nil, fmt.Errorf("%w: no other server can take over", rivals.ErrNotHere)
	}
	return nil, fmt.Errorf("%w: the harness makes no faults on %s", rivals.ErrNotHere, b.System.Title)
}

// failoverBlocks are the tables of all kinds.
func failoverBlocks(r *Results) []report.Block {
	rows := r.faultRows()
	return []report.Block{
		pivot(best(r.summaries(), valGap), valGap, "Write gap in ms, median"),
		gapTable(rows), backTable(rows), writersTable(rows), tablesText(),
	}
}
