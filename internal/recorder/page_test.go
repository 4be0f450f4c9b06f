package recorder

import (
	"math"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"trireme/internal/api"
)

// Sample is an hour of a cluster with a failover in its middle, for tests that draw it.
func sample() Report {
	r := Report{Cluster: "shop", From: began, To: began.Add(time.Hour)}
	change := began.Add(32 * time.Minute)
	for n, name := range []string{"db1", "db2", "db3"} {
		v := api.PeriodView{Node: name, From: r.From, To: r.To, StepS: 30, Oldest: &began}
		for i := range 120 {
			at := began.Add(time.Duration(i) * 30 * time.Second)
			if name == "db1" && at.After(change) && at.Before(change.Add(3*time.Minute)) {
				continue // it was down
			}
			wave := 1 + 0.3*math.Sin(float64(i)/9)
			b := api.Interval{At: at, Seconds: 30, MySQLSeconds: 30, Transactions: uint64(30 * 800 * wave), Bytes: uint64(30 * 800 * wave * 1500), Commits: map[string]api.Histogram{},
				MySQL: map[string]uint64{"Queries": uint64(30 * 900 * wave)}, Connections: uint64(40 + n), LagS: 0.02 * wave, LagBytes: uint64(50_000 * wave), Looks: 30, Active: map[string]int{}}
			b.LogWrites = histogram(uint64(400*wave), 0.0009*wave)
			for _, other := range []string{"db1", "db2", "db3"} {
				if other != name {
					b.Links = append(b.Links, api.LinkView{To: other, RTTMS: 0.3, P99MS: 0.6 * wave})
				}
			}
			if leads := (name == "db1") != at.After(change); leads && name != "db3" {
				b.LeaderS, b.LagS, b.LagBytes = 30, 0, 0
				for stage, mean := range map[string]float64{api.StageMySQL: 0.0002, api.StageLog: 0.0009, api.StageMajority: 0.0006, api.StageAck: 0.0001, api.StageTotal: 0.0018} {
					b.Commits[stage] = histogram(uint64(2000*wave), mean*wave)
				}
				b.Active = map[string]int{WaitRunning: int(40 * wave), WaitMajority: int(90 * wave), WaitEngine: int(20 * wave), WaitRowLock: i % 7}
				b.MySQL["Queries"] *= 4
			}
			v.Buckets = append(v.Buckets, b)
		}
		v.Statements = []api.StatementLoad{
			{Schema: "shop", Digest: "aa", Text: "UPDATE `stock` SET `quantity` = `quantity` - ? WHERE `id` = ?", Count: 90_000, TimeS: 210, LockS: 1, Examined: 90_000, Affected: 90_000},
			{Schema: "shop", Digest: "bb", Text: "SELECT * FROM `orders` WHERE `note` LIKE ? AND " + strings.Repeat("`column` IN (...) OR ", 30) + "`x` = ?", Count: 1200, TimeS: 95, Examined: 48_000_000, Sent: 12_000, NoIndex: 1200},
			{Digest: "", Count: 10, TimeS: 0.5},
		}
		v.Others = api.StatementLoad{Count: 500, TimeS: 3, Errors: 2}
		v.Sessions = []api.SessionLoad{{Wait: WaitMajority, State: "Waiting for semi-sync ACK from replica", User: "app", Digest: "aa", Text: v.Statements[0].Text, Seen: 6000},
			{Wait: WaitRowLock, State: "updating", User: "app", Digest: "aa", Text: v.Statements[0].Text, Seen: 200}, {Wait: WaitRunning, Text: "sql/select", Seen: 12}}
		v.FileWaits = []api.FileWait{{Event: "innodb/innodb_log_file, write", Count: 100_000, TimeS: 12}, {Event: "sql/binlog, other", Count: 3, TimeS: 0.001}}
		r.Nodes = append(r.Nodes, v)
	}
	r.Nodes = append(r.Nodes, api.PeriodView{Node: "db4", Problem: "https://db4:8008 does not answer"})
	r.Events = []api.Event{{Time: change, Kind: "failover", Node: "db2", From: "db1", To: "db2", Term: 8, GapMS: 812, Message: "db2 leads instead of db1: its daemon ended"},
		{Time: change.Add(3 * time.Minute), Kind: "rejoin", Node: "db1", Term: 8, Message: "is back; nothing was rolled back"}}
	return r
}

