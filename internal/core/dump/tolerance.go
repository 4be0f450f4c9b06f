package dump

import (
	"context"
	"sync"
	"time"

	"trireme/internal/mysql/binlog"
	"trireme/internal/mysql/gtid"
)

// Tolerance lets a replica apply single transactions of a feed tolerantly: their row events go without foreign key
// checks, and replica_exec_mode is IDEMPOTENT, with which a row that is not there is not changed, and a row with the
// same key is replaced. That mode is the whole server's. So such a transaction waits until all before it is applied,
// and all after it waits until it is applied itself. Tend sets the mode.
type Tolerance struct {
	is func(gtid.GTID) bool

	mu    sync.Mutex
	life  int       // counts calls of Reset
	has   gtid.Set  // what the receiver had when it began
	last  gtid.GTID // that has passed since; zero: none
	waits gtid.GTID // that may pass once the mode is set; zero: none
	now   gtid.GTID // for which the mode is set; zero: it is not
}

// NewTolerance is for the transactions of which is is true. It must not block.
func NewTolerance(is func(gtid.GTID) bool) *Tolerance { return &Tolerance{is: is} }

// tolerancePoll is how often a transaction that waits asks again.
const tolerancePoll = 50 * time.Millisecond

// Reset is called for a mysqld that was started, before it is fed: the mode is not set.
func (t *Tolerance) Reset() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.life++
	t.has, t.last, t.waits, t.now = gtid.Set{}, gtid.GTID{}, gtid.GTID{}, gtid.GTID{}
}

// Begin implements Gate.
func (t *Tolerance) Begin(has gtid.Set) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.has, t.last, t.waits = has.Clone(), gtid.GTID{}, gtid.GTID{}
}

// Pass implements Gate.
func (t *Tolerance) Pass(trx *binlog.TrxInfo) (wait time.Duration, changed <-chan struct{}) {
	t.mu.Lock()
	defer t.mu.Unlock()
	switch g := trx.GTID; {
	case g == t.now:
	case !t.now.IsZero():
		return tolerancePoll, nil
	case t.is(g):
		t.waits = g
		return tolerancePoll, nil
	}
	t.last = trx.GTID
	return 0, nil
}

// Tend sets the mode and takes it back, as what is executed allows. It is called again and again while the replica is
// fed.
func (t *Tolerance) Tend(ctx context.Context, executed func(context.Context) (string, error),
	setMode func(ctx context.Context, tolerant bool) error) error {
	t.mu.Lock()
	life, has, last, waits, now := t.life, t.has, t.last, t.waits, t.now
	t.mu.Unlock()
	if waits.IsZero() && now.IsZero() {
		return nil
	}
	text, err := executed(ctx)
	if err != nil {
		return err
	}
	done, err := gtid.ParseSet(text)
	if err != nil {
		return err
	}
	switch {
	case !now.IsZero():
		if !done.Contains(now) {
			return nil
		}
		waits = gtid.GTID{}
	case !done.ContainsSet(has), !last.IsZero() && !done.Contains(last): // they commit in order
		return nil
	}
	if err := setMode(ctx, !waits.IsZero()); err != nil {
		return err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.life == life && t.now == now && (waits.IsZero() || t.waits == waits) {
		t.now, t.waits = waits, gtid.GTID{}
	}
	return nil
}
