package verify

import (
	"context"
	"database/sql"
	"fmt"
	"maps"
	"slices"
)

// The workloads causal and levels have a table of counters, one for each client. A client counts its own upwards and
// reads those of others.

// countersTable is the statement that makes one.
func countersTable(database, table string) string {
	return "CREATE TABLE " + database + "." + table + " (k BIGINT PRIMARY KEY, v BIGINT NOT NULL)"
}

// countTo writes a counter. A statement of a session before this one may still arrive, and must not count back.
func (s *session) countTo(table, hint string, key, value int64) Outcome {
	return commitOutcome(s.exec("INSERT "+hint+"INTO "+table+" VALUES (?, ?) ON DUPLICATE KEY UPDATE v = GREATEST(v, ?)",
		key, value, value))
}

// counter reads one; 0: there is no row. The error says that what came cannot be a counter.
func (s *session) counter(table, hint string, key int64) (value int64, o Outcome, err error) {
	rows, err := s.query("SELECT "+hint+"v FROM "+table+" WHERE k = ?", key)
	if err != nil {
		return 0, Failed, nil
	}
	if len(rows) > 0 {
		var ok bool
		if value, ok = rows[0][0].(int64); !ok {
			return 0, Acked, fmt.Errorf("%w: counter %d is %v", errGarbled, key, rows[0][0])
		}
	}
	return value, Acked, nil
}

// countersOf reads all counters of each node.
func countersOf(ctx context.Context, nodes []Endpoint, database, table string) (map[string]map[int64]int64, error) {
	return eachNode(ctx, nodes, func(ctx context.Context, db *sql.DB) (map[int64]int64, error) {
		return readPairs(ctx, db, "SELECT k, v FROM "+database+"."+table)
	})
}

// judgeCounters checks that at the end each node holds of each counter what was acknowledged, or tried after that.
func (f *findings) judgeCounters(nodes map[string]map[int64]int64, tried, acked map[int64]int64) {
	for _, node := range slices.Sorted(maps.Keys(nodes)) {
		for _, key := range slices.Sorted(maps.Keys(tried)) {
			switch v := nodes[node][key]; {
			case v < acked[key]:
				f.report(Lost, node, Attempt{}, "the counter of client %d is %d, %d was acknowledged", key, v, acked[key])
			case v > tried[key]:
				f.report(Resurrected, node, Attempt{}, "the counter of client %d is %d, which was never written", key, v)
			}
		}
		for _, key := range slices.Sorted(maps.Keys(nodes[node])) {
			if _, ok := tried[key]; !ok {
				f.report(Resurrected, node, Attempt{}, "there is a counter of client %d, which has written none", key)
			}
		}
	}
}
