package campaign

import (
	"bytes"
	"context"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"trireme/lab/needs"
)

func drawn(t *testing.T, parts []Part, seeds []Seeds, b Build, found string) string {
	t.Helper()
	var out bytes.Buffer
	if err := document(parts, seeds, b, found).Markdown(&out, ""); err != nil {
		t.Fatal(err)
	}
	return out.String()
}

// TestFalseAlarm: a violation that was the kit's own fault stays counted, and the report gives the reason. One of
// another day has none.
func TestFalseAlarm(t *testing.T) {
	day := time.Date(2026, 11, 24, 1, 4, 0, 0, time.UTC)
	alarm := part("a", 3, func(p *Part) { p.Seed, p.At, p.Violations = 77, day, []string{"seed 77: its mysqld failed"} })
	const found = "# Found\n\n* seed 77 of 2026-11-24 (it failed): the disks\n  went first.\n* seed 78 of 2026-11-24: other\n\n| wrong |\n|-|\n| x |\n"
	got := drawn(t, []Part{alarm}, nil, Build{CommitPath: "a"}, found)
	if !strings.Contains(got, "1 violation(s)") || !strings.Contains(got, "seed 77 (it failed): the disks went first.\n") {
		t.Errorf("the alarm or its reason is not said:\n%s", got)
	}
	if got := drawn(t, []Part{alarm}, nil, Build{CommitPath: "b"}, found); !strings.Contains(got, "seed 77 (it failed): the disks went first.\n") {
		t.Errorf("the reason is lost when the commit path changes:\n%s", got)
	}
	real := strings.Replace(found, "the disks", "no false alarm: the disks", 1)
	if got := drawn(t, []Part{alarm}, nil, Build{CommitPath: "a"}, real); strings.Contains(got, "A fault of the kit") ||
		!strings.Contains(got, "The reason, by") {
		t.Errorf("a bug is told as the kit's fault:\n%s", got)
	}
	alarm.At = day.AddDate(0, 0, 1)
	if got := drawn(t, []Part{alarm}, nil, Build{CommitPath: "a"}, found); strings.Contains(got, "disks went first") {
		t.Errorf("the reason of another day's run:\n%s", got)
	}
}

// TestReport: counts of the present commit path add up, others are shown apart and do not count, rivals neither; a
// violation is said first.
func TestReport(t *testing.T) {
	rival := part("a", 4, func(p *Part) {
		p.System, p.Violations, p.Problems = "mgr-eventual", []string{"seed 3: lost" + strings.Repeat(" much", 100)},
			map[string]int{"acknowledged write lost": 9}
	})
	parts := []Part{part("a", 1500, nil), part("a", 600, func(p *Part) { p.PowerLosses = 299 }),
		part("b", 7000, func(p *Part) { p.PowerLosses = 400 }), rival}
	both := Tops{"raft": {"steps": 5}, "mysqld": {"acked": 70, "opens": 3}}
	seeds := []Seeds{{From: 0, Count: 300, Build: Build{CommitPath: "a"}, Simulated: 2, Tops: both},
		{From: 200, Count: 200, Build: Build{CommitPath: "a"}, Simulated: 1, Tops: both},
		{From: 900, Count: 10, Build: Build{CommitPath: "b"}, Tops: both},
		{From: 700, Count: 100, Build: Build{CommitPath: "a"}, Simulated: 1, Tops: Tops{"raft": {"steps": 5}}}}
	got := drawn(t, parts, seeds, Build{CommitPath: "a"}, "| wrong | by | guard |\n|-|-|-|\n| x | y | z |\n")
	for _, want := range []string{"2100 faults", "nothing lost", "| leader kills | 2100 | 2000 | reached |",
		"| power losses | 299 | 300 | 1 missing |", "| partitions | 0 | 500 | 500 missing |",
		"| seeds of the simulation | 400 | 10000 | 9600 missing |", "400 different seeds", "; 3 hours", "140 acknowledged",
		"6 promotions", "Runs of other commit paths", "9 × acknowledged write lost", "seed 3: lost much", "…", "1 bugs"} {
		if !strings.Contains(got, want) {
			t.Errorf("no %q in\n%s", want, got)
		}
	}
	if present, other, _ := strings.Cut(got, "Runs of other commit paths"); strings.Contains(present, "7000") ||
		strings.Contains(got, "9100") || !strings.Contains(other, "| 7000 |  |") {
		t.Errorf("what other builds did is counted:\n%s", got)
	}

	s := standingOf("report.md", parts, seeds, Build{CommitPath: "a"})
	if s.Parts != 2 || s.Faults != 2100 || s.Acked != 18 || len(s.Violations) != 0 {
		t.Errorf("%+v", s)
	}
	for _, want := range []Progress{{"leader kills", 2100, 2000}, {"power losses", 299, 300}, {seedsRow, 400, 10000}} {
		if !slices.Contains(s.Wanted, want) {
			t.Errorf("no %v in %v", want, s.Wanted)
		}
	}

	for _, gap := range []func(*Part){func(p *Part) { p.Checks = 0 }, func(p *Part) { p.Faults = 0 }} {
		got = drawn(t, []Part{part("a", 3, gap)}, nil, Build{CommitPath: "a"}, "")
		if !strings.Contains(got, "**Not shown**") || strings.Contains(got, "nothing lost") {
			t.Errorf("a gap is not said:\n%s", got)
		}
	}

	undecided := part("a", 0, func(p *Part) { p.Undecided, p.Uncounted, p.Errors = 2, 7, []string{"disk full"} })
	got = drawn(t, []Part{part("a", 3, nil), undecided}, nil, Build{CommitPath: "a"}, "")
	if !strings.Contains(got, ": 3 faults") ||
		!strings.Contains(got,
			"Not counted: 7 faults, because the checkers could not decide 2 histories; and what 1 campaigns") {
		t.Errorf("what is not counted is not said:\n%s", got)
	}

	parts[0].Violations = []string{"seed 3: a write is lost"}
	got = drawn(t, parts, nil, Build{CommitPath: "a"}, "")
	if !strings.Contains(got, "1 violation(s)") || !strings.Contains(got, "a write is lost") ||
		strings.Contains(got, "nothing lost") {
		t.Errorf("a violation is not said:\n%s", got)
	}
	if got = drawn(t, parts, nil, Build{CommitPath: "c"}, ""); !strings.Contains(got, "No campaign has been run on the present commit path") {
		t.Error(got)
	}
	if got = drawn(t, parts,
		[]Seeds{{From: 4, Count: 1, Build: Build{CommitPath: "c"}, Violations: []string{"seed 4: S1"}}},
		Build{CommitPath: "c"}, ""); !strings.Contains(got, "The simulation found 1 violations") {
		t.Error(got)
	}
}

