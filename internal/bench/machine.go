package bench

import (
	"fmt"
	"os"
	"runtime"
	"slices"
	"strings"
	"syscall"
)

// Machine that the figures come from.
type Machine struct {
	CPUs      int    `json:"cpus"`
	Model     string `json:"model"`
	Kernel    string `json:"kernel"`
	MemoryMiB int64  `json:"memory_mib"`
	// LoadAverage of one minute before the first run: other work on the machine.
	LoadAverage string `json:"load_average"`
}

func (m Machine) String() string {
	return fmt.Sprintf("%d CPUs (%s), %d MiB memory, Linux %s, load average %s before the first run", m.CPUs, m.Model, m.MemoryMiB, m.Kernel, m.LoadAverage)
}

func describeMachine() Machine {
	m := Machine{CPUs: runtime.NumCPU()}
	if b, err := os.ReadFile("/proc/cpuinfo"); err == nil {
		if _, rest, ok := strings.Cut(string(b), "model name"); ok {
			line, _, _ := strings.Cut(rest, "\n")
			m.Model = strings.TrimSpace(strings.TrimLeft(line, " \t:"))
		}
	}
	if b, err := os.ReadFile("/proc/sys/kernel/osrelease"); err == nil {
		m.Kernel = strings.TrimSpace(string(b))
	}
	if b, err := os.ReadFile("/proc/loadavg"); err == nil {
		m.LoadAverage, _, _ = strings.Cut(string(b), " ")
	}
	var info syscall.Sysinfo_t
	if syscall.Sysinfo(&info) == nil {
		m.MemoryMiB = int64(info.Totalram) * int64(info.Unit) >> 20
	}
	return m
}

// median of values; 0 without any. With an even number it is the mean of the two in the middle.
func median(values []float64) float64 {
	if len(values) == 0 {
		return 0
	}
	v := slices.Sorted(slices.Values(values))
	if n := len(v); n%2 == 0 {
		return (v[n/2-1] + v[n/2]) / 2
	}
	return v[len(v)/2]
}
