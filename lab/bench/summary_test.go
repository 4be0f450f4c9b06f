package bench

import (
	"encoding/json"
	"strings"
	"testing"

	"trireme/lab/report"
)

func record(system, variant string, threads, round int, tps, cpu float64) Record {
	return Record{Key: Key{Topology: "lan", System: system, Variant: variant, Threads: threads, Round: round},
		Values: map[string]float64{valSustained: tps, valCPUAll: cpu}}
}

// TestSummaries checks that medians are taken over rounds, that the best variant counts, and that ratios are of the
// right things.
func TestSummaries(t *testing.T) {
	r := &Results{Records: []Record{
		record("semisync", "4", 16, 1, 100, 5), record("semisync", "4", 16, 2, 110, 5),
		record("semisync", "4", 16, 3, 300, 5), record("semisync", "64", 16, 1, 190, 5),
		record("semisync", "64", 16, 2, 200, 5), record("semisync", "64", 16, 3, 201, 5),
		record("trireme", "default", 16, 1, 150, 4), record("trireme", "default", 16, 2, 160, 4),
		record("trireme", "default", 16, 3, 150, 4), {Key: Key{Topology: "lan", System: "async", Threads: 16, Round: 1},
			NotRun: "no such program"},
	}}
	all := best(r.summaries(), valSustained)
	if len(all) != 3 || all[0].Variant != "64" || all[0].Values[valSustained] != (stat{200, 190, 201}) ||
		all[0].Runs != 3 {
		t.Fatalf("%+v", all)
	}
	if first := r.summaries()[0]; !first.Values[valSustained].wide() || all[0].Values[valSustained].wide() {
		t.Error("a wide spread is not told from a narrow one")
	}
	ratios := relative(all, valSustained, "")
	if len(ratios.Rows) != 1 || ratios.Columns[3].Title != "/ semi-sync" || ratios.Rows[0][3].Text != "0.75" ||
		ratios.Rows[0][3].Mark != report.Worse {
		t.Errorf("%+v", ratios)
	}
	if cpu := relative(all, valCPUAll, ""); cpu.Rows[0][3].Text != "0.80" || cpu.Rows[0][3].Mark != report.Better {
		t.Errorf("%+v", cpu)
	}
	table := pivot(all, valSustained, "")
	for _, c := range table.Rows[0] {
		if (c.Mark == report.Best) != (c.Text == "200") || (c.Text == "not run") != (c.Note == "no such program") {
			t.Errorf("%+v", c)
		}
	}
	duels := Suite{Name: "x", Compare: []Comparison{{valSustained}, {valCPUAll}}}.duels(r)
	list := losses(duels)
	if len(list) != 1 || list[0].key.System != "semisync" || list[0].ratio != 0.75 {
		t.Errorf("losses: %+v", list)
	}
	if rows := glance(duels).Blocks[1].(report.Table).Rows; len(rows) != 2 || rows[0][4].Text != "0" ||
		rows[0][5].Text != "1" || rows[0][7].Text != "0.75" || rows[1][4].Text != "1" || rows[1][7].Text != "0.80" {
		t.Errorf("at a glance: %+v", rows)
	}
}

// TestDrift: a machine that is slower in some rounds changes TPS and the client's CPU time per transaction, and not
// what both come to.
func TestDrift(t *testing.T) {
	r := &Results{}
	for i, slower := range []float64{1, 1.5, 2} {
		rec := record("trireme", "default", 64, i+1, 300/slower, 5)
		rec.Values[valClientUS] = 100 * slower
		r.Records = append(r.Records, rec)
	}
	all := r.summaries()
	if got := all[0].Values[valShare]; got != (stat{3, 3, 3}) {
		t.Errorf("%+v", got)
	}
	row := spreads(all, valSustained, valShare).Rows[0]
	if n := len(row); row[n-2].Text != "75" || row[n-1].Text != "0.0" {
		t.Errorf("%+v", row)
	}
}

// TestDigest: programs get the same figures, and JSON has no infinity.
func TestDigest(t *testing.T) {
	r := &Results{Records: []Record{record("semisync", "4", 16, 1, 200, 0), record("trireme", "default", 16, 1, 150, 4),
		{Key: Key{System: "async"}, NotRun: "no such program"}, {Key: Key{System: "mgr"}, Failed: "it hung"},
		{Key: Key{System: "trireme", Threads: 5}, Broken: "a row is lost"}}}
	d := Suite{Name: "x", Compare: []Comparison{{valSustained}, {valCPUAll}}}.digest(r)
	if d.Measured != 3 || len(d.NotRun) != 1 || len(d.Failed) != 1 || len(d.Broken) != 1 || len(d.Figures) != 2 {
		t.Fatalf("%+v", d)
	}
	if f := d.Figures[0]; f.Name != valSustained || f.Ours.Median != 150 || f.Theirs.Median != 200 || f.Ratio == nil ||
		*f.Ratio != 0.75 {
		t.Errorf("%+v", f)
	}
	if f := d.Figures[1]; f.Ratio != nil {
		t.Errorf("a ratio to nothing: %v", *f.Ratio)
	}
	if _, err := json.Marshal(d); err != nil {
		t.Error(err)
	}
	if _, err := ReadDigest(t.TempDir()); err == nil || !strings.Contains(err.Error(), "measure first") {
		t.Error(err)
	}
}

func TestVariation(t *testing.T) {
	for _, c := range []struct {
		series []float64
		want   float64
	}{{nil, 0}, {[]float64{5}, 0}, {[]float64{0, 0}, 0}, {[]float64{1, 10, 10, 10, 1}, 0},
		{[]float64{100, 9, 11, 9, 11, 3}, 11.547}} {
		if got := variation(c.series); got < c.want-0.001 || got > c.want+0.001 {
			t.Errorf("variation of %v is %v, want %v", c.series, got, c.want)
		}
	}
}
