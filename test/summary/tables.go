package main

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"
)

const (
	slowestTests  = 20
	shownOfFailed = 200 // lines of a failed test's output that are repeated at the end; the file has all
	shownInShort  = 20  // lines of its own words, which come last of all
)

// tables prints what the phases came to. What failed comes last, where it is seen. Of a part of the phases it may be
// that tests were left to others.
func tables(out io.Writer, all []*phase, part bool) error {
	s := sums{ran: map[string]bool{}}
	var failures strings.Builder
	fmt.Fprintf(&s.phases, "\n%-12s %8s %8s %6s\n", "phase", "seconds", "CPU s", "cores")
	for _, p := range all {
		s.add(p)
		if p.failed() {
			failures.WriteString(p.failures())
		}
	}
	failures.WriteString(s.left(part))
	for _, p := range all {
		failures.WriteString(p.inShort())
	}
	_, err := fmt.Fprint(out, s.phases.String(), table("seconds phase        package                          tests",
		s.packages, len(s.packages)),
		table(fmt.Sprintf("seconds the %d slowest tests", slowestTests), s.tests, slowestTests), skippedTests(s.skips),
		failures.String(), fmt.Sprintf("\n%d passed, %d failed, %d skipped\n", s.passed, s.failed, s.skipped))
	if err == nil && failures.Len() > 0 {
		return errFailed
	}
	return err
}

type sums struct {
	phases                  strings.Builder
	packages, tests         []row
	skips                   []string
	deferred                []*test
	ran                     map[string]bool // package and test
	passed, failed, skipped int
}

func (s *sums) add(p *phase) {
	if p.end == nil {
		fmt.Fprintf(&s.phases, "%-12s did not end\n", p.name)
	} else {
		fmt.Fprintf(&s.phases, "%-12s %8.1f %8.1f %6.2f\n", p.name, p.end.Elapsed, p.end.CPU,
			p.end.CPU/max(p.end.Elapsed, 0.001))
	}
	for _, k := range p.packages {
		if len(k.tests) > 0 || k.failed() {
			s.packages = append(s.packages, row{k.seconds, fmt.Sprintf("%-12s %-32s %5d", p.name, short(k.path), len(k.tests))})
		}
		if k.failed() && len(k.tests) == 0 {
			s.failed++
		}
		for _, t := range k.tests {
			if t.deferred != "" && !t.failed() {
				s.deferred = append(s.deferred, t)
				continue
			}
			s.ran[t.pkg+"."+t.name] = true
			s.tests = append(s.tests, row{t.seconds, fmt.Sprintf("%-32s %s", short(k.path), t.name)})
			s.skips = append(s.skips, t.reasons()...)
			switch t.result {
			case "pass":
				s.passed++
			case "skip":
				s.skipped++
			default:
				s.failed++
			}
		}
	}
}

// left tells of tests that were left to a phase which did not run them. That is a failure unless only a part of the
// phases is looked at.
func (s *sums) left(part bool) string {
	var b strings.Builder
	n := 0
	for _, t := range s.deferred {
		switch {
		case s.ran[t.pkg+"."+t.name]:
		case part:
			n++
		default:
			s.failed++
			fmt.Fprintf(&b, "\nFAILED: %s.%s was left to the phase %s, which did not run it\n", short(t.pkg), t.name, t.deferred)
		}
	}
	if n > 0 {
		fmt.Fprintf(&s.phases, "\n%d tests with real servers, or that need a quiet machine, are left to make test\n", n)
	}
	return b.String()
}

// row is a line of a table that is sorted by seconds.
type row struct {
	seconds float64
	text    string
}

func table(head string, rows []row, n int) string {
	slices.SortStableFunc(rows, func(a, b row) int { return cmp.Compare(b.seconds, a.seconds) })
	var b strings.Builder
	fmt.Fprintf(&b, "\n%s\n", head)
	for _, r := range rows[:min(n, len(rows))] {
		fmt.Fprintf(&b, "%7.1f %s\n", r.seconds, r.text)
	}
	return b.String()
}

// skippedTests lists reasons, with the tests of each.
func skippedTests(skips []string) string {
	if len(skips) == 0 {
		return ""
	}
	of := map[string][]string{}
	var reasons []string
	for _, s := range skips {
		name, why, _ := strings.Cut(s, ": ")
		if of[why] == nil {
			reasons = append(reasons, why)
		}
		of[why] = append(of[why], name)
	}
	var b strings.Builder
	b.WriteString("\nskipped\n")
	for _, why := range reasons {
		fmt.Fprintf(&b, "  %s\n      %s\n", why, strings.Join(of[why], " "))
	}
	return b.String()
}

func (t *test) reasons() []string {
	var out []string
	for _, s := range t.skips {
		out = append(out, short(t.pkg)+"."+s)
	}
	return out
}

// failures repeats what failed in a phase.
func (p *phase) failures() string {
	var b strings.Builder
	lines := func(head string, output []string) {
		fmt.Fprintf(&b, "\nFAILED: %s: %s\n", p.name, head)
		if n := len(output); n > shownOfFailed {
			fmt.Fprintf(&b, "    (%d lines more in %s.json)\n", n-shownOfFailed, p.name)
			output = output[n-shownOfFailed:]
		}
		b.WriteString(strings.Join(output, ""))
	}
	if len(p.other) > 0 {
		lines("it said", p.other)
	}
	for _, k := range p.packages {
		tests := 0
		for _, t := range k.tests {
			if t.failed() {
				lines(short(k.path)+"."+t.name, t.output)
				tests++
			}
		}
		if tests == 0 && k.failed() {
			lines(short(k.path), k.output)
		}
	}
	switch {
	case p.end == nil:
		fmt.Fprintf(&b, "\nFAILED: %s did not come to its end\n", p.name)
	case p.end.Output != "":
		fmt.Fprintf(&b, "\nFAILED: %s: %s\n", p.name, p.end.Output)
	}
	return b.String()
}

// inShort is what the failed tests of a phase said themselves, without the logs of their nodes: a reader who sees only
// the end of a long output learns from it what went wrong.
func (p *phase) inShort() string {
	var b strings.Builder
	for _, k := range p.packages {
		for _, t := range k.tests {
			if !t.failed() {
				continue
			}
			own := slices.DeleteFunc(slices.Clone(t.output), logged)
			fmt.Fprintf(&b, "\nIn short: %s.%s\n%s", short(k.path), t.name, strings.Join(own[max(0, len(own)-shownInShort):],
				""))
		}
	}
	return b.String()
}

// logged is true for lines of a daemon's log and for the line that names the log.
func logged(line string) bool {
	line = strings.TrimSpace(line)
	return strings.HasPrefix(line, "time=") || strings.HasSuffix(line, ".log:") || line == "[…]"
}

func short(path string) string {
	path = strings.TrimPrefix(path, "trireme/")
	return strings.TrimPrefix(path, "internal/")
}
