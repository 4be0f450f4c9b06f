package mysqld

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// Session is a connection of somebody else's.
type Session struct {
	ID      uint64
	User    string
	Host    string
	Command string
	Info    string // its statement, shortened by the server
	State   string
}

// ours: sessions of Trireme's accounts and of the server itself are never killed.
func (a *Admin) ours(user, command string) bool {
	switch user {
	case a.cfg.Admin.User, a.cfg.Repl.User, "system user", "event_scheduler", "mysql.session":
		return true
	}
	return command == "Daemon" || strings.HasPrefix(command, "Binlog Dump")
}

// ApplicationSessions lists all connections that are not Trireme's or the server's own.
func (a *Admin) ApplicationSessions(ctx context.Context) ([]Session, error) {
	var found []Session
	err := limit(ctx, quickLimit, "list sessions", func(ctx context.Context) error {
		t, err := a.status.query(ctx, "SHOW PROCESSLIST")
		if err != nil {
			return err
		}
		for _, r := range t {
			if a.ours(r["user"], r["command"]) {
				continue
			}
			id, err := strconv.ParseUint(r["id"], 10, 64)
			if err != nil {
				return fmt.Errorf("SHOW PROCESSLIST: id: %w", err)
			}
			found = append(found, Session{id, r["user"], r["host"], r["command"], r["info"], r["state"]})
		}
		return nil
	})
	return found, err
}

// Commits says that the session is in the middle of a commit.
func (s Session) Commits() bool { return s.State == stateCommit }

// KillApplicationConnections ends all of them, logins under way included, and says how many. A commit that waits for
// its acknowledgement is not undone by this: its client loses the connection, the transaction goes on waiting.
//
// Sessions in the middle of a commit are left alone: KILL ends no commit, and if one of them waits for room on the disk
// of the binary log, mysqld ends, or goes on with a binary log that lacks bytes (docs/mysql.md).
func (a *Admin) KillApplicationConnections(ctx context.Context) (killed int, err error) {
	seen := map[uint64]bool{}
	// A login that was under way during one pass is a session in the next.
	for range sweepRounds {
		sessions, err := a.ApplicationSessions(ctx)
		if err != nil {
			return killed, err
		}
		// A killed session stays in the list until it has noticed.
		sessions = slices.DeleteFunc(sessions, func(s Session) bool { return seen[s.ID] || s.Commits() })
		if len(sessions) == 0 {
			return killed, nil
		}
		for _, s := range sessions {
			seen[s.ID] = true
		}
		n, err := a.kill(ctx, sessions)
		killed += n
		if err != nil {
			return killed, err
		}
	}
	return killed, nil
}

// kill counts the sessions that were still there.
func (a *Admin) kill(ctx context.Context, sessions []Session) (killed int, err error) {
	err = limit(ctx, quickLimit, "kill sessions", func(ctx context.Context) error {
		for _, s := range sessions {
			err := a.killer.exec(ctx, "KILL "+strconv.FormatUint(s.ID, 10))
			switch {
			case err == nil:
				killed++
			case errorNumber(err) != erNoSuchThread:
				return err
			}
		}
		return nil
	})
	return killed, err
}

// EndForeignDumps ends the sessions of others that read the binary log, and lists them: on a leader they see what no
// majority has, and one that is semi-synchronous confirms it (S1). mysqld knows one privilege for both kinds of
// readers. Needs performance_schema; without it none is found.
func (a *Admin) EndForeignDumps(ctx context.Context) (ended []Session, err error) {
	err = limit(ctx, quickLimit, "list readers of the binary log", func(ctx context.Context) error {
		t, err := a.status.query(ctx,
			"SELECT PROCESSLIST_ID AS id, PROCESSLIST_USER AS user, PROCESSLIST_HOST AS host, PROCESSLIST_COMMAND AS command"+
				" FROM performance_schema.threads WHERE PROCESSLIST_COMMAND IN ('Binlog Dump', 'Binlog Dump GTID') AND PROCESSLIST_USER <> "+quote(a.cfg.Repl.User))
		for _, r := range t {
			id, err := strconv.ParseUint(r["id"], 10, 64)
			if err != nil {
				return fmt.Errorf("performance_schema.threads: id: %w", err)
			}
			ended = append(ended, Session{ID: id, User: r["user"], Host: r["host"], Command: r["command"]})
		}
		return err
	})
	if err == nil && len(ended) > 0 {
		_, err = a.kill(ctx, ended)
	}
	return ended, err
}

// OpenTransaction is a transaction of an application that has not ended.
type OpenTransaction struct {
	Session
	Event     uint64 // performance_schema's number of the transaction in its session
	AgeS      int64  // seconds since it began
	Rows      uint64 // that it has changed, as InnoDB counts them
	Statement string // running or last one, at most 100 characters; empty when not known
}

// Same reports whether o is still the transaction t, looked at later.
func (t OpenTransaction) Same(o OpenTransaction) bool { return t.ID == o.ID && t.Event == o.Event }

