package verify

import (
	"context"
	"crypto/sha256"
	"database/sql"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/go-sql-driver/mysql"

	"trireme/internal/base/poll"
)

const errSyntax = 1064 // ER_PARSE_ERROR: a database named like a keyword

// Config of a workload.
type Config struct {
	Login
	// Database is dropped and made by Prepare. Default trireme_verify.
	Database string
	// Writers is the number of sessions that insert rows; Tables that of their tables. Default 8 and 4.
	Writers, Tables int
	// PairEvery n makes every n-th write of a writer an explicit transaction over two tables. Default 4; negative: never.
	PairEvery int
	// PayloadBytes of each row. Default 100.
	PayloadBytes int
	// Mixed adds sessions that do transfers, DDL, account statements and XA transactions, each with checks of its own.
	Mixed bool
	// Rate bounds the writes per second of each writer. Zero: as fast as they are answered.
	Rate float64
	// LogPath is the file of the client's log; empty: in memory only.
	LogPath string
}

func (c Config) withDefaults() Config {
	c.Login = c.Login.WithDefaults()
	if c.Database == "" {
		c.Database = "trireme_verify"
	}
	if c.Writers == 0 {
		c.Writers = 8
	}
	if c.Tables == 0 {
		c.Tables = 4
	}
	if c.PairEvery == 0 {
		c.PairEvery = 4
	}
	if c.PayloadBytes == 0 {
		c.PayloadBytes = 100
	}
	return c
}

// Workload is a set of sessions that write until they are stopped, and what they know about it.
type Workload struct {
	cfg   Config
	log   *Log
	meter *Meter
	mixed *mixedState // nil unless Config.Mixed

	cancel context.CancelFunc
	wg     sync.WaitGroup
	gateMu sync.Mutex
	gate   chan struct{} // not nil: writers wait until it is closed
	errMu  sync.Mutex
	errs   []error
}

// New makes a workload; nothing is sent yet.
func New(cfg Config) (*Workload, error) {
	cfg = cfg.withDefaults()
	if cfg.Addr == nil {
		return nil, errors.New("workload: no address to connect to")
	}
	if cfg.Writers > maxWriters {
		return nil, fmt.Errorf("workload: %d writers, at most %d", cfg.Writers, maxWriters)
	}
	log, err := NewLog(cfg.LogPath, cfg.Writers)
	if err != nil {
		return nil, err
	}
	w := &Workload{cfg: cfg, log: log, meter: NewMeter(time.Now)}
	if cfg.Mixed {
		w.mixed = newMixedState(kindBank, kindDDL, kindACL, kindXA)
	}
	return w, nil
}

// Log of every attempt.
func (w *Workload) Log() *Log { return w.log }

// Meter of acknowledged writes.
func (w *Workload) Meter() *Meter { return w.meter }

// Database that the workload writes to.
func (w *Workload) Database() string { return w.cfg.Database }

// Prepare makes the database and its tables. It tries until ctx ends, because a new cluster may still be electing.
func (w *Workload) Prepare(ctx context.Context) error {
	stmts := w.schema()
	if w.mixed != nil {
		stmts = append(stmts, mixedSchema(w.cfg.Database)...)
	}
	return prepare(ctx, w.cfg.Login, w.cfg.Database, stmts, nil)
}

// prepare creates a database, after dropping an old one, and runs the statements. It tries until ctx ends. before may
// return statements to run first.
func prepare(ctx context.Context, login Login, database string, stmts []string,
	before func(context.Context, *sql.DB) ([]string, error)) error {
	stmts = append([]string{"DROP DATABASE IF EXISTS " + database, "CREATE DATABASE " + database}, stmts...)
	db, err := login.Open("")
	if err != nil {
		return err
	}
	defer db.Close()
	for {
		var first []string
		var err error
		if before != nil {
			first, err = before(ctx, db)
		}
		if err == nil {
			err = execAll(ctx, db, slices.Concat(first, stmts))
		}
		if err == nil {
			return nil
		}
		if my, ok := errors.AsType[*mysql.MySQLError](err); ok && my.Number == errSyntax {
			return fmt.Errorf("preparing the workload's tables: %w", err) // it will not get better
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("preparing the workload's tables: %w", err)
		case <-time.After(200 * time.Millisecond):
		}
	}
}

func execAll(ctx context.Context, db *sql.DB, stmts []string) error {
	for _, s := range stmts {
		if _, err := db.ExecContext(ctx, s); err != nil {
			return fmt.Errorf("%.60s: %w", s, err)
		}
	}
	return nil
}

// schema of the writers' tables.
func (w *Workload) schema() []string {
	var stmts []string
	for t := range w.cfg.Tables {
		stmts = append(stmts,
			fmt.Sprintf("CREATE TABLE %s.%s (id BIGINT NOT NULL AUTO_INCREMENT PRIMARY KEY, writer INT NOT NULL, "+
				"seq BIGINT NOT NULL, payload VARCHAR(%d) NOT NULL, KEY (writer, seq))", w.cfg.Database, tableName(t),
				w.cfg.PayloadBytes))
	}
	return stmts
}

