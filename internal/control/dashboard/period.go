package dashboard

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"html/template"
	"io"
	"maps"
	"math"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"trireme/internal/api"
)

// offers are the periods up to now that the page offers, and what it calls them.
var offers = [][2]string{{"15m", "15 minutes"}, {"1h", "1 hour"}, {"6h", "6 hours"}, {"24h", "1 day"},
	{"168h", "7 days"}}

// asset joins embedded files, in which the licence of uPlot stands before it.
func asset(names ...string) (text string) {
	for _, name := range names {
		b, err := files.ReadFile("static/" + name)
		if err != nil {
			panic(err) // it is embedded
		}
		if text += string(b) + "\n"; name == "uplot/LICENSE" {
			text = "/* uPlot\n\n" + text + "*/\n"
		}
	}
	return text
}

var (
	periodScript = asset("uplot/LICENSE", "uplot/uplot.js", "period.js")
	periodStyle  = asset("uplot/LICENSE", "uplot/uplot.css", "period.css")
)

// periodPage is a period as the page shows it.
type periodPage struct {
	Cluster, From, To string
	Charts            []figure // none: nothing was recorded
	Led, Events       grid
	Tables            []grid
	Missing           []fact
	Earlier           *earlierPage // nil: nothing is compared

	// On the dashboard:
	Live        bool
	Last        string // how long, as in an offer; empty: from and to were given
	Offers      [][2]string
	Compare     string // as asked for
	Comparisons [][2]string

	// In a file of its own:
	Script       template.JS
	Style        template.CSS
	ScriptSHA256 string
	StyleSHA256  string
}

// grid is a table. Its first Words columns are words, the others numbers.
type grid struct {
	ID, Title, Note string
	Words           int
	Head            []string
	Rows            [][]string
}

// figure is a chart. It draws the table below it, which period.js reads: a line for each column, a gap where a cell is
// empty.
type figure struct {
	ID, Title, Unit, Note string
	Lines                 []line
	Rows                  []figureRow
}

type figureRow struct {
	At    time.Time
	Cells []string
}

// line is one of a figure. Key is its colour and its dashes: those of a node are the same in all figures.
type line struct {
	Name    string
	Key     int
	Earlier bool                               // it is of the period that this one is compared with
	of      func(slot []*api.Interval) float64 // NaN: nothing was recorded
}

// period is a report by time: slots in order, each with what each node recorded in it, nil if nothing.
type period struct {
	api.Report
	start time.Time
	step  time.Duration
	slots [][]*api.Interval
	nodes []api.Interval // totals, of each node
	all   api.Interval   // and of all of them

	earlier *period // of the same length and with the same nodes; nil: nothing is compared
}

func newPeriod(r api.Report) *period {
	p := &period{Report: r, nodes: make([]api.Interval, len(r.Nodes))}
	for i, n := range r.Nodes {
		for _, b := range n.Buckets {
			p.nodes[i].Add(b)
		}
		p.all.Add(p.nodes[i])
		p.step = max(p.step, time.Duration(n.StepS*float64(time.Second)))
	}
	if p.step <= 0 {
		return p
	}
	p.start = time.Unix(0, r.From.UnixNano()/int64(p.step)*int64(p.step)).UTC()
	p.slots = make([][]*api.Interval, min(api.MaxBuckets+1, int((r.To.Sub(p.start)+p.step-1)/p.step)))
	for i := range p.slots {
		p.slots[i] = make([]*api.Interval, len(r.Nodes))
	}
	for n, v := range r.Nodes {
		for i := range v.Buckets {
			if at := v.Buckets[i].At.Sub(p.start) / p.step; at >= 0 && int(at) < len(p.slots) {
				p.slots[at][n] = &v.Buckets[i]
			}
		}
	}
	return p
}

// figure draws lines; those of which nothing is known are left out.
func (p *period) figure(id, title, unit, note string, lines []line) figure {
	f := figure{ID: id, Title: title, Unit: unit, Note: note}
	for i := range p.slots {
		f.Rows = append(f.Rows, figureRow{At: p.start.Add(time.Duration(i) * p.step)})
	}
	for _, l := range lines {
		f.add(l, p.slots)
		if p.earlier != nil {
			l.Name, l.Earlier = l.Name+", earlier", true
			f.add(l, p.earlier.slots)
		}
	}
	return f
}

