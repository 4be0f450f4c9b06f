package consensus

import (
	"errors"
	"fmt"
	"log/slog"
	"time"

	"go.etcd.io/raft/v3/raftpb"

	"trireme/internal/base/loop"
	"trireme/internal/base/rule"
)

// Errors of this package. Callers compare with errors.Is.
var (
	// ErrNotLeader: this node is not the leader, or has just ceased to be; the proposal is not in any log.
	ErrNotLeader = errors.New("this node is not the raft leader")
	// ErrStopped: the node was stopped, or failed permanently.
	ErrStopped = errors.New("consensus is stopped")
	// ErrReadIndexTimeout: no quorum confirmed the leader in time.
	ErrReadIndexTimeout = errors.New("no quorum confirmed a read index in time")
	// ErrApplyTimeout: the index was not applied in time.
	ErrApplyTimeout = errors.New("the entry was not applied in time")
	// ErrProposeTimeout: the proposal was not accepted in time (too many bytes in flight, or a transfer under way); it is
	// not in any log.
	ErrProposeTimeout = errors.New("the proposal was not accepted in time")
	// ErrTransferFailed: leadership did not go to the node asked for.
	ErrTransferFailed = errors.New("leadership was not transferred")
	// ErrConfChangePending: another membership change is under way.
	ErrConfChangePending = errors.New("another membership change is under way")
	// ErrInvalidConfChange: the change makes no sense in the present membership.
	ErrInvalidConfChange = errors.New("invalid membership change")
	// ErrStorageInconsistent: log, vote and applied index do not belong together (a lost log): rejoin under a new raft id.
	ErrStorageInconsistent = errors.New("raft storage is inconsistent")
	// ErrInvariant: raft or this package found a broken invariant; the node must fence itself and exit (S13).
	ErrInvariant = rule.Breaks("S2", "raft invariant violated")
)

// Config is fixed for the life of a Node.
type Config struct {
	// ID is this member's raft id, never 0 and never reused after a lost log.
	ID      uint64
	Storage Storage
	// Loop is what raft runs on. Start has to come before the loop's.
	Loop *loop.Loop
	// Send hands messages to the transport. It must not block, may drop, and is called on the loop. The messages are
	// immutable from then on.
	Send func([]*raftpb.Message)
	// Applied is the index up to which the caller does not need entries from OnCommitted again. 0: from the start of the
	// log.
	Applied uint64

	TickInterval   time.Duration // 50 ms
	ElectionTicks  int           // 20: 1 s
	HeartbeatTicks int           // 2: 100 ms

	MaxSizePerMsg       uint64 // bytes of entries in one message to a peer; 1 MiB
	MaxInflightMsgs     int    // messages in flight to one peer; 4096
	MaxInflightBytes    uint64 // bytes in flight to one peer, at least bandwidth × round-trip time; 64 MiB
	MaxUncommittedBytes uint64 // bytes proposed and not yet committed: Propose blocks above; 64 MiB
	MaxApplyingBytes    uint64 // bytes handed to OnCommitted and not yet returned from; 16 MiB

	// OnCommitted gets committed entries in log order, each once per life of the Node, one call after the other: on the
	// loop if Quick says so of all of them, otherwise on a goroutine that may wait. Entries of raft's own (empty ones,
	// membership changes) are included; a membership change is in force before it is delivered. The entries are
	// immutable and may be kept. An error ends the node before any of these entries counts as applied.
	OnCommitted func(entries []*raftpb.Entry) error
	// Quick reports whether OnCommitted takes an entry with this data without ever waiting; nil: none.
	Quick func(data []byte) bool
	// OnSnapshot reports, in order with OnCommitted, that a snapshot replaced the log: entries up to its index will
	// never be delivered. An error ends the node.
	OnSnapshot func(snap *raftpb.Snapshot) error
	// OnMatch gets what this leader knows of the voters' logs whenever that has grown, while WatchMatches is on. It is
	// called as OnCommitted is, before the entries that are committed by it; with Quick set it must not wait.
	OnMatch func(Matches)
	// OnSoftState gets every change of role, term or leader, in order, on one goroutine.
	OnSoftState func(State)
	// OnAnswer is called when a member answers this leader for the first time in its term; Status shows it. It is
	// called on the loop and must not block.
	OnAnswer func(id uint64)
	// CampaignDelay returns how long this node waits after the loss of the leader before it campaigns: 0 for the best
	// candidate, and a different delay for each of the others. It is rounded to ticks. It is called on
	// the loop and must not block. nil: no delay.
	CampaignDelay func(lost uint64) time.Duration
	// OnFatal is called at most once, when storage has failed or an invariant is broken. The node does nothing after
	// that. OnFatal must not call Stop, which waits for it.
	OnFatal func(error)

	// Logger gets raft's own lines at debug level and changes of state at info level.
	Logger *slog.Logger
	// Clock is CLOCK_BOOTTIME in nanoseconds; nil means the real one.
	Clock func() int64
}

func (c *Config) setDefaults() error {
	if c.ID == 0 {
		return errors.New("consensus: raft id 0 is not allowed")
	}
	if c.Storage == nil || c.Send == nil {
		return errors.New("consensus: Storage and Send are required")
	}
	def(&c.TickInterval, 50*time.Millisecond)
	def(&c.ElectionTicks, 20)
	def(&c.HeartbeatTicks, 2)
	def(&c.MaxSizePerMsg, 1<<20)
	def(&c.MaxInflightMsgs, 4096)
	def(&c.MaxInflightBytes, 64<<20)
	def(&c.MaxUncommittedBytes, 64<<20)
	def(&c.MaxApplyingBytes, 16<<20)
	if c.ElectionTicks <= c.HeartbeatTicks {
		return fmt.Errorf("consensus: election timeout (%d ticks) must exceed the heartbeat interval (%d ticks)",
			c.ElectionTicks, c.HeartbeatTicks)
	}
	if c.MaxInflightBytes < c.MaxSizePerMsg {
		return fmt.Errorf("consensus: MaxInflightBytes %d is below MaxSizePerMsg %d", c.MaxInflightBytes, c.MaxSizePerMsg)
	}
	if c.OnCommitted == nil {
		c.OnCommitted = func([]*raftpb.Entry) error { return nil }
	}
	if c.OnSnapshot == nil {
		c.OnSnapshot = func(*raftpb.Snapshot) error { return nil }
	}
	if c.OnMatch == nil {
		c.OnMatch = func(Matches) {}
	}
	if c.OnSoftState == nil {
		c.OnSoftState = func(State) {}
	}
	if c.OnAnswer == nil {
		c.OnAnswer = func(uint64) {}
	}
	if c.CampaignDelay == nil {
		c.CampaignDelay = func(uint64) time.Duration { return 0 }
	}
	if c.OnFatal == nil {
		c.OnFatal = func(error) {}
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	if c.Clock == nil {
		c.Clock = Boottime
	}
	return nil
}

// electionTimeout is the least time for which a voter that heard the leader refuses to vote for another.
func (c *Config) electionTimeout() time.Duration {
	return time.Duration(c.ElectionTicks) * c.TickInterval
}

func def[T comparable](p *T, v T) {
	var zero T
	if *p == zero {
		*p = v
	}
}
