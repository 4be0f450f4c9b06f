package node

import (
	"context"
	"slices"
	"time"

	"trireme/internal/gtid"
)

// mysqld's applier may leave a transaction out (docs/mysql.md): it stands between others that are executed, nobody
// applies it, and it never comes again. Whether its changes are there is not known, so the node is seeded.

// leftOutLimit is how long a transaction must stand so. Commits keep the order of the log.
const leftOutLimit = 3 * time.Second

// leftOut looks for such a transaction while a mysqld follows.
type leftOut struct {
	of     *life
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

// watchLeftOut takes a follower out of service whose applier has left a transaction out.
func (n *Node) watchLeftOut(ctx context.Context, l *life) {
	w, executed := &n.leftOut, l.executedSet()
	if w.of != l {
		*w = leftOut{of: l, before: executed}
	}
	what, index := n.led.LeftOut(executed, w.before)
	if index == 0 {
		w.note(0, what, false, nil)
		return
	}
	applying, err := l.admin.Applying(ctx)
	if err != nil || len(applying) == 0 { // without performance_schema nobody knows
		return
	}
	if !w.note(now(), what, true, applying) {
		return
	}
	n.fenceDiverged(l, n.explainLeftOut(what, index, executed))
}
