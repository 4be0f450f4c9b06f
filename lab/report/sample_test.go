package report

import (
	"flag"
	"fmt"
	"math"
	"os"
	"strings"
	"testing"
)

var pageFile = flag.String("page", "", "write the sample document's HTML to this file, to be looked at")

// sample is a document of about the size and shape of a benchmark's. Its figures are made up by formulas.
func sample() Document {
	topologies := []string{"One site, 0.1 ms", "One city, 1 ms", "10 ms", "Two regions, 1 / 30 ms",
		"Three cities, 5 / 30 ms"}
	workloads := []string{"oltp_read_only", "oltp_read_write", "oltp_write_only"}
	d := Document{
		Title: "Trireme and its rivals",
		Blocks: []Block{
			Text("Every system was started fresh on this machine with the same data and the same durability, in turn (A B C A B C), so that drift hits all alike. Figures are **medians of 3 rounds**; how to repeat them: `trireme-lab bench run topologies`."),
			List{
				"**Sustained TPS** is committed transactions / (run time + time until every live replica has applied them).",
				"**CPU** is of server and daemon per transaction, divided by the load generator's own, which cancels the machine's drift.",
			},
			Facts{Rows: [][2]string{{"Machine", "2 CPUs (AMD EPYC 7B13), 7,936 MiB memory"}, {"Kernel", "Linux 6.1.0"},
				{"MySQL", "9.7.0"}, {"Load generator", "sysbench 1.0.20"}, {"Load average before", "0.12"}, {"Rounds", "3"}}},
		},
	}
	all := Section{ID: "topologies", Title: "Topologies"}
	for i, topology := range topologies {
		s := Section{ID: fmt.Sprintf("topology-%d", i+1), Title: topology}
		for k, w := range workloads {
			s.Blocks = append(s.Blocks, sampleThreads(w, i, k))
		}
		s.Blocks = append(s.Blocks, sampleTable(i))
		all.Sections = append(all.Sections, s)
	}
	d.Sections = []Section{sampleSlower(), all, sampleFailover(), sampleSettings()}
	return d
}

var sampleSystems = []string{"Trireme", "Trireme, 2 voters + logger", "standalone", "asynchronous", "semi-sync",
	"MGR EVENTUAL", "MGR AFTER", "MGR multi-primary"}

func sampleTPS(system, topology, workload, threads int) float64 {
	wait := []float64{0.2, 1.1, 10, 2, 6}[topology] * []float64{1.1, 1.2, 0, 0, 1, 1.6, 3.1, 1.8}[system]
	if workload == 0 {
		wait = 0
	}
	perThread := 1000 / (2.2 + 0.15*float64(system) + wait)
	ceiling := []float64{900, 1100, 2300}[workload] / (1 + 0.09*float64(system))
	n := float64(threads)
	return perThread * n / (1 + perThread*n/ceiling)
}

func sampleThreads(title string, topology, workload int) Chart {
	c := Chart{Title: title, X: "threads", Y: "sustained TPS", LogX: true}
	for k, name := range sampleSystems {
		s := Series{Name: name, Ours: k < 2}
		for _, threads := range []int{1, 4, 16, 64, 256} {
			v := sampleTPS(k, topology, workload, threads)
			s.Points = append(s.Points, Point{X: float64(threads), Y: v, Low: v * 0.95, High: v * 1.04})
		}
		c.Series = append(c.Series, s)
	}
	return c
}

