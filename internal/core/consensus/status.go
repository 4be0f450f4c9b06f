package consensus

import (
	"fmt"
	"sync/atomic"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"trireme/internal/base/failpoint"
	"trireme/internal/base/mutant"
)

// Role is this node's role according to Raft. Whether it is a learner depends on the membership: see Status.Learner.
type Role uint8

// Roles.
const (
	Follower Role = iota
	Candidate
	Leader
)

func (r Role) String() string {
	switch r {
	case Follower:
		return "follower"
	case Candidate:
		return "candidate"
	case Leader:
		return "leader"
	}
	return fmt.Sprintf("role(%d)", uint8(r))
}

// State is what changes with an election.
type State struct {
	Role   Role
	Term   uint64
	Leader uint64 // raft id; 0 when none is known
	Seq    uint64 // grows with each change: of two states of a Node the one with the higher Seq is newer
}

// Progress is what the leader knows of a member.
type Progress struct {
	Match    uint64 // highest index that the member has fsynced, as far as the leader knows
	Next     uint64 // index to send next
	Answered bool   // has answered this leader in its term
	Learner  bool
	Snapshot bool // needs or receives a snapshot
	Paused   bool // sending is throttled
}

// Status is a snapshot, put together without a lock: State and membership are of the same moment, the indexes may be
// newer.
type Status struct {
	ID uint64
	State
	Vote       uint64
	Commit     uint64
	Applied    uint64 // OnCommitted has returned
	LastIndex  uint64
	Durable    uint64 // highest index that this node has fsynced
	Transferee uint64 // leadership is being handed to this member; 0 if none
	Learner    bool   // this node is a learner
	Voters     []uint64
	Outgoing   []uint64 // voters of the old half of a joint configuration; empty otherwise
	Learners   []uint64 // includes those that become learners at the end of a joint configuration
	// Members holds every member on the leader, itself included, at most one tick old; nil elsewhere.
	Members map[uint64]Progress
}

// published is written by the goroutines of a Node and read by Status without a lock.
type published struct {
	commit, applied, last, durable atomic.Uint64
	lease, appending               atomic.Int64 // CLOCK_BOOTTIME, ns
	leastTimeout                   atomic.Int64 // see Node.SetLeastTimeout, ns; 0: not known
	state                          atomic.Pointer[Status]
	watched                        atomic.Bool // see WatchMatches
}

// Boottime is CLOCK_BOOTTIME in nanoseconds: it goes on while the machine is suspended and is never set (S10).
func Boottime() int64 {
	var ts unix.Timespec
	// Not unix.ClockGettime, which tells the scheduler that the call may block (see package nbio): a leader reads the
	// clock in every turn, and each call woke the runtime's monitor thread.
	_, _, errno := syscall.RawSyscall(unix.SYS_CLOCK_GETTIME, unix.CLOCK_BOOTTIME, uintptr(unsafe.Pointer(&ts)), 0)
	if errno != 0 {
		// Every Linux since 2.6.39 has it; without it no lease can be trusted.
		panic(fmt.Sprintf("CLOCK_BOOTTIME: %v", errno))
	}
	return failpoint.Clock(ts.Nano())
}

// leaseOf is the length of a lease that a quorum round gives, counted from the start of the round.
func leaseOf(electionTimeout time.Duration) time.Duration {
	if mutant.S10 {
		return 2 * electionTimeout
	}
	return electionTimeout * 8 / 10
}
