package mysqld

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// sampleLimit bounds the calls of this file, and of heavy.go. They are for reports: nothing waits for them, they have a
// lane of their own, and what is not answered in time is given up on that lane alone.
const sampleLimit = 2 * time.Second

// maxActive bounds the sessions that one look returns.
const maxActive = 1000

// ActiveSession is a session of a client that was at something.
type ActiveSession struct {
	User    string
	Command string // Query, Execute, …
	State   string // empty: none
	Schema  string
	Digest  string // of the statement; empty: not known
	Kind    string // of the statement, such as statement/sql/update
	RowLock bool   // it waits for a row lock
}

// activeQuery reads memory only; the threads of clients have this name.
const activeQuery = `SELECT t.PROCESSLIST_ID AS id, t.PROCESSLIST_USER AS user, t.PROCESSLIST_COMMAND AS command, t.PROCESSLIST_STATE AS state,
  t.PROCESSLIST_TIME AS time, t.PROCESSLIST_DB AS db, s.DIGEST AS digest, s.EVENT_NAME AS event
FROM performance_schema.threads t
LEFT JOIN performance_schema.events_statements_current s ON s.THREAD_ID = t.THREAD_ID AND s.NESTING_EVENT_LEVEL = 0
WHERE t.NAME = 'thread/sql/one_connection' AND t.PROCESSLIST_COMMAND NOT IN ('Sleep', 'Daemon', 'Binlog Dump', 'Binlog Dump GTID')
  AND t.PROCESSLIST_USER NOT IN (%s)
LIMIT %d`

// waitingQuery must not be performance_schema.data_lock_waits. That has a row for each pair of a lock and a waiter, and
// no other commit makes progress while the rows are made: 0.2 s with 600 sessions that wait for one row, growing with
// their square (measured on 9.7.4; this takes 6 ms). data_locks has a row for each lock that is held.
const waitingQuery = "SELECT TRX_MYSQL_THREAD_ID AS id FROM information_schema.INNODB_TRX WHERE TRX_STATE = 'LOCK WAIT' LIMIT %d"

// ActiveSessions lists them. Who waits for a row lock is asked only if somebody has been at a statement for a second,
// since InnoDB looks through its transactions for it. Needs performance_schema; without it the list is empty.
func (a *Admin) ActiveSessions(ctx context.Context) (found []ActiveSession, err error) {
	ours := quote(a.cfg.Admin.User) + ", " + quote(a.cfg.Repl.User) + ", " + quote(a.cfg.Clone.User)
	err = limit(ctx, sampleLimit, "look at the active sessions", func(ctx context.Context) error {
		t, err := a.sample.query(ctx, fmt.Sprintf(activeQuery, ours, maxActive))
		if err != nil {
			return err
		}
		slow := false
		for _, r := range t {
			found = append(found, ActiveSession{User: r["user"], Command: r["command"], State: r["state"], Schema: r["db"],
				Digest: r["digest"], Kind: r["event"]})
			slow = slow || r["time"] != "0"
		}
		if !slow {
			return nil
		}
		waiting, err := a.sample.query(ctx, fmt.Sprintf(waitingQuery, maxActive))
		if err != nil {
			return err
		}
		ids := map[string]bool{}
		for _, w := range waiting {
			ids[w["id"]] = true
		}
		for i, r := range t {
			found[i].RowLock = ids[r["id"]]
		}
		return nil
	})
	return found, err
}

// StatementCount is what performance_schema has counted of one kind of statement since this mysqld started, or since
// the counter was reset.
type StatementCount struct {
	Schema   string
	Digest   string // empty: of all for which there was no room
	Count    uint64
	TimeS    float64
	LockS    float64
	Errors   uint64
	Sent     uint64 // rows
	Examined uint64
	Affected uint64
	NoIndex  uint64
}

// Statements lists the kinds that ran since a time by the server's clock, "" for all, and the latest of those times.
func (a *Admin) Statements(ctx context.Context, since string) (found []StatementCount, seen string, err error) {
	seen = since
	err = limit(ctx, sampleLimit, "read the statements' counters", func(ctx context.Context) error {
		q := `SELECT SCHEMA_NAME AS s, DIGEST AS d, COUNT_STAR AS c, SUM_TIMER_WAIT AS t, SUM_LOCK_TIME AS l, SUM_ERRORS AS e, SUM_ROWS_SENT AS rs,
  SUM_ROWS_EXAMINED AS re, SUM_ROWS_AFFECTED AS ra, SUM_NO_INDEX_USED AS ni, LAST_SEEN AS at
FROM performance_schema.events_statements_summary_by_digest`
		if since != "" {
			q += " WHERE LAST_SEEN >= " + quote(since)
		}
		t, err := a.sample.query(ctx, q)
		if err != nil {
			return err
		}
		for _, r := range t {
			s := StatementCount{Schema: r["s"], Digest: r["d"]}
			if _, err := fmt.Sscan(strings.Join([]string{r["c"], r["e"], r["rs"], r["re"], r["ra"], r["ni"]}, " "),
				&s.Count, &s.Errors, &s.Sent, &s.Examined, &s.Affected, &s.NoIndex); err != nil {
				return fmt.Errorf("events_statements_summary_by_digest: %w", err)
			}
			s.TimeS, s.LockS = picoseconds(r["t"]), picoseconds(r["l"])
			found = append(found, s)
			seen = max(seen, r["at"])
		}
		return nil
	})
	return found, seen, err
}

