package verify

import (
	"context"
	"database/sql/driver"
	"errors"
	"io"
	"testing"

	"github.com/go-sql-driver/mysql"
)

// committedState is that of the error by which a router says that a statement was committed.
var committedState = [5]byte([]byte("HY000"))

func TestCommitOutcome(t *testing.T) {
	for _, c := range []struct {
		err  error
		want Outcome
	}{
		{nil, Acked},
		{driver.ErrBadConn, Failed}, // nothing was sent
		{mysql.ErrInvalidConn, Unknown},
		{context.DeadlineExceeded, Unknown},
		{&mysql.MySQLError{Number: 1290}, Failed},
		{&mysql.MySQLError{Number: 1213}, Failed},
		{&mysql.MySQLError{Number: 1053}, Unknown}, // shutdown in progress: may have been committed
		{&mysql.MySQLError{Number: 1180}, Unknown},
		{&mysql.MySQLError{Number: 3100}, Unknown},
		// the router says that it was committed
		{&mysql.MySQLError{Number: 3168, SQLState: committedState}, Acked},
		{&mysql.MySQLError{Number: 3168, SQLState: [5]byte([]byte("08007"))}, Unknown}, // and that it does not know
		{&mysql.MySQLError{Number: 3168}, Unknown},
		{errors.New("anything else"), Unknown},
	} {
		if got := commitOutcome(c.err); got != c.want {
			t.Errorf("%v: %v, want %v", c.err, got, c.want)
		}
	}
}

// answering is a connection through a router that changes servers: it answers each question for the server with the
// next of its names.
type answering struct {
	driver.Conn
	names []string
}

func (c *answering) QueryContext(context.Context, string, []driver.NamedValue) (driver.Rows, error) {
	rows := &oneRow{value: c.names[0]}
	c.names = c.names[1:]
	return rows, nil
}

type oneRow struct {
	value string
	read  bool
}

func (r *oneRow) Columns() []string { return []string{"v"} }
func (r *oneRow) Close() error      { return nil }
func (r *oneRow) Next(dest []driver.Value) error {
	if r.read {
		return io.EOF
	}
	r.read, dest[0] = true, r.value
	return nil
}

// A write belongs to a server only if that server was asked before the write and after it.
func TestServerOfAWrite(t *testing.T) {
	s := &session{login: Login{}.WithDefaults(), conn: &answering{names: []string{"a", "a", "b"}}}
	was, err := s.life()
	if err != nil || was != "a" {
		t.Fatal(was, err)
	}
	for i, want := range []bool{true, false} {
		if got := s.stillAt("a"); got != want {
			t.Errorf("question %d: %t", i, got)
		}
	}
	if now, err := s.life(); err != nil || now != "b" {
		t.Error(now, err)
	}
}

// deadConn is a connection that answers nothing.
type deadConn struct{ driver.Conn }

func TestConnectHeedsItsContextWhenConnected(t *testing.T) {
	s := &session{conn: deadConn{}}
	ctx, cancel := context.WithCancel(t.Context())
	if err := s.connect(ctx); err != nil {
		t.Fatal(err)
	}
	cancel()
	if s.connect(ctx) == nil {
		t.Fatal("a connected session goes on after the end: Stop would never return")
	}
}
