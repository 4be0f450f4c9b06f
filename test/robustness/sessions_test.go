package robustness

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"maps"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"

	"trireme/internal/api"
	"trireme/lab/testkit"
	"trireme/lab/verify"
)

// TestSessionsAreCarried: 64 writers hear of no error over switchovers, nor do clients that log in for each statement;
// and over a failover idle sessions go on, an open transaction has to be repeated, and a session that cannot go on is
// known before and told why.
func TestSessionsAreCarried(t *testing.T) {
	testkit.Quiet(t, "logins, which a switchover waits for no longer than half a second")
	c := lease(t)
	c.healthy()
	db, err := c.Routed().Open("")
	must(t, err)
	db.SetMaxOpenConns(100)
	defer db.Close()
	setup := c.pin(db)
	setup.exec("CREATE DATABASE carry",
		"CREATE TABLE carry.w (id INT PRIMARY KEY AUTO_INCREMENT, writer INT, v INT, KEY (writer))")
	for range 2 {
		c.switchUnderWriters(db, 64, 0)
		c.switchUnderWriters(db, 0, 8) // alone: after others' transactions, which are waited for, their logins end anyway
	}

	idle, open, tied := c.pin(db), c.pin(db), c.pin(db)
	idle.exec("USE carry", "SET sql_mode = 'ANSI_QUOTES'")
	open.exec("BEGIN", "INSERT INTO carry.w (writer, v) VALUES (-1, 1)")
	tied.exec("SET @x = 1")
	c.knowsTied(map[string]int{"user variables (@x)": 1})
	before := c.view()
	c.crash(c.leader())
	c.failedOver(before.Term)
	if got := idle.value("SELECT CONCAT(DATABASE(), ' ', @@sql_mode)"); got != "carry ANSI_QUOTES" {
		t.Errorf("an idle session has %q", got)
	}
	var e *mysql.MySQLError
	if err := open.try("COMMIT"); !errors.As(err, &e) || e.Number != 1213 || string(e.SQLState[:]) != "40001" {
		t.Errorf("an open transaction: %v", err)
	}
	open.exec("BEGIN", "INSERT INTO carry.w (writer, v) VALUES (-2, 1)", "COMMIT")
	if err := tied.try("DO 1"); err == nil {
		t.Error("a session with a user variable went on without it")
	}
	if n := setup.value("SELECT COUNT(*) FROM carry.w WHERE writer = -1"); n != "0" {
		t.Errorf("%s rows of a transaction that was lost", n)
	}
	c.healthy()
}

// knowsTied waits until the cluster's status, and a planned switchover's dry run, tell of sessions that cannot be
// carried over.
func (c *cluster) knowsTied(want map[string]int) {
	c.t.Helper()
	client := c.Client(c.healthy())
	defer client.Close()
	eventually(c.t, healLimit, "what ties sessions is known", func() error {
		res, err := api.Switchover.Ask(c.t.Context(), client, api.SwitchoverRequest{DryRun: true})
		if status := c.view().TiedSessions(); err != nil || !maps.Equal(res.TiedSessions, want) || !maps.Equal(status, want) {
			return fmt.Errorf("the dry run says %v %s, the status %v, error %v", res.TiedSessions, res.Problem, status, err)
		}
		return nil
	})
}