// histogram of n durations around a mean, in seconds.
func histogram(n uint64, mean float64) api.Histogram {
	h := api.Histogram{Count: n, SumS: float64(n) * mean, Buckets: make([]uint64, len(api.LatencyBounds)+1)}
	for i, bound := range api.LatencyBounds {
		if bound >= mean {
			h.Buckets[i], h.Buckets[i+2] = n-n/50, n/50
			break
		}
	}
	return h
}

func draw(t testing.TB, r Report) string {
	t.Helper()
	var b strings.Builder
	if err := r.HTML(&b); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

func TestPage(t *testing.T) {
	page := draw(t, sample())
	if dir := os.Getenv("TRIREME_REPORT_PAGE"); dir != "" {
		if err := os.WriteFile(filepath.Join(dir, "report.html"), []byte(page), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for _, want := range []string{
		"<title>Cluster shop: load of a period</title>", "2026-11-23 02:00:00 UTC to 2026-11-23 03:00:00 UTC (1.0 h)", "db1 for ", "db4 is missing:",
		"failover: db2 leads", "1; 812.00 ms without writes", "db2 leads instead of db1: its daemon ended", "network and majority: until it is committed",
		"UPDATE `stock` SET `quantity` = `quantity` - ? WHERE `id` = ?", "all for which performance_schema had no room", "all the others", "row lock", "innodb/innodb_log_file, write",
	} {
		if !strings.Contains(page, want) {
			t.Errorf("no %q", want)
		}
	}
	if bad := regexp.MustCompile(`NaN|Inf|%!|<script`).FindString(page); bad != "" {
		t.Errorf("%q in the page", bad)
	}
}

// TestHostilePage: a statement, a user or a message is text and nothing else.
func TestHostilePage(t *testing.T) {
	r := sample()
	const evil = `</td><script>alert(1)</script><img src=x onerror="alert(2)">` + "[x](https://evil.example) `**"
	r.Cluster = "shop"
	r.Nodes[0].Statements[0].Text, r.Nodes[0].Statements[0].Schema = evil, evil
	r.Nodes[0].Sessions[0] = api.SessionLoad{Wait: evil, State: evil, User: evil, Text: evil, Seen: 9999}
	r.Nodes[0].FileWaits[0].Event, r.Nodes[3].Problem = evil, evil
	r.Events[0].Message, r.Events[0].Kind, r.Events[0].To = evil, evil, evil
	page := draw(t, r)
	for _, bad := range []string{"<script", "<img", `href="https://evil.example"`} {
		if strings.Contains(page, bad) {
			t.Errorf("%s in the page", bad)
		}
	}
}

// TestEmptyPage: nothing was recorded, or not by all.
func TestEmptyPage(t *testing.T) {
	for _, r := range []Report{
		{Cluster: "shop", From: began, To: began.Add(time.Hour)},
		{Cluster: "shop", From: began, To: began.Add(time.Hour), Nodes: []api.PeriodView{{Node: "db1", Problem: "nothing is recorded"}}},
		{Cluster: "shop", From: began, To: began.Add(time.Hour), Nodes: []api.PeriodView{{Node: "log1", StepS: 30, Buckets: []api.Interval{{At: began, Seconds: 10}}}}},
	} {
		if page := draw(t, r); regexp.MustCompile(`NaN|Inf|%!`).MatchString(page) {
			t.Error("no number in the page")
		}
	}
}

func TestNumbers(t *testing.T) {
	for got, want := range map[string]string{
		whole(1234567): "1,234,567", whole(12): "12", decimal(0): "0", decimal(0.001): "< 0.01", decimal(1.234): "1.23", decimal(12.34): "12.3", decimal(1234): "1,234",
		seconds(0.0000123): "12 µs", seconds(0.0123): "12.30 ms", seconds(2): "2.00 s", duration(90): "1.5 min", duration(7200): "2.0 h", percent(0.5): "50.0 %", percent(0.0001): "< 0.1 %",
		bytesText(500): "500 bytes", bytesText(3 << 20): "3 MiB", decimal(rate(1, 0)): "",
	} {
		if got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
