package ha

import "time"

// NextLook is when Decide is to be asked again if nothing happens before, limit at most. While mysqld serves, that is
// after a quarter of what the lease of this view has left: a lease that was renewed meanwhile is seen before this member
// fences itself, and before the guard, which only the next look tells of it, kills mysqld (S10).
//
// It goes by the view and not by the lease as it is now. Once the death of a voter has ended a lease, the guard has been
// told to act soon, and a fresh lease, a moment later, does not tell it otherwise.
func NextLook(v View, limit time.Duration) time.Duration {
	if v.Serving.Phase == PhaseNone || v.Serving.Phase == PhaseFencing {
		return limit
	}
	return max(min((v.Raft.LeaseUntil-v.Now)/4, limit), time.Millisecond)
}