// switchUnderWriters moves leadership while writers run small transactions, as sysbench does, and others log in for
// each statement, as PHP does, and checks that each was answered OK and is there.
func (c *cluster) switchUnderWriters(db *sql.DB, writers, newcomers int) {
	was, _ := strconv.Atoi(c.session(c.leader()).value("SELECT COUNT(*) FROM carry.w"))
	ctx, stop := context.WithCancel(c.t.Context())
	defer stop()
	var wg sync.WaitGroup
	acked, doors := make([]int, writers+newcomers), c.Routed()
	var mu sync.Mutex
	var failed []string
	for i := range acked {
		write, done, pause := func() error { return visit(doors, i) }, func() {}, time.Duration(0)
		if i < writers {
			s := c.pin(db)
			write, done, pause = func() error { return writeOnce(s.conn, i) }, func() { _ = s.conn.Close() }, writerPause
		}
		wg.Go(func() {
			defer done()
			for ctx.Err() == nil {
				if err := write(); err != nil {
					mu.Lock()
					failed = append(failed, fmt.Sprintf("writer %d after %d: %v", i, acked[i], err))
					mu.Unlock()
					return
				}
				mu.Lock()
				acked[i]++
				mu.Unlock()
				select { // so slow that followers keep up on a busy machine: the switchover is what is tested
				case <-ctx.Done():
				case <-time.After(pause):
				}
			}
		})
	}
	total := func() (n int) {
		mu.Lock()
		defer mu.Unlock()
		for _, k := range acked {
			n += k
		}
		return n
	}
	eventually(c.t, healLimit, "they write", func() error { return atLeast(total(), 2*len(acked)) })
	var res api.SwitchoverResult
	eventually(c.t, healLimit, "leadership moves", func() (err error) {
		res, err = c.Switchover(c.t.Context(), "")
		return err
	})
	if res.SessionsMoved < writers*3/4 { // nodes that do not get quiet in time told of theirs up to a second before
		c.t.Errorf("%d sessions are told to have moved, of %d that write; %d connections were cut", res.SessionsMoved,
			writers, res.ConnectionsCut)
	}
	more := total() + 2*len(acked)
	eventually(c.t, healLimit, "they go on", func() error { return atLeast(total(), more) })
	stop()
	wg.Wait()
	if len(failed) > 0 {
		c.t.Errorf("%d of %d writers heard an error: %s", len(failed), len(acked), strings.Join(failed[:min(3, len(failed))],
			"; "))
	}
	if n, _ := strconv.Atoi(c.session(c.healthy()).value("SELECT COUNT(*) FROM carry.w")); n-was < total() {
		c.t.Errorf("%d rows, %d acknowledged", n-was, total())
	}
	c.t.Logf(
		"switchover to %s under %d writers and %d newcomers: write gap %.0f ms, %d transactions acknowledged, %d errors",
		res.To, writers, newcomers, res.WriteGapMS, total(), len(failed))
}

func atLeast(n, want int) error {
	if n < want {
		return fmt.Errorf("%d of %d", n, want)
	}
	return nil
}

// writerPause is between two transactions of a writer.
const writerPause = 100 * time.Millisecond

// writeOnce is a small transaction.
func writeOnce(c *sql.Conn, writer int) error {
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	tx, err := c.BeginTx(ctx, nil)
	if err != nil {
		return fmt.Errorf("BEGIN: %w", err)
	}
	defer tx.Rollback()
	for _, q := range []string{"INSERT INTO carry.w (writer, v) VALUES (?, 1)",
		"UPDATE carry.w SET v = v + 1 WHERE id = LAST_INSERT_ID() AND writer = ?"} {
		if _, err := tx.ExecContext(ctx, q, writer); err != nil {
			return fmt.Errorf("%.6s: %w", q, err)
		}
	}
	if err := tx.Commit(); err != nil {
		return fmt.Errorf("COMMIT: %w", err)
	}
	return nil
}

// visit logs in, writes a row and leaves. It does without database/sql, which tries a login that fails once more.
func visit(l verify.Login, writer int) error {
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	cfg := mysql.NewConfig()
	cfg.User, cfg.Passwd, cfg.Net, cfg.Addr = l.User, l.Password, "tcp", l.Addr()
	connector, err := mysql.NewConnector(cfg)
	if err != nil {
		return err
	}
	conn, err := connector.Connect(ctx)
	if err != nil {
		return fmt.Errorf("connect: %w", err)
	}
	defer conn.Close()
	_, err = conn.(driver.ExecerContext).
		ExecContext(ctx, fmt.Sprintf("INSERT INTO carry.w (writer, v) VALUES (%d, 1)", writer), nil)
	return err
}
