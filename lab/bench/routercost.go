package bench

import (
	"fmt"
	"strconv"

	"trireme/lab/report"
	"trireme/lab/rivals"
)

// routerTable is what routers spend on a query: the CPU of all processes but mysqld, less that of the direct block
// before it, in which the daemons have no client's bytes to pass on. MySQL Router is a process of its own, Trireme's a
// part of the leader's daemon.
func (r *Results) routerTable() report.Table {
	t := report.Table{Caption: "CPU of the router, µs per query, with the 95 % interval",
		Columns: []report.Column{{Title: "system"}, {Title: "threads", Number: true},
			{Title: "blocks", Number: true}, {Title: "µs", Number: true}, {Title: "of InnoDB Cluster's", Number: true}}}
	order, spent := r.blocks(func(way string) string {
		if way == string(rivals.Router) {
			return string(rivals.Direct)
		}
		return ""
	}, func(rec, base Record) float64 {
		return (rec.besidesMySQL() - base.besidesMySQL()) * rec.Values[valTPS] / rec.Values[valQPS]
	})
	rival := map[int]float64{} // by threads
	for _, k := range order {
		if k.System == routerRival {
			rival[k.Threads], _ = meanWithin(spent[k])
		}
	}
	for _, k := range order {
		mean, half := meanWithin(spent[k])
		share := report.Cell{Text: "–", Mark: report.Absent}
		if rival[k.Threads] > 0 && k.System != routerRival {
			share = report.Cell{Text: fmt.Sprintf("%.2f", mean/rival[k.Threads])}
		}
		t.Rows = append(t.Rows, []report.Cell{{Text: shortName(k.System)}, {Text: strconv.Itoa(k.Threads)},
			{Text: strconv.Itoa(len(spent[k]))}, {Text: fmt.Sprintf("%.1f ± %.1f", mean, half)}, share})
	}
	return t
}

// routerRival is the system that MySQL Router serves.
const routerRival = "mgr-router"

// besidesMySQL is the CPU of daemons and routers, in µs per transaction.
func (rec *Record) besidesMySQL() (us float64) {
	for _, h := range rec.Hosts {
		us += h.Daemonus + h.Extraus
	}
	return us
}
