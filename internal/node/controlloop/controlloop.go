package controlloop

import (
	"context"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"trireme/internal/api"
	"trireme/internal/base/config"
	"trireme/internal/base/run"
	"trireme/internal/core/consensus"
	"trireme/internal/core/ha"
	"trireme/internal/core/ledger"
	"trireme/internal/core/raftlog"
	"trireme/internal/node/ackpath"
	"trireme/internal/node/gossip"
	"trireme/internal/node/leadership"
	"trireme/internal/node/lifecycle"
)

// Raft is what is asked of consensus.Node.
type Raft interface {
	Status() consensus.Status
	LeaseUntil() int64
}

// Host is the rest of the member. Methods that say so are called with the member's lock held, as Settings, Go, Context
// and WakeLoop may be: none of these waits or calls the loop. All others are called without it.
type Host interface {
	Raft() Raft
	Settings() *config.Cluster
	Clients

	// Applying adds to what is known of mysqld how it applies. The lock is held.
	Applying(v *ha.Server)
	// Disks says that a disk is full, and why this member refuses writes as the leader; empty: it does not. The lock is
	// held.
	Disks(st *consensus.Status) (full, refused string)
	// LeaderChanged is told that another term has begun, or another member leads. The lock is held.
	LeaderChanged()
	// Decided is told what the policy says of the member.
	Decided(st ha.State)

	// Started is told that a life has begun, which is to be watched: see Loop.Dying and Loop.Dead. The lock is held.
	Started(l *lifecycle.Life)
	// NotStarted is told that mysqld did not start; its status says why. The lock is held.
	NotStarted()
	// Differs says whether a life is known to hold what differs from the log, which a judgement would not find. It takes
	// such a life out of service.
	Differs(l *lifecycle.Life) bool
	// Judged is told what came of a judgement that counts.
	Judged(ctx context.Context, l *lifecycle.Life, v Verdict)
	// Seed has the data replaced by a copy of another member's.
	Seed(ctx context.Context)
	// Promote promotes a life, and tells of it.
	Promote(ctx context.Context, leader *lifecycle.Leader, l *lifecycle.Life, term uint64)
	// Fencing is told that a fence begins, and Fenced what became of mysqld.
	Fencing(reason string)
	Fenced(reason string, f lifecycle.Fenced)
	// Restart tells of the reason and ends mysqld with Loop.EndServer. Its end brings the next start.
	Restart(reason string)
	// Kill sends SIGKILL to the process of a life.
	Kill(l *lifecycle.Life) error
	// WhyEnded is the reason of an end that was not mysqld's own; empty: none is known. The lock is held.
	WhyEnded() string
	// MayServe says whether the rest of the member allows writes. The lock is held.
	MayServe() bool

	// Go runs f as a task that ends with the member, and wakes the loop when it has ended.
	Go(f func(ctx context.Context))
	// Context ends with the member.
	Context() context.Context
	WakeLoop()
	// Fail ends the member: it is not safe to go on.
	Fail(err error)
}

// Clients is the part of a lifecycle.LeaderHost that is not the loop's.
type Clients interface {
	TransactionRefuse() config.Bytes
	Routes()
	DropAddresses()
}

// Parts are the organs that the loop looks at.
type Parts struct {
	ID         config.Identity
	Mu         sync.Locker // the member's: it guards what changes in step with mysqld's status
	Time       run.Time    // what the loop and its tasks go by
	Lives      *lifecycle.Lives
	Leadership *leadership.Leadership
	Acks       *ackpath.Path
	Gossip     *gossip.Gossip
	Ledger     *ledger.Ledger
	Host       Host
	Log        *slog.Logger
}

// Loop is of one member. Its methods may be called from any goroutine, but for Turn, and those that end in Locked are
// for holders of the member's lock.
type Loop struct {
	Parts
	soft atomic.Pointer[Soft] // changed with the lock held
}

// Soft is what raft says of the member; it never changes, another one takes its place.
type Soft struct {
	consensus.State
	LeaderSince time.Duration // since when it is the leader, the last time that it became one
}

// New makes the loop of a member of which nothing runs.
func New(p Parts) *Loop {
	c := &Loop{Parts: p}
	c.soft.Store(&Soft{})
	return c
}

// Interval is how often the policy is asked at least.
const Interval = 250 * time.Millisecond

// Turn asks the policy once and begins what it wants. next is the moment of the next turn, at most interval later, if
// nothing happens before.
func (c *Loop) Turn(interval time.Duration) (next time.Duration) {
	v := c.Look()
	next = v.Now + ha.NextLook(v, c.tellGuard(v.Raft.LeaseUntil), interval)
	st, acts := ha.Decide(v)
	c.Host.Decided(st)
	for _, a := range acts {
		c.act(a)
	}
	return next
}

// Soft is what raft says, the newest that was noted.
func (c *Loop) Soft() *Soft { return c.soft.Load() }

// SoftState takes role, term and leader, unless newer ones are known.
func (c *Loop) SoftState(s consensus.State) {
	c.Mu.Lock()
	c.softStateLocked(s)
	c.Mu.Unlock()
	c.Host.WakeLoop()
}

