package robustness

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"
)

// peakMemory is VmHWM of a process in bytes.
func peakMemory(t *testing.T, pid int) int64 {
	t.Helper()
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	must(t, err)
	_, rest, ok := strings.Cut(string(b), "VmHWM:")
	if !ok {
		t.Fatal("no VmHWM")
	}
	n, err := strconv.ParseInt(strings.Fields(rest)[0], 10, 64)
	must(t, err)
	return n << 10
}
