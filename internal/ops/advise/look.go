package advise

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/go-sql-driver/mysql"

	"trireme/internal/api"
	"trireme/internal/base/poll"
	"trireme/internal/mysql/mysqld"
	"trireme/internal/ops/check"
)

// Limits of statements, and how often what happens now is looked at.
const (
	readLimit   = 60 * time.Second
	sampleEvery = 250 * time.Millisecond
)

// server is the sessions on one mysqld.
type server struct {
	name string
	user string
	db   *sql.DB
}

// Look reads the facts. All nodes with data that are healthy and not delayed are asked.
func Look(ctx context.Context, o Options) (Facts, error) {
	f := Facts{View: o.View, Hot: map[Key]int{}, Status: map[string]uint64{}}
	servers, err := o.servers()
	if err != nil {
		return f, err
	}
	defer func() {
		for _, s := range servers {
			_ = s.db.Close()
		}
	}()
	leader := servers[0]
	for _, read := range []func(context.Context, *Facts) error{leader.tables, leader.changes, leader.parents,
		leader.expressions,
		leader.statements, leader.transactions, leader.counters} {
		if err := read(ctx, &f); err != nil {
			return f, err
		}
	}
	for _, s := range servers {
		n := Node{Name: s.name, Waits: map[string]int{}}
		if n.Settings, err = s.settings(ctx); err != nil {
			return f, err
		}
		f.Nodes = append(f.Nodes, n)
	}
	return f, sample(ctx, o.For, servers, &f)
}

// servers opens the nodes, the leader first.
func (o Options) servers() ([]*server, error) {
	var out []*server
	led := false
	for _, m := range o.View.Members {
		if m.MySQL == nil || m.State != api.StateHealthy || m.Delay != nil { // a delayed one may lack the account still
			continue
		}
		db, err := check.OpenSQL(net.JoinHostPort(m.MySQL.Host, strconv.Itoa(m.MySQL.Port)), o.User, o.Password,
			map[string]string{"sql_mode": "''", "max_execution_time": "0", "information_schema_stats_expiry": "0"})
		if err != nil {
			return nil, err
		}
		s := &server{m.Name, o.User, db}
		if m.Name == o.View.Leader {
			out, led = slices.Insert(out, 0, s), true
		} else {
			out = append(out, s)
		}
	}
	if !led {
		return nil, api.Errorf(api.KindNoLeader, "no healthy node takes writes: advise cannot say what holds them up").
			With("see `trireme status`")
	}
	return out, nil
}

func (s *server) rows(ctx context.Context, q string) ([]map[string]string, error) {
	ctx, cancel := context.WithTimeout(ctx, readLimit)
	defer cancel()
	rows, err := mysqld.ReadAll(ctx, s.db, q)
	if err != nil {
		return nil, s.refused(err)
	}
	return rows, nil
}

// MySQL server error numbers (mysqld_error.h): the login, or the right that a statement needs, is refused.
const (
	erDBAccessDenied       = 1044
	erAccessDenied         = 1045
	erTableAccessDenied    = 1142
	erSpecificAccessDenied = 1227
	erAccessDeniedNoPwd    = 1698
)

