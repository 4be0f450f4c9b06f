package lifecycle

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"trireme/internal/base/failpoint"
	"trireme/internal/mysql/gtid"
	"trireme/internal/mysql/mysqld"
)

// One machine closes the writes of a life, whatever the reason:
//
//	closed --open--> open --Close--> closing --> drained --Retire--> retiring --> closed, a follower
//	                  ^                 |           |----StopPolitely----> the end of mysqld
//	                  '------open-------'-----------'
//
//	from everywhere: Close begins again, and SIGKILL ends it
//
// A promotion opens them; docs/ARCHITECTURE.md says who closes them, and what for. What took writes and was not drained
// is never retired or shut down (S4).
type writes uint8

const (
	closed  writes = iota // since the start of mysqld, or since it follows again
	open                  // the statement that opens them was answered
	unsure                // it was not: it may take effect at any time from now on. Only SIGKILL helps
	closing               // super_read_only is on
	drained               // and no commit waits, and all that mysqld wrote is committed and acknowledged
	// retiring: it was drained, and may be fed, and commit without waiting, by now. A Retire that failed leaves it so.
	retiring
)

func (w writes) String() string {
	return [...]string{"closed", "open", "perhaps open", "closing", "drained", "retiring"}[w]
}

// Limits of waits.
const (
	OpenPatience   = 500 * time.Millisecond // for the answer to the statement that opens writes
	DrainPatience  = 2 * time.Second        // for commits under way to be acknowledged, where time is not short
	AnswerPatience = 2 * time.Second        // for any other answer of mysqld: one whose disk is full may give none
	closePatience  = 300 * time.Millisecond // for running statements to end by themselves when writes close
	listPatience   = 500 * time.Millisecond // for the list of open transactions: it is for the report only
	// for a drained mysqld to follow; up to 1 s of it is semi-sync's (docs/mysql.md)
	retirePatience = 5 * time.Second
)

func (l *Life) writesAre() writes {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.writes
}

func (l *Life) setWrites(w writes) {
	l.mu.Lock()
	l.writes = w
	l.mu.Unlock()
}

// ReadOnly says whether mysqld takes no writes.
func (l *Life) ReadOnly() bool { return l.writesAre() != open }

// open opens writes. may is asked right before the statement, when no other call opens or closes them, and opened
// right after its answer: a Close that began meanwhile waits for both, and once it has closed writes they open only if
// may says so again.
func (l *Life) open(ctx context.Context, may, opened func() error) error {
	if err := l.of.lock(ctx, &l.gate); err != nil {
		return fmt.Errorf("mysqld does not answer while writes are being closed: %w", err)
	}
	defer l.gate.Unlock()
	switch l.writesAre() {
	case unsure:
		return errUnsure
	case retiring:
		return errRetiring
	}
	if err := may(); err != nil {
		return err
	}
	ctx, cancel := l.of.exec.WithTimeout(ctx, OpenPatience)
	defer cancel()
	if err := l.mysql.OpenWrites(ctx); err != nil {
		l.setWrites(unsure)
		return err
	}
	l.setWrites(open)
	failpoint.Hit("promote.after-open")
	return opened()
}

// Cut is what closing writes has cut off.
type Cut struct {
	Connections int                      // of applications
	Rolled      []mysqld.OpenTransaction // back
}

// closeGently is Close for a leader that could go on: statements that run may end, then clients are cut.
func (l *Life) closeGently(ctx context.Context) (cut Cut, err error) {
	cctx, cancel := l.of.exec.WithTimeout(ctx, closePatience)
	err = l.mysql.SetSuperReadOnly(cctx, true)
	cancel()
	// Nothing commits any more, unless somebody holds a lock or a long statement runs: that is cut, not waited for.
	lctx, cancel := l.of.exec.WithTimeout(ctx, listPatience)
	rolled, lerr := l.mysql.OpenTransactions(lctx, err == nil)
	cancel()
	if lerr != nil {
		l.of.Logger.Warn("what is rolled back when writes close is not known", "err", lerr)
	}
	kctx, cancel := l.of.exec.WithTimeout(ctx, AnswerPatience)
	n, kerr := l.mysql.KillApplicationConnections(kctx)
	cancel()
	if cut.Connections = n; n > 0 {
		cut.Rolled = rolled
	}
	if err != nil && kerr != nil {
		return cut, fmt.Errorf("closing writes: %w", errors.Join(err, kerr))
	}
	dctx, cancel := l.of.exec.WithTimeout(ctx, DrainPatience)
	defer cancel()
	if err := l.Close(dctx); err != nil {
		return cut, fmt.Errorf("closing writes: %w", err)
	}
	return cut, nil
}

