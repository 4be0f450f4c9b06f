package tpcc

import (
	"context"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"time"

	"github.com/go-sql-driver/mysql"

	"trireme/internal/base/nbio"
)

const (
	dialLimit  = 10 * time.Second
	maxColumns = 14 // of a result
)

// session is one connection with its prepared statements. It uses the driver without database/sql's pool, locks and
// conversions, which cost more per statement than the statement's own encoding. One goroutine at a time.
type session struct {
	conn  driver.Conn
	stmts [statements]driver.Stmt
	// of the result, once it is known: the driver makes a list of their names again for each result
	columns [statements]int
	args    []driver.NamedValue
	row     [maxColumns]driver.Value
	stop    func() bool // of the watch on the context
}

// openSession logs in. The session ends with ctx, even within a statement; the statements themselves run without a
// context, because the driver's way of watching one costs a hand-over between goroutines per statement.
func openSession(ctx context.Context, t Target, database string) (*session, error) {
	var socket net.Conn
	cfg := t.driverConfig(database)
	cfg.DialFunc = func(ctx context.Context, network, addr string) (_ net.Conn, err error) {
		if socket, err = (&net.Dialer{}).DialContext(ctx, network, addr); err != nil {
			return nil, err
		}
		return nbio.Wrap(socket), nil // halves the CPU of a run
	}
	c, err := mysql.NewConnector(cfg)
	if err != nil {
		return nil, err
	}
	conn, err := c.Connect(ctx)
	if err != nil {
		return nil, fmt.Errorf("logging in to %s: %w", t.Addr, err)
	}
	s := &session{conn: conn, stop: context.AfterFunc(ctx, func() { socket.Close() })}
	if err := s.control("SET SESSION TRANSACTION ISOLATION LEVEL REPEATABLE READ"); err != nil {
		s.close()
		return nil, err
	}
	return s, nil
}

func (s *session) close() {
	s.stop()
	s.conn.Close()
}

// begin, commit and rollback are sent as text, which is shorter than a prepared statement.
func (s *session) begin() error    { return s.control("BEGIN") }
func (s *session) commit() error   { return s.control("COMMIT") }
func (s *session) rollback() error { return s.control("ROLLBACK") }

func (s *session) control(statement string) error {
	_, err := s.conn.(driver.ExecerContext).ExecContext(context.Background(), statement, nil)
	return err
}

func (s *session) prepared(id statement) (driver.Stmt, error) {
	if s.stmts[id] == nil {
		st, err := s.conn.(driver.ConnPrepareContext).PrepareContext(context.Background(), texts[id])
		if err != nil {
			return nil, fmt.Errorf("preparing %.60s: %w", texts[id], err)
		}
		s.stmts[id] = st
	}
	return s.stmts[id], nil
}

func (s *session) prepareAll() error {
	for id := range statements {
		if _, err := s.prepared(id); err != nil {
			return err
		}
	}
	return nil
}

func (s *session) bind(args []driver.Value) []driver.NamedValue {
	s.args = s.args[:0]
	for i, a := range args {
		s.args = append(s.args, driver.NamedValue{Ordinal: i + 1, Value: a})
	}
	return s.args
}

// exec runs a statement without result.
func (s *session) exec(id statement, args ...driver.Value) error {
	st, err := s.prepared(id)
	if err != nil {
		return err
	}
	_, err = st.(driver.StmtExecContext).ExecContext(context.Background(), s.bind(args))
	return err
}

// query calls f for each row of a result, whose values are int64, []byte (text and decimals), time or nil, and are
// valid within the call only. It returns the number of rows.
func (s *session) query(id statement, f func(row []driver.Value), args ...driver.Value) (int, error) {
	st, err := s.prepared(id)
	if err != nil {
		return 0, err
	}
	rows, err := st.(driver.StmtQueryContext).QueryContext(context.Background(), s.bind(args))
	if err != nil {
		return 0, err
	}
	defer rows.Close()
	if s.columns[id] == 0 {
		s.columns[id] = len(rows.Columns())
	}
	row := s.row[:s.columns[id]]
	for n := 0; ; n++ {
		switch err := rows.Next(row); {
		case err == io.EOF:
			return n, nil
		case err != nil:
			return n, err
		}
		f(row)
	}
}

// errNoRow: the population lacks a row that must be there.
var errNoRow = errors.New("a row is missing that Load makes: was this database loaded with the same sizes?")

// one is query for a result that must have a row.
func (s *session) one(id statement, f func(row []driver.Value), args ...driver.Value) error {
	n, err := s.query(id, f, args...)
	if err == nil && n == 0 {
		err = fmt.Errorf("%.80s %v: %w", texts[id], args, errNoRow)
	}
	return err
}

// ignore is for rows that are fetched because a terminal would display them.
func ignore([]driver.Value) {}

// cents reads a decimal with two places.
func cents(v driver.Value) int64 {
	b, _ := v.([]byte)
	var n int64
	for _, c := range b {
		if c >= '0' && c <= '9' {
			n = n*10 + int64(c-'0')
		}
	}
	if len(b) > 0 && b[0] == '-' {
		n = -n
	}
	return n
}

// appendCents writes hundredths as a decimal with two places.
func appendCents(b []byte, n int64) []byte {
	if n < 0 {
		b, n = append(b, '-'), -n
	}
	b = strconv.AppendInt(b, n/100, 10)
	return append(b, '.', byte('0'+n/10%10), byte('0'+n%10))
}

func decimal(n int64) driver.Value { return string(appendCents(make([]byte, 0, 12), n)) }

// conflict names what a server aborted a transaction for, if that is so.
type conflict int

const (
	noConflict conflict = iota
	deadlock
	lockWait
	certification
	conflicts
)

func conflictOf(err error) conflict {
	var e *mysql.MySQLError
	if !errors.As(err, &e) {
		return noConflict
	}
	switch e.Number {
	case 1213: // ER_LOCK_DEADLOCK
		return deadlock
	case 1205: // ER_LOCK_WAIT_TIMEOUT
		return lockWait
	case 3101: // ER_TRANSACTION_ROLLBACK_DURING_COMMIT
		return certification
	}
	return noConflict
}