// refused says which account to make or which rights to grant, if that is what the server misses.
func (s *server) refused(err error) error {
	account := "'" + strings.NewReplacer(`\`, `\\`, `'`, `\'`).Replace(s.user) + "'"
	grant := "GRANT SELECT, PROCESS, TRIGGER ON *.* TO " + account
	var number uint16
	if e, ok := errors.AsType[*mysql.MySQLError](err); ok {
		number = e.Number
	}
	switch number {
	case erAccessDenied, erAccessDeniedNoPwd:
		return api.Errorf(api.KindForbidden, "%s refuses the login as %s: %v", s.name, account, err).
			With("give its password in $TRIREME_MYSQL_PASSWORD or with --password-file; or make the account, on the leader: CREATE USER %s IDENTIFIED BY '…' REQUIRE SSL; %s",
				account, grant)
	case erDBAccessDenied, erTableAccessDenied, erSpecificAccessDenied:
		return api.Errorf(api.KindForbidden, "%s lacks a right on %s: %v", account, s.name, err).
			With("on the leader: %s", grant)
	}
	return fmt.Errorf("%s: %w", s.name, err)
}

// number reads what a server prints as one; NULL is 0.
func number(s string) uint64 {
	v, err := strconv.ParseFloat(s, 64)
	if err != nil || v < 0 {
		return 0
	}
	return uint64(v)
}

const systemSchemas = "('mysql','sys','information_schema','performance_schema')"

func (s *server) tables(ctx context.Context, f *Facts) error {
	rows, err := s.rows(ctx,
		"SELECT CONCAT(t.TABLE_SCHEMA, '.', t.TABLE_NAME) AS t, t.TABLE_ROWS AS n, COUNT(DISTINCT i.INDEX_NAME) AS indexes,"+
			" COALESCE(MAX(i.INDEX_NAME = 'PRIMARY'), 0) AS pk, COALESCE(MAX(i.INDEX_TYPE = 'SPATIAL'), 0) AS rtree"+
			" FROM information_schema.TABLES t LEFT JOIN information_schema.STATISTICS i USING (TABLE_SCHEMA, TABLE_NAME)"+
			" WHERE t.TABLE_TYPE = 'BASE TABLE' AND t.TABLE_SCHEMA NOT IN "+systemSchemas+
			" GROUP BY t.TABLE_SCHEMA, t.TABLE_NAME, t.TABLE_ROWS")
	if err != nil {
		return err
	}
	unique, err := s.rows(ctx,
		"SELECT DISTINCT CONCAT(TABLE_SCHEMA, '.', TABLE_NAME) AS t FROM (SELECT TABLE_SCHEMA, TABLE_NAME, INDEX_NAME FROM information_schema.STATISTICS"+
			" WHERE NON_UNIQUE = 0 AND TABLE_SCHEMA NOT IN "+systemSchemas+
			" GROUP BY TABLE_SCHEMA, TABLE_NAME, INDEX_NAME HAVING SUM(NULLABLE = 'YES') = 0 AND SUM(SUB_PART IS NOT NULL) = 0 AND SUM(COLUMN_NAME IS NULL) = 0) k")
	if err != nil {
		return err
	}
	has := map[string]bool{}
	for _, r := range unique {
		has[r["t"]] = true
	}
	for _, r := range rows {
		f.Tables = append(f.Tables, Table{Name: r["t"], Rows: number(r["n"]), Primary: r["pk"] == "1", Unique: has[r["t"]],
			Spatial: r["rtree"] == "1", Indexes: int(number(r["indexes"]))})
	}
	return nil
}

// changes counts the rows that were written.
func (s *server) changes(ctx context.Context, f *Facts) error {
	rows, err := s.rows(ctx,
		"SELECT CONCAT(OBJECT_SCHEMA, '.', OBJECT_NAME) AS t, COUNT_INSERT AS i, COUNT_UPDATE + COUNT_DELETE AS c"+
			" FROM performance_schema.table_io_waits_summary_by_table WHERE OBJECT_TYPE = 'TABLE'")
	if err != nil {
		return err
	}
	by := f.byName()
	for _, r := range rows {
		if t := by[r["t"]]; t != nil {
			t.Inserted, t.Changed = number(r["i"]), number(r["c"])
		}
	}
	return nil
}

func (f *Facts) byName() map[string]*Table {
	by := map[string]*Table{}
	for i := range f.Tables {
		by[f.Tables[i].Name] = &f.Tables[i]
	}
	return by
}

func (s *server) parents(ctx context.Context, f *Facts) error {
	rows, err := s.rows(ctx, "SELECT CONCAT(CONSTRAINT_SCHEMA, '.', TABLE_NAME) AS child,"+
		" CONCAT(UNIQUE_CONSTRAINT_SCHEMA, '.', REFERENCED_TABLE_NAME) AS parent,"+
		" MAX(UPDATE_RULE IN ('CASCADE', 'SET NULL') OR DELETE_RULE IN ('CASCADE', 'SET NULL')) AS cascades"+
		" FROM information_schema.REFERENTIAL_CONSTRAINTS GROUP BY 1, 2 ORDER BY 1, 2")
	if err != nil {
		return err
	}
	by := f.byName()
	for _, r := range rows {
		if t := by[r["parent"]]; t != nil {
			t.Children = append(t.Children, r["child"])
			if r["cascades"] == "1" {
				t.Cascades = append(t.Cascades, r["child"])
			}
		}
	}
	rows, err = s.rows(ctx, "SELECT CONCAT(EVENT_OBJECT_SCHEMA, '.', EVENT_OBJECT_TABLE) AS t, ACTION_STATEMENT AS text,"+
		" EVENT_MANIPULATION = 'DELETE' AND ACTION_TIMING = 'BEFORE' AS before_delete"+
		" FROM information_schema.TRIGGERS WHERE EVENT_MANIPULATION <> 'INSERT'")
	for _, r := range rows {
		if t := by[r["t"]]; t != nil {
			t.Triggers = true
			if r["before_delete"] == "1" {
				t.BeforeDelete = append(t.BeforeDelete, r["text"])
			}
		}
	}
	if err == nil {
		rows, err = s.rows(ctx,
			"SELECT 1 AS yes FROM information_schema.USER_PRIVILEGES WHERE PRIVILEGE_TYPE IN ('TRIGGER', 'SUPER')"+
				" AND REPLACE(GRANTEE, '''', '') = CURRENT_USER() LIMIT 1")
		f.Blind = len(rows) == 0
	}
	return err
}

// statements reads the kinds of statements that change the most, and that wait the longest for locks. Times are
// picoseconds.
func (s *server) statements(ctx context.Context, f *Facts) error {
	const columns = "(SELECT DIGEST_TEXT AS text, COUNT_STAR AS n, SUM_ROWS_AFFECTED AS changed, SUM_LOCK_TIME AS lock_ps, SUM_TIMER_WAIT AS all_ps" +
		" FROM performance_schema.events_statements_summary_by_digest WHERE DIGEST_TEXT IS NOT NULL"
	rows, err := s.rows(ctx,
		columns+
			" AND (DIGEST_TEXT LIKE 'INSERT%' OR DIGEST_TEXT LIKE 'UPDATE%' OR DIGEST_TEXT LIKE 'DELETE%' OR DIGEST_TEXT LIKE 'REPLACE%' OR DIGEST_TEXT LIKE 'LOAD%'"+
			" OR DIGEST_TEXT LIKE 'WITH%') ORDER BY SUM_ROWS_AFFECTED / COUNT_STAR DESC LIMIT 50) UNION "+columns+
			" ORDER BY SUM_LOCK_TIME DESC LIMIT 20)")
	if err != nil {
		return err
	}
	seen := map[string]bool{} // twice if it counts while it is read, and once more for each schema that it was run from
	for _, r := range rows {
		text := short(r["text"])
		if seen[text] {
			continue
		}
		seen[text] = true
		f.Statements = append(f.Statements, Statement{Text: text, Count: number(r["n"]), Rows: number(r["changed"]),
			LockMS: float64(number(r["lock_ps"])) / 1e9, AllMS: float64(number(r["all_ps"])) / 1e9})
	}
	return nil
}

// short is the beginning of a statement.
func short(text string) string {
	const limit = 120
	if r := []rune(text); len(r) > limit {
		return string(r[:limit]) + "…"
	}
	return text
}

func (s *server) transactions(ctx context.Context, f *Facts) error {
	rows, err := s.rows(ctx,
		"SELECT trx_mysql_thread_id AS id, TIMESTAMPDIFF(SECOND, trx_started, NOW()) AS age, trx_rows_modified AS n, trx_query AS q"+
			" FROM information_schema.INNODB_TRX WHERE trx_mysql_thread_id <> 0 ORDER BY trx_rows_modified DESC, trx_started LIMIT 100")
	if err != nil {
		return err
	}
	for _, r := range rows {
		f.Transactions = append(f.Transactions, Transaction{number(r["id"]), number(r["age"]), number(r["n"]), short(r["q"])})
	}
	return nil
}

func (s *server) counters(ctx context.Context, f *Facts) error {
	rows, err := s.rows(ctx, "SHOW GLOBAL STATUS WHERE Variable_name LIKE 'Binlog_cache%'")
	for _, r := range rows {
		f.Status[strings.ToLower(r["variable_name"])] = number(r["value"])
	}
	return err
}

func (s *server) settings(ctx context.Context) (map[string]string, error) {
	names := append([]string{bufferPool, "replica_parallel_workers", nativeForeignKeys}, alike...)
	rows, err := s.rows(ctx, "SHOW GLOBAL VARIABLES WHERE Variable_name IN ('"+strings.Join(names, "','")+"')")
	out := map[string]string{}
	for _, r := range rows {
		out[strings.ToLower(r["variable_name"])] = r["value"]
	}
	return out, err
}

// sample looks at what happens now, again and again: who waits for which row on the leader, what the appliers of the
// others wait for.
func sample(ctx context.Context, d time.Duration, servers []*server, f *Facts) error {
	for end := time.Now().Add(d); ; {
		f.Samples++
		if err := servers[0].hot(ctx, f); err != nil {
			return err
		}
		for i, s := range servers[1:] {
			rows, err := s.rows(ctx,
				"SELECT DISTINCT PROCESSLIST_STATE AS state FROM performance_schema.threads WHERE NAME IN ('thread/sql/replica_sql', 'thread/sql/slave_sql')")
			if err != nil {
				return err
			}
			for _, r := range rows {
				f.Nodes[i+1].Waits[r["state"]]++
			}
		}
		if time.Now().After(end) {
			return nil
		}
		if poll.Pause(ctx, sampleEvery) != nil {
			return ctx.Err()
		}
	}
}

func (s *server) hot(ctx context.Context, f *Facts) error {
	rows, err := s.rows(ctx,
		"SELECT DISTINCT CONCAT(l.OBJECT_SCHEMA, '.', l.OBJECT_NAME) AS t, l.INDEX_NAME AS i, l.LOCK_DATA AS d"+
			" FROM performance_schema.data_lock_waits w JOIN performance_schema.data_locks l"+
			" ON l.ENGINE_LOCK_ID = w.REQUESTING_ENGINE_LOCK_ID AND l.ENGINE = w.ENGINE WHERE l.LOCK_TYPE = 'RECORD' LIMIT 100")
	if err != nil {
		return err
	}
	for _, r := range rows {
		f.Hot[Key{r["t"], r["i"], r["d"]}]++
	}
	return nil
}
