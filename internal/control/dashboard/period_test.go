package dashboard

import (
	"html"
	"maps"
	"math"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"trireme/internal/api"
)

// recorded is what four nodes have of a period up to noon: a failover from n1 to n2 in its middle, n1 down for a 20th
// of it, n3 a logger and n4 that does not answer.
func recorded(span, step time.Duration) api.Report {
	r := api.Report{Cluster: "shop", From: noon.Add(-span), To: noon, Events: []api.Event{}}
	change := noon.Add(-span * 7 / 15)
	steps := int(span / step)
	for n, name := range []string{"n1", "n2", "n3"} {
		v := api.PeriodView{Node: name, From: r.From, To: r.To, StepS: step.Seconds(), Oldest: &r.From}
		for i := range steps {
			at := r.From.Add(time.Duration(i) * step)
			if name == "n1" && !at.Before(change) && at.Before(change.Add(span/20)) {
				continue // it was down
			}
			wave := 1 + 0.3*math.Sin(float64(i)/9)
			s := step.Seconds()
			b := api.Interval{At: at, Seconds: s, Transactions: uint64(s * 800 * wave), Bytes: uint64(s * 800 * wave * 1500),
				DiskUsed: 0.4 + float64(i)/float64(steps)/10, Looks: int(s), Active: map[string]int{}}
			b.LogWrites = histogramOf(uint64(400*wave), 0.0009*wave)
			b.MySQL = map[string]uint64{"daemon_cpu_ms": uint64(s * 240 * wave), "daemon_memory_bytes": uint64(80+9*n) << 20}
			for _, other := range []string{"n1", "n2", "n3"} {
				if other != name {
					b.Links = append(b.Links, api.LinkView{To: other, RTTMS: 0.3, P99MS: 0.6 * wave})
				}
			}
			if name != "n3" {
				b.MySQLSeconds, b.Connections = s, uint64(40+n)
				maps.Copy(b.MySQL, map[string]uint64{"Queries": uint64(s * 900 * wave),
					"Innodb_rows_updated": uint64(s * 1600 * wave), "Innodb_data_written": uint64(s * 3e6 * wave),
					"mysqld_cpu_ms": uint64(s * 1300 * wave), "mysqld_memory_bytes": uint64(1600+5*n+i/4) << 20})
				if leads := (name == "n1") == at.Before(change); leads {
					b.LeaderS = s
					b.Commits = map[string]api.Histogram{}
					for stage, mean := range map[string]float64{api.StageMySQL: 0.0002, api.StageLog: 0.0009,
						api.StageMajority: 0.0006, api.StageAck: 0.0001, api.StageTotal: 0.0018} {
						b.Commits[stage] = histogramOf(uint64(2000*wave), mean*wave)
					}
					b.Active = map[string]int{"running": int(s * 1.3 * wave), "commit: a majority": int(s * 3 * wave),
						"row lock": i % 7}
				} else {
					b.LagS, b.LagBytes = 0.02*wave, uint64(50_000*wave)
				}
			}
			v.Buckets = append(v.Buckets, b)
		}
		v.Statements = []api.StatementLoad{
			{Schema: "shop", Digest: "aa", Text: "UPDATE `stock` SET `quantity` = `quantity` - ? WHERE `id` = ?", Count: 90_000,
				TimeS: 210, LockS: 1, Examined: 90_000, Affected: 90_000},
			{Schema: "shop", Digest: "bb", Text: "SELECT * FROM `orders` WHERE `note` LIKE ? AND " +
				strings.Repeat("`column` IN (...) OR ", 30) + "`x` = ?", Count: 1200, TimeS: 95, Examined: 48_000_000, Sent: 12_000,
				NoIndex: 1200},
			{Digest: "", Count: 10, TimeS: 0.5}}
		v.Others = api.StatementLoad{Count: 500, TimeS: 3, Errors: 2}
		v.Sessions = []api.SessionLoad{{Wait: "commit: a majority", State: "Waiting for semi-sync ACK from replica",
			User: "app", Digest: "aa", Text: v.Statements[0].Text, Seen: 6000},
			{Wait: "running", Text: "sql/select", Seen: 12}}
		v.FileWaits = []api.FileWait{{Event: "innodb/innodb_log_file, write", Count: 100_000, TimeS: 12}}
		r.Nodes = append(r.Nodes, v)
	}
	r.Nodes = append(r.Nodes, api.PeriodView{Node: "n4",
		Problem: "https://n4:8008 does not answer; is the daemon running there?"})
	r.Events = []api.Event{{Time: change, Kind: "failover", Node: "n2", From: "n1", To: "n2", Term: 8, GapMS: 812,
		Message: "n2 leads instead of n1: its daemon ended"},
		{Time: change.Add(span / 20), Kind: "rejoin", Node: "n1", Term: 8, Message: "is back; nothing was rolled back"}}
	return r
}

