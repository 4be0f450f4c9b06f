package sim

import (
	"context"
	"fmt"
	"slices"
	"strings"
)

// shrinkRuns bounds how many schedules Shrink tries.
const shrinkRuns = 150

// Shrink looks for a smaller schedule than a failing seed's that breaks the same rule: fewer faults, an earlier end,
// fewer nodes. It returns the schedule and the trace of its run; "" if the seed does not fail.
func Shrink(ctx context.Context, seed uint64, o Options) string {
	o.Trace = false
	s := shrinker{ctx: ctx, o: o, best: drawPlan(seed, &o)}
	first, err := runPlan(ctx, s.best, o)
	if err != nil || first.Violation == nil {
		return ""
	}
	s.found = *first.Violation
	s.cutEnd()
	for again := true; again; {
		again = s.fewerFaults() || s.fewerNodes()
	}
	o.Trace = true
	r, err := runPlan(ctx, s.best, o)
	if err != nil || r.Violation == nil {
		return ""
	}
	var b strings.Builder
	fmt.Fprintf(&b, "seed %d, shrunk to %d nodes and %d faults in %d runs: %v\n", seed, s.best.nodes, len(s.best.faults),
		s.runs, r.Violation)
	for _, f := range s.best.faults {
		fmt.Fprintf(&b, "  %s\n", f)
	}
	b.WriteString(r.Trace)
	return b.String()
}

type shrinker struct {
	ctx   context.Context
	o     Options
	best  plan
	found Violation // of best
	runs  int
}

// try takes p if it breaks the same rule.
func (s *shrinker) try(p plan) bool {
	if s.runs >= shrinkRuns || s.ctx.Err() != nil {
		return false
	}
	s.runs++
	r, err := runPlan(s.ctx, p, s.o)
	if err != nil || r.Violation == nil || r.Violation.Rule != s.found.Rule {
		return false
	}
	s.best, s.found = p, *r.Violation
	s.cutEnd()
	return true
}

// cutEnd leaves out the faults that come after the violation: nothing was different for them.
func (s *shrinker) cutEnd() {
	s.best.faults = slices.DeleteFunc(slices.Clone(s.best.faults), func(f fault) bool { return f.at > s.found.At })
}

// fewerFaults leaves out faults, many at once at first.
func (s *shrinker) fewerFaults() bool {
	smaller := false
	for size := max(1, len(s.best.faults)/2); size > 0; size /= 2 {
		for at := 0; at < len(s.best.faults); {
			p := s.best
			p.faults = slices.Delete(slices.Clone(p.faults), at, min(at+size, len(p.faults)))
			if s.try(p) {
				smaller = true
			} else {
				at += size
			}
		}
	}
	return smaller
}

func (s *shrinker) fewerNodes() bool {
	if s.best.nodes <= 1 {
		return false
	}
	p := s.best
	p.nodes--
	return s.try(p)
}
