package node

import (
	"slices"
	"time"

	"trireme/internal/api"
	"trireme/internal/config"
)

// How far mysqld is behind, told so that it is never too little by more than lagTold and the way of a message. It counts from the commit on the
// leader, by the time stamp in the GTID event and what this host's clock differs from the leader's. What has not come here yet counts from when the
// leader first told of it. A status that is on its way, or is the last one, grows old with the lag in it (agedLag).

// lagTold is a lag of which others are told at once, and that goes on growing on its own until another status comes: below it is what the
// looks at mysqld, appliedInterval apart, make of a follower that keeps up.
const lagTold = 2 * appliedInterval

// agedLag is a lag that was told so long ago.
func agedLag(told, age time.Duration) time.Duration {
	if told >= lagTold || age >= 2*statusInterval {
		return told + max(0, age)
	}
	return told
}

// commitSeen is a commit index that the leader told of, and when.
type commitSeen struct {
	index uint64
	at    time.Duration
}

// untold is how many of them are kept; beyond, the newest are dropped.
const untold = 64

// unbrought are commits that the leader has told of and that have not come here, oldest first.
type unbrought []commitSeen

// told takes the leader's commit index; have is what has come.
func (u *unbrought) told(index, have uint64, at time.Duration) {
	u.have(have)
	if index > have && len(*u) < untold && (len(*u) == 0 || (*u)[len(*u)-1].index < index) {
		*u = append(*u, commitSeen{index, at})
	}
}

// have drops what has come.
func (u *unbrought) have(index uint64) {
	*u = slices.DeleteFunc(*u, func(c commitSeen) bool { return c.index <= index })
}

// age is for how long the oldest of them has been waited for; 0: for none.
func (u unbrought) age(now time.Duration) time.Duration {
	if len(u) == 0 {
		return 0
	}
	return max(0, now-u[0].at)
}

// clockWindow is how many statuses tell how a peer's clock differs.
const clockWindow = 8

// clockDifference is what to add to a peer's time of day for this host's. Every status tells it, and how long that was on its way on top: the least of
// the last ones is taken.
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

// noteClockLocked takes what a peer's status tells of its clock and, of the leader, of its commits.
func (n *Node) noteClockLocked(from uint64, p *peer, s *status) {
	if s.Clock.IsZero() {
		return // of before
	}
	way := time.Duration(0)
	for _, l := range n.links.views {
		if m, ok := n.cluster.Member(l.To); ok && m.ID == from {
			way = time.Duration(l.RTTMS * float64(time.Millisecond) / 2)
		}
	}
	p.clock.heard(s.Clock, time.Now(), way)
	all := map[uint64]time.Duration{}
	for id, p := range n.peers {
		if d, known := p.clock.get(); known {
			all[id] = d
		}
	}
	n.acks.SetClocks(all)
	if from == n.raft.Leader {
		n.unbrought.told(s.Member.Raft.Commit, n.led.Index(), now())
	}
}

// lagLocked is how far mysqld is behind what is committed: since when the oldest entry that is not applied is, and bytes. A delayed learner is behind with
// what it should have applied by now; what it holds back on purpose DelayView tells.
func (n *Node) lagLocked() (time.Duration, uint64) {
	lag, bytes := time.Duration(0), uint64(0)
	if b := n.srv.backlog; !b.Since.IsZero() {
		lag, bytes = time.Since(b.Committed), uint64(b.Bytes)
	}
	// mysqld may not have been heard of since something was committed.
	if at, waits := n.led.Oldest(); waits && time.Since(at) > 2*lagTold {
		lag = max(lag, time.Since(at))
	}
	n.unbrought.have(n.led.Index())
	lag = max(lag, n.unbrought.age(now()))
	if d := n.delayViewLocked(); d != nil && d.CaughtUp {
		return 0, 0
	} else if d != nil {
		return max(0, lag-secondsOf(d.Seconds)), 0
	}
	return max(0, lag), bytes
}

// tellLag has the others told at once when this node falls behind, and when it has caught up.
func (n *Node) tellLag() {
	n.mu.Lock()
	defer n.mu.Unlock()
	m, _ := n.cluster.MemberByID(n.id.ID)
	lag, _ := n.lagLocked()
	if behind := lag >= lagTold && m.Role != config.RoleLogger; behind != n.srv.toldBehind {
		n.srv.toldBehind, n.publishNow = behind, true
		n.poke()
	}
}

// agedView is a peer's member view with the lag that it has by now.
func (p *peer) agedView() api.MemberView {
	m := p.status.Member
	if m.MySQL == nil || m.MySQL.LagSeconds == nil || m.Role == api.RoleLeader {
		return m
	}
	my := *m.MySQL
	lag := agedLag(secondsOf(*my.LagSeconds), now()-p.at).Seconds()
	my.LagSeconds, m.MySQL = &lag, &my
	return m
}
