package bench

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/go-sql-driver/mysql"

	"trireme/internal/base/poll"
)

// paced is one transaction of a steady load, with the times since the load's begin.
type paced struct {
	due, done time.Duration
	failed    bool
	open      bool // it had no answer yet, or its session no time for it, when the load ended at done
}

// pacer is a load at a steady rate. Unlike sysbench's, each transaction is kept, so that a disturbance can be looked at
// closely. Latency counts from when a transaction was due, not from when a session got round to it: those that a stall
// kept from being tried count as slow too.
type pacer struct {
	db       *sql.DB
	tables   int
	rows     int
	sessions int
	begin    time.Time
	cancel   context.CancelFunc
	running  sync.WaitGroup

	mu   sync.Mutex
	done []paced
	err  error // the first one that is not a client's everyday
}

// startPacer begins a load of so many transactions per second, spread over sessions.
func startPacer(ctx context.Context, b *Bed, sessions, tps int) (*pacer, error) {
	db, err := openLeader(b, sessions)
	if err != nil {
		return nil, err
	}
	p := &pacer{db: db, tables: b.Settings.Tables, rows: b.Settings.Rows, sessions: sessions, begin: time.Now()}
	ctx, p.cancel = context.WithCancel(ctx)
	every := time.Duration(sessions) * time.Second / time.Duration(tps)
	for i := range sessions {
		p.running.Go(func() { p.session(ctx, time.Duration(i)*every/time.Duration(sessions), every) })
	}
	return p, nil
}

func (p *pacer) session(ctx context.Context, due, every time.Duration) {
	for ; ; due += every {
		err := poll.Pause(ctx, max(0, due-p.since()))
		if err == nil {
			err = p.transaction(ctx)
		}
		if ctx.Err() != nil {
			p.leave(due, every)
			return
		}
		p.mu.Lock()
		p.done = append(p.done, paced{due: due, done: p.since(), failed: err != nil})
		if err != nil && p.err == nil && !everyday(err) {
			p.err = err
		}
		p.mu.Unlock()
	}
}

// leave notes what was due and has no answer.
func (p *pacer) leave(due, every time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for end := p.since(); due < end; due += every {
		p.done = append(p.done, paced{due: due, done: end, open: true})
	}
}

func (p *pacer) since() time.Duration { return time.Since(p.begin) }

// everyday errors are those that sysbench is told to ignore: the client tries again.
func everyday(err error) bool {
	var e *mysql.MySQLError
	return errors.As(err, &e) && slices.Contains([]uint16{1213, 1020, 1205, 3101}, e.Number)
}

// transaction does what oltp_write_only of sysbench does: four changes of rows.
func (p *pacer) transaction(ctx context.Context) error {
	tx, err := p.db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }() // has no effect after a commit
	table := func() string { return fmt.Sprintf("sbtest%d", 1+rand.IntN(p.tables)) }
	id := func() int { return 1 + rand.IntN(p.rows) }
	again := id()
	t := table()
	for _, st := range []string{
		fmt.Sprintf("UPDATE %s SET k=k+1 WHERE id=%d", table(), id()),
		fmt.Sprintf("UPDATE %s SET c=REPEAT('%08d-',13) WHERE id=%d", table(), rand.IntN(1e8), id()),
		fmt.Sprintf("DELETE FROM %s WHERE id=%d", t, again),
		fmt.Sprintf("INSERT INTO %s (id, k, c, pad) VALUES (%d, %d, REPEAT('%08d-',13), REPEAT('x',59))", t, again, id(),
			rand.IntN(1e8)),
	} {
		if _, err := tx.ExecContext(ctx, st); err != nil {
			return err
		}
	}
	return tx.Commit()
}

// stop ends the load; what is under way is abandoned.
func (p *pacer) stop() ([]paced, error) {
	p.cancel()
	p.running.Wait()
	return p.done, errors.Join(p.err, p.db.Close())
}

// window is how a steady load fared between two moments.
type window struct {
	P99     time.Duration
	Longest time.Duration // time without an acknowledged commit
	Done    int
	Failed  int
}

// between looks at the transactions that were due in a window (one that is open counts as long as it was waited for),
// and at the gaps between commits in it: also that before the first one and that after the last one.
func between(all []paced, from, to time.Duration) (w window) {
	var latency, ends []time.Duration
	for _, p := range all {
		if p.due >= from && p.due < to {
			if w.Done++; p.failed {
				w.Failed++
			}
			latency = append(latency, p.done-p.due)
		}
		if !p.failed && !p.open && p.done >= from && p.done < to {
			ends = append(ends, p.done)
		}
	}
	slices.Sort(ends)
	last := from
	for _, at := range append(ends, to) {
		w.Longest, last = max(w.Longest, at-last), at
	}
	w.P99 = quantile(latency, 0.99)
	return w
}
