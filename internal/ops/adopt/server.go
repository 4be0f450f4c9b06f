package adopt

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"strconv"
	"strings"
	"time"

	"github.com/go-sql-driver/mysql"

	"trireme/internal/api"
	"trireme/internal/mysql/gtid"
	"trireme/internal/mysql/mysqld"
)

// Limits of statements on a server that is not ours.
const (
	loginLimit  = 10 * time.Second
	quickLimit  = 10 * time.Second
	readLimit   = 60 * time.Second // reads the dictionary
	changeLimit = 30 * time.Second // waits for locks or threads
)

// Login is how to reach the server to adopt.
type Login struct {
	Socket   string // unix socket; empty: Host and Port
	Host     string
	Port     int
	User     string
	Password string
}

func (l Login) addr() string {
	if l.Socket != "" {
		return l.Socket
	}
	return net.JoinHostPort(l.Host, strconv.Itoa(l.Port))
}

// server is one connection to a server, used by one statement at a time.
type server struct {
	login Login
	db    *sql.DB
	conn  *sql.Conn
}

func connect(ctx context.Context, l Login) (*server, error) {
	c := mysql.NewConfig()
	c.User, c.Passwd = l.User, l.Password
	c.Net, c.Addr = "tcp", l.addr()
	if l.Socket != "" {
		c.Net = "unix"
	} else {
		c.TLSConfig = "preferred"
	}
	c.Timeout, c.InterpolateParams = loginLimit, true
	c.Logger = log.New(io.Discard, "", 0)
	connector, err := mysql.NewConnector(c)
	if err != nil {
		return nil, err
	}
	s := &server{login: l, db: sql.OpenDB(connector)}
	ctx, cancel := context.WithTimeout(ctx, loginLimit)
	defer cancel()
	if s.conn, err = s.db.Conn(ctx); err != nil {
		_ = s.db.Close()
		if _, refused := errors.AsType[*mysql.MySQLError](err); refused {
			return nil, fmt.Errorf("the server at %s refuses %q: %w", l.addr(), l.User, err)
		}
		return nil, api.Errorf(api.KindUnreachable, "no server answers at %s: %v", l.addr(), err).
			With("give its socket with --socket, or --server HOST:PORT")
	}
	return s, nil
}

// ready makes the session fit for changes. Not before variables_info was read: that shows what a session has set as
// well, even of one that is over.
func (s *server) ready(ctx context.Context) error {
	return s.exec(ctx, quickLimit,
		"SET SESSION sql_mode = '', SESSION wait_timeout = 86400, SESSION lock_wait_timeout = 5, SESSION max_execution_time = 0,"+
			" SESSION sql_log_bin = 1")
}

func (s *server) close() {
	_ = s.conn.Close()
	_ = s.db.Close()
}

func (s *server) exec(ctx context.Context, limit time.Duration, statements ...string) error {
	for _, q := range statements {
		qctx, cancel := context.WithTimeout(ctx, limit)
		_, err := s.conn.ExecContext(qctx, q)
		cancel()
		if err != nil {
			// A statement may hold a password: only its first words are shown.
			return fmt.Errorf("%s: %s …: %w", s.login.addr(), strings.Join(strings.Fields(q)[:2], " "), err)
		}
	}
	return nil
}

// rows reads a result as mysqld.ReadAll does.
func (s *server) rows(ctx context.Context, q string) ([]map[string]string, error) {
	ctx, cancel := context.WithTimeout(ctx, readLimit)
	defer cancel()
	all, err := mysqld.ReadAll(ctx, s.conn, q)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", s.login.addr(), err)
	}
	return all, nil
}

// column reads the first column of a result, named v.
func (s *server) column(ctx context.Context, q string) ([]string, error) {
	rows, err := s.rows(ctx, q)
	var all []string
	for _, r := range rows {
		all = append(all, r["v"])
	}
	return all, err
}

