package dashboard

import (
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"trireme/internal/api"
)

// before is a report that lies earlier by some time: the nodes committed half as much and recorded the rest alike, in
// another order.
func before(r api.Report, by time.Duration) api.Report {
	r.From, r.To, r.Events = r.From.Add(-by), r.To.Add(-by), nil
	r.Nodes = slices.Clone(r.Nodes)
	for n := range r.Nodes {
		r.Nodes[n].Buckets = slices.Clone(r.Nodes[n].Buckets)
		for i := range r.Nodes[n].Buckets {
			b := &r.Nodes[n].Buckets[i]
			b.At, b.Transactions = b.At.Add(-by), b.Transactions/2
		}
	}
	slices.Reverse(r.Nodes)
	return r
}

// table is a chart's, as lines of "name: cells".
func (f figure) table() (out []string) {
	for k, l := range f.Lines {
		text := l.Name + ":"
		for _, row := range f.Rows {
			text += " " + row.Cells[k]
			if row.Cells[k] == "" {
				text += "-"
			}
		}
		out = append(out, text)
	}
	return out
}

func (p periodPage) chart(id string) figure {
	return p.Charts[slices.IndexFunc(p.Charts, func(f figure) bool { return f.ID == id })]
}

// TestCompare: after each line comes that of the earlier period, stretch by stretch, with the same key, in whatever
// order that report has its nodes; what only one of the two periods has is shown, too.
func TestCompare(t *testing.T) {
	at := func(i int) time.Time { return noon.Add(time.Duration(i) * 10 * time.Second) }
	bucket := func(i int, trx uint64, wait, link string) api.Interval {
		return api.Interval{At: at(i), Seconds: 10, Transactions: trx, Looks: 10, Active: map[string]int{wait: 20},
			Links: []api.LinkView{{To: link, P99MS: 0.5}}}
	}
	r := api.Report{Cluster: "shop", From: at(0), To: at(3), Nodes: []api.PeriodView{
		{Node: "n1", StepS: 10, Buckets: []api.Interval{bucket(0, 100, "row lock", "n2"), bucket(1, 200, "row lock", "n2")}},
		{Node: "n2", StepS: 10, Buckets: []api.Interval{bucket(2, 300, "row lock", "n1")}},
		{Node: "n3", StepS: 10, Buckets: []api.Interval{bucket(2, 10, "row lock", "n1")}},
		{Node: "n4", StepS: 10, Buckets: []api.Interval{bucket(2, 20, "row lock", "n1")}}}}
	day := 24 * time.Hour
	e := api.Report{Cluster: "shop", From: at(0).Add(-day), To: at(3).Add(-day), Nodes: []api.PeriodView{
		{Node: "gone", StepS: 10, Buckets: []api.Interval{bucket(-8640, 900, "running", "n1")}},
		{Node: "n2", StepS: 10, Buckets: []api.Interval{bucket(-8639, 50, "running", "n9")}},
		{Node: "n1", StepS: 10, Buckets: []api.Interval{bucket(-8640, 10, "row lock", "n2"),
			bucket(-8638, 30, "row lock", "n2")}},
		{Node: "n3", Problem: "it reads its samples for somebody else"}}}
	p := newPeriod(r)
	p.compareWith(e)
	page := p.page()
	for id, want := range map[string]string{
		"commits": "n1: 10 20 -|n1, earlier: 1 - 3|n2: - - 30|n2, earlier: - 5 -|n3: - - 1|n4: - - 2",
		"active":  "row lock: 2 2 6|row lock, earlier: 2 0 2|running: 0 0 0|running, earlier: 0 2 0",
		"links": "n1 to n2: 0.5 0.5 -|n1 to n2, earlier: 0.5 - 0.5|n2 to n1: - - 0.5|n2 to n9, earlier: - 0.5 -|" +
			"n3 to n1: - - 0.5|n4 to n1: - - 0.5",
	} {
		f := page.chart(id)
		if got := strings.Join(f.table(), "|"); got != want {
			t.Errorf("%s: %s, want %s", id, got, want)
		}
		for i, l := range f.Lines {
			name, earlier := strings.CutSuffix(l.Name, ", earlier")
			if earlier != l.Earlier {
				t.Errorf("%s: %s is earlier: %v", id, l.Name, l.Earlier)
			}
			if i > 0 && f.Lines[i-1].Name == name && f.Lines[i-1].Key != l.Key {
				t.Errorf("%s: %s has another key than %s", id, l.Name, name)
			}
		}
	}
	if e := page.Earlier; e.From != "2026-11-21 12:00:00Z" || e.To != "2026-11-21 12:00:30Z" || e.None || e.Lacks != "n4" {
		t.Errorf("%+v", e)
	}
	if m := page.Missing; len(m) != 1 || m[0].Name != "n3 of the earlier period" {
		t.Errorf("missing: %v", m)
	}
	if newPeriod(r).page().Earlier != nil {
		t.Error("it compares although that was not asked for")
	}
}