// byNode has a line for each node.
func (p *period) byNode(of func(b *api.Interval) float64) (lines []line) {
	for n, v := range p.Nodes {
		lines = append(lines, line{Name: v.Node, Key: n, of: func(slot []*api.Interval) float64 {
			if slot[n] == nil {
				return math.NaN()
			}
			return of(slot[n])
		}})
	}
	return lines
}

// perSecond is the rate of some of mysqld's counters, divided by unit.
func (p *period) perSecond(unit float64, names ...string) []line {
	return p.byNode(func(b *api.Interval) float64 {
		sum := uint64(0)
		for _, name := range names {
			sum += b.MySQL[name]
		}
		return ratio(float64(sum)/unit, b.MySQLSeconds)
	})
}

// inMySQL is a value that only a mysqld that answers has.
func inMySQL(of func(b *api.Interval) float64) func(b *api.Interval) float64 {
	return func(b *api.Interval) float64 {
		if b.MySQLSeconds == 0 {
			return math.NaN()
		}
		return of(b)
	}
}

const mib = 1 << 20

func (p *period) charts() []figure {
	stage := func(name string, of func(h api.Histogram) float64) func([]*api.Interval) float64 {
		return func(slot []*api.Interval) float64 {
			var h api.Histogram
			for _, b := range slot {
				if b != nil {
					h = h.Plus(b.Commits[name])
				}
			}
			if h.Count == 0 {
				return math.NaN()
			}
			return of(h) * 1000
		}
	}
	var stages []line
	for i, s := range api.Stages {
		stages = append(stages, line{Name: stageTexts[s][0], Key: i, of: stage(s, api.Histogram.Mean)})
	}
	most := func(h api.Histogram) float64 { return h.Quantile(0.99) }
	stages = append(stages, line{Name: "all stages", Key: 4, of: stage(api.StageTotal, api.Histogram.Mean)},
		line{Name: "all stages, p99", Key: 5, of: stage(api.StageTotal, most)})
	return []figure{
		p.figure("commits", "Commits", "per second", "As each node saw them committed.",
			p.byNode(func(b *api.Interval) float64 { return ratio(float64(b.Transactions), b.Seconds) })),
		p.figure("stages", "Time of a commit", "ms", "Means of a sample of the commits, on the leader, by stage.", stages),
		p.figure("lag", "Lag", "s, highest", "Committed and not yet applied.",
			p.byNode(inMySQL(func(b *api.Interval) float64 { return b.LagS }))),
		p.figure("lag-bytes", "Lag", "MiB, highest", "",
			p.byNode(inMySQL(func(b *api.Interval) float64 { return float64(b.LagBytes) / mib }))),
		p.figure("rows", "Rows changed", "per second",
			"In InnoDB. On the leader clients change them; on the others it is what they apply.",
			p.perSecond(1, "Innodb_rows_inserted", "Innodb_rows_updated", "Innodb_rows_deleted")),
		p.figure("active", "Active sessions, by what they wait for", "average number",
			"Of all nodes together, one look a second.", p.waits()),
		p.figure("connections", "Connections to mysqld", "highest number", "",
			p.byNode(inMySQL(func(b *api.Interval) float64 { return float64(b.Connections) }))),
		p.figure("queries", "Statements", "per second", "", p.perSecond(1, "Queries")),
		p.figure("log", "Log written", "MiB per second", "",
			p.byNode(func(b *api.Interval) float64 { return ratio(float64(b.Bytes)/mib, b.Seconds) })),
		p.figure("fsync", "Writes to the log, each with its fsync", "ms, p99", "", p.byNode(func(b *api.Interval) float64 {
			if b.LogWrites.Count == 0 {
				return math.NaN()
			}
			return b.LogWrites.Quantile(0.99) * 1000
		})),
		p.figure("innodb", "Written by InnoDB", "MiB per second", "", p.perSecond(mib, "Innodb_data_written")),
		p.figure("disk", "Disk used", "%", "The fullest one that the node writes to.",
			p.byNode(func(b *api.Interval) float64 {
				if b.DiskUsed == 0 { // recorded by a daemon that did not look
					return math.NaN()
				}
				return 100 * b.DiskUsed
			})),
		p.figure("mysqld-cpu", "CPU of mysqld", "cores", "", p.cores("mysqld_cpu_ms")),
		p.figure("daemon-cpu", "CPU of the daemon", "cores", "With the router in it.", p.cores("daemon_cpu_ms")),
		p.figure("mysqld-memory", "Memory of mysqld", "MiB, highest", "Resident.", p.memory("mysqld_memory_bytes")),
		p.figure("daemon-memory", "Memory of the daemon", "MiB, highest", "Resident.", p.memory("daemon_memory_bytes")),
		p.figure("links", "Way to another node and back", "ms, p99", "", p.ways()),
	}
}

