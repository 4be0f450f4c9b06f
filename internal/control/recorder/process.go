package recorder

import (
	"math"

	"github.com/prometheus/procfs"
)

// Process is what one of the node's processes took of its host in an interval.
type Process struct {
	CPUMS  uint64 `json:"cpu_ms"` // time on a CPU, of all threads
	Memory uint64 `json:"memory"` // bytes resident at the end of the interval
}

// Names of what a bucket of api.PeriodView has of processes. They stand among the status variables of mysqld, whose
// names begin with a capital letter.
const (
	daemonCPU    = "daemon_cpu_ms"
	daemonMemory = "daemon_memory_bytes" // the highest
	mysqldCPU    = "mysqld_cpu_ms"
	mysqldMemory = "mysqld_memory_bytes" // the highest
)

// meter reads one process after another: each runs in the place of the one before.
type meter struct {
	pid int
	cpu float64 // seconds on a CPU when it was last read
}

// read returns what the process took since the last call, or since its start if it was not read before; nil: it is not
// known.
func (m *meter) read(proc procfs.FS, pid int) *Process {
	p, err := proc.Proc(pid)
	if err != nil {
		return nil
	}
	stat, err := p.Stat()
	if err != nil {
		return nil
	}
	if pid != m.pid {
		*m = meter{pid: pid}
	}
	used := since(stat.CPUTime(), m.cpu)
	m.cpu = stat.CPUTime()
	return &Process{CPUMS: uint64(math.Round(1000 * used)), Memory: uint64(stat.ResidentMemory())}
}

// addTo takes the interval up in a bucket's counters.
func (p *Process) addTo(counters map[string]uint64, cpu, memory string) {
	if p != nil {
		counters[cpu] += p.CPUMS
		counters[memory] = max(counters[memory], p.Memory)
	}
}