// TestCompareTables: the tables below have columns of the earlier period, and rows of one length.
func TestCompareTables(t *testing.T) {
	r := recorded(time.Hour, 30*time.Second)
	e := before(r, 7*24*time.Hour)
	n1 := &e.Nodes[3]
	n1.Statements = []api.StatementLoad{{Schema: "shop", Digest: "aa", Count: 2000, TimeS: 10}}
	n1.Sessions = []api.SessionLoad{{Wait: "running", Text: "sql/select", Seen: 5}}
	n1.FileWaits = nil
	p := newPeriod(r)
	p.compareWith(e)
	grids := map[string]grid{}
	for _, g := range p.page().Tables {
		grids[g.ID] = g
		for _, row := range g.Rows {
			if len(row) != len(g.Head) {
				t.Errorf("%s: %q below %q", g.ID, row, g.Head)
			}
		}
	}
	for id, want := range map[string]string{
		"commit-stages": "Mean earlier, ms|p99 earlier",
		"sessions":      "Seen earlier",
		"files":         "Time earlier|Mean earlier, ms",
		"statements":    "Time earlier|Calls earlier|Mean earlier, ms",
		"counters":      "n4|n4, earlier",
		"coverage":      "Recorded earlier, %",
	} {
		if head := strings.Join(grids[id].Head, "|"); !strings.HasSuffix(head, "|"+want) {
			t.Errorf("%s: %s, want %s", id, head, want)
		}
	}
	// Of the three nodes n2 and n3 recorded as much as in the period itself.
	for _, c := range []struct {
		id, row string
		want    []string
	}{
		{"statements", "UPDATE `stock`", []string{"7 min", "182\u202f000", "2.363"}},
		{"files", "innodb/innodb_log_file, write n1", []string{"", ""}},
		{"files", "innodb/innodb_log_file, write n2", []string{"12.0 s", "0.12"}},
		{"sessions", "sql/select n1", []string{"5"}},
		{"sessions", "sql/select n2", []string{"12"}},
	} {
		g := grids[c.id]
		at := slices.IndexFunc(g.Rows, func(row []string) bool { return strings.HasPrefix(row[0]+" "+row[1], c.row) })
		if at < 0 {
			t.Errorf("%s: no row %s", c.id, c.row)
			continue
		}
		row := g.Rows[at]
		if got := row[len(row)-len(c.want):]; !slices.Equal(got, c.want) {
			t.Errorf("%s, %s: %q, want %q", c.id, c.row, got, c.want)
		}
	}
}

// TestCompareFile: the file says what is compared, and also that there is nothing to compare with.
func TestCompareFile(t *testing.T) {
	r := recorded(time.Hour, 30*time.Second)
	e := before(r, time.Hour)
	page := written(t, r, &e)
	for _, want := range []string{"2026-11-22 10:00:00Z to 2026-11-22 11:00:00Z",
		`data-key="0" data-earlier>n1, earlier<`, "n4 is missing."} {
		if !strings.Contains(page, want) {
			t.Errorf("no %q", want)
		}
	}
	if strings.Contains(page, "<select") || strings.Contains(page, "n4 of the earlier") {
		t.Error("the file has a form, or says twice who is missing")
	}
	e = api.Report{Cluster: "shop", From: e.From, To: e.To, Nodes: []api.PeriodView{{Node: "n1", StepS: 30}}}
	page = written(t, r, &e)
	if !strings.Contains(page, "Nothing was recorded from 2026-11-22 10:00:00Z to 2026-11-22 11:00:00Z") ||
		strings.Contains(page, "data-earlier") {
		t.Error("there is nothing to compare with, and the page does not say so")
	}
}

// TestComparePage: which two periods are asked for, and what the form offers then.
func TestComparePage(t *testing.T) {
	f := healthy()
	s := serve(t, f)
	c := s.browser(t)
	s.post(t, c, "/ui/login", "token", viewToken)
	const now, long = "report of 1h0m0s up to 2026-11-22 12:00:00Z", "?from=2026-11-20+02:40&to=2026-11-20+02:50:30"
	for path, want := range map[string]string{
		"?compare=":            now,
		"?compare=previous":    now + "; report of 1h0m0s up to 2026-11-22 11:00:00Z",
		"?last=1h&compare=24h": now + "; report of 1h0m0s up to 2026-11-21 12:00:00Z",
		long +
			"&compare=168h": "report of 10m30s up to 2026-11-20 02:50:30Z; report of 10m30s up to 2026-11-13 02:50:30Z",
		"?last=15m&compare=previous": "report of 15m0s up to 2026-11-22 12:00:00Z; report of 15m0s up to 2026-11-22 11:45:00Z",
	} {
		status, text := s.get(t, c, "/ui/period"+path)
		if got := f.calls(); status != http.StatusOK || got != want {
			t.Errorf("%s: status %d, %s, want %s", path, status, got, want)
		}
		_, asked, _ := strings.Cut(path, "compare=")
		if !strings.Contains(text, `<option value="`+asked+`" selected>`) {
			t.Errorf("%s: the form does not say so", path)
		}
		if asked != "" && !strings.Contains(text, `<a href="/ui/period?last=6h&amp;compare=`+asked+`"`) {
			t.Errorf("%s: another period loses the comparison", path)
		}
	}
	_, text := s.get(t, c, "/ui/period?compare=36h")
	if !strings.Contains(text, `<option value="36h" selected>36h earlier</option>`) {
		t.Error("the form loses what it does not offer")
	}
	f.calls()
	for _, bad := range []string{"yesterday", "-24h", "0s", "1d"} {
		status, text := s.get(t, c, "/ui/period?compare="+bad)
		if status != http.StatusBadRequest || f.calls() != "" || !strings.Contains(text, "previous") {
			t.Errorf("%s: status %d", bad, status)
		}
	}
	f.err = api.Errorf(api.KindBusy, "not now")
	if status, _ := s.get(t, c, "/ui/period?compare=24h"); status != http.StatusBadGateway {
		t.Errorf("status %d", status)
	}
}
