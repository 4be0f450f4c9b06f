package verify

import (
	"context"
	"database/sql/driver"
	"errors"
	"testing"

	"github.com/go-sql-driver/mysql"
)

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
		{errors.New("anything else"), Unknown},
	} {
		if got := commitOutcome(c.err); got != c.want {
			t.Errorf("%v: %v, want %v", c.err, got, c.want)
		}
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
