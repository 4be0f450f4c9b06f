package mysqld

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"log"
	"strings"
	"sync/atomic"
	"time"

	"github.com/go-sql-driver/mysql"
)

const (
	// loginLimit bounds one login. A login hangs while an account statement waits for its acknowledgement.
	loginLimit = 5 * time.Second
	// killStatementLimit bounds the KILL of a statement that we gave up on.
	killStatementLimit = time.Second
)

// MySQL server error numbers (mysqld_error.h).
const (
	erAccessDenied      = 1045
	erNoSuchThread      = 1094
	erAccessDeniedNoPwd = 1698
)

// laneSpec is how a lane logs in.
type laneSpec struct {
	socket  string
	account Account
	logged  bool              // statements go to the binary log
	abandon func(id uint64)   // ends connection id on the server; nil: not done
	vars    map[string]string // further session variables
}

// lane is one connection, used by one statement at a time; others queue for it, each within its own context. A
// statement that its context ends is killed on the server, too, and the lane logs in again at its next use.
type lane struct {
	db  *sql.DB
	id  atomic.Uint64 // connection id on the server
	sp  laneSpec
	sem chan struct{} // one token: the right to use db
}

// newLane does not log in yet.
func newLane(sp laneSpec) *lane {
	l := &lane{sp: sp, sem: make(chan struct{}, 1)}
	c := mysql.NewConfig()
	c.User, c.Passwd = sp.account.User, sp.account.Password
	c.Net, c.Addr = "unix", sp.socket
	c.Timeout = loginLimit
	c.InterpolateParams = true // one round trip, and SET GLOBAL takes no prepared parameters
	c.Logger = log.New(discard{}, "", 0)
	c.Params = map[string]string{
		// What the operator may have set globally must not change the meaning of our statements.
		"wait_timeout": "31536000", "sql_mode": "''", "autocommit": "1", "max_execution_time": "0",
		"completion_type": "0", "lock_wait_timeout": "60",
	}
	if !sp.logged {
		c.Params["sql_log_bin"] = "0"
	}
	for k, v := range sp.vars {
		c.Params[k] = v
	}
	inner, err := mysql.NewConnector(c)
	if err != nil {
		panic(fmt.Sprintf("mysqld: connector: %v", err)) // only for settings that are constants here
	}
	l.db = sql.OpenDB(noteID{inner, &l.id})
	l.db.SetMaxOpenConns(1)
	l.db.SetMaxIdleConns(1)
	return l
}

type discard struct{}

func (discard) Write(p []byte) (int, error) { return len(p), nil }

// noteID keeps the connection id of what it connects.
type noteID struct {
	driver.Connector
	id *atomic.Uint64
}

func (n noteID) Connect(ctx context.Context) (driver.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, loginLimit)
	defer cancel()
	n.id.Store(0)
	conn, err := n.Connector.Connect(ctx)
	if err != nil {
		return nil, err
	}
	id, err := connectionID(ctx, conn)
	if err != nil {
		_ = conn.Close()
		return nil, err
	}
	n.id.Store(id)
	return conn, nil
}

func connectionID(ctx context.Context, conn driver.Conn) (uint64, error) {
	q, ok := conn.(driver.QueryerContext)
	if !ok {
		return 0, errors.New("mysqld: driver without QueryContext")
	}
	rows, err := q.QueryContext(ctx, "SELECT CONNECTION_ID()", nil)
	if err != nil {
		return 0, err
	}
	defer func() { _ = rows.Close() }()
	v := make([]driver.Value, 1)
	if err := rows.Next(v); err != nil {
		return 0, err
	}
	switch id := v[0].(type) {
	case uint64:
		return id, nil
	case int64:
		return uint64(id), nil
	}
	return 0, fmt.Errorf("mysqld: connection id %v", v[0])
}

