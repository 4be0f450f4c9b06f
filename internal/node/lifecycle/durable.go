package lifecycle

import (
	"context"

	"trireme/internal/base/failpoint"
)

// KeepDurable moves the durable index (S8): what is applied is noted first, then InnoDB's redo log is flushed, then the
// index is written down. It also says from where the log must be kept for this node. applied is what was known of that
// before. An error is one of writing the index down; an older one is as true.
func (l *Life) KeepDurable(ctx context.Context, applied uint64) error {
	s := l.of
	// Open XA transactions are looked at first: one whose end is durable with this flush is then still counted as open.
	executed := l.Executed()
	xids, err := l.mysql.XARecover(ctx)
	if err != nil {
		return nil
	}
	l.watchXA(applied, executed, xids)
	if applied, err = l.ReadExecuted(ctx); err != nil {
		return nil
	}
	before := s.Memory.Recall().Durable
	if applied > before {
		failpoint.Hit("durable.before-flush")
		if err := l.mysql.FlushEngineLogs(ctx); err != nil {
			s.Logger.Debug("the engine's logs were not flushed", "err", err)
			return nil
		}
		failpoint.Hit("durable.after-flush")
		err := s.Memory.Remember(func(st *State) {
			if s.Life() == l { // else its data is about to be replaced, or is already
				st.Durable = max(st.Durable, applied)
			}
		})
		failpoint.Hit("durable.after-persist")
		if err != nil {
			return err
		}
	}
	// An open XA transaction may have to be prepared again on any node. Where its PREPARE lies is not worth an index of
	// its own: while one is open the log is not purged.
	keep := min(before, applied)
	if len(xids) > 0 {
		keep = 0
	}
	s.setKeepFrom(l, keep)
	return nil
}
