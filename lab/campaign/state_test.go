package campaign

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"trireme/lab/verify"
)

func part(path string, kills int, more func(*Part)) Part {
	p := Part{At: time.Unix(1e9, 0).UTC(), System: "trireme", Seed: 3, Shape: "3 nodes", Build: Build{Revision: "r" + path,
		CommitPath: path, Go: "go1"}, Minutes: 2, Faults: kills, LeaderKills: kills,
		Counts: map[string]int{"kill-mysqld leader": kills}, Checks: 1, Writes: verify.Counts{Attempts: 10, Acked: 9,
			Unknown: 1}, Problems: map[string]int{}, Seconds: map[phase]float64{phaseChecks: 1}}
	if more != nil {
		more(&p)
	}
	return p
}

// TestState: lines add up over runs, a torn line is told with its place.
func TestState(t *testing.T) {
	path := filepath.Join(t.TempDir(), "results", "x.jsonl")
	if got, err := ReadState(path); err != nil || got != nil {
		t.Fatalf("no file: %v %v", got, err)
	}
	for _, p := range []Part{part("a", 5, nil),
		part("a", 7, func(p *Part) { p.Counts["power all"] = 2; p.PowerLosses = 2 })} {
		if err := AppendState(path, p); err != nil {
			t.Fatal(err)
		}
	}
	got, err := ReadState(path)
	if err != nil || len(got) != 2 {
		t.Fatal(got, err)
	}
	sum := Part{Counts: map[string]int{}, Problems: map[string]int{}, Seconds: map[phase]float64{}}
	for _, p := range got {
		sum.add(p)
	}
	if sum.LeaderKills != 12 || sum.PowerLosses != 2 || sum.Counts["kill-mysqld leader"] != 12 ||
		sum.Counts["power all"] != 2 || sum.Writes.Acked != 18 || sum.Checks != 2 || sum.Minutes != 4 ||
		sum.Seconds[phaseChecks] != 2 {
		t.Errorf("%+v", sum)
	}
	f, err := os.OpenFile(path, os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteString(`{"at":`); err != nil {
		t.Fatal(err)
	}
	f.Close()
	if _, err := ReadState(path); err == nil || !strings.Contains(err.Error(), "x.jsonl:3") {
		t.Error(err)
	}
}
