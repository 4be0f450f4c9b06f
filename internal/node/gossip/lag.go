package gossip

import (
	"slices"
	"time"
)

// LagTold is a lag of which others are told at once, and that goes on growing on its own until another status comes:
// below it is what the looks at mysqld, 200 ms apart, make of a follower that keeps up.
const LagTold = 400 * time.Millisecond

// agedLag is a lag that was told so long ago.
func agedLag(told, age time.Duration) time.Duration {
	if told >= LagTold || age >= 2*Interval {
		return told + max(0, age)
	}
	return told
}

// commitSeen is a commit index that the leader reported, and when.
type commitSeen struct {
	index uint64
	at    time.Duration
}

// untold is how many of them are kept; beyond, the newest are dropped.
const untold = 64

// notYetReceived are commits that the leader has reported and that have not arrived here, oldest first.
type notYetReceived []commitSeen

// told takes the leader's commit index; have is what has come.
func (u *notYetReceived) told(index, have uint64, at time.Duration) {
	u.have(have)
	if index > have && len(*u) < untold && (len(*u) == 0 || (*u)[len(*u)-1].index < index) {
		*u = append(*u, commitSeen{index, at})
	}
}

// have drops what has come.
func (u *notYetReceived) have(index uint64) {
	*u = slices.DeleteFunc(*u, func(c commitSeen) bool { return c.index <= index })
}

// age is for how long the oldest of them has been waited for; 0: for none.
func (u notYetReceived) age(now time.Duration) time.Duration {
	if len(u) == 0 {
		return 0
	}
	return max(0, now-u[0].at)
}

// clockWindow is how many statuses tell how a peer's clock differs.
const clockWindow = 8

// clockDifference is what to add to a peer's time of day for this host's. Every status tells it, and how long that
// was on its way on top: the least of the last ones is taken.
type clockDifference struct {
	last [clockWindow]time.Duration
	n    int
}

func (d *clockDifference) heard(theirs, ours time.Time, way time.Duration) {
	d.last[d.n%clockWindow] = ours.Sub(theirs) - way
	d.n++
}

func (d *clockDifference) get() (time.Duration, bool) {
	if d.n == 0 {
		return 0, false
	}
	return slices.Min(d.last[:min(d.n, clockWindow)]), true
}