// cores is how many CPUs a process of each node kept busy.
func (p *period) cores(name string) []line {
	return p.took(name, func(ms float64, b *api.Interval) float64 { return ratio(ms/1000, b.Seconds) })
}

// memory of a process of each node.
func (p *period) memory(name string) []line {
	return p.took(name, func(n float64, _ *api.Interval) float64 { return n / mib })
}

// took is of what a process of each node took; nothing where it was not recorded.
func (p *period) took(name string, of func(n float64, b *api.Interval) float64) []line {
	return p.byNode(func(b *api.Interval) float64 {
		n, known := b.MySQL[name]
		if !known {
			return math.NaN()
		}
		return of(float64(n), b)
	})
}

// waits has a line for each kind of wait.
func (p *period) waits() (lines []line) {
	kinds := p.inBoth(func(q *period) []string { return slices.Collect(maps.Keys(q.all.Active)) })
	for i, wait := range kinds {
		lines = append(lines, line{Name: wait, Key: i, of: func(slot []*api.Interval) float64 {
			sum, known := 0.0, false
			for _, b := range slot {
				if b != nil && b.Looks > 0 {
					sum, known = sum+float64(b.Active[wait])/float64(b.Looks), true
				}
			}
			if !known {
				return math.NaN()
			}
			return sum
		}})
	}
	return lines
}

// ways has a line for each way from a node to another one.
func (p *period) ways() (lines []line) {
	for n, v := range p.Nodes {
		others := p.inBoth(func(q *period) (names []string) {
			for _, l := range q.nodes[n].Links {
				names = append(names, l.To)
			}
			return names
		})
		for _, other := range others {
			p99 := func(slot []*api.Interval) float64 {
				if slot[n] != nil {
					for _, l := range slot[n].Links {
						if l.To == other {
							return l.P99MS
						}
					}
				}
				return math.NaN()
			}
			lines = append(lines, line{Name: v.Node + " to " + other, Key: len(lines), of: p99})
		}
	}
	return lines
}

// led are the stretches in which a node took writes.
func (p *period) led() grid {
	g := grid{ID: "led", Title: "Who led", Words: 3, Head: []string{"From", "To", "Node"}}
	last := -1
	for i, slot := range p.slots {
		leader, most := -1, 0.0
		for n, b := range slot {
			if b != nil && b.LeaderS > most {
				leader, most = n, b.LeaderS
			}
		}
		if leader >= 0 && leader != last {
			g.Rows = append(g.Rows, []string{clock(p.start.Add(time.Duration(i) * p.step)), "", p.Nodes[leader].Node})
		}
		if leader >= 0 {
			g.Rows[len(g.Rows)-1][1] = clock(p.start.Add(time.Duration(i+1) * p.step))
		}
		last = leader
	}
	return g
}

func (p *period) events() grid {
	g := grid{ID: "events", Title: "Elections and other events", Words: 4,
		Head: []string{"Time", "Kind", "Node", "What", "Term", "Without writes, ms"}}
	if more := len(p.Events) - shownEvents; more > 0 {
		g.Note = fmt.Sprintf("%d older ones are left out.", more)
	}
	for _, e := range p.Events[max(0, len(p.Events)-shownEvents):] {
		gap := ""
		if e.GapMS > 0 {
			gap = plain(e.GapMS)
		}
		g.Rows = append(g.Rows, []string{clock(e.Time), e.Kind, e.Node, e.Message, fmt.Sprint(e.Term), gap})
	}
	return g
}

func (p *period) page() periodPage {
	page := periodPage{Cluster: p.Cluster, From: clock(p.From), To: clock(p.To), Led: p.led(), Events: p.events(),
		Tables: []grid{p.coverage()}, Missing: p.missing(), Earlier: p.earlierPage()}
	if p.all.Seconds > 0 {
		page.Charts = p.charts()
		page.Tables = []grid{p.commits(), p.sessions(), p.statements(), p.fileWaits(), p.counters(), p.coverage()}
	}
	return page
}