// Close closes writes, and returns nil only when no commit waits and everything that mysqld wrote is committed and
// acknowledged. It waits for a call that is opening them.
func (l *Life) Close(ctx context.Context) error {
	if err := l.of.lock(ctx, &l.gate); err != nil {
		return errors.New("mysqld does not answer while writes are being opened")
	}
	defer l.gate.Unlock()
	was := l.writesAre()
	if was == unsure {
		return errUnsure
	}
	failpoint.Hit("drain.before-read-only")
	l.of.Host.ReleaseSlowed()
	if err := l.mysql.SetSuperReadOnly(ctx, true); err != nil {
		return fmt.Errorf("super_read_only: %w", err)
	}
	if was != retiring {
		l.setWrites(closing)
	}
	failpoint.Hit("drain.after-read-only")
	// Those that are there now may be in the middle of a statement that super_read_only does not stop, XA COMMIT of
	// their own transaction, and that outlives KILL. What such a one logs must not be taken for a local statement of
	// the follower to be (Retire).
	sessions, err := l.mysql.ApplicationSessions(ctx)
	if err != nil {
		return fmt.Errorf("listing clients: %w", err)
	}
	if _, err := l.mysql.KillApplicationConnections(ctx); err != nil {
		return fmt.Errorf("cutting clients: %w", err)
	}
	failpoint.Hit("drain.after-cut")
	for {
		err := l.drained(ctx)
		if err == nil {
			err = l.awaitGone(ctx, sessions)
		}
		if err == nil {
			err = l.drained(ctx) // what the last of them did
		}
		if err == nil && slices.ContainsFunc(sessions, mysqld.Session.Commits) { // they were not killed yet
			_, err = l.mysql.KillApplicationConnections(ctx)
		}
		if err == nil {
			if was != retiring {
				l.setWrites(drained)
			}
			failpoint.Hit("drain.done")
			return nil
		}
		if l.of.exec.Sleep(ctx, 2*time.Millisecond) != nil {
			if why := l.of.Host.WhyUnacknowledged(); why != "" {
				err = fmt.Errorf("%w, %s", err, why)
			}
			return err
		}
	}
}

// checkDrained fails for a life that took writes and was not drained since.
func (l *Life) checkDrained() error {
	if w := l.writesAre(); w != drained && w != retiring && w != closed {
		return fmt.Errorf("its writes are %v, and were not drained", w)
	}
	return nil
}

// errUnsure: super_read_only cannot be relied on. A mysqld that was stuck takes up its connections in any order.
var errUnsure = errors.New("a statement that opens writes got no answer, and may take effect after the one that closes them")

// errRetiring: what it would commit might not wait for Raft (S1).
var errRetiring = errors.New("it has begun to be a follower, and may commit without waiting for an acknowledgement")

// awaitGone says whether one of the sessions that were killed is still in the middle of an XA statement.
func (l *Life) awaitGone(ctx context.Context, killed []mysqld.Session) error {
	if len(killed) == 0 {
		return nil
	}
	left, err := l.mysql.ApplicationSessions(ctx)
	if err != nil {
		return err
	}
	return stillEnding(killed, left)
}

// stillEnding names a session that was killed and runs an XA statement. Others may go on rolling back: they log
// nothing.
func stillEnding(killed, left []mysqld.Session) error {
	for _, s := range left {
		was := slices.ContainsFunc(killed, func(k mysqld.Session) bool { return k.ID == s.ID })
		if was && strings.Contains(strings.ToUpper(s.Info), "XA") {
			return fmt.Errorf("session %d of %s was killed and still runs: %s", s.ID, s.User, s.Info)
		}
	}
	return nil
}

func (l *Life) drained(ctx context.Context) error {
	s, err := l.mysql.WaitingSessions(ctx)
	if err != nil {
		return err
	}
	if s.Waiting > 0 {
		return fmt.Errorf("%d sessions wait for an acknowledgement", s.Waiting)
	}
	status, err := l.mysql.BinlogStatus(ctx)
	if err != nil {
		return err
	}
	end, err := parsePos(status)
	if err != nil {
		return err
	}
	if acked := l.Acked(); acked.Less(end) && !l.proc.OnlyControlEvents(acked, end) {
		return fmt.Errorf("mysqld wrote up to %s, acknowledged is %s", end, acked)
	}
	return nil
}

// CarryStream notes that somebody carries the stream of mysqld's binary log to Raft, until ended is called.
func (l *Life) CarryStream() (ended func()) {
	done := make(chan struct{})
	l.mu.Lock()
	l.carried = done
	l.mu.Unlock()
	return func() { close(done) }
}

// Stall notes why the stream cannot be carried on: mysqld is alive and cannot serve, until Retire.
func (l *Life) Stall(why string) {
	l.mu.Lock()
	l.stalled = why
	l.mu.Unlock()
}

