package check

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

	"trireme/internal/mysql/gtid"
	"trireme/internal/mysql/mysqld"
)

// node is the sessions on one mysqld.
type node struct {
	name  string
	epoch string // of the leader
	db    *sql.DB
	// never are GTIDs of the leader that this follower will not execute: they are not in the log.
	never gtid.Set
	uuid  gtid.UUID
	// worked is how long our queries have taken there since the last throttle. One goroutine at a time uses a node.
	worked time.Duration
}

// works counts a query that began then.
func (n *node) works(began time.Time) { n.worked += time.Since(began) }

// OpenSQL opens the mysqld at host:port for an operator's account, with TLS where the server has it. Variables are
// those of each session.
func OpenSQL(addr, user, password string, variables map[string]string) (*sql.DB, error) {
	c := mysql.NewConfig()
	c.User, c.Passwd, c.Net, c.Addr = user, password, "tcp", addr
	c.TLSConfig, c.Timeout = "preferred", loginLimit
	c.Logger = log.New(io.Discard, "", 0)
	c.Params = variables
	connector, err := mysql.NewConnector(c)
	if err != nil {
		return nil, err
	}
	return sql.OpenDB(connector), nil
}

// open logs in. What the session's variables could do to the form of a value is the same on all nodes.
func open(ctx context.Context, name, host string, port int, user, password string) (*node, error) {
	addr := net.JoinHostPort(host, strconv.Itoa(port))
	db, err := OpenSQL(addr, user, password, map[string]string{
		"sql_mode": "''", "time_zone": "'+00:00'", "transaction_isolation": "'REPEATABLE-READ'", "autocommit": "1",
		"completion_type": "0", "lock_wait_timeout": "2", "innodb_lock_wait_timeout": "1", "max_execution_time": "0",
		"wait_timeout": "600", "sql_select_limit": "DEFAULT",
	})
	if err != nil {
		return nil, err
	}
	n := &node{name: name, db: db}
	n.db.SetMaxOpenConns(4)
	n.db.SetMaxIdleConns(4)
	var uuid string
	var packet int64
	err = n.row(ctx, quickLimit, "SELECT @@server_uuid, @@max_allowed_packet", &uuid, &packet)
	if err == nil && packet < minPacket {
		err = fmt.Errorf("max_allowed_packet of %s is %d and must be %d at least", name, packet, minPacket)
	}
	if err == nil {
		n.uuid, err = gtid.ParseUUID(uuid)
	}
	if err != nil {
		_ = n.db.Close()
		if e, ok := errors.AsType[*mysql.MySQLError](err); ok &&
			(e.Number == erAccessDenied || e.Number == erAccessDeniedDB) {
			return nil, fmt.Errorf("%w on %s (%s): %w; docs/ops/check.md shows how to make one", ErrNoAccount, name, addr, err)
		}
		return nil, fmt.Errorf("%s (%s): %w", name, addr, err)
	}
	return n, nil
}

// minPacket: a longer value than max_allowed_packet becomes NULL, and would hide from the hash. Columns that can be
// long go into a row's hash by their own; what is left of a row has 64 KiB on disk, and less than this as text.
const minPacket = 1 << 20

// MySQL server error numbers (mysqld_error.h).
const (
	erAccessDenied       = 1045
	erAccessDeniedDB     = 1044
	erTableAccessDenied  = 1142
	erColumnAccessDenied = 1143
	erNoSuchTable        = 1146
	erBadField           = 1054
	erLockWait           = 1205
	erLockNoWait         = 3572
	erDeadlock           = 1213
	erQueryInterrupted   = 1317
	erTableDefChanged    = 1412
	erUnknownTable       = 1109
	erNoSuchKey          = 1176
	erUnknownDatabase    = 1049
)

func errorNumber(err error) uint16 {
	if e, ok := errors.AsType[*mysql.MySQLError](err); ok {
		return e.Number
	}
	return 0
}

// querier is a pool, or one connection of it.
type querier interface {
	QueryContext(ctx context.Context, q string, args ...any) (*sql.Rows, error)
}

// row reads one row.
func (n *node) row(ctx context.Context, limit time.Duration, q string, dest ...any) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	if err := n.db.QueryRowContext(ctx, q).Scan(dest...); err != nil {
		return fmt.Errorf("%s: %w", n.name, err)
	}
	return nil
}

// rows reads a result as mysqld.ReadAll does.
func (n *node) rows(ctx context.Context, limit time.Duration, q string) ([]map[string]string, error) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	all, err := mysqld.ReadAll(ctx, n.db, q)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", n.name, err)
	}
	return all, nil
}

// positions reads what is executed and, on a leader, what is being committed. A GTID is in the second, or in the first
// if that is read afterwards.
func positions(ctx context.Context, q querier) (executed gtid.Set, owned gtid.Set, err error) {
	ctx, cancel := context.WithTimeout(ctx, quickLimit)
	defer cancel()
	var o, e string
	for _, v := range []struct {
		name string
		to   *string
	}{{"gtid_owned", &o}, {"gtid_executed", &e}} {
		rows, err := mysqld.ReadAll(ctx, q, "SELECT @@GLOBAL."+v.name+" AS v")
		if err != nil {
			return executed, owned, err
		}
		*v.to = rows[0]["v"]
	}
	if executed, err = gtid.ParseSet(e); err != nil {
		return executed, owned, err
	}
	owned, err = parseOwned(o)
	return executed, owned, err
}

// parseOwned reads gtid_owned: "UUID:N#THREAD:N#THREAD,\nUUID:…", and a tag in front of numbers.
func parseOwned(text string) (gtid.Set, error) {
	var b strings.Builder
	skip := false
	for _, c := range text {
		switch {
		case c == '#':
			skip = true
		case skip && c >= '0' && c <= '9':
		default:
			skip = false
			b.WriteRune(c)
		}
	}
	return gtid.ParseSet(b.String())
}

// await waits until the follower has executed set. Errors: errLagging.
func (n *node) await(ctx context.Context, set gtid.Set, limit time.Duration) error {
	set = set.Subtract(n.never)
	if set.Empty() {
		return nil
	}
	var timedOut sql.NullInt64
	q := fmt.Sprintf("SELECT WAIT_FOR_EXECUTED_GTID_SET('%s', %.3f)", set, limit.Seconds())
	if err := n.row(ctx, limit+quickLimit, q, &timedOut); err != nil {
		return err
	}
	if !timedOut.Valid || timedOut.Int64 != 0 {
		return fmt.Errorf("%s: %w (%v)", n.name, errLagging, limit)
	}
	return nil
}