// picoseconds gives seconds.
func picoseconds(text string) float64 {
	n, _ := strconv.ParseFloat(text, 64) // a number of mysqld's
	return n / 1e12
}

// maxStatementText bounds the text of a statement, in characters.
const maxStatementText = 1000

// StatementTexts gives the texts of kinds of statements by digest: they hold no values.
func (a *Admin) StatementTexts(ctx context.Context, digests []string) (map[string]string, error) {
	texts := map[string]string{}
	if len(digests) == 0 {
		return texts, nil
	}
	quoted := make([]string, len(digests))
	for i, d := range digests {
		quoted[i] = quote(d)
	}
	err := limit(ctx, sampleLimit, "read the statements' texts", func(ctx context.Context) error {
		t, err := a.sample.query(ctx,
			fmt.Sprintf("SELECT DIGEST AS d, LEFT(DIGEST_TEXT, %d) AS t FROM performance_schema.events_statements_summary_by_digest WHERE DIGEST IN (%s)",
				maxStatementText, strings.Join(quoted, ", ")))
		for _, r := range t {
			texts[r["d"]] = r["t"]
		}
		return err
	})
	return texts, err
}

// StatusCounters reads status variables that are numbers.
func (a *Admin) StatusCounters(ctx context.Context, names []string) (map[string]uint64, error) {
	quoted := make([]string, len(names))
	for i, n := range names {
		quoted[i] = quote(n)
	}
	counters := map[string]uint64{}
	err := limit(ctx, sampleLimit, "read status variables", func(ctx context.Context) error {
		t, err := a.sample.query(ctx,
			"SELECT VARIABLE_NAME AS n, VARIABLE_VALUE AS v FROM performance_schema.global_status WHERE VARIABLE_NAME IN ("+
				strings.Join(quoted, ", ")+")")
		for _, r := range t {
			if v, err := strconv.ParseUint(r["v"], 10, 64); err == nil {
				counters[r["n"]] = v
			}
		}
		return err
	})
	return counters, err
}

// FileCount is what performance_schema has counted of one kind of file since this mysqld began.
type FileCount struct {
	Event  string // without wait/io/file/
	Counts [3]uint64
	TimesS [3]float64 // reads, writes, others such as fsync
}

// FileCounts lists those that were used.
func (a *Admin) FileCounts(ctx context.Context) (found []FileCount, err error) {
	err = limit(ctx, sampleLimit, "read the files' counters", func(ctx context.Context) error {
		t, err := a.sample.query(ctx, `SELECT SUBSTRING(EVENT_NAME, 14) AS e, COUNT_READ AS c0, COUNT_WRITE AS c1, COUNT_MISC AS c2, SUM_TIMER_READ AS t0,
  SUM_TIMER_WRITE AS t1, SUM_TIMER_MISC AS t2 FROM performance_schema.file_summary_by_event_name WHERE COUNT_STAR > 0`)
		if err != nil {
			return err
		}
		for _, r := range t {
			f := FileCount{Event: r["e"]}
			for i, n := range []string{"0", "1", "2"} {
				if f.Counts[i], err = strconv.ParseUint(r["c"+n], 10, 64); err != nil {
					return fmt.Errorf("file_summary_by_event_name: %w", err)
				}
				f.TimesS[i] = picoseconds(r["t"+n])
			}
			found = append(found, f)
		}
		return nil
	})
	return found, err
}

// LeaveOut has performance_schema count nothing of what Trireme's own sessions do, but for the one that writes to the
// binary log. To be called again now and then: a lane that logs in again is a new session.
func (a *Admin) LeaveOut(ctx context.Context) error {
	var ids []string
	for _, l := range append(a.lanes(), a.sample) {
		if id := l.id.Load(); id != 0 {
			ids = append(ids, strconv.FormatUint(id, 10))
		}
	}
	if len(ids) == 0 {
		return nil
	}
	return limit(ctx, sampleLimit, "leave our sessions out", func(ctx context.Context) error {
		return a.sample.exec(ctx,
			"UPDATE performance_schema.threads SET INSTRUMENTED = 'NO', HISTORY = 'NO' WHERE PROCESSLIST_ID IN ("+
				strings.Join(ids, ", ")+")")
	})
}
