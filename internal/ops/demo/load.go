package demo

import (
	"bufio"
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"time"
)

// outcome is what a writer knows about one of its writes.
type outcome byte

const (
	unknown outcome = iota // sent, and no answer: it is there on all nodes or on none
	acked                  // the server said OK: it is there once, on all nodes
	refused                // certainly not committed: it is nowhere
)

// pairEvery: every so many writes of a writer are a transaction over two tables.
const pairEvery = 4

var loadTables = []string{"w0", "w1"}

// load is what the demo's sessions write, each its own rows one after the other, and what they were answered.
type load struct {
	login  Login
	cancel context.CancelFunc
	wg     sync.WaitGroup

	mu       sync.Mutex
	log      *bufio.Writer // lines `A|K|U|F writer seq`: attempted, acknowledged, unknown, refused
	file     *os.File
	err      error
	outcomes [][]outcome // of each writer, by seq from 0 on
	took     []time.Duration
	since    time.Time // of took
	last     time.Time // acknowledgement
	from     time.Time // longest is since then
	longest  time.Duration
}

func newLoad(login Login, writers int, logPath string) (*load, error) {
	f, err := os.Create(logPath)
	if err != nil {
		return nil, err
	}
	now := time.Now()
	return &load{login: login, log: bufio.NewWriter(f), file: f, outcomes: make([][]outcome, writers), since: now,
		last: now}, nil
}

func (l *load) close() error { return l.file.Close() }

// prepare makes the tables. It tries until ctx ends, because a new cluster may still be electing.
func (l *load) prepare(ctx context.Context) error {
	db, err := l.login.Open("")
	if err != nil {
		return err
	}
	defer db.Close()
	stmts := []string{"DROP DATABASE IF EXISTS demo", "CREATE DATABASE demo"}
	// without a unique key over writer and seq: a write that is applied twice shows as two rows
	for _, t := range loadTables {
		stmts = append(stmts, "CREATE TABLE demo."+t+
			" (id BIGINT NOT NULL AUTO_INCREMENT PRIMARY KEY, writer INT NOT NULL, seq BIGINT NOT NULL, "+
			"payload VARCHAR(100) NOT NULL, KEY (writer, seq))")
	}
	return pollUntil(ctx, 200*time.Millisecond, "the load's tables", func() error {
		for _, s := range stmts {
			if _, err := db.ExecContext(ctx, s); err != nil {
				return err
			}
		}
		return nil
	})
}

// start lets the sessions write until stop.
func (l *load) start(ctx context.Context) {
	ctx, l.cancel = context.WithCancel(ctx)
	for writer := range l.outcomes {
		l.wg.Add(1)
		go func() {
			defer l.wg.Done()
			if err := l.write(ctx, writer); err != nil {
				l.mu.Lock()
				l.err = errors.Join(l.err, err)
				l.mu.Unlock()
			}
		}()
	}
}

// stop ends the sessions after their present write.
func (l *load) stop() error {
	l.cancel()
	l.wg.Wait()
	l.mu.Lock()
	defer l.mu.Unlock()
	return errors.Join(l.err, l.log.Flush())
}

func (l *load) write(ctx context.Context, writer int) error {
	db, err := l.login.Open("demo")
	if err != nil {
		return err
	}
	defer db.Close()
	for {
		conn := l.connect(ctx, db)
		if conn == nil {
			return nil // ctx has ended
		}
		for o := acked; o == acked && ctx.Err() == nil; {
			seq := l.begin(writer)
			sent := time.Now()
			o = l.attempt(conn, writer, seq)
			l.settle(writer, seq, o, time.Since(sent))
		}
		// After anything but an acknowledgement the connection is not used again.
		_ = conn.Raw(func(any) error { return driver.ErrBadConn })
		conn.Close()
	}
}

// connect tries until there is a connection; nil once ctx has ended.
func (l *load) connect(ctx context.Context, db *sql.DB) (conn *sql.Conn) {
	_ = pollUntil(ctx, 20*time.Millisecond, "a connection", func() (err error) {
		dial, cancel := context.WithTimeout(ctx, l.login.WithDefaults().DialTimeout)
		defer cancel()
		conn, err = db.Conn(dial)
		return err
	})
	return conn
}

