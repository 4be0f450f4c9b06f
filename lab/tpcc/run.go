package tpcc

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"
)

// grace is how long a terminal may need for its last transaction after the end of the run.
const grace = time.Minute

// Run logs all terminals in, and lets them work for warmup, which is not counted, and length, which is. When a terminal
// ends with an error, all do, and the result is what had been counted.
func Run(ctx context.Context, cfg Config, warmup, length time.Duration) (Result, error) {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return Result{}, err
	}
	if cfg.Terminals < 1 || length < time.Second {
		return Result{}, fmt.Errorf("tpcc: %d terminals for %v: at least one, for a second, is needed", cfg.Terminals, length)
	}
	constants := runConstants(cfg.Seed)
	terminals := make([]*terminal, cfg.Terminals)
	for i := range terminals {
		terminals[i] = newTerminal(&cfg, i, constants)
		defer terminals[i].disconnect()
	}
	live, stop := context.WithCancelCause(ctx) // of the sessions: its end also ends a statement that is not answered
	defer stop(nil)
	each := func(f func(*terminal) error) error {
		return parallel(live, len(terminals), func(_ context.Context, i int) error {
			err := f(terminals[i])
			if err != nil {
				err = fmt.Errorf("tpcc: terminal %d at %s: %w", i+1, terminals[i].target.Addr, err)
				stop(err)
			}
			return err
		})
	}
	if err := each(func(t *terminal) error { return t.ready(live) }); err != nil {
		return Result{}, err
	}
	begin := time.Now().Add(warmup)
	end := begin.Add(length)
	late := time.AfterFunc(time.Until(end.Add(grace)),
		func() { stop(fmt.Errorf("tpcc: a transaction was not answered within %v after the end", grace)) })
	defer late.Stop()
	err = each(func(t *terminal) error { return t.run(live, begin, end) })
	total := tally{perSecond: make([]int64, seconds(length))}
	for _, t := range terminals {
		total.merge(&t.tally)
	}
	return total.result(length), err
}

func seconds(d time.Duration) int { return int(math.Ceil(d.Seconds())) }

// terminal is one emulated user with a connection of its own.
type terminal struct {
	cfg        *Config
	target     Target
	random     *random
	deck       *deck
	number     int // from 0
	begin, end time.Time
	session    *session // nil: not connected
	tally      tally
}

func newTerminal(cfg *Config, number int, c constants) *terminal {
	t := &terminal{cfg: cfg, number: number, random: newRandom(cfg.Seed, uint64(number)+1, c), deck: newDeck()}
	t.target = cfg.Targets[number%cfg.Warehouses%len(cfg.Targets)]
	return t
}

// ready logs in and prepares all statements, so that the measurement does not begin with that. ctx is the session's
// too.
func (t *terminal) ready(ctx context.Context) (err error) {
	if t.session, err = openSession(ctx, t.target, t.cfg.Database); err == nil {
		err = t.session.prepareAll()
	}
	return err
}

func (t *terminal) disconnect() {
	if t.session != nil {
		t.session.close()
		t.session = nil
	}
}

// warehouse of the next transaction: the terminal's home, or one of those that are its own if there are fewer terminals
// than warehouses.
func (t *terminal) warehouse() int {
	n := t.cfg.Terminals
	if n >= t.cfg.Warehouses {
		return t.number%t.cfg.Warehouses + 1
	}
	mine := (t.cfg.Warehouses - t.number + n - 1) / n
	return t.number + n*t.random.IntN(mine) + 1
}

// levelDistrict is the one whose stock this terminal looks at (clause 2.8.1.1): each of a warehouse's terminals another
// one.
func (t *terminal) levelDistrict() int { return t.number/t.cfg.Warehouses%districts + 1 }

// run works until the end.
func (t *terminal) run(ctx context.Context, begin, end time.Time) error {
	t.begin, t.end = begin, end
	t.tally.perSecond = make([]int64, seconds(end.Sub(begin)))
	for ctx.Err() == nil && time.Now().Before(t.end) {
		kind := t.deck.deal(t.random)
		if err := t.transact(ctx, kind); ctx.Err() != nil {
			break
		} else if err != nil {
			return err
		}
	}
	return context.Cause(ctx)
}

// transact draws a transaction and tries until it is committed, rolled back as the specification wants it, or the run
// is over.
func (t *terminal) transact(ctx context.Context, kind Kind) error {
	tx := draw(kind, t.random, t.cfg, t.warehouse(), t.levelDistrict())
	start := time.Now()
	var aborted [conflicts]int64
	for {
		err := t.attempt(tx)
		c := conflictOf(err)
		if c == noConflict {
			if err == nil || errors.Is(err, errUserRollback) {
				t.count(kind, tx, start, err != nil, aborted)
				return nil
			}
			return fmt.Errorf("%v: %w", kind, err)
		}
		aborted[c]++
		if !time.Now().Before(t.end) {
			return ctx.Err()
		}
	}
}

// attempt makes the whole transaction once; after an error nothing of it is left open.
func (t *terminal) attempt(tx transaction) error {
	s := t.session
	if err := s.begin(); err != nil {
		return err
	}
	err := tx.attempt(s)
	if err == nil {
		err = s.commit()
	}
	if err == nil {
		return nil
	}
	// A lock wait timeout undoes its statement only, and a server that is not ready may refuse this: the next BEGIN
	// ends what is open.
	if e := s.rollback(); e != nil && conflictOf(e) == noConflict && conflictOf(err) != noConflict {
		return e
	}
	return err
}

// count what has been completed within the measured time.
func (t *terminal) count(kind Kind, tx transaction, start time.Time, rolledBack bool, aborted [conflicts]int64) {
	now := time.Now()
	if now.Before(t.begin) || !now.Before(t.end) {
		return
	}
	for c, n := range aborted {
		t.tally.conflicts[kind][c] += n
	}
	if rolledBack {
		t.tally.rolledBack[kind]++
		return
	}
	t.tally.latency[kind] = append(t.tally.latency[kind], now.Sub(start))
	t.tally.perSecond[int(now.Sub(t.begin)/time.Second)]++
	if d, ok := tx.(*delivery); ok {
		t.tally.skipped += int64(d.skipped)
	}
}
