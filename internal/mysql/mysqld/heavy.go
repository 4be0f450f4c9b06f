package mysqld

import (
	"context"
	"fmt"
	"strconv"
)

// LimitTransactions makes the server refuse a transaction whose binary log would be larger than so many bytes (a
// multiple of 4096), with ER_TRANS_CACHE_FULL (1197) at the statement that makes it so: that statement is rolled back,
// and the rest of the transaction is its client's to commit or not (measured on 9.7.4). Sessions that are there already
// keep the limit that they began with. 0 brings back the server's own limit, which also holds where it is the smaller
// one. No two calls at a time.
func (a *Admin) LimitTransactions(ctx context.Context, bytes uint64) error {
	if a.cacheMax == 0 {
		own, err := a.globals(ctx, "max_binlog_cache_size")
		if err == nil {
			a.cacheMax, err = strconv.ParseUint(own[0], 10, 64)
		}
		if err != nil {
			return fmt.Errorf("max_binlog_cache_size: %w", err)
		}
	}
	if bytes == 0 || bytes > a.cacheMax {
		bytes = a.cacheMax
	}
	return limit(ctx, quickLimit, "limit transactions", func(ctx context.Context) error {
		return a.control.exec(ctx, "SET GLOBAL max_binlog_cache_size = "+strconv.FormatUint(bytes, 10))
	})
}

// RefusedTransactions counts those that were refused for their size in this incarnation; 0 without performance_schema.
func (a *Admin) RefusedTransactions(ctx context.Context) (n uint64, err error) {
	err = limit(ctx, sampleLimit, "count refused transactions", func(ctx context.Context) error {
		return a.sample.row(ctx, []any{&n},
			"SELECT COALESCE(SUM(SUM_ERROR_RAISED), 0) FROM performance_schema.events_errors_summary_global_by_error WHERE ERROR_NUMBER = 1197")
	})
	return n, err
}

// DDL is a statement that changes a table and runs for seconds.
type DDL struct {
	Statement string  // its first 100 characters
	Seconds   float64 // so far
	Done      float64 // 0 to 1, as the server estimates it; 0: it does not say
}

// runningDDL is read from memory; no lock of a table or of the dictionary is asked for. A statement that waits for a
// lock does nothing yet, and one that waits for its acknowledgement is through.
const runningDDL = `SELECT LEFT(s.SQL_TEXT, 100) AS statement, s.TIMER_WAIT / 1e12 AS seconds, g.WORK_COMPLETED AS done, g.WORK_ESTIMATED AS work
FROM performance_schema.events_statements_current s
JOIN performance_schema.threads w ON w.THREAD_ID = s.THREAD_ID
LEFT JOIN performance_schema.events_stages_current g ON g.THREAD_ID = s.THREAD_ID AND g.WORK_ESTIMATED > 0
WHERE s.END_EVENT_ID IS NULL AND s.TIMER_WAIT >= 2e12
  AND s.EVENT_NAME IN ('statement/sql/alter_table', 'statement/sql/create_index', 'statement/sql/drop_index', 'statement/sql/optimize')
  AND COALESCE(w.PROCESSLIST_STATE, '') NOT LIKE 'Waiting for%'
ORDER BY s.TIMER_WAIT DESC`

// RunningDDL lists what has run for two seconds and more, the longest first; nothing without performance_schema.
func (a *Admin) RunningDDL(ctx context.Context) (found []DDL, err error) {
	err = limit(ctx, sampleLimit, "list running DDL", func(ctx context.Context) error {
		t, err := a.sample.query(ctx, runningDDL)
		if err != nil {
			return err
		}
		for _, r := range t {
			d := DDL{Statement: r["statement"]}
			if d.Seconds, err = strconv.ParseFloat(r["seconds"], 64); err != nil {
				return fmt.Errorf("events_statements_current: seconds: %w", err)
			}
			done, _ := strconv.ParseFloat(r["done"], 64) // empty where there is no stage
			if work, err := strconv.ParseFloat(r["work"], 64); err == nil && work > 0 {
				d.Done = min(done/work, 1)
			}
			found = append(found, d)
		}
		return nil
	})
	return found, err
}
