package ha

import "time"

// NextLook is when Decide is to be asked again if nothing happens before, limit at most. guard is when the guard ends
// mysqld, as it was told with this view; 0: it was not told, or never. A quarter of what is left until then, and until
// the lease of this view ends, leaves time to see that the lease was renewed, and to tell the guard, before this member
// fences itself or the guard kills mysqld (S10).
//
// It goes by the view and not by the lease as it is now. Once the death of a voter has ended a lease, the guard has
// been told to act soon, and a fresh lease, a moment later, does not tell it otherwise.
func NextLook(v View, guard, limit time.Duration) time.Duration {
	if guard == 0 {
		return limit
	}
	return max(min((min(guard, v.Raft.LeaseUntil)-v.Now)/4, limit), time.Millisecond)
}
