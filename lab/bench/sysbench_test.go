package bench

import (
	"slices"
	"strings"
	"testing"
	"time"
)

const sysbenchOutput = `sysbench 1.0.20 (using system LuaJIT 2.1.0-beta3)

Threads started!

[ 1s ] thds: 4 tps: 199.63 qps: 1200.72 (r/w/o: 0.00/800.48/400.24) lat (ms,95%): 33.12 err/s: 0.00 reconn/s: 0.00
[ 2s ] thds: 4 tps: 201.01 qps: 1206.06 (r/w/o: 0.00/804.04/402.02) lat (ms,95%): 33.12 err/s: 1.00 reconn/s: 0.00
Latency histogram (values are in milliseconds)
       value  ------------- distribution ------------- count
       9.910 |**                                       10
      18.950 |**************************************** 1890
      33.120 |*                                        60
     101.130 |*                                        40
 
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
	if r.Transactions != 2000 || r.Queries != 12000 || r.Seconds != 10.0086 || r.Errors != 3 ||
		r.Average != 20010*time.Microsecond ||
		r.P95 != 18950*time.Microsecond || r.P99 != 101130*time.Microsecond ||
		!slices.Equal(r.TPS, []float64{199.63, 201.01}) {
		t.Fatalf("read %+v", r)
	}
	for _, broken := range []string{"", "FATAL: unable to connect", strings.Replace(sysbenchOutput, "2000   (199",
		"0   (199", 1),
		strings.ReplaceAll(sysbenchOutput, " |", " ")} {
		if _, err := parseSysbench(broken); err == nil {
			t.Errorf("accepted %.40q", broken)
		}
	}
}