func tableName(t int) string { return fmt.Sprintf("w%d", t) }

// payloadOf is what a row of an attempt holds: damage that is the same on all nodes would not show otherwise.
func payloadOf(a Attempt, bytes int) string {
	sum := sha256.Sum256(fmt.Appendf(nil, "%d/%d", a.Writer, a.Seq))
	text := hex.EncodeToString(sum[:])
	return strings.Repeat(text, bytes/len(text)+1)[:bytes]
}

// tablesOf says into which tables an attempt writes its row.
func tablesOf(a Attempt, tables, pairEvery int) []int {
	first := int((a.Seq + int64(a.Writer)) % int64(tables))
	if tables > 1 && pairEvery > 0 && a.Seq%int64(pairEvery) == 0 {
		return []int{first, (first + 1) % tables}
	}
	return []int{first}
}

// Start lets the sessions write until Stop or the end of ctx.
func (w *Workload) Start(ctx context.Context) {
	ctx, w.cancel = context.WithCancel(ctx)
	for i := range w.cfg.Writers {
		w.run(func() error { return w.write(ctx, i) })
	}
	if w.mixed != nil {
		for _, f := range w.mixed.sessions(w.cfg) {
			w.run(func() error { return f(ctx) })
		}
	}
}

func (w *Workload) run(f func() error) {
	w.wg.Add(1)
	go func() {
		defer w.wg.Done()
		if err := f(); err != nil {
			w.errMu.Lock()
			w.errs = append(w.errs, err)
			w.errMu.Unlock()
		}
	}()
}

// Stop ends the sessions after their present statement, at most DialTimeout + StatementTimeout later, and returns what
// went wrong in the workload itself (not the errors of servers: those are outcomes).
func (w *Workload) Stop() error {
	if w.cancel == nil {
		return nil
	}
	w.cancel()
	w.wg.Wait()
	w.errMu.Lock()
	defer w.errMu.Unlock()
	return errors.Join(append(w.errs, w.log.Flush())...)
}

// Pause lets writers stop after their present attempt, until Resume. The mixed sessions go on.
func (w *Workload) Pause() {
	w.gateMu.Lock()
	defer w.gateMu.Unlock()
	if w.gate == nil {
		w.gate = make(chan struct{})
	}
}

// Resume lets writers go on after a Pause.
func (w *Workload) Resume() {
	w.gateMu.Lock()
	defer w.gateMu.Unlock()
	if w.gate != nil {
		close(w.gate)
		w.gate = nil
	}
}

// passGate waits while the writers pause, at most until ctx ends.
func (w *Workload) passGate(ctx context.Context) {
	w.gateMu.Lock()
	gate := w.gate
	w.gateMu.Unlock()
	if gate != nil {
		select {
		case <-gate:
		case <-ctx.Done():
		}
	}
}

// Close releases the log's file.
func (w *Workload) Close() error { return w.log.Close() }

func (w *Workload) write(ctx context.Context, writer int) error {
	s, err := newSession(w.cfg.Login, w.cfg.Database)
	if err != nil {
		return err
	}
	defer s.close()
	for ctx.Err() == nil {
		w.passGate(ctx)
		if s.connect(ctx) != nil {
			return nil // ctx has ended
		}
		seq := w.log.Begin(writer)
		begin := time.Now()
		outcome := w.attempt(s, Attempt{writer, seq})
		w.log.Settle(writer, seq, outcome)
		if outcome == Acked {
			w.meter.Ack()
		} else {
			w.meter.Error()
		}
		if w.cfg.Rate > 0 {
			_ = poll.Pause(ctx, time.Duration(float64(time.Second)/w.cfg.Rate)-time.Since(begin))
		}
	}
	return nil
}

// attempt makes one write; the connection is gone afterwards unless it was acknowledged.
func (w *Workload) attempt(s *session, a Attempt) Outcome {
	payload := payloadOf(a, w.cfg.PayloadBytes)
	tables := tablesOf(a, w.cfg.Tables, w.cfg.PairEvery)
	insert := func(t int) error {
		return s.exec("INSERT INTO "+tableName(t)+" (writer, seq, payload) VALUES (?, ?, ?)", a.Writer, a.Seq, payload)
	}
	if len(tables) == 1 {
		return commitOutcome(insert(tables[0]))
	}
	if s.exec("BEGIN") != nil {
		return Failed
	}
	for _, t := range tables {
		if insert(t) != nil {
			return Failed // without a COMMIT nothing of an open transaction stays
		}
	}
	return commitOutcome(s.exec("COMMIT"))
}