// use waits for the connection and runs f on it. Who only waited for it must not have the statement killed that holds
// it.
func (l *lane) use(ctx context.Context, f func() error) error {
	select {
	case l.sem <- struct{}{}:
	case <-ctx.Done():
		return fmt.Errorf("%w: an earlier statement keeps this session busy: %w", ErrTimeout, ctx.Err())
	}
	defer func() { <-l.sem }()
	return l.explain(ctx, f())
}

// open logs in, if it is not.
func (l *lane) open(ctx context.Context) error {
	return l.use(ctx, func() error {
		if err := l.db.PingContext(ctx); err != nil {
			return fmt.Errorf("log in: %w", err)
		}
		return nil
	})
}

func (l *lane) close() { _ = l.db.Close() }

// exec runs one statement.
func (l *lane) exec(ctx context.Context, q string, args ...any) error {
	return l.use(ctx, func() error {
		_, err := l.db.ExecContext(ctx, q, args...)
		return err
	})
}

// row runs a query that gives one row, and scans it. sql.ErrNoRows when it gives none.
func (l *lane) row(ctx context.Context, dest []any, q string, args ...any) error {
	return l.use(ctx, func() error { return l.db.QueryRowContext(ctx, q, args...).Scan(dest...) })
}

// table is a result read whole: column names in lower case, NULL as "".
type table []map[string]string

// query reads a whole result. For results that are small by nature.
func (l *lane) query(ctx context.Context, q string, args ...any) (table, error) {
	var t table
	err := l.use(ctx, func() (err error) {
		t, err = ReadAll(ctx, l.db, q, args...)
		return err
	})
	return t, err
}

type queryer interface {
	QueryContext(ctx context.Context, q string, args ...any) (*sql.Rows, error)
}

// ReadAll reads a result whole: a map for each row, column names in lower case, NULL as empty.
func ReadAll(ctx context.Context, db queryer, q string, args ...any) ([]map[string]string, error) {
	rows, err := db.QueryContext(ctx, q, args...)
	if err != nil {
		return nil, err
	}
	defer func() { _ = rows.Close() }()
	names, err := rows.Columns()
	if err != nil {
		return nil, err
	}
	cells := make([]sql.NullString, len(names))
	dest := make([]any, len(names))
	for i := range cells {
		dest[i] = &cells[i]
	}
	var t table
	for rows.Next() {
		if err := rows.Scan(dest...); err != nil {
			return nil, err
		}
		m := make(map[string]string, len(names))
		for i, n := range names {
			m[strings.ToLower(n)] = cells[i].String
		}
		t = append(t, m)
	}
	return t, rows.Err()
}

// explain wraps err: ErrTimeout when the context ended the statement (which is then killed on the server, where it
// would otherwise go on and take effect later), ErrAccess when the account is refused.
func (l *lane) explain(ctx context.Context, err error) error {
	if err == nil {
		return nil
	}
	if ctx.Err() != nil {
		if id := l.id.Load(); id != 0 && l.sp.abandon != nil {
			go l.sp.abandon(id) // has its own limit; who fences cannot wait for it
		}
		return fmt.Errorf("%w: %w", ErrTimeout, err)
	}
	switch errorNumber(err) {
	case erAccessDenied, erAccessDeniedNoPwd:
		return fmt.Errorf(
			"%w %s: %w; its password in the node's secrets is not the one that this data directory was made with",
			ErrAccess, l.sp.account.User, err)
	}
	return err
}

// errorNumber is the server's error number, 0 when the error is not the server's.
func errorNumber(err error) uint16 {
	var e *mysql.MySQLError
	if errors.As(err, &e) {
		return e.Number
	}
	return 0
}

// quote makes an SQL string literal. Valid in sessions without NO_BACKSLASH_ESCAPES, which lanes are.
func quote(s string) string {
	return "'" + strings.NewReplacer(`\`, `\\`, `'`, `\'`, "\x00", `\0`, "\n", `\n`, "\r", `\r`, "\x1a", `\Z`).Replace(s) +
		"'"
}

// ident quotes a name.
func ident(s string) string { return "`" + strings.ReplaceAll(s, "`", "``") + "`" }
