package tpcc

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/go-sql-driver/mysql"
)

const (
	loaders       = 4         // connections
	insertBytes   = 256 << 10 // of one INSERT, about; each is a transaction
	itemsPerJob   = 10_000
	errTableThere = 1050 // ER_TABLE_EXISTS_ERROR
)

// Load makes the tables in Config.Database, which must not have them yet, and fills them (clause 4.3). Progress is
// called now and then, by one goroutine at a time, and may be nil. The same Seed makes the same population, but for
// dates and h_id.
func Load(ctx context.Context, cfg Config, progress func(done, total int)) error {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return err
	}
	if err := createTables(ctx, cfg); err != nil {
		return err
	}
	db, err := openDB(cfg.Targets[0], cfg.Database)
	if err != nil {
		return err
	}
	defer db.Close()
	jobs := loadJobs(cfg)
	if err := runJobs(ctx, db, cfg, jobs, progress); err != nil {
		return fmt.Errorf("tpcc: loading %s: %w", cfg.Targets[0].Addr, err)
	}
	// Plans must not depend on when the server gets to its statistics.
	const tables = "warehouse, district, customer, history, new_order, orders, order_line, item, stock"
	rows, err := db.QueryContext(ctx, "ANALYZE NO_WRITE_TO_BINLOG TABLE "+tables)
	if err != nil {
		return fmt.Errorf("tpcc: analysing the tables: %w", err)
	}
	return rows.Close()
}

func openDB(t Target, database string) (*sql.DB, error) {
	c, err := mysql.NewConnector(t.driverConfig(database))
	if err != nil {
		return nil, fmt.Errorf("tpcc: %w", err)
	}
	return sql.OpenDB(c), nil
}

func createTables(ctx context.Context, cfg Config) error {
	db, err := openDB(cfg.Targets[0], "")
	if err != nil {
		return err
	}
	defer db.Close()
	conn, err := db.Conn(ctx)
	if err != nil {
		return fmt.Errorf("tpcc: logging in to %s: %w", cfg.Targets[0].Addr, err)
	}
	defer conn.Close()
	name := "`" + cfg.Database + "`"
	statements := []string{createDatabase + name, "USE " + name}
	for _, t := range tables {
		statements = append(statements, t+tableOptions)
	}
	for _, s := range statements {
		_, err := conn.ExecContext(ctx, s)
		var e *mysql.MySQLError
		if errors.As(err, &e) && e.Number == errTableThere {
			return fmt.Errorf("tpcc: database %s on %s is in use: %s; choose another one, or drop it first", cfg.Database,
				cfg.Targets[0].Addr, e.Message)
		}
		if err != nil {
			return fmt.Errorf("tpcc: %.40s …: %w", s, err)
		}
	}
	return nil
}

// job is a piece of the population.
type job func(ctx context.Context, l *loader) error

// loadJobs are independent of each other, and each has a random stream of its own: which connection takes which does
// not matter.
func loadJobs(cfg Config) []job {
	var jobs []job
	for from := 1; from <= cfg.Items; from += itemsPerJob {
		to := min(from+itemsPerJob-1, cfg.Items)
		jobs = append(jobs, func(ctx context.Context, l *loader) error { return l.items(ctx, from, to) })
	}
	for w := 1; w <= cfg.Warehouses; w++ {
		jobs = append(jobs, func(ctx context.Context, l *loader) error { return l.warehouse(ctx, w) })
		for d := 1; d <= districts; d++ {
			jobs = append(jobs,
				func(ctx context.Context, l *loader) error { return l.customers(ctx, w, d) },
				func(ctx context.Context, l *loader) error { return l.orders(ctx, w, d) })
		}
		for from := 1; from <= cfg.Items; from += itemsPerJob {
			to := min(from+itemsPerJob-1, cfg.Items)
			jobs = append(jobs, func(ctx context.Context, l *loader) error { return l.stock(ctx, w, from, to) })
		}
	}
	return jobs
}

