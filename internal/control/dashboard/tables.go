package dashboard

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"unicode"

	"trireme/internal/api"
)

// Rows of tables.
const (
	shownStatements = 40
	shownSessions   = 30
	shownFiles      = 20
	shownEvents     = 200
)

// The tables of a period, below its charts.

func (p *period) commits() grid {
	g := grid{ID: "commit-stages", Title: "What a commit waits for", Words: 1,
		Head: []string{"Stage", "Mean, ms", "Share, %", "p50", "p95", "p99"}}
	p.columns(&g, "Mean earlier, ms", "p99 earlier")
	sum := p.all
	for _, stage := range append(slices.Clone(api.Stages), api.StageTotal) {
		if h := sum.Commits[stage]; h.Count > 0 {
			name := "all stages"
			if texts := stageTexts[stage]; texts[0] != "" {
				name = texts[0] + ": " + texts[1]
			}
			share := plain(100 * ratio(h.SumS, sum.Commits[api.StageTotal].SumS))
			row := []string{name, millis(h.Mean()), share,
				millis(h.Quantile(0.5)), millis(h.Quantile(0.95)), millis(h.Quantile(0.99))}
			g.Rows = append(g.Rows, p.cells(row, func(q *period) []string {
				h := q.all.Commits[stage]
				if h.Count == 0 {
					return []string{"", ""}
				}
				return []string{millis(h.Mean()), millis(h.Quantile(0.99))}
			}))
		}
	}
	return g
}

// rowsOf all nodes, the largest first.
func rowsOf[T any](p *period, most int, list func(api.PeriodView) []T, size func(T) float64,
	row func(node string, t T) []string) (rows [][]string) {
	type at struct {
		node string
		t    T
	}
	var all []at
	for _, n := range p.Nodes {
		for _, t := range list(n) {
			all = append(all, at{n.Node, t})
		}
	}
	slices.SortStableFunc(all, func(a, b at) int { return cmp.Compare(size(b.t), size(a.t)) })
	for _, a := range all[:min(len(all), most)] {
		rows = append(rows, row(a.node, a.t))
	}
	return rows
}

func (p *period) sessions() grid {
	all := float64(seen(p.all))
	g := grid{ID: "sessions", Title: "What active sessions waited for", Words: 5,
		Head: []string{"Statement", "Node", "Wait", "State in mysqld", "User", "Seen", "Share, %"}}
	p.columns(&g, "Seen earlier")
	g.Rows = rowsOf(p, shownSessions, func(n api.PeriodView) []api.SessionLoad { return n.Sessions },
		func(s api.SessionLoad) float64 { return float64(s.Seen) },
		func(node string, s api.SessionLoad) []string {
			row := []string{cmp.Or(s.Text, s.Digest, "not known"), node, s.Wait, s.State, s.User,
				grouped(uint64(s.Seen)), plain(100 * ratio(float64(s.Seen), all))}
			return p.cells(row, func(q *period) []string {
				before := 0
				for _, o := range q.of(node).Sessions {
					if o.Wait == s.Wait && o.State == s.State && o.User == s.User && o.Digest == s.Digest &&
						(s.Digest != "" || o.Text == s.Text) {
						before += o.Seen
					}
				}
				return []string{grouped(uint64(before))}
			})
		})
	return g
}

func (p *period) fileWaits() grid {
	g := grid{ID: "files", Title: "Time that threads of mysqld spent in files", Words: 2,
		Head: []string{"File, operation", "Node", "Time", "Calls", "Mean, ms"}}
	p.columns(&g, "Time earlier", "Mean earlier, ms")
	g.Rows = rowsOf(p, shownFiles, func(n api.PeriodView) []api.FileWait { return n.FileWaits },
		func(f api.FileWait) float64 { return f.TimeS },
		func(node string, f api.FileWait) []string {
			row := []string{f.Event, node, seconds(f.TimeS), grouped(f.Count),
				plain(1000 * ratio(f.TimeS, float64(f.Count)))}
			return p.cells(row, func(q *period) []string {
				for _, o := range q.of(node).FileWaits {
					if o.Event == f.Event {
						return []string{seconds(o.TimeS), plain(1000 * ratio(o.TimeS, float64(o.Count)))}
					}
				}
				return []string{"", ""}
			})
		})
	return g
}

// statementLoad is one kind of statement on all nodes together.
type statementLoad struct {
	api.StatementLoad
	nodes []string
}

// statementLoads are those that were told apart, by schema and digest; others are all the others; allS is the time of
// both.
func (p *period) statementLoads() (loads map[[2]string]*statementLoad, others api.StatementLoad, allS float64) {
	loads = map[[2]string]*statementLoad{}
	for _, n := range p.Nodes {
		for _, s := range n.Statements {
			key := [2]string{s.Schema, s.Digest}
			if loads[key] == nil {
				loads[key] = &statementLoad{StatementLoad: api.StatementLoad{Schema: s.Schema, Digest: s.Digest}}
			}
			loads[key].Add(s)
			loads[key].nodes = append(loads[key].nodes, n.Node)
			allS += s.TimeS
		}
		others.Add(n.Others)
	}
	return loads, others, allS + others.TimeS
}

