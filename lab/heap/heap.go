// Package heap holds decoders to a bound on the memory that they take: a few bytes from outside that announce a
// gigabyte must not get one. It is for tests.
package heap

import (
	"runtime"
	"testing"
)

// slack is what other code in the process may allocate meanwhile: the fuzzing engine, timers, a collection.
const slack = 256 << 10

// Within runs f and fails the test if the process allocated more than limit bytes meanwhile, freed ones included.
// Nothing else that allocates may run at the same time.
func Within(t testing.TB, limit int, f func()) {
	t.Helper()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	f()
	runtime.ReadMemStats(&after)
	if n := after.TotalAlloc - before.TotalAlloc; n > uint64(limit)+slack {
		t.Errorf("%d bytes allocated, the limit is %d", n, limit)
	}
}
