package recorder

import (
	"fmt"
	"testing"
	"time"

	"trireme/internal/api"
	"trireme/internal/mysql/mysqld"
)

func total(v api.PeriodView) (sum api.Interval) {
	for _, b := range v.Buckets {
		sum.Add(b)
	}
	return sum
}

// TestCounters: what was counted is counted once, whatever becomes of mysqld and its tables.
func TestCounters(t *testing.T) {
	s := openStore(t, t.TempDir(), 64<<20)
	r := New(s)
	at := began
	write := func(life string, queries uint64) {
		t.Helper()
		at = at.Add(10 * time.Second)
		var counters map[string]uint64
		if life != "" {
			counters = map[string]uint64{"Queries": queries, connections: 3}
		}
		if err := r.Write(Reading{At: at, Took: 10 * time.Second, Life: life, Counters: counters}); err != nil {
			t.Fatal(err)
		}
	}
	statements := func(life string, count uint64) {
		r.Statements(life, []mysqld.StatementCount{{Schema: "app", Digest: "d", Count: count, TimeS: float64(count)}})
		r.Files(life, []mysqld.FileCount{{Event: "innodb/innodb_data_file", Counts: [3]uint64{count, 0, 0},
			TimesS: [3]float64{float64(count), 0, 0}}})
	}
	statements("1", 10)
	write("1", 100) // the whole count: this mysqld began at 0
	statements("1", 15)
	write("1", 150)
	write("", 0) // it does not answer
	statements("1", 16)
	write("1", 160)
	statements("2", 4) // a new mysqld
	write("2", 40)
	statements("2", 1) // TRUNCATE, FLUSH STATUS
	write("2", 5)
	v := period(t, s, began, began.Add(time.Hour))
	sum := total(v)
	if sum.MySQL["Queries"] != 160+40+5 || sum.MySQLSeconds != 50 || sum.Seconds != 60 || sum.Connections != 3 ||
		sum.MySQL[connections] != 0 {
		t.Errorf("%+v", sum)
	}
	if st := v.Statements; len(st) != 1 || st[0].Count != 16+4+1 || st[0].TimeS != 21 {
		t.Errorf("%+v", st)
	}
	if f := v.FileWaits; len(f) != 1 || f[0].Count != 21 || f[0].Event != "innodb/innodb_data_file, read" {
		t.Errorf("%+v", f)
	}
}

// TestLoad: the daemon's own counters begin with it.
func TestLoad(t *testing.T) {
	s := openStore(t, t.TempDir(), 64<<20)
	r := New(s)
	h := func(n uint64) api.Histogram {
		b := make([]uint64, len(api.LatencyBounds)+1)
		b[3] = n
		return api.Histogram{Count: n, SumS: float64(n), Buckets: b}
	}
	lag, backlog := 1.5, uint64(9)
	for i := uint64(1); i <= 3; i++ {
		if err := r.Write(Reading{At: began.Add(time.Duration(i) * 10 * time.Second), Took: 10 * time.Second, Leads: i == 2,
			Load: api.LoadView{Disks: []api.DiskView{{FreeBytes: 90, TotalBytes: 100}, {FreeBytes: 25, TotalBytes: 100}},
				Transactions: 10 * i, Bytes: 100 * i, Commits: map[string]api.Histogram{api.StageLog: h(i)}, LogWrites: h(5 * i)},
			Self: api.MemberView{MySQL: &api.MySQLView{LagSeconds: &lag, LagBytes: &backlog}}}); err != nil {
			t.Fatal(err)
		}
	}
	v := period(t, s, began, began.Add(time.Minute))
	sum := total(v)
	if sum.Transactions != 30 || sum.Bytes != 300 || sum.Commits[api.StageLog].Count != 3 || sum.LogWrites.Count != 15 ||
		sum.LeaderS != 10 || sum.LagS != 1.5 || sum.LagBytes != 9 || sum.DiskUsed != 0.75 {
		t.Errorf("%+v", sum)
	}
	if len(v.Buckets) != 3 || !v.Buckets[0].At.Equal(began) {
		t.Errorf("%+v", v.Buckets)
	}
}

// TestFrameIsBounded: however many kinds of sessions and statements there are, a frame is small, and the sums are
// right.
func TestFrameIsBounded(t *testing.T) {
	s := openStore(t, t.TempDir(), 64<<20)
	r := New(s)
	var active []mysqld.ActiveSession
	var counts []mysqld.StatementCount
	for i := range 5000 {
		active = append(active, mysqld.ActiveSession{User: "app", Digest: fmt.Sprint(i), State: "updating"})
		counts = append(counts, mysqld.StatementCount{Digest: fmt.Sprint(i), Count: 2, TimeS: float64(i)})
	}
	r.Look(active)
	r.Statements("1", counts)
	if n := len(r.Lacks()); n > maxSessions+maxStatements+1 {
		t.Errorf("%d texts are wanted", n)
	}
	if err := r.Write(Reading{At: began.Add(10 * time.Second), Took: 10 * time.Second}); err != nil {
		t.Fatal(err)
	}
	if s.size > 64<<10 {
		t.Errorf("%d bytes", s.size)
	}
	v := period(t, s, began, began.Add(time.Minute))
	calls := v.Others.Count
	for _, st := range v.Statements {
		calls += st.Count
	}
	if calls != 10_000 || v.Statements[0].TimeS != 4999 || total(v).Active[WaitRunning] != 5000 || total(v).Looks != 1 {
		t.Errorf("%d calls, %+v", calls, v.Statements[0])
	}
}

func TestWaitOf(t *testing.T) {
	for state, want := range map[string]string{
		"": WaitRunning, "executing": WaitRunning, "updating": WaitRunning, "Sending data": WaitRunning,
		"statistics": WaitRunning, "waiting for handler commit": WaitEngine,
		"Waiting for semi-sync ACK from replica": WaitMajority, "Waiting for semi-sync ACK from slave": WaitMajority,
		"Waiting for table metadata lock": WaitMeta, "Waiting for table flush": WaitMeta, "System lock": WaitMeta,
		"Waiting for global read lock": WaitMeta, "Waiting for backup lock": WaitMeta, "Sending to client": WaitClient,
		"Receiving from client": WaitClient, "Waiting for GTID to be committed": WaitReads, "User sleep": WaitOther,
		"Waiting for something new": WaitOther,
	} {
		if got := WaitOf(mysqld.ActiveSession{State: state}); got != want {
			t.Errorf("%q: %s, want %s", state, got, want)
		}
	}
	if got := WaitOf(mysqld.ActiveSession{State: "updating", RowLock: true}); got != WaitRowLock {
		t.Error(got)
	}
}

func TestStep(t *testing.T) {
	for span, want := range map[time.Duration]time.Duration{time.Second: 10 * time.Second,
		40 * time.Minute: 10 * time.Second, time.Hour: 30 * time.Second, 24 * time.Hour: 10 * time.Minute,
		7 * 24 * time.Hour: time.Hour, 30 * 24 * time.Hour: 3 * time.Hour} {
		if got := Step(began, began.Add(span)); got != want {
			t.Errorf("%v: %v, want %v", span, got, want)
		}
	}
}