func (p *period) statements() grid {
	loads, others, allS := p.statementLoads()
	list := slices.SortedFunc(maps.Values(loads), func(a, b *statementLoad) int {
		return cmp.Or(cmp.Compare(b.TimeS, a.TimeS), cmp.Compare(a.Schema, b.Schema), cmp.Compare(a.Digest, b.Digest))
	})
	g := grid{ID: "statements", Title: "Statements, by the time that they took", Words: 3,
		Note: "Without their values. A statement counts when it has ended. Rows are those of a call.",
		Head: []string{"Statement", "Schema", "Nodes", "Time", "Share, %", "Calls", "Mean, ms",
			"Rows examined", "Rows sent", "Rows changed", "Errors", "Without index"}}
	p.columns(&g, "Time earlier", "Calls earlier", "Mean earlier, ms")
	before := map[[2]string]*statementLoad{}
	if p.earlier != nil {
		before, _, _ = p.earlier.statementLoads()
	}
	add := func(text string, nodes []string, s api.StatementLoad) {
		calls := float64(s.Count)
		row := []string{text, s.Schema, strings.Join(nodes, ", "), seconds(s.TimeS), plain(100 * ratio(s.TimeS, allS)),
			grouped(s.Count), plain(1000 * ratio(s.TimeS, calls)), plain(ratio(float64(s.Examined), calls)),
			plain(ratio(float64(s.Sent), calls)), plain(ratio(float64(s.Affected), calls)),
			grouped(s.Errors), grouped(s.NoIndex)}
		g.Rows = append(g.Rows, p.cells(row, func(*period) []string {
			o := before[[2]string{s.Schema, s.Digest}]
			if o == nil || nodes == nil {
				return []string{"", "", ""}
			}
			return []string{seconds(o.TimeS), grouped(o.Count), plain(1000 * ratio(o.TimeS, float64(o.Count)))}
		}))
	}
	for i, s := range list {
		if i < shownStatements {
			add(cmp.Or(s.Text, s.Digest, "all for which performance_schema had no room"), s.nodes, s.StatementLoad)
		} else {
			s.Text = ""
			others.Add(s.StatementLoad)
		}
	}
	if others.Count > 0 {
		others.Text = ""
		add("all the others", nil, others)
	}
	return g
}

func (p *period) counters() grid {
	g := grid{ID: "counters", Title: "Counters of mysqld, per second", Words: 1, Head: []string{"Status variable"}}
	for _, n := range p.Nodes {
		g.Head = append(g.Head, n.Node)
		p.columns(&g, n.Node+", earlier")
	}
	for _, name := range slices.Sorted(maps.Keys(p.all.MySQL)) {
		if !unicode.IsUpper(rune(name[0])) { // of a process: it has charts of its own
			continue
		}
		rate := func(t api.Interval) string { return plain(ratio(float64(t.MySQL[name]), t.MySQLSeconds)) }
		row := []string{name}
		for i, t := range p.nodes {
			row = p.cells(append(row, rate(t)), func(q *period) []string { return []string{rate(q.nodes[i])} })
		}
		g.Rows = append(g.Rows, row)
	}
	return g
}

func (p *period) coverage() grid {
	g := grid{ID: "coverage", Title: "What was recorded", Words: 2,
		Head: []string{"Node", "Oldest sample", "Recorded, %", "With mysqld", "Took writes", "Transactions seen", "Log seen",
			"Statements"},
		Note: "Sessions are looked at once a second, counters are read every 10 s, statements and files once a minute. " +
			"What a node did between its last sample and its end is missing. " +
			"Of CPU and memory only those of mysqld and the daemon are recorded. " +
			"Sessions and statements of Trireme itself are left out, those of its routers are not."}
	p.columns(&g, "Recorded earlier, %")
	for i, n := range p.Nodes {
		t, oldest := p.nodes[i], "none"
		if n.Oldest != nil {
			oldest = clock(*n.Oldest)
		}
		share := func(q *period) string { return plain(100 * ratio(q.nodes[i].Seconds, q.To.Sub(q.From).Seconds())) }
		row := []string{n.Node, oldest, share(p), seconds(t.MySQLSeconds),
			seconds(t.LeaderS), grouped(t.Transactions), bytesText(t.Bytes), grouped(t.MySQL["Queries"])}
		g.Rows = append(g.Rows, p.cells(row, func(q *period) []string { return []string{share(q)} }))
	}
	return g
}
