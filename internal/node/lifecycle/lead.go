package lifecycle

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"trireme/internal/base/mutant"
	"trireme/internal/core/raftlog"
	"trireme/internal/mysql/gtid"
	"trireme/internal/mysql/mysqld"
)

// BeginLead starts the dump after this life's prelude: what it logged while it followed (local statements,
// adopted XA transactions). That is its own affair, has been committed without Raft, and is remembered as such: all
// else that this life logs is errant unless Raft has it. From here on every commit waits.
func (l *Life) BeginLead(ctx context.Context) error {
	for range quietAttempts {
		if err := l.mysql.SetSemisync(ctx, true); err != nil {
			return err
		}
		from, last, err := l.quietEnd(ctx)
		if err == nil {
			if err := l.of.Memory.Remember(func(s *State) { s.Lead(l.Incarnation, last) }); err != nil {
				return err
			}
			l.mu.Lock()
			l.consumed = from
			l.mu.Unlock()
			return nil
		}
		if !errors.Is(err, errNotQuiet) {
			return err
		}
		// A local statement that began just now waits: it would not be known as one if this life died before Raft had
		// it.
		if err := l.mysql.SetSemisync(ctx, false); err != nil {
			return err
		}
	}
	return errNotQuiet
}

// quietAttempts bounds BeginLead: more local statements than that, back to back, are not for a promotion to wait for.
const quietAttempts = 10

// errNotQuiet: something was being logged meanwhile.
var errNotQuiet = errors.New("a local statement is under way")

// quietEnd is the end of the binary log and the highest GNO of this life below it, all of it executed.
func (l *Life) quietEnd(ctx context.Context) (end raftlog.Pos, last int64, err error) {
	before, err := l.mysql.BinlogStatus(ctx)
	if err != nil {
		return end, 0, err
	}
	s, err := l.mysql.WaitingSessions(ctx)
	if err != nil {
		return end, 0, err
	}
	// What has left the binary log's commit and has not come to gtid_executed is owned: looked at first, or it could
	// slip through between.
	owned, err := l.mysql.GTIDOwned(ctx)
	if err != nil {
		return end, 0, err
	}
	if _, err := l.ReadExecuted(ctx); err != nil {
		return end, 0, err
	}
	after, err := l.mysql.BinlogStatus(ctx)
	if err != nil {
		return end, 0, err
	}
	if s.Waiting > 0 || before != after || strings.Contains(owned, l.UUID.String()) {
		return end, 0, errNotQuiet
	}
	end, err = parsePos(after)
	return end, l.Executed().Last(gtid.SID{UUID: l.UUID}), err
}

// parsePos reads the number from a binary log's file name.
func parsePos(p mysqld.BinlogPos) (raftlog.Pos, error) {
	_, number, _ := strings.Cut(p.File, ".")
	n, err := strconv.ParseUint(number, 10, 32)
	if err != nil {
		return raftlog.Pos{}, fmt.Errorf("binary log file %q: %w", p.File, err)
	}
	return raftlog.Pos{File: uint32(n), Off: p.Offset}, nil
}

// ApplyAll waits until mysqld holds everything up to the barrier. A long backlog is no failure; an applier that has
// stopped is one, and a receiver that sleeps because a disk was full.
func (l *Life) ApplyAll(ctx context.Context, index uint64) error {
	if mutant.S6 {
		return nil
	}
	_, committed := l.of.Ledger.Snapshot()
	want := committed.String()
	for began := l.of.exec.Now(); ; {
		done, err := l.mysql.WaitExecuted(ctx, want, time.Second)
		if err != nil {
			return fmt.Errorf("applying the log up to entry %d: %w", index, err)
		}
		if done {
			_, err := l.ReadExecuted(ctx)
			return err
		}
		if waits, err := l.mysql.WaitsForSpace(ctx); err == nil && waits {
			return fmt.Errorf("applying the log up to entry %d: mysqld waits for space on a disk that is full, or was", index)
		}
		if st, err := l.mysql.ReplicaStatus(ctx); err == nil && !st.SQLRunning {
			return fmt.Errorf("applying the log up to entry %d: the applier has stopped: error %d: %s", index, st.SQLErrno,
				st.SQLError)
		}
		if l.of.exec.Now() > began+BlockerPatience {
			l.KillBlockers(ctx)
		}
	}
}

// KillBlockers ends sessions that hold a metadata lock for which the applier waits; it would wait for a year.
func (l *Life) KillBlockers(ctx context.Context) {
	killed, err := l.mysql.KillMetadataBlockers(ctx)
	for _, b := range killed {
		l.of.Logger.Warn("a session that held up replication was killed", "user", b.User, "host", b.Host, "object", b.Object,
			"statement", b.Info)
	}
	if err != nil && ctx.Err() == nil {
		l.of.Logger.Debug("looking for sessions that hold up replication", "err", err)
	}
}

// PrepareWrites makes a life that has applied everything one that may take writes: it is not fed any more, and its
// settings are a leader's.
func (l *Life) PrepareWrites(ctx context.Context) error {
	if err := l.of.Feed.Pause(ctx); err != nil {
		return err
	}
	if err := l.mysql.SetDurabilityRole(ctx, true); err != nil {
		return err
	}
	return l.mysql.VerifyLeaderSettings(ctx)
}

// RunEvents starts scheduled events.
func (l *Life) RunEvents(ctx context.Context) error {
	err := l.mysql.SetEventScheduler(ctx, true)
	if err == nil {
		l.mu.Lock()
		l.events = true
		l.mu.Unlock()
	}
	return err
}

// RunsEvents says whether scheduled events were started, and it does not follow since.
func (l *Life) RunsEvents() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.events
}