// WriteReport writes the page of a report as one file that needs nothing else. Its policy lets nothing run but its own
// script. earlier, unless it is nil, is a report of the same length that the page compares with.
func WriteReport(w io.Writer, r api.Report, earlier *api.Report) error {
	p := newPeriod(r)
	if earlier != nil {
		p.compareWith(*earlier)
	}
	page := p.page()
	style := asset("style.css") + periodStyle
	page.Script, page.ScriptSHA256 = template.JS(periodScript), sha256Of(periodScript)
	page.Style, page.StyleSHA256 = template.CSS(style), sha256Of(style)
	return pages.ExecuteTemplate(w, "period.html", page)
}

func sha256Of(text string) string {
	h := sha256.Sum256([]byte(text))
	return base64.StdEncoding.EncodeToString(h[:])
}

// period shows what was recorded: GET /ui/period?last=1h, or ?from=2026-11-23T02:00&to=2026-11-23T03:00, in UTC; with
// compare=previous, or compare=24h, an earlier period of the same length as well.
func (p *Pages) period(w http.ResponseWriter, r *http.Request) {
	if p.session(r) == nil {
		p.showLogin(w, http.StatusOK, "")
		return
	}
	q, to := r.URL.Query(), p.opts.Now()
	last := cmp.Or(q.Get("last"), "1h")
	long, err := time.ParseDuration(last)
	from := to.Add(-long)
	if q.Has("from") {
		last = ""
		var err2 error
		from, err = utc(q.Get("from"))
		to, err2 = utc(q.Get("to"))
		err = cmp.Or(err, err2)
	}
	if err != nil || !to.After(from) {
		p.fail(w, http.StatusBadRequest, "This is no period.",
			"Give two moments such as 2026-11-23 02:40, in UTC, the earlier one first.")
		return
	}
	compare := q.Get("compare")
	by, err := earlierBy(compare, to.Sub(from))
	if err != nil {
		p.fail(w, http.StatusBadRequest, "Nothing can be compared with that.",
			"compare is \"previous\", or how much earlier the other period lies, such as 24h.")
		return
	}
	shown, err := p.recorded(r.Context(), from, to, by)
	if err != nil {
		p.fail(w, http.StatusBadGateway, "What was recorded cannot be read: "+err.Error(), "Try again, or on another node.")
		return
	}
	page := shown.page()
	page.Live, page.Last, page.Offers = true, last, offers
	page.Compare, page.Comparisons = compare, comparisonsWith(compare)
	p.render(w, http.StatusOK, "period.html", page)
}

// recorded asks all nodes for a period, and for the one that lies earlier by some time; 0: for none.
func (p *Pages) recorded(ctx context.Context, from, to time.Time, by time.Duration) (*period, error) {
	report, err := p.opts.Source.Report(ctx, from, to)
	if err != nil {
		return nil, err
	}
	shown := newPeriod(report)
	if by > 0 {
		report, err := p.opts.Source.Report(ctx, from.Add(-by), to.Add(-by))
		if err != nil {
			return nil, err
		}
		shown.compareWith(report)
	}
	return shown, nil
}

// utc reads what a field of a form, or a clock of this page, writes.
func utc(text string) (t time.Time, err error) {
	text = strings.TrimSuffix(strings.Replace(strings.TrimSpace(text), " ", "T", 1), "Z")
	if t, err = time.Parse("2006-01-02T15:04:05", text); err != nil {
		t, err = time.Parse("2006-01-02T15:04", text)
	}
	return t, err
}

// seen is how often active sessions were seen.
func seen(i api.Interval) (sum int) {
	for _, n := range i.Active {
		sum += n
	}
	return sum
}

// ratio is NaN where there is nothing to divide by.
func ratio(n, by float64) float64 {
	if by <= 0 {
		return math.NaN()
	}
	return n / by
}

// plain writes a number with about four digits, for people and scripts; what is not a number is empty.
func plain(v float64) string {
	if math.IsNaN(v) || math.IsInf(v, 0) {
		return ""
	}
	digits := 4
	if v >= 0.1 {
		digits = max(0, 3-int(math.Floor(math.Log10(v))))
	}
	text := strconv.FormatFloat(v, 'f', digits, 64)
	if strings.Contains(text, ".") {
		text = strings.TrimRight(strings.TrimRight(text, "0"), ".")
	}
	return text
}