// TestSimulate: complete chunks are counted, with and without mysqld, an interrupted one is not.
func TestSimulate(t *testing.T) {
	needs.NoRace(t)
	path := filepath.Join(t.TempDir(), SimulationName)
	s := Simulation{From: 5, Seeds: 3, Jobs: 2, State: path, Build: Build{CommitPath: "a"}, Say: t.Output()}
	got, err := Simulate(t.Context(), s)
	if err != nil || got.Count != 3 || got.Simulated <= 0 {
		t.Fatal(got, err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	// the counts of a build without a commit path count for nothing; the run says so before it makes them
	for _, b := range []Build{s.Build, {}} {
		var said strings.Builder
		s.Say, s.Build = &said, b
		if got, err = Simulate(ctx, s); err != nil || got.Count != 0 {
			t.Errorf("%d seeds after an interruption: %v", got.Count, err)
		}
		if strings.Contains(said.String(), "not built by `make build`") != (b.CommitPath == "") {
			t.Errorf("%+v: %q", b, said.String())
		}
	}
	lines, err := readLines[Seeds](path)
	if err != nil || len(lines) != 1 || lines[0].From != 5 || distinct(lines) != 3 ||
		lines[0].Tops["raft"]["accepted"] == 0 || lines[0].Tops["mysqld"]["acked"] == 0 {
		t.Errorf("%+v %v", lines, err)
	}
}

// TestSimulateIdle: seeds in which mysqld does nothing, because it is not there, are not counted.
func TestSimulateIdle(t *testing.T) {
	was := tops[1].make
	tops[1].make = nil
	defer func() { tops[1].make = was }()
	path := filepath.Join(t.TempDir(), SimulationName)
	got, err := Simulate(t.Context(), Simulation{Seeds: telling, Jobs: 2, State: path, Say: t.Output()})
	if err == nil || !strings.Contains(err.Error(), "never had: acked") || got.Count != 0 {
		t.Error(got, err)
	}
	if lines, err := readLines[Seeds](path); err != nil || len(lines) != 0 {
		t.Errorf("%+v %v", lines, err)
	}
}

// TestCountsAreKept: what counts for the present commit path outlives the state file; a path without counts takes none
// away.
func TestCountsAreKept(t *testing.T) {
	dir := t.TempDir()
	state := filepath.Join(dir, StateName)
	line := func(second int64, path string) Part {
		return Part{At: time.Unix(second, 0).UTC(), System: "trireme", Seed: uint64(second), Build: Build{CommitPath: path},
			Faults: 10}
	}
	faults := func(path string) (total int) {
		t.Helper()
		s, err := Report(dir, Build{CommitPath: path}, io.Discard)
		if err != nil {
			t.Fatal(err)
		}
		return s.Faults
	}
	add := func(p Part) {
		t.Helper()
		if err := AppendState(state, p); err != nil {
			t.Fatal(err)
		}
	}
	add(line(1, "old"))
	add(line(2, "new"))
	if got := faults("new"); got != 10 {
		t.Errorf("%d faults", got)
	}
	if err := os.Remove(state); err != nil {
		t.Fatal(err)
	}
	add(line(3, "new"))
	if got := faults("new"); got != 20 {
		t.Errorf("%d faults, after the state file was lost", got)
	}
	if got := faults("new"); got != 20 {
		t.Errorf("%d faults, drawn twice", got)
	}
	if got := faults("next"); got != 0 {
		t.Errorf("%d faults of a path that has none", got)
	}
	if got := faults("new"); got != 20 {
		t.Errorf("%d faults, after another path's report", got)
	}
}
