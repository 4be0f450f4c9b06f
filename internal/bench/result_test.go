package bench

import (
	"math"
	"os"
	"strings"
	"testing"
	"time"
)

const sysbenchOutput = `sysbench 1.0.20 (using system LuaJIT 2.1.0-beta3)

Running the test with following options:
Number of threads: 4

SQL statistics:
    queries performed:
        read:                            0
        write:                           8000
        other:                           4000
        total:                           12000
    transactions:                        2000   (199.83 per sec.)
    queries:                             12000  (1198.97 per sec.)
    ignored errors:                      3      (0.30 per sec.)
    reconnects:                          0      (0.00 per sec.)

General statistics:
    total time:                          10.0086s
    total number of events:              2000

Latency (ms):
         min:                                    1.00
         avg:                                   20.01
         max:                                  101.00
         95th percentile:                       33.12
         sum:                                40000.00
`

func TestParseSysbench(t *testing.T) {
	r, err := parseSysbench(sysbenchOutput)
	if err != nil {
		t.Fatal(err)
	}
	if r.Transactions != 2000 || r.Seconds != 10.0086 || r.Errors != 3 || r.P95 != 33120*time.Microsecond {
		t.Fatalf("read %+v", r)
	}
	for _, broken := range []string{"", "FATAL: unable to connect", strings.Replace(sysbenchOutput, "2000   (199", "0   (199", 1)} {
		if _, err := parseSysbench(broken); err == nil {
			t.Errorf("accepted %.40q", broken)
		}
	}
}

func TestParseStat(t *testing.T) {
	line := "123 (a ) b) S 1 123 123 0 -1 4194560 1 0 0 0 150 50 7 9 20 0 4 0 999 1 1 1"
	if d, err := parseStat(line); err != nil || d != 2*time.Second {
		t.Fatalf("%v %v, want 2s", d, err)
	}
	for _, broken := range []string{"", "123 (x", "123 (x) S 1 2"} {
		if _, err := parseStat(broken); err == nil {
			t.Errorf("accepted %q", broken)
		}
	}
	if d, err := cpuTime(os.Getpid()); err != nil || d < 0 {
		t.Fatalf("own CPU time: %v %v", d, err)
	}
	if now, peak, err := resident(os.Getpid()); err != nil || now < 1<<20 || peak < now {
		t.Fatalf("own memory: %d %d %v", now, peak, err)
	}
}

func TestMedianAndQuantile(t *testing.T) {
	for _, c := range []struct {
		v    []float64
		want float64
	}{{nil, 0}, {[]float64{3}, 3}, {[]float64{5, 1, 3}, 3}, {[]float64{4, 1, 3, 2}, 2.5}} {
		if got := median(c.v); got != c.want {
			t.Errorf("median of %v is %v, want %v", c.v, got, c.want)
		}
	}
	v := []float64{10, 9, 8, 7, 6, 5, 4, 3, 2, 1}
	if quantile(v, 0.99) != 10 || quantile(v, 0.5) != 5 || v[0] != 10 {
		t.Error("quantile is wrong, or changed its argument")
	}
}

// TestReport checks that the best variant counts, that medians are taken over rounds, and that ratios are of the right things.
func TestReport(t *testing.T) {
	cell := func(system, variant string, sustained, all, leader float64) Cell {
		return Cell{System: system, Title: system, Variant: variant, Threads: 16, TPS: sustained * 2, SustainedTPS: sustained, RelativeCPU: all, LeaderRelativeCPU: leader,
			Hosts: []HostCPU{{Leader: true, Daemonus: 70, DaemonRSS: 50 << 20}, {Daemonus: 30, DaemonRSS: 20 << 20}}}
	}
	r := Result{Cells: []Cell{
		cell("trireme", "default", 900, 9, 4), cell("standalone", "default", 1700, 4, 4),
		cell("semisync", "4", 300, 16, 5), cell("semisync", "64", 500, 18, 5),
		cell("trireme", "default", 1000, 9, 4), cell("semisync", "4", 900, 16, 5), cell("semisync", "64", 500, 20, 5),
		cell("trireme", "default", 100, 9, 4), cell("semisync", "4", 310, 16, 5), cell("semisync", "64", 510, 22, 5),
	}}
	sums := summarise(r.Cells)
	if len(sums) != 3 || sums[0].System != "standalone" || sums[1].System != "semisync" || sums[2].System != "trireme" {
		t.Fatalf("order: %+v", sums)
	}
	if s := sums[1]; s.Variant != "64" || s.Sustained != 500 || s.All != 20 || s.SustainedMin != 500 || s.SustainedMax != 510 || s.Runs != 3 {
		t.Errorf("semi-sync: %+v: the variant with the better median counts", s)
	}
	if s := sums[2]; s.Sustained != 900 || s.LeaderDaemonus != 70 || s.OtherDaemonus != 30 || s.LeaderRSS != 50 {
		t.Errorf("trireme: %+v", s)
	}
	if md := r.markdown(); !strings.Contains(md, "| 16 | 1.80 | 1.80 | 0.45 | 1.00 | 0.53 |") {
		t.Errorf("ratios are wrong:\n%s", md)
	}
	if math.IsNaN(sums[0].CatchUp) {
		t.Error("NaN")
	}
}

func TestQuickOptions(t *testing.T) {
	if _, err := (QuickOptions{Systems: []string{"oracle"}}).withDefaults(); err == nil {
		t.Error("an unknown system was accepted")
	}
	o, err := QuickOptions{}.withDefaults()
	if err != nil || o.Rounds != 3 || len(o.Threads) != 3 || len(o.Systems) != 3 {
		t.Errorf("defaults: %+v %v", o, err)
	}
}
