package lifecycle

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"trireme/internal/failpoint"
	"trireme/internal/gtid"
	"trireme/internal/mysqld"
	"trireme/internal/raftlog"
)

// Drain closes writes and returns nil only when nobody waits and everything that mysqld wrote is committed and
// acknowledged.
func (l *Life) Drain(ctx context.Context) error {
	l.mu.Lock()
	unsure := l.mayOpen
	l.mu.Unlock()
	if unsure {
		return errUnsure
	}
	failpoint.Hit("drain.before-read-only")
	l.of.Host.ReleaseSlowed()
	if err := l.mysql.SetSuperReadOnly(ctx, true); err != nil {
		return fmt.Errorf("super_read_only: %w", err)
	}
	l.setReadOnly(true)
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
		if err == nil {
			failpoint.Hit("drain.done")
			return nil
		}
		select {
		case <-ctx.Done():
			if why := l.of.Host.WhyUnacknowledged(); why != "" {
				err = fmt.Errorf("%w, %s", err, why)
			}
			return err
		case <-time.After(2 * time.Millisecond):
		}
	}
}

// errUnsure: super_read_only cannot be relied on. A mysqld that was stuck takes up its connections in any order.
var errUnsure = errors.New("a statement that opens writes got no answer, and may take effect after the one that closes them")

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
	if acked := l.Acked(); acked.Less(end) && !onlyControlEvents(l.of.Host.Mysqld().BinlogDir(), acked, end) {
		return fmt.Errorf("mysqld wrote up to %s, acknowledged is %s", end, acked)
	}
	return nil
}

// Retire turns a drained leader into a follower without a restart: its dump has ended (EndStream) and everything up to
// from is committed; the feed begins again. What this life executes from now on is its own affair, and is remembered as
// such.
func (l *Life) Retire(ctx context.Context, from raftlog.Pos) error {
	_, committed := l.of.Ledger.Snapshot()
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
	l.mu.Unlock()
	if err := l.mysql.SetEventScheduler(ctx, false); err != nil {
		return err
	}
	// Read-only and drained, so that nobody waits whose commit Raft does not have (S4); looked at once more, since XA
	// COMMIT of a session's own transaction is not stopped by super_read_only.
	if s, err := l.mysql.WaitingSessions(ctx); err != nil || s.Waiting > 0 {
		return errors.Join(err, fmt.Errorf("%d sessions wait for an acknowledgement", s.Waiting))
	}
	l.of.Feed.Resume()
	// This takes up to a second: the plugin's receiver of acknowledgements looks once a second whether it should end.
	if err := l.mysql.SetSemisync(ctx, false); err != nil {
		return err
	}
	if err := l.LimitTransactions(ctx, 0, Always); err != nil { // what it adopts at its next promotion knows no limit
		return err
	}
	err := l.mysql.SetDurabilityRole(ctx, false)
	failpoint.Hit("retire.done")
	return err
}

// TidyBinlog deletes files of the leader's binary log that Raft has whole. It is for one caller at a time.
func (l *Life) TidyBinlog(ctx context.Context) error {
	file := l.Acked().File
	if file <= 1 || file == l.purged {
		return nil
	}
	if err := l.mysql.PurgeBinlogs(ctx, fmt.Sprintf("binlog.%06d", file)); err != nil {
		return err
	}
	l.purged = file
	return nil
}
