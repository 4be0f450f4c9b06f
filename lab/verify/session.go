package verify

import (
	"context"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"time"

	"trireme/internal/base/poll"
	"trireme/internal/ops/demo"
)

// session is one client connection that is made again after every error, as an application would.
type session struct {
	login   Login
	factory driver.Connector
	setup   []string // statements that each new connection begins with
	conn    driver.Conn
	server  string      // server_uuid at the other end of conn; empty: not asked yet
	failed  func(error) // gets every error, including those of connecting; nil: not wanted
}

func newSession(login Login, database string, setup ...string) (*session, error) {
	login = login.WithDefaults()
	c, err := login.Connector(database)
	if err != nil {
		return nil, err
	}
	return &session{login: login, factory: c, setup: setup}, nil
}

// Reconnection waits between these two, so that a reopened cluster is found within some 10 ms and a closed one is not
// hammered.
const backoffMin, backoffMax = 5 * time.Millisecond, 40 * time.Millisecond

// connect makes sure that there is a connection. It fails when ctx has ended, and only then.
func (s *session) connect(ctx context.Context) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	wait := backoffMin
	for s.conn == nil {
		dialCtx, cancel := context.WithTimeout(ctx, s.login.DialTimeout)
		conn, err := s.factory.Connect(dialCtx)
		cancel()
		if err == nil {
			s.conn = conn
			if err = s.begin(); err == nil {
				return nil
			}
		} else {
			s.tell(ctx, err)
		}
		if poll.Pause(ctx, wait/2+rand.N(wait)) != nil {
			return fmt.Errorf("%w; last error: %w", ctx.Err(), err)
		}
		wait = min(wait*2, backoffMax)
	}
	return nil
}

// tell reports an error to the session's callback, unless the error only says that ctx has ended.
func (s *session) tell(ctx context.Context, err error) {
	if s.failed != nil && ctx.Err() == nil {
		s.failed(err)
	}
}

// begin runs the setup on a new connection, which is gone after an error.
func (s *session) begin() error {
	for _, stmt := range s.setup {
		if err := s.exec(stmt); err != nil {
			return err
		}
	}
	return nil
}

// life returns the server_uuid of the mysqld at the other end of the connection: one life of it. It is asked once on
// each connection, and may have changed since, because routers move connections to other servers (see stillAt).
func (s *session) life() (string, error) {
	if s.server == "" {
		rows, err := s.query("SELECT @@GLOBAL.server_uuid")
		if err != nil {
			return "", err
		}
		s.server = fmt.Sprint(rows[0][0])
	}
	return s.server, nil
}

// stillAt asks again.
func (s *session) stillAt(server string) bool {
	s.server = ""
	now, err := s.life()
	return err == nil && now == server
}

// exec runs one statement on the present connection and drops the connection after any error.
func (s *session) exec(query string, args ...any) error {
	_, err := s.change(query, args...)
	return err
}

// change is exec, and says how many rows the statement changed.
func (s *session) change(query string, args ...any) (int64, error) {
	var n int64
	err := s.run(args, func(ctx context.Context, named []driver.NamedValue) error {
		r, err := s.conn.(driver.ExecerContext).ExecContext(ctx, query, named)
		if err != nil {
			return err
		}
		n, err = r.RowsAffected()
		return err
	})
	return n, err
}

// query reads the whole result of one statement. Its values are int64, string or nil. The connection is gone after any
// error.
func (s *session) query(query string, args ...any) ([][]any, error) {
	var out [][]any
	err := s.run(args, func(ctx context.Context, named []driver.NamedValue) error {
		rows, err := s.conn.(driver.QueryerContext).QueryContext(ctx, query, named)
		if err != nil {
			return err
		}
		defer rows.Close()
		values := make([]driver.Value, len(rows.Columns()))
		for {
			err := rows.Next(values)
			if errors.Is(err, io.EOF) {
				return nil
			}
			if err != nil {
				return err
			}
			row := make([]any, len(values))
			for i, v := range values {
				if b, ok := v.([]byte); ok {
					row[i] = string(b) // the driver's buffer is used again
				} else {
					row[i] = v
				}
			}
			out = append(out, row)
		}
	})
	return out, err
}

// run gives f the arguments in the driver's form and a time limit. Without a connection nothing is sent: the one before
// may have ended with a statement that was acknowledged by an error.
func (s *session) run(args []any, f func(context.Context, []driver.NamedValue) error) error {
	if s.conn == nil {
		return driver.ErrBadConn
	}
	named := make([]driver.NamedValue, len(args))
	for i, a := range args {
		v, err := driver.DefaultParameterConverter.ConvertValue(a)
		if err != nil {
			return err
		}
		named[i] = driver.NamedValue{Ordinal: i + 1, Value: v}
	}
	ctx, cancel := context.WithTimeout(context.Background(), s.login.StatementTimeout)
	defer cancel()
	err := f(ctx, named)
	if err != nil {
		s.close()
		s.tell(context.Background(), err)
	}
	return err
}

func (s *session) close() {
	if s.conn != nil {
		s.conn.Close()
		s.conn, s.server = nil, ""
	}
}

// commitOutcome judges the error of a statement that commits.
func commitOutcome(err error) Outcome {
	switch {
	case err == nil || demo.SaysCommitted(err):
		return Acked
	case demo.NotCommitted(err):
		return Failed
	}
	return Unknown
}