// attempt makes one write: a row, or a row in each table in one transaction.
func (l *load) attempt(conn *sql.Conn, writer, seq int) outcome {
	ctx, cancel := context.WithTimeout(context.Background(), l.login.WithDefaults().StatementTimeout)
	defer cancel()
	exec := func(query string, args ...any) error {
		_, err := conn.ExecContext(ctx, query, args...)
		return err
	}
	insert := func(table string) error {
		return exec("INSERT INTO "+table+" (writer, seq, payload) VALUES (?, ?, REPEAT('x', 100))", writer, seq)
	}
	tables := tablesOf(writer, seq)
	if len(tables) == 1 {
		return outcomeOf(insert(tables[0]))
	}
	if exec("BEGIN") != nil {
		return refused
	}
	for _, t := range tables {
		if insert(t) != nil {
			return refused // without a COMMIT nothing of an open transaction stays
		}
	}
	return outcomeOf(exec("COMMIT"))
}

func tablesOf(writer, seq int) []string {
	if seq%pairEvery == 0 {
		return loadTables
	}
	i := (writer + seq) % len(loadTables)
	return loadTables[i : i+1]
}

// outcomeOf judges the error of a statement that commits.
func outcomeOf(err error) outcome {
	switch {
	case err == nil || SaysCommitted(err):
		return acked
	case NotCommitted(err):
		return refused
	}
	return unknown
}

// begin notes an attempt before anything is sent.
func (l *load) begin(writer int) (seq int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	seq = len(l.outcomes[writer])
	l.outcomes[writer] = append(l.outcomes[writer], unknown)
	fmt.Fprintf(l.log, "A %d %d\n", writer, seq)
	return seq
}

func (l *load) settle(writer, seq int, o outcome, took time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.outcomes[writer][seq] = o
	fmt.Fprintf(l.log, "%c %d %d\n", "UKF"[o], writer, seq)
	if o != acked {
		return
	}
	now := time.Now()
	if now.After(l.from) {
		l.longest = max(l.longest, now.Sub(l.last))
	}
	l.last = now
	l.took = append(l.took, took)
}

// tick is the rate of acknowledged writes and the 95th percentile of their latency since the last call.
func (l *load) tick() (tps float64, p95 time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()
	if n := len(l.took); n > 0 {
		slices.Sort(l.took)
		tps, p95 = float64(n)/now.Sub(l.since).Seconds(), l.took[n*95/100]
	}
	l.took, l.since = l.took[:0], now
	return tps, p95
}

// watch begins to look for the longest time without an acknowledgement.
func (l *load) watch() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.from, l.longest = time.Now(), 0
}

// gap is the longest time without an acknowledgement since watch, the one that is still open included.
func (l *load) gap() time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	return max(l.longest, time.Since(l.last))
}

// ackedSince reports whether a write has been acknowledged after t.
func (l *load) ackedSince(t time.Time) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.last.After(t)
}

// Counts are of the load's writes.
type Counts struct {
	Attempts int64 `json:"attempts"`
	Acked    int64 `json:"acked"`
	Unknown  int64 `json:"unknown"`
	Failed   int64 `json:"failed"`
}

func (l *load) counts() (c Counts) {
	for _, writer := range l.outcomes {
		for _, o := range writer {
			c.Attempts++
			switch o {
			case acked:
				c.Acked++
			case refused:
				c.Failed++
			default:
				c.Unknown++
			}
		}
	}
	return c
}

// Report is the verdict over the load.
type Report struct {
	Counts       Counts    `json:"counts"`
	Nodes        []string  `json:"nodes"`
	Tables       int       `json:"tables"`        // compared by checksum
	GTIDExecuted string    `json:"gtid_executed"` // common to all
	Problems     []Problem `json:"problems"`
}

// Problem is one broken promise.
type Problem struct {
	Kind   string `json:"kind"`
	Node   string `json:"node,omitempty"`
	Detail string `json:"detail"`
}

// OK is true when no promise was broken.
func (r Report) OK() bool { return len(r.Problems) == 0 }

func (r Report) String() string {
	var b strings.Builder
	fmt.Fprintf(&b,
		"%d writes attempted: %d acknowledged, %d without an answer, %d refused; %d tables and gtid_executed compared on %s",
		r.Counts.Attempts, r.Counts.Acked, r.Counts.Unknown, r.Counts.Failed, r.Tables, strings.Join(r.Nodes, ", "))
	if r.OK() {
		b.WriteString(": every acknowledged write is there exactly once, all nodes are equal")
		return b.String()
	}
	fmt.Fprintf(&b, ": %d PROBLEMS", len(r.Problems))
	for i, p := range r.Problems {
		if i == 20 {
			fmt.Fprintf(&b, "\n  … and %d more", len(r.Problems)-i)
			break
		}
		fmt.Fprintf(&b, "\n  %s on %s: %s", p.Kind, p.Node, p.Detail)
	}
	return b.String()
}
