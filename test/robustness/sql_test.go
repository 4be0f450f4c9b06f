package robustness

import (
	"context"
	"database/sql"
	"fmt"
	"slices"
	"strings"
	"time"

	"trireme/internal/ops/demo"
	"trireme/lab/verify"
)

// sqlLimit bounds a statement that is expected to be answered.
const sqlLimit = 60 * time.Second

// session is one connection to one node's mysqld, by the application's account.
type session struct {
	c    *cluster
	db   *sql.DB
	conn *sql.Conn
}

// session opens a connection to a node; it is closed with the test.
func (c *cluster) session(n *demo.Node) *session {
	c.t.Helper()
	l := c.Direct(n)
	l.StatementTimeout = sqlLimit
	db, err := l.Open("")
	must(c.t, err)
	return c.pin(db)
}

// admin opens a connection as Trireme's own administrator.
func (c *cluster) admin(n *demo.Node) *session {
	c.t.Helper()
	db, err := c.Admin(n)
	must(c.t, err)
	return c.pin(db)
}

func (c *cluster) pin(db *sql.DB) *session {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(c.t.Context(), sqlLimit)
	defer cancel()
	conn, err := db.Conn(ctx)
	must(c.t, err)
	s := &session{c: c, db: db, conn: conn}
	c.t.Cleanup(s.close)
	return s
}

func (s *session) close() {
	s.conn.Close()
	s.db.Close()
}

// exec runs statements that must succeed.
func (s *session) exec(statements ...string) {
	s.c.t.Helper()
	for _, st := range statements {
		if err := s.try(st); err != nil {
			s.c.t.Fatalf("%.80s: %v", st, err)
		}
	}
}

// try runs a statement that may fail.
func (s *session) try(statement string) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(s.c.t.Context()), sqlLimit)
	defer cancel()
	_, err := s.conn.ExecContext(ctx, statement)
	return err
}

// value of a query with one row and one column.
func (s *session) value(query string) string {
	s.c.t.Helper()
	v, err := s.tryValue(query)
	if err != nil {
		s.c.t.Fatalf("%.80s: %v", query, err)
	}
	return v
}

func (s *session) tryValue(query string) (string, error) {
	ctx, cancel := context.WithTimeout(s.c.t.Context(), sqlLimit)
	defer cancel()
	var v sql.NullString
	err := s.conn.QueryRowContext(ctx, query).Scan(&v)
	return v.String, err
}

// rows of a query, each as its columns joined by a blank.
func (s *session) rows(query string) ([]string, error) {
	ctx, cancel := context.WithTimeout(s.c.t.Context(), sqlLimit)
	defer cancel()
	rows, err := s.conn.QueryContext(ctx, query)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	cols, err := rows.Columns()
	if err != nil {
		return nil, err
	}
	var out []string
	for rows.Next() {
		vals := make([]sql.NullString, len(cols))
		dest := make([]any, len(cols))
		for i := range vals {
			dest[i] = &vals[i]
		}
		if err := rows.Scan(dest...); err != nil {
			return nil, err
		}
		line := make([]string, len(cols))
		for i, v := range vals {
			line[i] = v.String
		}
		out = append(out, strings.Join(line, " "))
	}
	return out, rows.Err()
}

// prepared are the xids of XA RECOVER on a node.
func (c *cluster) prepared(n *demo.Node) []string {
	c.t.Helper()
	s := c.session(n)
	defer s.close()
	rows, err := s.rows("XA RECOVER")
	must(c.t, err)
	var out []string
	for _, r := range rows {
		f := strings.Fields(r)
		out = append(out, f[len(f)-1])
	}
	slices.Sort(out)
	return out
}

// everywhere waits until a query gives the same one value on all data nodes.
func (c *cluster) everywhere(query, want string) {
	c.t.Helper()
	for _, n := range c.DataNodes() {
		s := c.session(n)
		eventually(c.t, sqlLimit, n.Name+": "+query, func() error {
			got, err := s.tryValue(query)
			if err == nil && got != want {
				err = fmt.Errorf("is %q, want %q", got, want)
			}
			return err
		})
		s.close()
	}
}

// binlogEnd is the end of a leader's binary log, un-acknowledged transactions included.
func (s *session) binlogEnd() (string, error) {
	rows, err := s.rows("SHOW BINARY LOG STATUS")
	if err != nil || len(rows) != 1 {
		return "", fmt.Errorf("binary log status: %v %w", rows, err)
	}
	f := strings.Fields(rows[0])
	return f[0] + " " + f[1], nil
}

// withheld runs statements on the leader so that they are written there but can never be acknowledged, and kills the
// leader: the followers' daemons are stopped (so the leader goes on waiting for them), and killed before they can read
// what was sent to them. It returns the leader, now dead, with everything else running again and a new leader found.
func (c *cluster) withheld(statements []unacknowledged) (victim *demo.Node) {
	c.t.Helper()
	leader := c.healthy()
	watch := c.admin(leader)
	sessions := make([]*session, len(statements))
	for i, k := range statements {
		sessions[i] = c.session(leader)
		sessions[i].exec(k.prepare...)
	}
	c.caughtUp()
	followers := c.others(leader)
	for _, f := range followers {
		must(c.t, demo.Halt(f.DaemonPID()))
	}
	answers := make(chan error, len(statements))
	for i, k := range statements {
		before, err := watch.binlogEnd()
		must(c.t, err)
		go func() { answers <- k.run(sessions[i]) }()
		eventually(c.t, 10*time.Second, k.name+" is in the leader's binary log", func() error {
			end, err := watch.binlogEnd()
			if err == nil && end == before {
				err = fmt.Errorf("the log still ends at %s", end)
			}
			return err
		})
	}
	for _, f := range followers {
		c.KillDaemon(f)
	}
	select {
	case err := <-answers:
		c.t.Fatalf("a statement was answered without a majority: %v", err)
	default:
	}
	c.KillDaemon(leader)
	for range statements {
		if err := <-answers; err == nil {
			c.t.Fatal("a statement was acknowledged without a majority")
		}
	}
	c.start(followers...)
	if now := c.leader(); now == leader {
		c.t.Fatalf("%s is dead and leads", leader.Name)
	}
	return leader
}

// caughtUp waits until all data nodes have executed the same, but for local GTIDs.
func (c *cluster) caughtUp() {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(c.t.Context(), sqlLimit)
	defer cancel()
	nodes, err := c.Endpoints()
	must(c.t, err)
	defer verify.CloseEndpoints(nodes)
	_, _, err = verify.WaitEqual(ctx, nodes)
	must(c.t, err)
}
