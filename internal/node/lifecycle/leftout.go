package lifecycle

import (
	"context"
	"slices"
	"time"

	"trireme/internal/mysql/gtid"
)

// mysqld's applier may leave a transaction out (docs/mysql.md): it stands between others that are executed, no worker
// applies it, and it never comes again. Whether its changes are there is not known, so the node is seeded.

// leftOutLimit is how long a transaction must stand so. Commits keep the order of the log.
const leftOutLimit = 3 * time.Second

// leftOut looks for such a transaction while a mysqld follows; the zero value has not looked yet.
type leftOut struct {
	begun  bool
	before gtid.Set // what it had executed when the looks began
	what   gtid.GTID
	since  time.Duration // of what; 0: nothing is left out
}

// note takes a look, and says whether a transaction is left out for certain. applying are those that workers are at.
func (w *leftOut) note(at time.Duration, what gtid.GTID, found bool, applying []string) bool {
	switch {
	case !found || slices.Contains(applying, what.String()):
		w.since = 0
	case w.since == 0 || w.what != what:
		w.what, w.since = what, at
	}
	return w.since != 0 && at >= w.since+leftOutLimit
}

// LeftOut looks for a transaction that the applier has left out, and returns its entry, 0 if none was left out, and
// what is executed. It is for one caller at a time, as is ForgetLeftOut.
func (l *Life) LeftOut(ctx context.Context) (what gtid.GTID, index uint64, executed gtid.Set) {
	w := &l.leftOut
	executed = l.Executed()
	if !w.begun {
		*w = leftOut{begun: true, before: executed}
	}
	what, index = l.of.Ledger.LeftOut(executed, w.before)
	if index == 0 {
		w.note(0, what, false, nil)
		return what, 0, executed
	}
	applying, err := l.mysql.Applying(ctx)
	if err != nil || len(applying) == 0 || // without performance_schema it is not known
		!w.note(l.of.exec.Now(), what, true, applying) {
		return what, 0, executed
	}
	return what, index, executed
}

// ForgetLeftOut: mysqld does not follow any more, and the next looks begin again.
func (l *Life) ForgetLeftOut() { l.leftOut = leftOut{} }