func runJobs(ctx context.Context, db *sql.DB, cfg Config, jobs []job, progress func(done, total int)) error {
	var next atomic.Int64
	now := time.Now().UTC().Format("'2006-01-02 15:04:05'")
	done := make(chan struct{}, len(jobs))
	reported := make(chan struct{})
	go func() {
		defer close(reported)
		n := 0
		for range done {
			if n++; progress != nil {
				progress(n, len(jobs))
			}
		}
	}()
	err := parallel(ctx, loaders, func(ctx context.Context, _ int) error {
		conn, err := db.Conn(ctx)
		if err != nil {
			return err
		}
		defer conn.Close()
		for {
			i := int(next.Add(1)) - 1
			if i >= len(jobs) || ctx.Err() != nil {
				return ctx.Err()
			}
			l := &loader{conn: conn, cfg: cfg, r: newRandom(cfg.Seed, uint64(i), loadConstants()), now: now}
			if err := jobs[i](ctx, l); err != nil {
				return err
			}
			done <- struct{}{}
		}
	})
	close(done)
	<-reported
	return err
}

// loader fills tables over one connection.
type loader struct {
	conn *sql.Conn
	cfg  Config
	r    *random
	now  string // SQL, the date of everything
}

// batch collects the rows of one table into INSERTs. All values are numbers, or text of letters, digits and spaces:
// nothing is escaped.
type batch struct {
	l      *loader
	prefix string // INSERT INTO t VALUES
	buf    []byte
	comma  bool // a value precedes in the row
}

func (l *loader) into(table string) *batch {
	return &batch{l: l, prefix: "INSERT INTO " + table + " VALUES ", buf: make([]byte, 0, insertBytes+4096)}
}

func (b *batch) row() {
	if len(b.buf) == 0 {
		b.buf = append(b.buf, b.prefix...)
	} else {
		b.buf = append(b.buf, ',')
	}
	b.buf, b.comma = append(b.buf, '('), false
}

func (b *batch) sep() {
	if b.comma {
		b.buf = append(b.buf, ',')
	}
	b.comma = true
}

func (b *batch) ints(values ...int) {
	for _, v := range values {
		b.sep()
		b.buf = strconv.AppendInt(b.buf, int64(v), 10)
	}
}

// raw is SQL: NULL, a date.
func (b *batch) raw(s string) {
	b.sep()
	b.buf = append(b.buf, s...)
}

// hundredths is a decimal with two places.
func (b *batch) hundredths(v int) {
	b.sep()
	b.buf = appendCents(b.buf, int64(v))
}

// tenThousandths is a decimal below one with four places.
func (b *batch) tenThousandths(v int) {
	b.sep()
	b.buf = append(b.buf, "0."...)
	s := strconv.Itoa(v)
	b.buf = append(append(b.buf, "0000"[len(s):]...), s...)
}

func (b *batch) text(s string) {
	b.sep()
	b.buf = append(append(append(b.buf, '\''), s...), '\'')
}

// random is a text of x to y characters of set.
func (b *batch) random(set string, x, y int) {
	b.sep()
	b.buf = append(b.l.r.text(append(b.buf, '\''), set, x, y), '\'')
}

func (b *batch) data() {
	b.sep()
	b.buf = append(b.l.r.data(append(b.buf, '\'')), '\'')
}

// address is two streets, a city, a state and a zip code.
func (b *batch) address() {
	for range 3 {
		b.random(alphanumeric, 10, 20)
	}
	b.random(letters, 2, 2)
	b.sep()
	b.buf = append(b.l.r.zip(append(b.buf, '\'')), '\'')
}

// end of a row; sends the INSERT when it is large enough.
func (b *batch) end(ctx context.Context) error {
	b.buf = append(b.buf, ')')
	if len(b.buf) < insertBytes {
		return nil
	}
	return b.flush(ctx)
}

func (b *batch) flush(ctx context.Context) error {
	if len(b.buf) == 0 {
		return nil
	}
	_, err := b.l.conn.ExecContext(ctx, string(b.buf))
	b.buf = b.buf[:0]
	if err != nil {
		return fmt.Errorf("%s: %w", b.prefix, err)
	}
	return nil
}