func written(t *testing.T, r api.Report, earlier *api.Report) string {
	t.Helper()
	var b strings.Builder
	if err := WriteReport(&b, r, earlier); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// TestPeriodFigures: what charts are made of has the right units, gaps where nothing was recorded, who led, and events.
func TestPeriodFigures(t *testing.T) {
	s := 10.0
	h := func(mean float64) api.Histogram { return histogramOf(100, mean) }
	at := func(i int) time.Time { return noon.Add(time.Duration(i) * 10 * time.Second) }
	r := api.Report{Cluster: "shop", From: noon, To: noon.Add(55 * time.Second), Nodes: []api.PeriodView{
		{Node: "n1", StepS: s, Buckets: []api.Interval{
			{At: at(0), Seconds: s, MySQLSeconds: s, LeaderS: s, Transactions: 25, Bytes: 10 << 20, Connections: 7, Looks: 10,
				Active: map[string]int{"row lock": 20}, DiskUsed: 0.5, Commits: map[string]api.Histogram{api.StageTotal: h(0.002),
					api.StageLog: h(0.001)}, LogWrites: h(0.001), MySQL: map[string]uint64{"Innodb_rows_inserted": 30,
					"Innodb_rows_deleted": 10, "Innodb_data_written": 5 << 20, "mysqld_cpu_ms": 12_500, "daemon_cpu_ms": 500,
					"mysqld_memory_bytes": 3 << 29, "daemon_memory_bytes": 70 << 20}},
			{At: at(1), Seconds: s, LeaderS: 2, MySQL: map[string]uint64{"daemon_cpu_ms": 0, "daemon_memory_bytes": 60 << 20}},
			// nothing in 2
			{At: at(3), Seconds: 5, MySQLSeconds: 5, LagS: 1.5, LagBytes: 3 << 20, Looks: 5,
				Links: []api.LinkView{{To: "n2", P99MS: 0.25}}},
		}},
		{Node: "n2", StepS: s, Buckets: []api.Interval{{At: at(1), Seconds: s, LeaderS: 6},
			{At: at(2), Seconds: s, LeaderS: s}, {At: at(3), Seconds: s, Looks: 10, Active: map[string]int{"row lock": 5}},
			{At: at(4), Seconds: s, LeaderS: s}}},
		{Node: "n3", Problem: "it does not answer"},
	}, Events: []api.Event{{Time: at(1), Kind: "failover", Node: "n2", To: "n2", Term: 3, GapMS: 812,
		Message: "n2 leads"}}}
	page := newPeriod(r).page()
	for id, want := range map[string]string{
		"commits":     "n1:0 2.5 0 - 0 - - | n2:1 - 0 0 0 0 -",
		"stages":      "Own log:1 1 - - - - - | all stages:4 2 - - - - - | all stages, p99:5 6.25 - - - - -",
		"lag":         "n1:0 0 - - 1.5 - -",
		"lag-bytes":   "n1:0 0 - - 3 - -",
		"rows":        "n1:0 4 - - 0 - -",
		"active":      "row lock:0 2 - - 0.5 - -",
		"connections": "n1:0 7 - - 0 - -",

		"mysqld-cpu": "n1:0 1.25 - - - - -", "mysqld-memory": "n1:0 1536 - - - - -",
		"daemon-cpu": "n1:0 0.05 0 - - - -", "daemon-memory": "n1:0 70 60 - - - -",

		"log":    "n1:0 1 0 - 0 - - | n2:1 - 0 0 0 0 -",
		"fsync":  "n1:0 2.75 - - - - -",
		"innodb": "n1:0 0.5 - - 0 - -",
		"disk":   "n1:0 50 - - - - -",
		"links":  "n1 to n2:0 - - - 0.25 - -",
	} {
		f := page.Charts[slices.IndexFunc(page.Charts, func(f figure) bool { return f.ID == id })]
		var lines []string
		for k, l := range f.Lines {
			text := l.Name + ":" + string(rune('0'+l.Key))
			for i, row := range f.Rows {
				if !row.At.Equal(at(i)) {
					t.Errorf("%s: row %d is at %v", id, i, row.At)
				}
				if cell := row.Cells[k]; cell == "" {
					text += " -"
				} else {
					text += " " + cell
				}
			}
			lines = append(lines, text)
		}
		if got := strings.Join(lines, " | "); got != want {
			t.Errorf("%s: %s, want %s", id, got, want)
		}
	}
	var led []string
	for _, row := range page.Led.Rows {
		led = append(led, row[2]+" "+row[0][11:19]+"-"+row[1][11:19])
	}
	// In slot 3 no node took writes: the bands have a gap.
	if got, want := strings.Join(led, ", "), "n1 12:00:00-12:00:10, n2 12:00:10-12:00:30, n2 12:00:40-12:00:50"; got != want {
		t.Errorf("%s led, want %s", got, want)
	}
	if got, want := strings.Join(page.Events.Rows[0], "|"), "2026-11-22 12:00:10Z|failover|n2|n2 leads|3|812"; got != want {
		t.Errorf("event %s, want %s", got, want)
	}
	if len(page.Missing) != 1 || page.Missing[0].Name != "n3" {
		t.Errorf("missing: %v", page.Missing)
	}
}

// TestReportFile: the file has everything in it, runs its own script and nothing else, and shows no text as markup.
func TestReportFile(t *testing.T) {
	page := written(t, recorded(time.Hour, 30*time.Second), nil)
	for _, want := range []string{"2026-11-22 11:00:00Z to 2026-11-22 12:00:00Z", "<td class=\"n\">32 min</td>",
		"n4 is missing.", "n2 leads instead of n1: its daemon ended", "majority: network, and fsync on the others",
		"`quantity` - ? WHERE `id` = ?", "all for which performance_schema had no room", "all the others", "row lock",
		"innodb/innodb_log_file, write", "Copyright (c) 2022 Leon Sorokin", "Of CPU and memory only"} {
		if !strings.Contains(page, want) && !strings.Contains(page, strings.ToUpper(want[:1])+want[1:]) {
			t.Errorf("no %q", want)
		}
	}
	if bad := regexp.MustCompile(`NaN</|Inf</|%!|ZgotmplZ|<form|href="/|src=`).FindString(page); bad != "" {
		t.Errorf("%q in the page", bad)
	}
	for _, tag := range []string{"script", "style"} {
		content := regexp.MustCompile(`(?s)<` + tag + `>(.*)</` + tag + `>`).FindStringSubmatch(page)
		if content == nil || !strings.Contains(html.UnescapeString(page), tag+"-src 'sha256-"+sha256Of(content[1])+"'") {
			t.Errorf("the policy does not name what <%s> holds", tag)
		}
	}
	r := recorded(time.Hour, 30*time.Second)
	r.Cluster, r.Nodes[0].Node, r.Nodes[3].Problem = evil, evil, evil
	r.Nodes[0].Statements[0].Text, r.Nodes[0].Statements[0].Schema, r.Nodes[0].FileWaits[0].Event = evil, evil, evil
	r.Nodes[0].Sessions[0] = api.SessionLoad{Wait: evil, State: evil, User: evil, Text: evil, Seen: 9999}
	r.Nodes[0].Buckets[0].Active[evil] = 3
	r.Events[0].Message, r.Events[0].Kind, r.Events[0].To = evil, evil, evil
	if bad := regexp.MustCompile(`<script>alert|<img`).FindString(written(t, r, nil)); bad != "" {
		t.Errorf("%q in the page", bad)
	}
	for _, r := range []api.Report{
		{Cluster: "shop", From: noon, To: noon.Add(time.Hour)},
		{Cluster: "shop", From: noon, To: noon.Add(time.Hour),
			Nodes: []api.PeriodView{{Node: "n1", StepS: 30, Problem: "nothing is recorded"}}},
		{Cluster: "shop", From: noon, To: noon.Add(time.Hour),
			Nodes: []api.PeriodView{{Node: "l1", StepS: 30, Buckets: []api.Interval{{At: noon, Seconds: 10},
				{At: noon.Add(24 * time.Hour)}}}}},
	} {
		page := written(t, r, nil)
		if regexp.MustCompile(`NaN</|Inf</|%!`).MatchString(page) || !strings.Contains(page, "Nothing was recorded") {
			t.Error("an empty period is not shown as one")
		}
	}
}

// TestPeriodPage: who may see it, and which period is asked for.
func TestPeriodPage(t *testing.T) {
	f := healthy()
	s := serve(t, f)
	if _, text := s.get(t, s.browser(t), "/ui/period"); !strings.Contains(text, `id="token"`) || f.calls() != "" {
		t.Error("it is shown without a login")
	}
	c := s.browser(t)
	s.post(t, c, "/ui/login", "token", viewToken)
	for path, want := range map[string]string{
		"":           "report of 1h0m0s up to 2026-11-22 12:00:00Z",
		"?last=15m":  "report of 15m0s up to 2026-11-22 12:00:00Z",
		"?last=168h": "report of 168h0m0s up to 2026-11-22 12:00:00Z",
		"?from=2026-11-20+02:40&to=2026-11-20+02:50:30":     "report of 10m30s up to 2026-11-20 02:50:30Z",
		"?from=2026-11-20+02:40:00Z&to=2026-11-21T02:40:00": "report of 24h0m0s up to 2026-11-21 02:40:00Z",
	} {
		status, text := s.get(t, c, "/ui/period"+path)
		if got := f.calls(); status != http.StatusOK || got != want || !strings.Contains(text, "Nothing was recorded") {
			t.Errorf("%s: status %d, %s, want %s", path, status, got, want)
		}
	}
	for _, path := range []string{"?last=1y", "?last=-1h", "?from=yesterday&to=2026-11-20+02:50", "?from=2026-11-20+02:40",
		"?from=2026-11-20+02:40&to=2026-11-20+02:40"} {
		if status, _ := s.get(t, c, "/ui/period"+path); status != http.StatusBadRequest || f.calls() != "" {
			t.Errorf("%s: status %d", path, status)
		}
	}
	f.err = api.Errorf(api.KindBusy, "no "+evil)
	if status, text := s.get(t, c, "/ui/period"); status != http.StatusBadGateway || strings.Contains(text, "<img") {
		t.Errorf("status %d", status)
	}
}

func TestPlain(t *testing.T) {
	for v, want := range map[float64]string{0: "0", 0.00001: "0", 0.0123: "0.0123", 1.23456: "1.235", 12.3456: "12.35",
		100: "100", 1234567: "1234567", math.Inf(1): ""} {
		if got := plain(v); got != want {
			t.Errorf("%v: %q, want %q", v, got, want)
		}
	}
	if plain(ratio(1, 0)) != "" {
		t.Error("nothing to divide by")
	}
}
