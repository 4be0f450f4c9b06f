package bench

import (
	"fmt"
	"math"
	"runtime"
	"slices"
	"strconv"

	"trireme/internal/base/config"
	"trireme/lab/report"
	"trireme/lab/rivals"
)

// Suites in the order in which they run and are shown.
func Suites() []Suite {
	return []Suite{topologiesSuite, jitterSuite, consistencySuite, accessSuite, scalingSuite, cpuSuite, failoverSuite,
		rpoSuite, replaySuite, trxSizeSuite, slowPeerSuite, lagSuite, backupSuite, tpccSuite}
}

var throughputCompare = []Comparison{{valSustained}, {valTPS}, {valP95}, {valCPUAll}}

var topologiesSuite = Suite{
	Name: "topologies", Title: "Throughput from one site to three cities",
	About: "sysbench on five networks: `lan` (0.1 ms), `city` (three sites 1 ms apart), `10ms`, `two-regions` (two hosts 1 ms apart, the third 30 ms away), `three-cities` (5 ms and 30 ms). " +
		"Round trips are those that ping would show. The load goes to the server that takes writes, or to all servers if all take writes.",
	Defaults: func(quick bool) Settings {
		s := oltpDefaults(quick)
		s.Topologies, s.Workloads = []string{"lan", "city", "10ms", "two-regions", "three-cities"},
			[]string{"oltp_read_only", "oltp_read_write", "oltp_write_only"}
		if quick {
			s.Topologies, s.Workloads = []string{"lan", "two-regions"}, []string{"oltp_write_only"}
		}
		return s
	},
	Plan: oltpPlan(nil), Compare: throughputCompare,
	Blocks: func(r *Results) []report.Block {
		return []report.Block{dropTable(best(r.summaries(), valSustained))}
	},
	Sections: func(r *Results) (out []report.Section) {
		all := best(r.summaries(), valSustained)
		each(all, func(k Key) string { return k.Topology + "/" + k.Workload }, func(name string, of []summary) {
			k := of[0].Key
			title := dims[2].of(k) + " on " + k.Topology
			out = append(out, report.Section{ID: slug("topologies", k.Topology, dims[2].of(k)), Title: title,
				Blocks: []report.Block{
					relative(of, valSustained, "Sustained TPS of Trireme divided by others'"),
					byThreads(of, valSustained, "Sustained TPS, "+title),
					byThreads(of, valP95, "p95 latency, "+title),
					details(of),
				}})
		})
		return out
	},
}

// dropTable is what is left of the first topology's TPS on each other one.
func dropTable(all []summary) report.Table {
	t := report.Table{Caption: "Sustained TPS by topology, in percent of the first one's",
		Columns: []report.Column{{Title: "workload"}, {Title: "threads", Number: true}, {Title: "system"}}}
	var topologies []string
	each(all, func(k Key) string { return k.Topology }, func(name string, _ []summary) {
		topologies = append(topologies, name)
		t.Columns = append(t.Columns, report.Column{Title: name, Number: true})
	})
	each(all, func(k Key) string { return k.Workload + strconv.Itoa(k.Threads) + k.System }, func(_ string, of []summary) {
		k := of[0].Key
		line := []report.Cell{{Text: dims[2].of(k)}, {Text: strconv.Itoa(k.Threads)}, {Text: shortName(k.System)}}
		first := of[0].Values[valSustained].Median
		for _, name := range topologies {
			c := report.Cell{Text: "–", Mark: report.Absent}
			for _, s := range of {
				if s.Topology == name && s.has(valSustained) && first != 0 && of[0].Topology == topologies[0] {
					c = report.Cell{Text: fmt.Sprintf("%.0f %%", 100*s.Values[valSustained].Median/first), Note: s.Variant}
				}
			}
			line = append(line, c)
		}
		t.Rows = append(t.Rows, line)
	})
	return t
}

// detailMetrics are the columns of a table with everything.
var detailMetrics = []string{valTPS, valSustained, valAverage, valP95, valP99, valErrors, valNotApplied, valCatchUp,
	valVariation, valCPULeader, valCPUAll, valThrottled}

// details has a line for each system and number of threads.
func details(all []summary) report.Table { return lines(all, "Everything", detailMetrics) }

