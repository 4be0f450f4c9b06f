package bench

import (
	"testing"

	"trireme/lab/rivals"
)

// Each router is charged with what its system spends besides mysqld more than in the direct block of the same repeat.
func TestRouterTable(t *testing.T) {
	r := &Results{}
	add := func(system string, via rivals.Via, repeat int, daemon, extra float64) {
		r.Records = append(r.Records, Record{Key: Key{System: system, Case: string(via), Threads: 16, Repeat: repeat},
			Values: map[string]float64{valTPS: 10, valQPS: 200},
			Hosts:  []HostUse{{MySQLus: 5000 * float64(repeat), Daemonus: daemon}, {Extraus: extra}}})
	}
	for repeat := 1; repeat <= 2; repeat++ {
		more := 100 * float64(repeat)
		add(routerRival, rivals.Direct, repeat, 0, 0)
		add(routerRival, rivals.Router, repeat, 0, 2000)
		add("trireme", rivals.Direct, repeat, 500+more, 0)
		add("trireme", rivals.Router, repeat, 1300+more, 0)
	}
	add("trireme", rivals.Router, 3, 9999, 0) // without a direct one
	rows := r.routerTable().Rows
	if len(rows) != 2 {
		t.Fatalf("%d rows", len(rows))
	}
	for i, want := range [][2]string{{"100.0 ± 0.0", "–"}, {"40.0 ± 0.0", "0.40"}} {
		if got := [2]string{rows[i][3].Text, rows[i][4].Text}; got != want {
			t.Errorf("row %d: %q, want %q", i, got, want)
		}
	}
}
