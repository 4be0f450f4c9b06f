package bench

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"time"

	"github.com/go-sql-driver/mysql"

	"trireme/internal/base/config"
	"trireme/internal/base/poll"
	"trireme/lab/rivals"
)

const (
	bigRow      = 1 << 10          // bytes of each row of a large transaction
	bigStep     = 1024             // rows that one statement inserts at most
	bigLimit    = 10 * time.Minute // for one large transaction and its way to all replicas
	bigRate     = 4 << 20          // bytes per second that a slow system takes; for estimates
	pacedTPS    = 50               // of the others; well below what any system takes
	groupTrxMax = "2147483647"     // the highest group_replication_transaction_size_limit; its default is 150,000,000
	markPoll    = 10 * time.Millisecond
	clearPeak   = "5" // for /proc/<pid>/clear_refs: VmHWM begins again
)

// trxSizePlan: one start for each system, on which the sizes follow one another.
func trxSizePlan(s Settings) ([]Group, error) {
	if err := lookSysbench(); err != nil {
		return nil, err
	}
	sizes := s.Cases
	s.Cases = nil
	return s.groups(func(g *Group, base Key) error {
		g.Prepare = prepareBig
		if !g.System.Ours {
			g.Shape.Options = map[string]string{"loose_group_replication_transaction_size_limit": groupTrxMax}
		}
		base.Threads = s.Threads[0]
		for _, c := range sizes {
			size, err := config.ParseBytes(c)
			if err != nil {
				return err
			}
			k := base
			k.Case = c
			takes := 3*time.Duration(s.Seconds)*time.Second + 3*time.Second +
				time.Duration(float64(size)/bigRate*float64(time.Second))
			g.Cells = append(g.Cells, Cell{Key: k, Takes: takes, Measure: func(ctx context.Context, b *Bed) (Record, error) {
				return trxSize(ctx, b, int64(size), k.Threads)
			}})
		}
		return nil
	})
}

// prepareBig fills sysbench's tables, for the others, and one with the rows that large transactions are made of.
func prepareBig(ctx context.Context, b *Bed) error {
	if err := prepareTables(ctx, b); err != nil {
		return err
	}
	db, err := openLeader(b, 1)
	if err != nil {
		return err
	}
	defer db.Close()
	st := []string{"CREATE TABLE bench_seed (id INT PRIMARY KEY, v VARBINARY(1024) NOT NULL)",
		"CREATE TABLE bench_mark (id INT PRIMARY KEY, n INT NOT NULL)", "INSERT INTO bench_mark VALUES (1, 0)",
		"INSERT INTO bench_seed VALUES (1, RANDOM_BYTES(1024))"}
	for n := 1; n < bigStep; n *= 2 {
		st = append(st, fmt.Sprintf("INSERT INTO bench_seed SELECT id + %d, RANDOM_BYTES(1024) FROM bench_seed", n))
	}
	for _, s := range st {
		if _, err := db.ExecContext(ctx, s); err != nil {
			return fmt.Errorf("%s: %w", s, err)
		}
	}
	return nil
}

// bigTimes are those of one large transaction.
type bigTimes struct{ statements, commit, applied time.Duration }

// trxSize measures a steady load before, during and after large transactions. During lasts until the last of them is
// applied everywhere, and as long as before; so many are made, one after another, as fit.
func trxSize(ctx context.Context, b *Bed, size int64, sessions int) (rec Record, err error) {
	if err := b.Settle(ctx); err != nil {
		return rec, fmt.Errorf("%w: %w", errBroken, err)
	}
	if _, err := caughtUp(ctx, b, catchUpLimit); err != nil {
		return rec, err
	}
	big, err := newBigSession(ctx, b)
	if err != nil {
		return rec, err
	}
	defer big.close()
	resetPeaks(b.Hosts())
	p, err := startPacer(ctx, b, sessions, pacedTPS)
	if err != nil {
		return rec, err
	}
	length := time.Duration(b.Settings.Seconds) * time.Second
	times, from, to, bigErr := aroundBig(ctx, b, p, big, size, length)
	all, err := p.stop()
	if bigErr != nil {
		return rec, refused(bigErr)
	}
	if err != nil {
		return rec, fmt.Errorf("the other sessions: %w", err)
	}
	rec.Values = map[string]float64{}
	for _, t := range []struct {
		name string
		of   func(bigTimes) time.Duration
	}{{valBigStatements, func(t bigTimes) time.Duration { return t.statements }},
		{valBigCommit, func(t bigTimes) time.Duration { return t.commit }},
		{valBigApplied, func(t bigTimes) time.Duration { return t.applied }}} {
		var seconds []float64
		for _, x := range times {
			seconds = append(seconds, t.of(x).Seconds())
		}
		rec.Values[t.name] = median(seconds)
	}
	rec.Values[valBigTimes] = float64(len(times))
	addWindow(&rec, "before", between(all, from-length, from))
	addWindow(&rec, "during", between(all, from, to))
	addWindow(&rec, "after", between(all, to, to+length))
	rec.Series = map[string][]float64{valP99: p99Series(all)}
	rec.Events = []Event{{from.Seconds(), "first large transaction"}, {to.Seconds(), "last one applied"}}
	err = addPeaks(&rec, b.Hosts())
	return rec, err
}