// openTransactions leaves out what is prepared (XA), and what has committed and waits for its acknowledgement only:
// nothing undoes those. It does not rest on INNODB_TRX, which is a cache that is not refreshed within 0.1 s of the last
// look (trx0i_s.cc, CACHE_MIN_IDLE_TIME): who polls it sees transactions that have ended long ago.
const openTransactions = `SELECT p.ID AS id, p.USER AS user, p.HOST AS host, p.COMMAND AS command, e.EVENT_ID AS event,
  e.TIMER_WAIT DIV 1000000000000 AS age, LEFT(COALESCE(s.SQL_TEXT, ''), 100) AS statement, %s
FROM performance_schema.events_transactions_current e
JOIN performance_schema.threads w ON w.THREAD_ID = e.THREAD_ID
JOIN performance_schema.processlist p ON p.ID = w.PROCESSLIST_ID
LEFT JOIN performance_schema.events_statements_current s ON s.THREAD_ID = e.THREAD_ID AND s.NESTING_EVENT_LEVEL = 0
WHERE e.STATE = 'ACTIVE' AND COALESCE(e.XA_STATE, '') <> 'PREPARED' AND COALESCE(p.STATE, '') NOT LIKE 'Waiting for semi-sync%%'
ORDER BY e.TIMER_WAIT DESC, p.ID`

// OpenTransactions lists the transactions of applications, oldest first. With rows it hangs while an account statement
// waits for its acknowledgement (package comment), so it must not be polled. It needs performance_schema; without it
// the list is empty.
func (a *Admin) OpenTransactions(ctx context.Context, rows bool) ([]OpenTransaction, error) {
	column := "0 AS changed"
	if rows {
		column = `COALESCE((SELECT x.trx_rows_modified FROM information_schema.INNODB_TRX x
  WHERE x.trx_mysql_thread_id = p.ID LIMIT 1), 0) AS changed`
	}
	var found []OpenTransaction
	err := limit(ctx, quickLimit, "list open transactions", func(ctx context.Context) error {
		t, err := a.status.query(ctx, fmt.Sprintf(openTransactions, column))
		if err != nil {
			return err
		}
		for _, r := range t {
			if a.ours(r["user"], r["command"]) {
				continue
			}
			o := OpenTransaction{Session: Session{User: r["user"], Host: r["host"], Command: r["command"]},
				Statement: r["statement"]}
			if _, err := fmt.Sscan(r["id"]+" "+r["event"]+" "+r["age"]+" "+r["changed"], &o.ID, &o.Event, &o.AgeS, &o.Rows); err != nil {
				return fmt.Errorf("events_transactions_current: %w", err)
			}
			found = append(found, o)
		}
		return nil
	})
	return found, err
}

// Blocker is a session that holds a metadata lock which an applier thread waits for.
type Blocker struct {
	Session
	Object string // "schema.table", or the kind of lock
}

// MetadataBlockers lists the sessions that keep the applier from going on, usually a long reader before DDL. They block
// it for a year by default. Needs performance_schema; without it the list is empty.
func (a *Admin) MetadataBlockers(ctx context.Context) ([]Blocker, error) {
	var found []Blocker
	err := limit(ctx, quickLimit, "look for metadata locks", func(ctx context.Context) error {
		t, err := a.status.query(ctx, `SELECT DISTINCT t.PROCESSLIST_ID AS id, t.PROCESSLIST_USER AS user, t.PROCESSLIST_HOST AS host,
  t.PROCESSLIST_COMMAND AS command, t.PROCESSLIST_INFO AS info, g.OBJECT_TYPE AS kind, g.OBJECT_SCHEMA AS s, g.OBJECT_NAME AS n
FROM performance_schema.metadata_locks p
JOIN performance_schema.threads w ON w.THREAD_ID = p.OWNER_THREAD_ID
JOIN performance_schema.metadata_locks g ON g.LOCK_STATUS = 'GRANTED' AND g.OBJECT_TYPE = p.OBJECT_TYPE
  AND g.OBJECT_SCHEMA <=> p.OBJECT_SCHEMA AND g.OBJECT_NAME <=> p.OBJECT_NAME AND g.OWNER_THREAD_ID <> p.OWNER_THREAD_ID
JOIN performance_schema.threads t ON t.THREAD_ID = g.OWNER_THREAD_ID
WHERE p.LOCK_STATUS = 'PENDING' AND t.PROCESSLIST_ID IS NOT NULL
  AND w.NAME IN ('thread/sql/replica_worker', 'thread/sql/replica_sql', 'thread/sql/slave_worker', 'thread/sql/slave_sql')`)
		if err != nil {
			return err
		}
		for _, r := range t {
			if a.ours(r["user"], r["command"]) {
				continue
			}
			id, err := strconv.ParseUint(r["id"], 10, 64)
			if err != nil {
				return fmt.Errorf("threads: id: %w", err)
			}
			object := strings.Trim(r["s"]+"."+r["n"], ".")
			if object == "" {
				object = r["kind"]
			}
			found = append(found, Blocker{Session{ID: id, User: r["user"], Host: r["host"], Command: r["command"],
				Info: r["info"]}, object})
		}
		return nil
	})
	return found, err
}

// KillMetadataBlockers ends the sessions that MetadataBlockers lists now, and returns them.
func (a *Admin) KillMetadataBlockers(ctx context.Context) ([]Blocker, error) {
	found, err := a.MetadataBlockers(ctx)
	if err != nil || len(found) == 0 {
		return nil, err
	}
	var sessions []Session
	for _, b := range found {
		sessions = append(sessions, b.Session)
	}
	_, err = a.kill(ctx, sessions)
	return found, err
}