// lines is a table with a row for each summary and a column for each metric that one of them has.
func lines(all []summary, caption string, names []string) report.Table {
	t := report.Table{Caption: caption}
	names = slices.DeleteFunc(slices.Clone(names), func(name string) bool {
		return !slices.ContainsFunc(all, func(s summary) bool { return s.has(name) })
	})
	var used []int
	for i, d := range dims {
		first := ""
		if len(all) > 0 {
			first = d.of(all[0].Key)
		}
		for _, s := range all {
			if d.of(s.Key) != first || d.title == "threads" && first != "" {
				used = append(used, i)
				t.Columns = append(t.Columns, report.Column{Title: d.title, Number: d.title == "threads"})
				break
			}
		}
	}
	t.Columns = append(t.Columns, report.Column{Title: "system"}, report.Column{Title: "variant"})
	for _, name := range names {
		t.Columns = append(t.Columns, report.Column{Title: metricOf(name).Title, Number: true})
	}
	for _, s := range all {
		var line []report.Cell
		for _, i := range used {
			line = append(line, report.Cell{Text: dims[i].of(s.Key)})
		}
		line = append(line, report.Cell{Text: shortName(s.System)}, report.Cell{Text: s.Variant})
		for _, name := range names {
			line = append(line, metricOf(name).cell(s, true, name, false))
		}
		t.Rows = append(t.Rows, line)
	}
	return t
}

var jitterSuite = Suite{
	Name: "jitter", Title: "Steadiness",
	About: "TPS in each second of a long run at 64 threads, and its coefficient of variation. Part of the variation is the machine's: compare with the standalone server in the same run.",
	Defaults: func(quick bool) Settings {
		s := oltpDefaults(quick)
		s.Topologies, s.Threads, s.Rounds, s.Seconds, s.AllVariants = []string{"lan", "two-regions"}, []int{64}, 1, 300, false
		s.Systems = []string{"standalone", "semisync", "mgr-eventual", "mgr-after", "trireme"}
		if quick {
			s.Topologies, s.Seconds, s.Systems = []string{"lan"}, 60, []string{"standalone", "semisync", "mgr-after", "trireme"}
		}
		return s
	},
	Plan: oltpPlan(nil), Compare: []Comparison{{valVariation}},
	Blocks: func(r *Results) (out []report.Block) {
		all := r.summaries()
		out = append(out, pivot(all, valVariation, "Coefficient of variation of TPS per second, percent"),
			pivot(all, valTPS, "TPS"))
		each(all, func(k Key) string { return k.Topology }, func(name string, of []summary) {
			out = append(out, r.seriesChart(of, valTPS, "TPS per second on "+name, "TPS", 1))
		})
		return out
	},
}

// consistencyLevels are those of Group Replication: what a read on another server may miss.
var consistencyLevels = []string{"EVENTUAL", "BEFORE", "AFTER", "BEFORE_AND_AFTER"}

var consistencySuite = Suite{
	Name: "consistency", Title: "Consistency levels",
	About: "oltp_read_write at the consistency levels of Group Replication. There the servers implement them; in Trireme the routers do (`router.consistency`, with followed sessions). So Trireme's figures are all through the leader's router, " +
		"EVENTUAL too. Compare each system with its own EVENTUAL.",
	Defaults: func(quick bool) Settings {
		s := oltpDefaults(quick)
		s.Workloads, s.Threads, s.Cases, s.AllVariants = []string{"oltp_read_write"}, []int{4, 8, 16, 32, 64},
			consistencyLevels, false
		s.Systems = []string{"mgr-eventual", "trireme"}
		if quick {
			s.Threads = []int{4, 64}
		}
		return s
	},
	Plan: oltpPlan(func(g *Group, level string) error {
		if !g.System.Ours {
			g.Shape.Options = map[string]string{"group_replication_consistency": level}
			return nil
		}
		g.Via = rivals.Router
		g.Shape.Tune = func(n *config.Node) { n.Router.Consistency = level }
		return nil
	}),
	Blocks: func(r *Results) []report.Block {
		all := r.summaries()
		return []report.Block{pivot(all, valTPS, "TPS"), pivot(all, valQPS, "QPS"), pivot(all, valP95, "p95 ms")}
	},
}

