package campaign

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"trireme/internal/sim"
)

// SimulationName is the place of the simulation's state file below the directory of reports.
const SimulationName = "results/simulation.jsonl"

// chunk of seeds is counted once all of it has been run.
const chunk = 200

// Simulation says which seeds Simulate runs.
type Simulation struct {
	From  uint64
	Seeds int
	Jobs  int
	State string // file to which counts are appended; empty: none
	Build Build
	Say   io.Writer
}

// Seeds that were run: one line of the simulation's state file.
type Seeds struct {
	At         time.Time  `json:"at"`
	From       uint64     `json:"from"`
	Count      int        `json:"count"` // From, From+1, ...
	Build      Build      `json:"build"`
	Minutes    float64    `json:"minutes"`
	Simulated  float64    `json:"simulated_hours"`
	Counts     sim.Counts `json:"counts"`
	Violations []string   `json:"violations,omitempty"`
}

// Simulate runs seeds of internal/sim, and counts them. It returns what was run, and sim.ErrFailed if a promise was broken; an interruption is no error.
func Simulate(ctx context.Context, s Simulation) (Seeds, error) {
	total := Seeds{At: time.Now().UTC().Truncate(time.Second), From: s.From, Build: s.Build, Counts: sim.Counts{}}
	for total.Count < s.Seeds && ctx.Err() == nil {
		n := min(chunk, s.Seeds-total.Count)
		done, err := s.chunk(ctx, s.From+uint64(total.Count), n)
		if err != nil && !errors.Is(err, sim.ErrFailed) {
			if ctx.Err() != nil {
				break // the chunk is not complete
			}
			return total, err
		}
		total.Count += done.Count
		total.Minutes += done.Minutes
		total.Simulated += done.Simulated
		total.Counts.Add(done.Counts)
		total.Violations = append(total.Violations, done.Violations...)
		if s.State != "" {
			if serr := appendLine(s.State, done); serr != nil {
				return total, errors.Join(err, serr)
			}
		}
		fmt.Fprintf(s.Say, "%d seeds from %d on, %.1f hours simulated in %.1f minutes: %d violations\n", total.Count, total.From, total.Simulated, total.Minutes, len(total.Violations))
		if err != nil {
			return total, err
		}
	}
	return total, nil
}

func (s Simulation) chunk(ctx context.Context, from uint64, n int) (Seeds, error) {
	t, err := sim.Campaign(ctx, sim.CampaignOptions{From: from, Seeds: n, Jobs: s.Jobs})
	out := Seeds{At: time.Now().UTC().Truncate(time.Second), From: from, Count: t.Seeds, Build: s.Build, Minutes: t.Took.Minutes(), Simulated: t.Simulated.Hours(), Counts: t.Counts}
	for _, f := range t.Failures {
		out.Violations = append(out.Violations, fmt.Sprintf("seed %d: %s: %s", f.Seed, f.Rule, f.Text))
		fmt.Fprintf(s.Say, "seed %d breaks %s: %s\n%s\nThe same again: trireme verify sim --from %d --seeds 1\n", f.Seed, f.Rule, f.Text, f.Trace, f.Seed)
	}
	return out, err
}

// distinct counts the seeds of some lines; one that was run twice counts once.
func distinct(lines []Seeds) int {
	seen := map[uint64]bool{}
	for _, l := range lines {
		for i := range l.Count {
			seen[l.From+uint64(i)] = true
		}
	}
	return len(seen)
}
