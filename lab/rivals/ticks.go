package rivals

import (
	"os"
	"strconv"
	"strings"
)

// Ticks of all CPUs since the machine has started (proc_stat(5)), and those that a hypervisor gave to others while
// there was work here.
type Ticks struct{ All, Steal uint64 }

// ReadTicks is zero where /proc/stat cannot be read.
func ReadTicks() Ticks {
	b, _ := os.ReadFile("/proc/stat")
	return ParseTicks(string(b))
}

// ParseTicks reads the first line of /proc/stat: cpu user nice system idle iowait irq softirq steal, and guest times,
// which user and nice hold already.
func ParseTicks(stat string) (t Ticks) {
	line, _, _ := strings.Cut(stat, "\n")
	fields := strings.Fields(line)
	const steal = 8
	for i, f := range fields[min(1, len(fields)):min(steal+1, len(fields))] {
		n, _ := strconv.ParseUint(f, 10, 64)
		if t.All += n; i+1 == steal {
			t.Steal = n
		}
	}
	return t
}

// Stolen is the percentage since before that a hypervisor gave to others while there was work here.
func (t Ticks) Stolen(before Ticks) float64 {
	if t.All <= before.All || t.Steal < before.Steal {
		return 0
	}
	return 100 * float64(t.Steal-before.Steal) / float64(t.All-before.All)
}
