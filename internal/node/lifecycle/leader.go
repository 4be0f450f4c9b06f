package lifecycle

import (
	"context"
	"fmt"
	"time"

	"trireme/internal/base/config"
	"trireme/internal/core/ha"
	"trireme/internal/mysql/mysqld"
)

// leasePatience is for leadership to be proven before writes open.
const leasePatience = 5 * time.Second

// Leader is a life that takes writes in a term, or is to. It opens and closes them, and the status goes along.
type Leader struct {
	lives *Lives
	life  *Life
	term  uint64
	host  LeaderHost
}

// LeaderHost is the rest of the member to a Leader.
type LeaderHost interface {
	// AwaitLease waits until leadership is proven (S10).
	AwaitLease(ctx context.Context, patience time.Duration) error
	// MayOpen reads again everything that opening writes depends on, Status.MayOpen among it (S7), and has the guard
	// give the statement its time.
	MayOpen(l *Life, term uint64, from ha.Phase) error
	// Opened takes up that writes are open, unless a fence has begun: it waits until this is over.
	Opened(l *Life, term uint64, from ha.Phase) error
	// Change is Lives.Change, in step with all else that the member knows. Others hear of it soon.
	Change(f func(*Status))
	// Fence begins a fence if stands says so, which may change the status in the same step.
	Fence(reason string, stands func(*Status) bool)
	// EndServer kills the process of l. When it returns the status says so.
	EndServer(l *Life)
	// GuardStep is Lives.GuardStep, as long as this member can prove that it leads.
	GuardStep(limit time.Duration)
	// Carry carries the stream of l's binary log to Raft, in a term, until one of them or the member ends.
	Carry(l *Life, src Stream, term uint64, ended func())
	// TransactionRefuse is the setting of that name.
	TransactionRefuse() config.Bytes
	// Routes has routers look where they lead.
	Routes()
	// DropAddresses releases the virtual addresses.
	DropAddresses()
}

// Leader is of a life that runs.
func (s *Lives) Leader(l *Life, term uint64, host LeaderHost) *Leader {
	return &Leader{lives: s, life: l, term: term, host: host}
}

// Open opens writes, as the last step of a promotion or after a hand-over that failed: from is which. Once a fence has
// closed writes they do not open again.
func (l *Leader) Open(ctx context.Context, from ha.Phase) error {
	s := l.lives.Status()
	if err := s.MayOpen(l.life, l.term, from); err != nil {
		return err
	}
	if err := l.host.AwaitLease(ctx, leasePatience); err != nil {
		return err
	}
	return l.life.open(ctx, func() error { return l.host.MayOpen(l.life, l.term, from) },
		func() error { return l.host.Opened(l.life, l.term, from) })
}

// Committed is the index up to which this member has seen entries committed: all that was acknowledged lies below.
func (l *Leader) Committed() uint64 { return l.lives.Ledger.Index() }

// OpenTransactions are those of applications.
func (l *Leader) OpenTransactions(ctx context.Context) ([]mysqld.OpenTransaction, error) {
	ctx, cancel := l.lives.exec.WithTimeout(ctx, AnswerPatience)
	defer cancel()
	return l.life.mysql.OpenTransactions(ctx, false)
}

// BeginClosing notes that a hand-over is about to close writes, and says whether there still is one. No client's OK is
// held back from here on: a session that waits for one is not quiet, and read-only waits for it.
func (l *Leader) BeginClosing() (closes bool) {
	l.host.Change(func(s *Status) { closes = s.BeginClosing() })
	l.lives.Host.ReleaseSlowed()
	return closes
}

// Close ends writing without losing anything that is under way. What it has cut off, connections of applications and
// their transactions, is said in any case.
func (l *Leader) Close(ctx context.Context) (cut int, rolled []mysqld.OpenTransaction, err error) {
	c, err := l.life.closeGently(ctx)
	if err == nil {
		l.host.Change(func(s *Status) { s.NoteDrained(l.term) })
	}
	return c.Connections, c.Rolled, err
}

// Retire makes the drained mysqld of a leader that has handed over a follower.
func (l *Leader) Retire(ctx context.Context) error {
	if err := l.life.Retire(ctx); err != nil {
		return fmt.Errorf("becoming a follower: %w", err)
	}
	l.host.Change(func(s *Status) {
		if s.HandsOver(l.life) {
			s.End()
		}
	})
	return nil
}

// Reopen takes back a hand-over that has failed: writes are open when it returns, in the same term. If that cannot be,
// it returns why, and mysqld is being fenced.
func (l *Leader) Reopen(ctx context.Context) error {
	l.host.Change((*Status).TakeBack)
	err := l.Open(ctx, ha.PhaseHandover)
	if err != nil {
		err = fmt.Errorf("opening writes again: %w", err)
		l.host.Fence(err.Error(), func(s *Status) bool { return s.HandsOver(l.life) })
	}
	return err
}

// AwaitApplied waits until this member's mysqld, which follows, holds everything up to an index.
func (s *Lives) AwaitApplied(ctx context.Context, index uint64, patience time.Duration) error {
	ctx, cancel := s.exec.WithTimeout(ctx, patience)
	defer cancel()
	st := s.Status()
	l := st.Life()
	if l == nil || st.State() != ha.ServerReady {
		return fmt.Errorf("its mysqld is %s", st.State())
	}
	if err := s.awaitCommitted(ctx, index); err != nil {
		return fmt.Errorf("entry %d did not arrive in time", index)
	}
	_, committed := s.Ledger.Snapshot()
	// What was committed after index is waited for too: it would have to be applied before writes open anyway.
	left := committed.Subtract(l.Executed())
	if left.Empty() {
		return nil
	}
	done, err := l.mysql.WaitExecuted(ctx, left.String(), patience)
	if err != nil {
		return err
	}
	if !done {
		return fmt.Errorf("entry %d was not applied in time", index)
	}
	return nil
}
