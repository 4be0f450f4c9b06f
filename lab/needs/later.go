package needs

import (
	"os"
	"slices"
	"strings"
	"testing"
)

// Deferred begins the reason of a test that was left to a later phase of make test. Command test/summary lists them for
// that phase, and fails if one of them never ran.
const Deferred = "deferred to a later phase: "

// What TRIREME_DEFER may list, separated by commas.
const (
	servers = "servers" // tests that start real servers: one package at a time, and not with the race detector
	quiet   = "quiet"   // tests that measure time, or starve others: alone
	noRace  = "norace"  // tests whose goroutines share nothing: without the race detector
)

// Quiet marks a test that needs the machine for itself: one that measures time or CPU, or that would starve others.
// make test runs it alone, but for what has idle priority.
func Quiet(t testing.TB) {
	t.Helper()
	later(t, quiet)
}

// NoRace marks a long test in which goroutines share nothing, such as a simulation. The race detector makes it five to
// ten times slower and cannot find anything in it, so make test runs it without.
func NoRace(t testing.TB) {
	t.Helper()
	later(t, noRace)
}

func later(t testing.TB, what string) {
	t.Helper()
	if slices.Contains(strings.Split(os.Getenv("TRIREME_DEFER"), ","), what) {
		t.Skip(Deferred + what)
	}
}
