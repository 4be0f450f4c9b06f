package ha

import "time"

// Flow control by a lag objective (the cluster setting lag_objective). A follower that needs longer than a quarter of
// the objective for what it has still to apply says so, and the leader holds every OK back for a moment: next to
// nothing at first, maxFlowDelay at the objective. So writers slow down to what that follower applies, and no further.
// Nothing is counted out and nothing is stored up: the delay follows from the backlog of now alone.

const (
	// maxFlowDelay bounds what flow control adds to a commit.
	maxFlowDelay = time.Second
	// flowStall is how long a follower that applies nothing is still waited for: less writes do not help one that
	// stands still (a long statement, a mysqld or disk that hangs).
	flowStall = time.Second
	// assumedBytes is what a follower of which nothing is known applies in a second. It is little: one that comes back
	// does not count before it has caught up.
	assumedBytes = 1 << 20
)

// flowFrom is the backlog from which commits are slowed.
func flowFrom(objective time.Duration) time.Duration { return objective / 4 }

// FlowDelay is how long the OK of a commit is held back while the slowest follower needs so long for its backlog.
// TestFlowModel is why it rises with the third power: with a lower one small delays swing, with a higher one the
// backlog comes close to the objective.
func FlowDelay(objective, backlog time.Duration) time.Duration {
	from := flowFrom(objective)
	if objective <= 0 || backlog <= from {
		return 0
	}
	x := min(1, float64(backlog-from)/float64(objective-from))
	return time.Duration(x * x * x * float64(maxFlowDelay))
}

// Laggard judges whether the backlog of this node, a follower, is the leader's business. It goes by how long the
// backlog will take and not by how old it is: while writes come faster than they are applied, the age tells how it was,
// too late. The zero value is ready.
type Laggard struct {
	counts  bool // it has kept up since it was last healthy
	over    time.Duration
	at      time.Duration // of the newest sample of rate
	moved   time.Duration // when applied last grew
	applied uint64
	busy    bool    // there was a backlog at at
	rate    float64 // bytes applied per second; 0: not known
}

// Ask returns the backlog that the leader should mind, as a time; 0 for none. committed counts the bytes that this node
// has seen committed, left are those of them that its mysqld has still to apply. It is called a few times a second;
// healthy is said of a data voter whose mysqld is judged, fed and not stuck. One that comes back, or was seeded, counts
// once it has caught up. One that needs more than twice the objective, and that for as long as the objective although
// commits were slowed, is given up until it has.
func (f *Laggard) Ask(now, objective time.Duration, committed, left uint64, healthy bool) time.Duration {
	f.sample(now, committed-min(left, committed), left > 0)
	rate := f.rate
	if rate == 0 {
		rate = assumedBytes
	}
	backlog := time.Duration(float64(left) / rate * float64(time.Second))
	if backlog <= 2*objective {
		f.over = now
	}
	switch {
	case objective <= 0 || !healthy || now > f.over+objective:
		f.counts = false
	case backlog <= flowFrom(objective):
		f.counts = true
	}
	if !f.counts || backlog <= flowFrom(objective) || now > f.moved+flowStall {
		return 0
	}
	return backlog
}

// Rate is how fast the backlog was last applied, in bytes per second; 0: there was none.
func (f *Laggard) Rate() float64 { return f.rate }

// sample measures the rate, as long as there is a backlog: otherwise it would be the leader's. Time in which nothing
// was applied counts with the next thing that is.
func (f *Laggard) sample(now time.Duration, applied uint64, busy bool) {
	if applied == f.applied && busy && f.busy {
		return
	}
	if busy && f.busy && applied > f.applied && now > f.at {
		r := float64(applied-f.applied) / (now - f.at).Seconds()
		if f.rate == 0 {
			f.rate = r
		}
		f.rate = (3*f.rate + r) / 4
	}
	if applied != f.applied {
		f.moved = now
	}
	f.at, f.applied, f.busy = now, applied, busy
}
