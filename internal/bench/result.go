package bench

import (
	"cmp"
	"fmt"
	"os"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"time"
)

// Result is everything that Quick measured. Its JSON form is docs/benchmarks/quick.json.
type Result struct {
	Machine       Machine           `json:"machine"`
	MySQL         string            `json:"mysql"`
	Started       time.Time         `json:"started"`
	Load          Load              `json:"load"`
	WarmupSeconds float64           `json:"warmup_seconds"`
	Seconds       float64           `json:"seconds"`
	Rounds        int               `json:"rounds"`
	Options       map[string]string `json:"shared_options"`
	Cells         []Cell            `json:"cells"`
	Idle          []Idle            `json:"idle"`
}

// Machine that the figures come from.
type Machine struct {
	CPUs      int    `json:"cpus"`
	Model     string `json:"model"`
	Kernel    string `json:"kernel"`
	MemoryMiB int64  `json:"memory_mib"`
	// LoadAverage of one minute before the first run: other work on the machine.
	LoadAverage string `json:"load_average"`
}

// Cell is one run: a system, a variant of it, and a number of threads. Times of CPU are microseconds per transaction.
type Cell struct {
	System            string    `json:"system"`
	Title             string    `json:"title"`
	Variant           string    `json:"variant"`
	Threads           int       `json:"threads"`
	Transactions      int64     `json:"transactions"`
	Errors            int64     `json:"ignored_errors"`
	TPS               float64   `json:"tps"`
	SustainedTPS      float64   `json:"sustained_tps"`
	P95ms             float64   `json:"p95_ms"`
	LagTransactions   int64     `json:"lag_transactions"` // not applied by the slowest replica at the end of the run
	CatchUpSeconds    float64   `json:"catch_up_seconds"`
	SysbenchCPUus     float64   `json:"sysbench_cpu_us"`
	RelativeCPU       float64   `json:"relative_cpu"`        // over all hosts, in units of sysbench's own
	LeaderRelativeCPU float64   `json:"leader_relative_cpu"` // of the leader's host
	Hosts             []HostCPU `json:"hosts"`
}

func (c Cell) String() string {
	return fmt.Sprintf("%6.0f TPS, sustained %6.0f, p95 %6.1f ms, %5d behind, caught up in %4.1f s, CPU leader %.2f all %.2f",
		c.TPS, c.SustainedTPS, c.P95ms, c.LagTransactions, c.CatchUpSeconds, c.LeaderRelativeCPU, c.RelativeCPU)
}

// HostCPU is what one host spent per transaction, and its daemon's memory in bytes after the run.
type HostCPU struct {
	Name          string  `json:"name"`
	Leader        bool    `json:"leader"`
	MySQLus       float64 `json:"mysql_us"`
	Daemonus      float64 `json:"daemon_us"`
	Relative      float64 `json:"relative"`
	DaemonRSS     int64   `json:"daemon_rss"`
	DaemonPeakRSS int64   `json:"daemon_peak_rss"`
}

// Idle is the CPU of a system without load, in percent of one core.
type Idle struct {
	System string     `json:"system"`
	Title  string     `json:"title"`
	Hosts  []IdleHost `json:"hosts"`
}

// IdleHost is one host of it.
type IdleHost struct {
	Name          string  `json:"name"`
	Leader        bool    `json:"leader"`
	MySQLPercent  float64 `json:"mysql_percent"`
	DaemonPercent float64 `json:"daemon_percent"`
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

// summary is the medians over the rounds of one system, variant and thread count.
type summary struct {
	System, Title, Variant                        string
	Threads, Runs                                 int
	TPS, Sustained, P95, Lag, CatchUp             float64
	Leader, All                                   float64 // relative CPU
	LeaderMySQLus, LeaderDaemonus, OtherDaemonus  float64
	LeaderRSS, LeaderPeakRSS, OtherRSS, OtherPeak float64 // MiB
	SustainedMin, SustainedMax                    float64
}

// summarise takes medians over rounds, and of each system's variants at a thread count keeps the one with the best sustained
// TPS.
func summarise(cells []Cell) []summary {
	type key struct {
		system, variant string
		threads         int
	}
	groups := map[key][]Cell{}
	var order []key
	for _, c := range cells {
		k := key{c.System, c.Variant, c.Threads}
		if groups[k] == nil {
			order = append(order, k)
		}
		groups[k] = append(groups[k], c)
	}
	best := map[key]summary{} // without the variant
	for _, k := range order {
		s := medians(groups[k])
		b := key{k.system, "", k.threads}
		if have, ok := best[b]; !ok || s.Sustained > have.Sustained {
			best[b] = s
		}
	}
	var out []summary
	for _, s := range best {
		out = append(out, s)
	}
	slices.SortFunc(out, func(a, b summary) int {
		return cmp.Or(cmp.Compare(a.Threads, b.Threads), cmp.Compare(slices.Index(SystemNames, a.System), slices.Index(SystemNames, b.System)))
	})
	return out
}

func medians(cells []Cell) summary {
	of := func(f func(Cell) float64) float64 {
		v := make([]float64, len(cells))
		for i, c := range cells {
			v[i] = f(c)
		}
		return median(v)
	}
	hosts := func(leader bool, f func(HostCPU) float64) float64 {
		return of(func(c Cell) float64 {
			highest := 0.0
			for _, h := range c.Hosts {
				if h.Leader == leader {
					highest = max(highest, f(h))
				}
			}
			return highest
		})
	}
	const mib = 1 << 20
	s := summary{
		System: cells[0].System, Title: cells[0].Title, Variant: cells[0].Variant, Threads: cells[0].Threads, Runs: len(cells),
		TPS: of(func(c Cell) float64 { return c.TPS }), Sustained: of(func(c Cell) float64 { return c.SustainedTPS }),
		P95: of(func(c Cell) float64 { return c.P95ms }), Lag: of(func(c Cell) float64 { return float64(c.LagTransactions) }),
		CatchUp: of(func(c Cell) float64 { return c.CatchUpSeconds }),
		Leader:  of(func(c Cell) float64 { return c.LeaderRelativeCPU }), All: of(func(c Cell) float64 { return c.RelativeCPU }),
		LeaderMySQLus: hosts(true, func(h HostCPU) float64 { return h.MySQLus }), LeaderDaemonus: hosts(true, func(h HostCPU) float64 { return h.Daemonus }),
		OtherDaemonus: hosts(false, func(h HostCPU) float64 { return h.Daemonus }),
		LeaderRSS:     hosts(true, func(h HostCPU) float64 { return float64(h.DaemonRSS) / mib }),
		LeaderPeakRSS: hosts(true, func(h HostCPU) float64 { return float64(h.DaemonPeakRSS) / mib }),
		OtherRSS:      hosts(false, func(h HostCPU) float64 { return float64(h.DaemonRSS) / mib }),
		OtherPeak:     hosts(false, func(h HostCPU) float64 { return float64(h.DaemonPeakRSS) / mib }),
	}
	for i, c := range cells {
		if i == 0 || c.SustainedTPS < s.SustainedMin {
			s.SustainedMin = c.SustainedTPS
		}
		s.SustainedMax = max(s.SustainedMax, c.SustainedTPS)
	}
	return s
}
