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
	// Dir is as in SetConfig.
	Dir string
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

// Workload is a Set of writers of rows, and of mixed sessions where they are wanted. It tells what its writers know.
type Workload struct {
	*Set
	rows *rowsPart
}

// New makes a workload; nothing is sent yet.
func New(cfg Config) (*Workload, error) {
	cfg = cfg.withDefaults()
	if cfg.Addr == nil {
		return nil, errors.New("workload: no address to connect to")
	}
	s := &Set{cfg: SetConfig{Login: cfg.Login, Database: cfg.Database, Rate: cfg.Rate, Dir: cfg.Dir}, meter: NewMeter(time.Now),
		begin: time.Now(), alone: true}
	rows, err := newRowsPart(s, cfg)
	if err != nil {
		return nil, err
	}
	s.parts = []part{rows}
	if cfg.Mixed {
		for _, kind := range []string{kindBank, kindDDL, kindACL, kindXA} {
			s.parts = append(s.parts, newMixedPart(s, kind))
		}
	}
	return &Workload{s, rows}, nil
}

// Log of every attempt to write rows.
func (w *Workload) Log() *Log { return w.rows.log }

// CheckRows judges what nodes hold now against the log, without waiting for them to be equal. The workload must have
// been stopped.
func (w *Workload) CheckRows(ctx context.Context, nodes []Endpoint) ([]Problem, error) {
	if err := w.rows.collect(ctx, nodes); err != nil {
		return nil, fmt.Errorf("reading the workload's rows: %w", err)
	}
	return w.rows.judge().Problems, nil
}

// Pause lets writers stop after their present attempt, until Resume. The mixed sessions go on.
func (w *Workload) Pause() { w.rows.pause() }

// Resume lets writers go on after a Pause.
func (w *Workload) Resume() { w.rows.resume() }

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
		if poll.Pause(ctx, 200*time.Millisecond) != nil {
			return fmt.Errorf("preparing the workload's tables: %w", err)
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