// Stalled is why the stream cannot be carried on; empty: it can.
func (l *Life) Stalled() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.stalled
}

// endStream ends the dump of the binary log, and waits until it is not carried any more.
func (l *Life) endStream(ctx context.Context) error {
	l.EndStream()
	l.mu.Lock()
	carried := l.carried
	l.mu.Unlock()
	if carried != nil {
		if err := l.of.exec.Wait(ctx, carried); err != nil {
			return fmt.Errorf("the stream of its binary log did not end: %w", err)
		}
	}
	l.Stall("")
	return nil
}

// Retire turns a drained leader into a follower without a restart: the dump ends, the feed begins again. What this life
// executes from now on is its own affair, and is remembered as such.
func (l *Life) Retire(ctx context.Context) error {
	if err := l.checkDrained(); err != nil {
		return err
	}
	from := l.Acked()
	ctx, cancel := l.of.exec.WithTimeout(ctx, retirePatience)
	defer cancel()
	if err := l.endStream(ctx); err != nil {
		return err
	}
	committed, err := l.checkLogged(ctx)
	if err != nil {
		return err
	}
	failpoint.Hit("retire.before-persist")
	if err := l.of.Memory.Remember(func(s *State) { s.Retired[l.Incarnation] = committed.Last(gtid.SID{UUID: l.UUID}) }); err != nil {
		return err
	}
	failpoint.Hit("retire.after-persist")
	src := l.of.Host.NewSource(l)
	if err := src.Prepare(ctx); err != nil {
		return errors.Join(err, src.Close())
	}
	l.mu.Lock()
	l.source, l.consumed = src, from
	l.events = false
	l.mu.Unlock()
	if err := l.mysql.SetEventScheduler(ctx, false); err != nil {
		return err
	}
	// Read-only and drained, so that no commit waits that Raft does not have (S4); looked at once more, since XA
	// COMMIT of a session's own transaction is not stopped by super_read_only.
	if s, err := l.mysql.WaitingSessions(ctx); err != nil || s.Waiting > 0 {
		return errors.Join(err, fmt.Errorf("%d sessions wait for an acknowledgement", s.Waiting))
	}
	l.setWrites(retiring)
	l.resumeFeed()
	// This takes up to a second: the plugin's receiver of acknowledgements looks once a second whether it should end.
	if err := l.mysql.SetSemisync(ctx, false); err != nil {
		return err
	}
	if err := l.LimitTransactions(ctx, 0, Always); err != nil { // what it adopts at its next promotion knows no limit
		return err
	}
	err = l.mysql.SetDurabilityRole(ctx, false)
	if err == nil {
		l.setWrites(closed)
	}
	failpoint.Hit("retire.done")
	return err
}

// checkLogged returns what is committed. It fails if mysqld has executed what Raft does not have: a KILL in the middle
// of a commit, on a full disk, can do that (docs/mysql.md), and a follower would take it for a local statement for ever.
func (l *Life) checkLogged(ctx context.Context) (committed gtid.Set, err error) {
	if _, err := l.ReadExecuted(ctx); err != nil {
		return committed, err
	}
	_, committed = l.of.Ledger.Snapshot()
	state := l.of.Memory.Recall()
	harmless := state.Harmless(l.of.Cluster, l.of.Node)
	var unlogged gtid.Set
	for _, r := range l.Executed().Of(l.UUID).Subtract(committed).Ranges() {
		if r.Tag == "" && !harmless(r) { // what is local is told by numbers without a tag
			unlogged.AddRange(r)
		}
	}
	if !unlogged.Empty() {
		return committed, fmt.Errorf("mysqld has committed %v, which the log of the cluster does not have", unlogged)
	}
	return committed, nil
}

// StopPolitely shuts mysqld down, if no commit waits for an acknowledgement (S4).
func (l *Life) StopPolitely(ctx context.Context) error {
	if err := l.checkDrained(); err != nil {
		return err
	}
	// What a client logs from now on would be released: super_read_only stops neither REPAIR TABLE nor XA COMMIT.
	if err := l.mysql.RefuseClients(ctx); err != nil {
		return fmt.Errorf("turning clients away: %w", err)
	}
	if _, err := l.mysql.KillApplicationConnections(ctx); err != nil {
		return fmt.Errorf("cutting clients: %w", err)
	}
	s, err := l.mysql.WaitingSessions(ctx)
	if err == nil && s.Waiting > 0 {
		err = fmt.Errorf("%d sessions wait for an acknowledgement", s.Waiting)
	}
	if err == nil && l.writesAre() == drained {
		err = l.drained(ctx)
	}
	if err != nil {
		return err
	}
	l.polite.Store(true)
	l.EndStream()
	return l.proc.StopPolitely(ctx)
}
