package wan

import (
	"os"
	"strconv"
	"strings"
	"sync"
)

const (
	sliceFile = "/proc/sys/kernel/sched_cfs_bandwidth_slice_us"
	// sliceUS is what a CPU takes of a budget at once. The kernel's 5 ms may be all that a host has in a period: then
	// its processes on the other CPUs stand still although the budget is not used up.
	sliceUS = 1000
)

// slice counts the budgets that need a small slice. The kernel has one setting for all.
var slice struct {
	mu     sync.Mutex
	users  int
	before string // to be restored by the last one; empty: nothing was changed
}

// takeSlice makes the kernel hand budgets out in small pieces, for as long as somebody needs it. Where it cannot be
// set, budgets are coarser.
func takeSlice() {
	slice.mu.Lock()
	defer slice.mu.Unlock()
	if slice.users++; slice.users > 1 {
		return
	}
	text, err := os.ReadFile(sliceFile)
	if n, nerr := strconv.Atoi(strings.TrimSpace(string(text))); err != nil || nerr != nil || n <= sliceUS {
		return
	}
	if os.WriteFile(sliceFile, []byte(strconv.Itoa(sliceUS)), 0o644) == nil {
		slice.before = string(text)
	}
}

func releaseSlice() {
	slice.mu.Lock()
	defer slice.mu.Unlock()
	if slice.users--; slice.users > 0 || slice.before == "" {
		return
	}
	_ = os.WriteFile(sliceFile, []byte(slice.before), 0o644) // it could be set before
	slice.before = ""
}