// aroundBig makes the large transactions in the midst of a steady load, and returns when they began and ended.
func aroundBig(ctx context.Context, b *Bed, p *pacer, big *bigSession, size int64,
	length time.Duration) (times []bigTimes, from, to time.Duration, err error) {
	if err := poll.Pause(ctx, time.Second+length); err != nil { // the first second is for connecting
		return nil, 0, 0, err
	}
	ctx2, cancel := context.WithTimeout(ctx, bigLimit)
	defer cancel()
	from = p.since()
	for len(times) == 0 || p.since() < from+length {
		t, err := big.commit(ctx2, b, size)
		if err != nil {
			return nil, 0, 0, err
		}
		times = append(times, t)
	}
	to = p.since()
	return times, from, to, poll.Pause(ctx, length+100*time.Millisecond)
}

// refused makes a result of what a server says to a transaction that is too large for it. Anything else may have left
// the system in pieces.
func refused(err error) error {
	// max_allowed_packet, binary log cache, a plugin
	if e, ok := errors.AsType[*mysql.MySQLError](err); ok && slices.Contains([]uint16{1153, 1197, 3100}, e.Number) {
		return fmt.Errorf("%w: refused: %w", rivals.ErrNotHere, err)
	}
	return fmt.Errorf("%w: the large transaction: %w", errBroken, err)
}

// bigSession is the one that makes large transactions.
type bigSession struct {
	db   *sql.DB
	mark int
}

func newBigSession(ctx context.Context, b *Bed) (*bigSession, error) {
	db, err := openLeader(b, 1)
	if err != nil {
		return nil, err
	}
	s := &bigSession{db: db}
	for _, st := range []string{"DROP TABLE IF EXISTS bench_big",
		"CREATE TABLE bench_big (id BIGINT AUTO_INCREMENT PRIMARY KEY, v VARBINARY(1024) NOT NULL)"} {
		if _, err := db.ExecContext(ctx, st); err != nil {
			return nil, errors.Join(err, db.Close())
		}
	}
	err = db.QueryRowContext(ctx, "SELECT n FROM bench_mark").Scan(&s.mark)
	if err == nil {
		_, err = caughtUp(ctx, b, catchUpLimit)
	}
	if err != nil {
		return nil, errors.Join(err, db.Close())
	}
	return s, nil
}

// close frees what was inserted.
func (s *bigSession) close() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	_, _ = s.db.ExecContext(ctx, "DROP TABLE bench_big") // the next one tries again
	s.db.Close()
}

// commit inserts so many bytes of rows in one transaction and waits until all replicas show it.
func (s *bigSession) commit(ctx context.Context, b *Bed, size int64) (t bigTimes, err error) {
	begin := time.Now()
	tx, err := s.db.BeginTx(ctx, nil)
	if err != nil {
		return t, err
	}
	defer func() { _ = tx.Rollback() }()
	s.mark++
	st := []string{"UPDATE bench_mark SET n = " + strconv.Itoa(s.mark)}
	for rows := max(1, size/bigRow); rows > 0; rows -= bigStep {
		st = append(st, fmt.Sprintf("INSERT INTO bench_big (v) SELECT v FROM bench_seed ORDER BY id LIMIT %d",
			min(rows, bigStep)))
	}
	for _, x := range st {
		if _, err := tx.ExecContext(ctx, x); err != nil {
			return t, err
		}
	}
	t.statements = time.Since(begin)
	begin = time.Now()
	if err := tx.Commit(); err != nil {
		return t, err
	}
	t.commit = time.Since(begin)
	for _, name := range replicasOf(b) {
		if err := s.shown(ctx, b.DB(name)); err != nil {
			return t, fmt.Errorf("%s: %w", name, err)
		}
	}
	t.applied = time.Since(begin)
	return t, nil
}

func (s *bigSession) shown(ctx context.Context, replica *sql.DB) error {
	for {
		var n int
		if err := replica.QueryRowContext(ctx, "SELECT n FROM "+rivals.Database+".bench_mark").Scan(&n); err != nil ||
			n >= s.mark {
			return err
		}
		if err := poll.Pause(ctx, markPoll); err != nil {
			return err
		}
	}
}

func addWindow(rec *Record, name string, w window) {
	rec.Values["p99_"+name+"_ms"], rec.Values["gap_"+name+"_ms"] = milliseconds(w.P99), milliseconds(w.Longest)
	if name == "during" {
		rec.Values[valOthersFailed] = float64(w.Failed)
	}
}

// p99Series is the p99 of what was due in each second.
func p99Series(all []paced) []float64 {
	var last time.Duration
	for _, p := range all {
		last = max(last, p.due)
	}
	var out []float64
	for s := time.Duration(0); s <= last; s += time.Second {
		out = append(out, milliseconds(between(all, s, s+time.Second).P99))
	}
	return out
}

// resetPeaks lets the highest resident memory be counted again. Where the kernel does not let us, it counts from the
// processes' start.
func resetPeaks(hosts []rivals.HostParts) {
	for _, h := range hosts {
		for _, pid := range h.Pids() {
			_ = os.WriteFile(fmt.Sprintf("/proc/%d/clear_refs", pid), []byte(clearPeak), 0)
		}
	}
}

// addPeaks keeps the highest resident memory of mysqld and daemon, of the leader and of the worst of the others.
func addPeaks(rec *Record, hosts []rivals.HostParts) error {
	for _, h := range hosts {
		for _, p := range []struct {
			pid        int
			own, other string
		}{{h.MySQL, valMySQLRSS, valMySQLRSS2}, {h.Daemon, valDaemonRSS, valDaemonRSS2}} {
			if p.pid == 0 {
				continue
			}
			_, peak, err := resident(p.pid)
			if err != nil {
				return err
			}
			name := p.own
			if !h.Leader {
				name = p.other
			}
			rec.Values[name] = max(rec.Values[name], float64(peak)/(1<<20))
		}
	}
	return nil
}