var accessSuite = Suite{
	Name: "access", Title: "Cost of the way to the server",
	About: "oltp_read_write directly, through the system's router and through a virtual IP address, in alternating blocks on one started system. The cost is the mean of the differences between a block and the direct one " +
		"before it, with its 95 % interval. A virtual address needs Ethernet, which the emulated links do not have. It is compared with the server's own address over the same switch, which has no delay (\"switch\"). Each mysqld has a CPU budget (0.8 CPU, less where the machine has fewer than three), so that routers have CPU of their own. MySQL Router runs on the client's host, Trireme's router in the leader's daemon.",
	Defaults: func(quick bool) Settings {
		s := oltpDefaults(quick)
		s.Workloads, s.Threads, s.Systems, s.AllVariants = []string{"oltp_read_write"}, []int{16, 32, 64},
			[]string{routerRival, "trireme"}, false
		s.ServerCPUs = min(0.8, 0.3*float64(runtime.NumCPU()))
		s.Rounds, s.Repeats, s.WarmupSeconds, s.CPUs = 1, 30, 1, 0
		if quick {
			s.Threads, s.Repeats, s.Seconds = []int{16, 64}, 6, 5
		}
		return s
	},
	Check: func(s Settings) error {
		if s.Repeats < 2 {
			return fmt.Errorf("%d repeats: at least 2, of which the interval is taken", s.Repeats)
		}
		return nil
	},
	Plan: func(s Settings) ([]Group, error) {
		if err := lookSysbench(); err != nil {
			return nil, err
		}
		return s.groups(func(g *Group, base Key) error {
			g.Prepare = prepareTables
			ways := []rivals.Via{rivals.Direct, rivals.Router, rivals.VIP}
			if g.System.Ours && g.Shape.Topology != nil {
				g.Shape.Switch = true
				ways = []rivals.Via{rivals.Direct, rivals.Router, rivals.Switch, rivals.VIP}
			}
			for _, threads := range s.Threads {
				one := s
				one.Threads = []int{threads}
				for i := range s.Repeats {
					base.Repeat = i + 1
					for _, via := range ways {
						base.Case = string(via)
						g.Cells = append(g.Cells, one.oltpCells(base, via)...)
					}
				}
			}
			return nil
		})
	},
	Blocks: func(r *Results) []report.Block {
		all := r.summaries()
		return []report.Block{r.costTable("way", string(rivals.Direct), plainWay), r.routerTable(), pivot(all, valTPS, "TPS"),
			pivot(all, valP95, "p95 ms"), pivot(all, valCPUAll, "CPU of all hosts per transaction, relative")}
	},
}

// plainWay is the way that a way is compared with: a virtual address with the server's own over the same switch, others
// with the direct one.
func plainWay(way string) string {
	switch rivals.Via(way) {
	case rivals.Direct, rivals.Switch:
		return ""
	case rivals.VIP:
		return string(rivals.Switch)
	}
	return string(rivals.Direct)
}

// blocks are those that have a figure of TPS, as their case has and that which plain says it is compared with; "": it is
// compared with none. By cell, in order, f says what a block has, by the one before it of the plain case.
func (r *Results) blocks(plain func(string) string, f func(rec, base Record) float64) (order []Key,
	of map[Key][]float64) {
	all := map[Key]Record{}
	for _, rec := range r.Records {
		if rec.Values[valTPS] > 0 {
			all[rec.Key] = rec
		}
	}
	of = map[Key][]float64{}
	for _, rec := range r.Records {
		before := rec.Key
		before.Case = plain(rec.Case)
		base, found := all[before]
		if before.Case == "" || rec.Values[valTPS] == 0 || !found {
			continue
		}
		k := rec.Key.cell()
		if of[k] == nil {
			order = append(order, k)
		}
		of[k] = append(of[k], f(rec, base))
	}
	return order, of
}

// costTable is what each case costs against the block before it of the case that plain says; "": it is compared with
// none.
func (r *Results) costTable(kind, against string, plain func(string) string) report.Table {
	t := report.Table{Caption: "TPS lost against " + against + ", in percent, with the 95 % interval",
		Columns: []report.Column{{Title: "system"}, {Title: kind}, {Title: "threads", Number: true},
			{Title: "blocks", Number: true}, {Title: "lost", Number: true}, {Title: "verdict"}}}
	order, lost := r.blocks(plain,
		func(rec, base Record) float64 { return 100 * (1 - rec.Values[valTPS]/base.Values[valTPS]) })
	for _, k := range order {
		mean, half := meanWithin(lost[k])
		verdict := "resolved"
		if math.Abs(mean) < half || len(lost[k]) < 2 {
			verdict = "not resolved"
		}
		t.Rows = append(t.Rows, []report.Cell{{Text: shortName(k.System)}, {Text: k.Case}, {Text: strconv.Itoa(k.Threads)},
			{Text: strconv.Itoa(len(lost[k]))}, {Text: fmt.Sprintf("%.1f ± %.1f", mean, half)}, {Text: verdict}})
	}
	return t
}

