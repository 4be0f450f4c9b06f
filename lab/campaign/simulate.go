package campaign

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"trireme/lab/sim"
)

// SimulationName is the place of the simulation's state file below the directory of reports.
const SimulationName = "results/simulation.jsonl"

// chunk of seeds is counted once all of it has been run.
const chunk = 200

// telling is how many seeds must have seen everything that the simulation knows how to do; fewer need not.
const telling = 50

// tops are what runs above consensus in the simulation; each seed is run with each of them, and counts only then.
var tops = []struct {
	name string
	make func(*sim.Node) sim.Top // nil: random proposals and reads
}{
	{"raft", nil},
	{"mysqld", sim.SQLTop("")},
}

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
	At         time.Time `json:"at"`
	From       uint64    `json:"from"`
	Count      int       `json:"count"` // From, From+1, ...
	Build      Build     `json:"build"`
	Minutes    float64   `json:"minutes"`
	Simulated  float64   `json:"simulated_hours"`
	Tops       Tops      `json:"tops"` // what was counted with each of tops; a line without one of them is no seed
	Violations []string  `json:"violations,omitempty"`
}

// Tops are counts by the name of what ran above consensus.
type Tops map[string]sim.Counts

func (t Tops) add(u Tops) {
	for name, c := range u {
		if t[name] == nil {
			t[name] = sim.Counts{}
		}
		t[name].Add(c)
	}
}

// whole reports whether the seeds were run with everything that they have to be run with.
func (s *Seeds) whole() bool {
	for _, top := range tops {
		if s.Tops[top.name] == nil {
			return false
		}
	}
	return true
}

// Simulate runs seeds of lab/sim, and counts them. It returns what was run, and sim.ErrFailed if a promise was broken;
// an interruption is no error.
func Simulate(ctx context.Context, s Simulation) (Seeds, error) {
	total := Seeds{At: time.Now().UTC().Truncate(time.Second), From: s.From, Build: s.Build, Tops: Tops{}}
	if w := s.Build.toNobody(s.State); w != "" {
		fmt.Fprintln(s.Say, w)
	}
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
		total.Tops.add(done.Tops)
		total.Violations = append(total.Violations, done.Violations...)
		if s.State != "" {
			if serr := appendLine(s.State, done); serr != nil {
				return total, errors.Join(err, serr)
			}
		}
		fmt.Fprintf(s.Say, "%d seeds from %d on, %.1f hours simulated in %.1f minutes: %d violations\n", total.Count,
			total.From, total.Simulated, total.Minutes, len(total.Violations))
		if err != nil {
			return total, err
		}
	}
	return total, nil
}

// chunk runs n seeds with each of tops. The error is sim.ErrFailed if a promise was broken; after any other the seeds
// do not count.
func (s Simulation) chunk(ctx context.Context, from uint64, n int) (Seeds, error) {
	out := Seeds{From: from, Count: n, Build: s.Build, Tops: Tops{}}
	var failed error
	for _, top := range tops {
		t, err := sim.Campaign(ctx, sim.CampaignOptions{From: from, Seeds: n, Jobs: s.Jobs,
			Options: sim.Options{Top: top.make}})
		if err != nil && !errors.Is(err, sim.ErrFailed) {
			return out, err
		}
		failed = errors.Join(failed, err)
		out.Count, out.Minutes, out.Simulated = min(out.Count, t.Seeds), out.Minutes+t.Took.Minutes(),
			out.Simulated+t.Simulated.Hours()
		out.Tops[top.name] = t.Counts
		for _, f := range t.Failures {
			out.Violations = append(out.Violations, fmt.Sprintf("seed %d with %s: %s: %s", f.Seed, top.name, f.Rule, f.Text))
			fmt.Fprintf(s.Say, "seed %d with %s breaks %s: %s\n%s\nThe same again: trireme-lab verify sim --from %d --seeds 1\n",
				f.Seed, top.name, f.Rule, f.Text, f.Trace, f.Seed)
		}
	}
	out.At = time.Now().UTC().Truncate(time.Second)
	if failed != nil {
		return out, failed
	}
	return out, out.idle()
}

// idle says what never happened in seeds that are enough for it: they show nothing.
func (s *Seeds) idle() error {
	if s.Count < telling {
		return nil
	}
	if none := s.Tops["mysqld"].Missing(); len(none) > 0 {
		return fmt.Errorf(
			"%d seeds from %d on with mysqld never had: %s; they are not counted, and the simulation is at fault", s.Count,
			s.From, strings.Join(none, ", "))
	}
	return nil
}

// distinct counts the seeds of some lines; one that was run twice counts once, one that was not run with all tops not
// at all.
func distinct(lines []Seeds) int {
	seen := map[uint64]bool{}
	for _, l := range lines {
		if !l.whole() {
			continue
		}
		for i := range l.Count {
			seen[l.From+uint64(i)] = true
		}
	}
	return len(seen)
}