func (c *Loop) softStateLocked(s consensus.State) {
	was := c.soft.Load()
	if s.Seq < was.Seq {
		return
	}
	is := &Soft{State: s, LeaderSince: was.LeaderSince}
	if s.Role == consensus.Leader && (was.Role != consensus.Leader || was.Term != s.Term) {
		is.LeaderSince = c.Time.Now()
		c.Leadership.Elected(s.Term)
	}
	if was.State != s {
		c.Gossip.Publish()
	}
	if was.Term != s.Term || was.Leader != s.Leader {
		c.Host.LeaderChanged()
	}
	c.Gossip.Follows(s.Leader)
	c.Leadership.InTerm(s.Term)
	c.soft.Store(is)
}

// Snapshot: the log was replaced by a snapshot of another member, which ends at b.
func (c *Loop) Snapshot(b raftlog.Boundary) {
	c.Mu.Lock()
	c.Ledger.Reset(b) // together with the state, or who waits for what is applied would take it for applied
	if s := c.Lives.Status(); s.State() == ha.ServerReady || s.State() == ha.ServerUp {
		c.Lives.Change((*lifecycle.Status).JudgeAgain) // what it holds has to be judged against the new log
	}
	c.Mu.Unlock()
	c.Host.WakeLoop()
}

// Look is the loop's view: it takes note of what consensus says.
func (c *Loop) Look() ha.View {
	st, lease := c.read()
	c.Mu.Lock()
	defer c.Mu.Unlock()
	c.softStateLocked(st.State)
	c.Leadership.NoteLease(lease)
	v := c.viewLocked(&st, lease)
	c.Leadership.Saw(v)
	return v
}

// View is the member as it is now, for the policy. Asking changes nothing.
func (c *Loop) View() ha.View {
	st, lease := c.read()
	c.Mu.Lock()
	defer c.Mu.Unlock()
	return c.viewLocked(&st, lease)
}

func (c *Loop) read() (st consensus.Status, lease time.Duration) {
	return c.Host.Raft().Status(), time.Duration(c.Host.Raft().LeaseUntil())
}

func (c *Loop) viewLocked(st *consensus.Status, lease time.Duration) ha.View {
	s, settings := c.Lives.Status(), c.Host.Settings()
	leads := st.Role == consensus.Leader
	v := ha.View{
		Now:  c.Time.Now(),
		Self: c.ID.ID,
		Name: c.ID.Name,
		Raft: ha.Raft{Term: st.Term, Leader: st.Leader, IsLeader: leads, Commit: st.Commit,
			LeaseUntil: c.Leadership.Lease(lease), Transferee: st.Transferee, Since: c.soft.Load().LeaderSince,
			Unsettled: leads && c.Acks.Settled() != st.Term, Voters: len(st.Voters), Stuck: s.LogStuck()},
		Server:        c.serverLocked(),
		Serving:       s.Serving.View(),
		Stopping:      s.Stopping(),
		Voter:         slices.Contains(st.Voters, c.ID.ID),
		LastOpen:      uint64(c.Ledger.NewestBarrier().Node),
		Paused:        settings.PausedAt(c.Time.Wall()),
		FailbackAfter: settings.Failback(),
	}
	v.Raft.Full, v.Refused = c.Host.Disks(st)
	if s.TakesWrites() && s.Term() == st.Term {
		v.Open = c.ID.ID
	}
	c.Leadership.Show(&v)
	if m, ok := settings.MemberByID(c.ID.ID); ok && !m.Leaving() {
		v.Weight = m.Weight
	}
	peers := c.Gossip.Peers()
	for _, m := range settings.Members {
		if m.ID != c.ID.ID {
			p := peers[m.ID]
			v.Peers = append(v.Peers, peerView(m, p, st))
			if p.Fresh() && p.OpenTerm == st.Term {
				v.Open = m.ID
			}
		}
	}
	return v
}

// serverLocked is this member's mysqld for the policy.
func (c *Loop) serverLocked() ha.Server {
	s := c.Lives.Status()
	v := s.Server.View()
	v.SteppingDown = s.SteppingDown(c.soft.Load().Role == consensus.Leader)
	c.Host.Applying(&v)
	return v
}

// ReadyLocked says whether this member's mysqld is judged and fed, and if not why.
func (c *Loop) ReadyLocked() (ha.Reason, bool) {
	s := c.Lives.Status()
	return ha.Unready(c.serverLocked(), s.LogStuck(), s.Stopping(), c.Time.Now())
}

// peerView is another member as its last status showed it.
func peerView(m config.Member, s *gossip.Peer, st *consensus.Status) ha.Peer {
	p := ha.Peer{ID: m.ID, Name: m.Name, Voter: slices.Contains(st.Voters, m.ID), Data: m.Role != config.RoleLogger,
		Weight: m.Weight}
	if m.Leaving() && p.Voter {
		p.Weight = 0 // its vote is about to be taken
	}
	if pr, ok := st.Members[m.ID]; ok {
		p.Match, p.Heard = pr.Match, pr.Answered
	}
	if s.Fresh() {
		p.Live, p.Ready, p.Applied = true, s.Ready, s.Member.Raft.Applied
		p.Full, p.Stalled = s.Full, s.Ready && s.Member.State == api.StateCatchingUp
		p.Unready, p.Rate, p.Heavy, p.Since = s.Unready, s.Rate, s.Heavy, s.Since
	}
	return p
}