var scalingSuite = Suite{
	Name: "scaling", Title: "Three to nine nodes",
	About: "oltp_write_only with more nodes. All share one machine: without CPU budgets each replica that applies takes its share from the leader; with a logger it does not.",
	Defaults: func(quick bool) Settings {
		s := oltpDefaults(quick)
		s.Threads, s.Cases, s.CPUs, s.AllVariants = []int{1, 64}, []string{"3", "5", "7", "9"}, 0, false
		s.Systems = []string{"semisync", "mgr-eventual", "mgr-after", "trireme", "trireme-loggers"}
		if quick {
			s.Cases, s.Systems = []string{"3", "9"}, []string{"semisync", "mgr-after", "trireme", "trireme-loggers"}
		}
		return s
	},
	Check: func(s Settings) error {
		for _, c := range s.Cases {
			if n, err := strconv.Atoi(c); err != nil || n < 2 || n > 9 {
				return fmt.Errorf("case %q: a number of nodes, 2 to 9", c)
			}
		}
		return nil
	},
	Plan: oltpPlan(func(g *Group, nodes string) (err error) {
		g.Shape.Nodes, err = strconv.Atoi(nodes)
		return err
	}),
	Blocks: func(r *Results) []report.Block {
		all := best(r.summaries(), valSustained)
		return []report.Block{pivot(all, valTPS, "TPS"), pivot(all, valSustained, "Sustained TPS"),
			pivot(all, valCPULeader, "CPU of the leader's host per transaction, relative")}
	},
}

var cpuSuite = Suite{
	Name: "cpu", Title: "What a transaction costs",
	About: "CPU, bytes written to disk and bytes sent, per transaction, until everything is applied. Without CPU budgets, on hosts of their own.",
	Defaults: func(quick bool) Settings {
		s := oltpDefaults(quick)
		s.Threads, s.CPUs = []int{1, 16, 64}, 0
		if quick {
			s.Threads, s.Systems = []int{1, 64}, []string{"standalone", "semisync", "mgr-after", "trireme"}
		}
		return s
	},
	Plan: oltpPlan(nil), Compare: throughputCompare,
	Blocks: func(r *Results) []report.Block {
		all := best(r.summaries(), valSustained)
		return []report.Block{
			relative(all, valCPUAll, "CPU of all hosts per transaction: Trireme's divided by others'"),
			relative(all, valSustained, "Sustained TPS: Trireme's divided by others'"),
			relative(all, valShare, "Sustained TPS times the client's CPU per transaction, which cancels the drift of the machine: Trireme's divided by others'"),
			spreads(all, valSustained, valShare, valCPUAll),
			lines(all, "Each system", []string{valTPS, valSustained, valP95, valCPULeader, valCPUAll, valCPUAllUS, valClientUS,
				valNetworkUS, valWritten, valSent, valDaemonRSS, valDaemonRSS2}),
			r.hostTable(all),
		}
	},
}

// hostTable is what each process used, of the first round.
func (r *Results) hostTable(of []summary) report.Table {
	t := report.Table{Caption: "By host and process, first round; CPU in µs per transaction",
		Columns: []report.Column{{Title: "threads", Number: true}, {Title: "system"}, {Title: "variant"}, {Title: "host"},
			{Title: "mysqld", Number: true}, {Title: "daemon", Number: true}, {Title: "others", Number: true},
			{Title: "daemon's context switches", Number: true}, {Title: "bytes written", Number: true},
			{Title: "by the daemon", Number: true}, {Title: "bytes sent", Number: true}}}
	for _, s := range of {
		for _, rec := range r.first(s) {
			for _, h := range rec.Hosts {
				name := h.Name
				if h.Leader {
					name += " (leader)"
				}
				switches := report.Cell{Text: "–", Mark: report.Absent}
				if h.DaemonSwitches > 0 {
					switches = report.Cell{Text: fmt.Sprintf("%.1f", h.DaemonSwitches)}
				}
				t.Rows = append(t.Rows, []report.Cell{{Text: strconv.Itoa(s.Threads)}, {Text: shortName(s.System)},
					{Text: s.Variant}, {Text: name}, {Text: fmt.Sprintf("%.0f", h.MySQLus)}, {Text: fmt.Sprintf("%.0f", h.Daemonus)},
					{Text: fmt.Sprintf("%.0f", h.Extraus)}, switches, {Text: fmt.Sprintf("%.0f", h.WrittenBytes)},
					{Text: fmt.Sprintf("%.0f", h.DaemonWritten)}, {Text: fmt.Sprintf("%.0f", h.SentBytes)}})
			}
		}
	}
	return t
}