func sampleTable(topology int) Table {
	t := Table{Caption: "oltp_write_only: TPS and latency", Columns: []Column{{Title: "Threads", Number: true},
		{Title: "System"}, {Title: "Variant"}}}
	for _, title := range []string{"TPS", "Sustained TPS", "Average ms", "p95 ms", "p99 ms", "Lag at end",
		"CPU leader host", "CPU all hosts", "vs MGR AFTER"} {
		t.Columns = append(t.Columns, Column{Title: title, Number: true})
	}
	for _, threads := range []int{1, 16, 256} {
		for k, name := range sampleSystems {
			v := sampleTPS(k, topology, 2, threads)
			row := []Cell{{Text: fmt.Sprint(threads)}, {Text: name},
				{Text: []string{"direct", "workers=64, flow control off"}[min(1, k/5)]}}
			if k == 7 && topology == 3 {
				row = append(row, Cell{Text: "not run: no package for this release", Mark: Absent})
				for len(row) < len(t.Columns) {
					row = append(row, Cell{Text: "–"})
				}
				t.Rows = append(t.Rows, row)
				continue
			}
			row = append(row, Cell{Text: number(math.Round(v * 1.05)), Note: "rounds: 812, 825, 840"},
				Cell{Text: number(math.Round(v)), Mark: map[int]Mark{0: Best, 5: Wide}[k]})
			for n := range 6 {
				row = append(row, Cell{Text: fmt.Sprintf("%.2f", float64(threads)/v*float64(300*(n+1)))})
			}
			ratio := v/sampleTPS(6, topology, 2, threads) - 1
			last := Cell{Text: fmt.Sprintf("%+.0f %%", ratio*100), Mark: Better}
			if ratio < 0.1 {
				last.Mark = Worse
			}
			if k == 6 {
				last = Cell{Text: "0 %"}
			}
			t.Rows = append(t.Rows, append(row, last))
		}
	}
	return t
}

func sampleSlower() Section {
	return Section{ID: "slower", Title: "Where Trireme is slower, and why", Blocks: []Block{
		Text("Losing cells come first. One row per cell in which a rival's median is higher; the difference is taken from the same rounds."),
		Table{Columns: []Column{{Title: "Cell"}, {Title: "Rival"}, {Title: "TPS", Number: true},
			{Title: "Rival's TPS", Number: true}, {Title: "Difference", Number: true}, {Title: "Why"}}, Rows: [][]Cell{
			{{Text: "One site, oltp_write_only, 256 threads"}, {Text: "asynchronous"}, {Text: "1,940"}, {Text: "2,011"},
				{Text: "−4 %", Mark: Worse}, {Text: "promises nothing: it waits for no replica"}},
			{{Text: "Three cities, oltp_write_only, 1 thread"}, {Text: "standalone"}, {Text: "118"}, {Text: "424"},
				{Text: "−72 %", Mark: Worse}, {Text: "a commit waits for 5 ms of round trip"}},
		}},
	}}
}

func sampleFailover() Section {
	line := Chart{Title: "TPS through the faults, 64 clients of the router", X: "seconds", Y: "TPS", Events: []Event{
		{10, "SIGKILL the leader's mysqld"}, {14, "new leader writes"}, {31, "ex-leader healthy"}, {60, "partition of n1"},
		{62.4, "new leader writes"}, {80, "healed"}, {108, "switchover asked"}, {108.4, "done"}, {117, "end of the load"}}}
	for k, name := range []string{"MGR AFTER", "semi-sync with a failover manager of its own", "Trireme"} {
		s := Series{Name: name, Ours: k == 2}
		for t := range 121 {
			v := 800 + 250*float64(k) + 60*math.Sin(float64(t*(k+3)))
			if down := []int{23, 9, 1}[k]; t > 10 && t <= 10+down || t > 60 && t <= 60+down {
				v = 0
			}
			if k == 1 && t > 90 && t < 100 {
				v = math.NaN()
			}
			s.Points = append(s.Points, Point{X: float64(t), Y: v})
		}
		line.Series = append(line.Series, s)
	}
	return Section{ID: "failover", Title: "Failover", Blocks: []Block{Text("One time line through all faults."), line}}
}

func sampleSettings() Section {
	s := Section{ID: "settings", Title: "Every setting",
		Blocks: []Block{Text("All servers were started alike; these are the differences.")}}
	for _, name := range []string{"Every server", "Trireme", "MGR AFTER"} {
		f := Facts{Title: name}
		for i := range 30 {
			f.Rows = append(f.Rows, [2]string{fmt.Sprintf("replication_optimize_for_static_plugin_config_%d", i),
				[]string{"ON", "67108864", "/var/lib/mysql/#innodb_redo", "READ-COMMITTED"}[i%4]})
		}
		s.Blocks = append(s.Blocks, f)
	}
	return s
}

func TestSample(t *testing.T) {
	var page, again strings.Builder
	if err := sample().HTML(&page); err != nil {
		t.Fatal(err)
	}
	if err := sample().HTML(&again); err != nil || again.String() != page.String() {
		t.Error("the same document gives two pages", err)
	}
	if *pageFile != "" {
		if err := os.WriteFile(*pageFile, []byte(page.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}
