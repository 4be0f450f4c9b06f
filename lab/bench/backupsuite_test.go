package bench

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"trireme/lab/rivals"
)

func TestBackupPlan(t *testing.T) {
	withSysbench(t)
	groups, err := backupPlan(backupSuite.Defaults(false))
	if err != nil {
		t.Fatal(err)
	}
	var cells []string
	for _, g := range groups {
		for _, c := range g.Cells {
			cells = append(cells, g.System.Name+"/"+c.Key.Case+"/"+c.Key.Variant)
		}
	}
	want := []string{"semisync/copy/CLONE", "semisync/copy/mysqldump", "semisync/restore/CLONE",
		"semisync/restore/mysqldump", "semisync/archive/mysqlbinlog", "trireme/copy/trireme copy",
		"trireme/restore/trireme restore", "trireme/archive/trireme archive", "trireme/check/trireme check"}
	if slices.Sort(cells); !slices.Equal(cells, slices.Sorted(slices.Values(want))) {
		t.Errorf("%v", cells)
	}
	if o := groups[0].Shape.Options["plugin_load_add"]; !strings.Contains(o, "semisync_source") ||
		!strings.Contains(o, "clone") {
		t.Errorf("plugins of semi-sync: %q", o)
	}
	s := backupSuite.Defaults(true)
	s.Cases = []string{"pray"}
	if err := backupSuite.Check(s); err == nil || !strings.Contains(err.Error(), "there are: copy, restore") {
		t.Error(err)
	}
}

// TestWindows: seconds that are not wholly on one side of a border count on none, nor does what is done between before
// and begin.
func TestWindows(t *testing.T) {
	base := time.Now()
	at := func(s float64) time.Time { return base.Add(time.Duration(s * float64(time.Second))) }
	var seconds []secondTPS
	for i, tps := range []float64{1, 100, 102, 50, 20, 60, 62, 64, 55, 98} { // each ends at i + 1 s
		seconds = append(seconds, secondTPS{at(float64(i + 1)), tps})
	}
	m := backupMeasure{rec: Record{Values: map[string]float64{}}}
	m.windows(seconds, at(3.1), at(4.9), at(8.2))
	if v := m.rec.Values; v[valTPSAlone] != 100 || v[valTPSDuring] != 62 || v[valTPSKept] != 62 ||
		len(m.rec.Series[valTPS]) != 10 {
		t.Errorf("%v", v)
	}
	m = backupMeasure{rec: Record{Values: map[string]float64{}}}
	m.windows(seconds, at(3.1), at(3.1), at(3.5))
	if _, ok := m.rec.Values[valTPSKept]; ok {
		t.Errorf("of what had no whole second: %v", m.rec.Values)
	}
}

// TestBeside reads seconds as they come, from lines that are cut anywhere.
func TestBeside(t *testing.T) {
	var w secondsOf
	for text := sysbenchOutput; text != ""; {
		n := min(7, len(text))
		_, _ = w.Write([]byte(text[:n]))
		text = text[n:]
	}
	if len(w.seconds) != 2 || w.seconds[1].tps != 201.01 || w.seconds[0].end.IsZero() {
		t.Errorf("%+v", w.seconds)
	}
}

// fakeArchive always lags by some marks.
type fakeArchive struct {
	now, lag uint64
	failed   error
}

func (a *fakeArchive) Now(context.Context) (uint64, error) { a.now++; return a.now, nil }
func (a *fakeArchive) Reached() (uint64, error)            { return a.now - min(a.now, a.lag), a.failed }
func (a *fakeArchive) Stop() error                         { return nil }

func TestArchiveAge(t *testing.T) {
	base := time.Now()
	at := func(ms int) time.Time { return base.Add(time.Duration(ms) * time.Millisecond) }
	marks := []mark{{at(0), 10}, {at(200), 10}, {at(400), 25}, {at(600), 40}}
	for _, c := range []struct {
		reached  uint64
		ms, want int
	}{{5, 700, 700}, {10, 700, 500}, {24, 700, 500}, {25, 700, 300}, {99, 700, 100}} {
		if got := ageOf(marks, c.reached, at(c.ms)); got != time.Duration(c.want)*time.Millisecond {
			t.Errorf("an archive up to %d: %v, want %d ms", c.reached, got, c.want)
		}
	}
	now := time.Now()
	ages, err := watchArchive(t.Context(), &fakeArchive{lag: 1}, now.Add(300*time.Millisecond),
		now.Add(900*time.Millisecond))
	if err != nil || len(ages) == 0 || ages[0].at.Before(now.Add(300*time.Millisecond)) ||
		ages[len(ages)-1].lag < markEvery {
		t.Errorf("%v, %v", ages, err)
	}
	if _, err := watchArchive(t.Context(), &fakeArchive{failed: errors.New("it has ended")}, now, time.Now().
		Add(time.Second)); err == nil {
		t.Error("an archive that has ended has an age")
	}
}