// value reads one value, named v.
func (s *server) value(ctx context.Context, q string) (string, error) {
	all, err := s.column(ctx, q)
	if err != nil || len(all) != 1 {
		return "", errors.Join(err, fmt.Errorf("%s: %d rows for %s", s.login.addr(), len(all), q))
	}
	return all[0], nil
}

func (s *server) executed(ctx context.Context) (gtid.Set, error) {
	text, err := s.value(ctx, "SELECT @@GLOBAL.gtid_executed AS v")
	if err != nil {
		return gtid.Set{}, err
	}
	return gtid.ParseSet(text)
}

// awaitExecuted waits until the server has executed set.
func (s *server) awaitExecuted(ctx context.Context, set gtid.Set, limit time.Duration) error {
	if set.Empty() {
		return nil
	}
	left, err := s.value(ctx, fmt.Sprintf("SELECT WAIT_FOR_EXECUTED_GTID_SET('%s', %.3f) AS v", line(set),
		limit.Seconds()))
	if err != nil {
		return err
	}
	if left == "0" {
		return nil
	}
	has, err := s.executed(ctx)
	if err != nil {
		return err
	}
	missing := set.Subtract(has)
	return fmt.Errorf("%s has not executed everything within %v: %d transactions are missing", s.login.addr(), limit,
		missing.Count())
}

// line is a set on one line.
func line(s gtid.Set) string { return strings.ReplaceAll(s.String(), "\n", "") }

// killAll ends every other connection but those of replicas and of the server itself.
func (s *server) killAll(ctx context.Context, dumps bool) error {
	for range 3 { // a login under way during one pass is a session in the next
		ids, err := s.rows(ctx,
			"SELECT ID AS id, USER AS user, COMMAND AS command FROM performance_schema.processlist WHERE ID <> CONNECTION_ID()")
		if err != nil {
			return err
		}
		for _, r := range ids {
			dump := strings.HasPrefix(r["command"], "Binlog Dump")
			if r["user"] == "system user" || r["user"] == "event_scheduler" || r["command"] == "Daemon" || dump && !dumps {
				continue
			}
			err := s.exec(ctx, quickLimit, "KILL "+r["id"])
			if e, ok := errors.AsType[*mysql.MySQLError](err); err != nil && (!ok || e.Number != erNoSuchThread) {
				return err
			}
		}
	}
	return nil
}

const erNoSuchThread = 1094

// channels are the rows of SHOW REPLICA STATUS.
func (s *server) channels(ctx context.Context) ([]channel, error) {
	rows, err := s.rows(ctx, "SHOW REPLICA STATUS")
	var all []channel
	for _, r := range rows {
		c := channel{Name: r["channel_name"], Source: net.JoinHostPort(r["source_host"], r["source_port"]),
			SourceUUID: r["source_uuid"],
			IO:         r["replica_io_running"], SQL: r["replica_sql_running"], Lag: -1, AutoPosition: r["auto_position"] == "1"}
		for _, e := range []string{r["last_io_error"], r["last_sql_error"]} {
			if e != "" && c.Error == "" {
				c.Error = e
			}
		}
		if n, err := strconv.Atoi(r["seconds_behind_source"]); err == nil {
			c.Lag = n
		}
		all = append(all, c)
	}
	return all, err
}

// channel is one stream that a replica receives.
type channel struct {
	Name, Source, SourceUUID string
	IO, SQL                  string // "Yes", "No", "Connecting"
	Lag                      int    // seconds; -1: not known
	AutoPosition             bool
	Error                    string
}

func (c channel) running() bool { return c.IO != "No" || c.SQL != "No" }

// binlogStatus is the statement that shows the end of the binary log and its filters.
func binlogStatus(v mysqld.Version) string {
	if v.AtLeast(8, 2, 0) {
		return "SHOW BINARY LOG STATUS"
	}
	return "SHOW MASTER STATUS"
}