func TestBackupReport(t *testing.T) {
	rec := func(system, tool, c string, values map[string]float64) Record {
		return Record{Key: Key{Topology: "lan", System: system, Variant: tool, Case: c, Threads: 16, Round: 1},
			Values: values, Series: map[string][]float64{valRPOMax: {1, 2}}}
	}
	r := Results{Header: Header{Settings: backupSuite.Defaults(true)}, Records: []Record{
		rec("semisync", rivals.ToolClone, caseCopy, map[string]float64{valDataMiB: 256, valCopyS: 4, valCopyMiBs: 64,
			valBusyS: 5, valTPSAlone: 400, valTPSDuring: 380, valTPSKept: 95}),
		rec("trireme", "trireme copy", caseCopy, map[string]float64{valDataMiB: 256, valCopyS: 8, valCopyMiBs: 32,
			valBusyS: 11, valTPSAlone: 400, valTPSDuring: 360, valTPSKept: 90}),
		rec("trireme", "trireme restore", caseRestore, map[string]float64{valDataMiB: 256, valRestoreS: 16,
			valRestoreMB: 16}),
		rec("semisync", rivals.ToolBinlog, caseArchive, map[string]float64{valRPO50: 0.1, valRPO99: 0.3, valRPOMax: 0.4}),
		rec("trireme", "trireme archive", caseArchive, map[string]float64{valRPO50: 2.1, valRPO99: 3.9, valRPOMax: 5.4}),
		rec("trireme", "trireme check", caseCheck, map[string]float64{valDataMiB: 256, valCheckRows: 90000, valBusyRows: 9000,
			valTPSKept: 97}),
	}}
	text := draw(t, backupSuite, &r)
	for _, want := range []string{"| 256 |", "| 64.0 |", "| 90.0 |", "| 16.0 | 16.0 |", "| always |", "| not always |",
		"| 90000 | 9000 |"} {
		if !strings.Contains(text, want) {
			t.Errorf("%q is missing in:\n%s", want, text)
		}
	}
	duels := backupSuite.duels(&r)
	if len(duels) != 3 || duels[0].ratio != 0.5 { // speed of the copy, TPS kept, age of the archive
		t.Errorf("%+v", duels)
	}
}

// TestBackupSuite backs semi-sync up with MySQL's own tools: what is copied, restored and archived must make sense.
func TestBackupSuite(t *testing.T) {
	needServers(t)
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	out := t.TempDir()
	err := Run(ctx, RunOptions{Suites: []string{"backup"}, Quick: true, Out: out, Dir: t.TempDir(), Say: testWriter{t},
		Settings: Settings{Systems: []string{"semisync"},
			Topologies: []string{noTopology}, Threads: []int{4}, Rounds: 1, WarmupSeconds: 1, Seconds: 3, CPUs: 0, Tables: 2,
			Rows: 10000}})
	if err != nil {
		t.Fatal(err)
	}
	r, err := readResults(resultsPath(out, "backup"))
	if err != nil || len(r.Records) != 5 {
		t.Fatalf("%v, %+v", err, r.Records)
	}
	for _, rec := range r.Records {
		v := rec.Values
		if rec.NotRun != "" || v[valDataMiB] < 3 {
			t.Errorf("%s: %+v", rec.Key, rec)
			continue
		}
		switch rec.Case {
		case caseCopy:
			if v[valCopyS] <= 0 || v[valStored] < v[valDataMiB]/10 || v[valTPSAlone] <= 0 {
				t.Errorf("%s: %v", rec.Key, v)
			}
		case caseRestore:
			if v[valRestoreS] <= 0 {
				t.Errorf("%s: %v", rec.Key, v)
			}
		case caseArchive:
			if v[valRPOMax] <= 0 || v[valRPOMax] > 3 || v[valRPO50] > v[valRPOMax] {
				t.Errorf("%s: %v", rec.Key, v)
			}
		}
	}
}
