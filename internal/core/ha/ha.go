package ha

import (
	"cmp"
	"fmt"
	"sort"
	"time"
)

// ServerState is the state of this node's mysqld as far as recovery (S5) goes.
type ServerState uint8

const (
	// ServerAbsent: a logger, there is no mysqld.
	ServerAbsent ServerState = iota
	// ServerOff: no process. It may be started.
	ServerOff
	// ServerStarting: a start is under way.
	ServerStarting
	// ServerUp: runs read-only, not yet judged by S5, not fed.
	ServerUp
	// ServerJudging: the judgement is under way.
	ServerJudging
	// ServerReady: judged, its holes are plugged; it may be fed or promoted.
	ServerReady
	// ServerDying: SIGKILL was sent and the process is still there: the kernel frees its memory, or its disk hangs. It
	// serves no client.
	ServerDying
	// ServerBroken: holds what Raft did not commit, or misses what cannot be explained; must be seeded again, which
	// throws its data away and is an operator's decision.
	ServerBroken
	// ServerBehind: has to be seeded, and nothing is lost with what it holds: what it needs next is no longer in the
	// log, or an operator gave its data up.
	ServerBehind
	// ServerSeeding: its data is being replaced by a copy of another node's.
	ServerSeeding
)

var serverStateNames = [...]string{"absent", "off", "starting", "up", "judging", "ready", "dying", "broken", "behind",
	"seeding"}

func (s ServerState) String() string { return serverStateNames[s] }

// Phase is how far this incarnation of mysqld has gone in serving writes.
type Phase uint8

const (
	// PhaseNone: read-only; a follower, or a leader that is not yet promoted.
	PhaseNone Phase = iota
	// PhasePromoting: the steps between election and open writes are under way.
	PhasePromoting
	// PhaseOpen: writes are open.
	PhaseOpen
	// PhaseHandover: a planned switchover is under way; writes are closed or closing.
	PhaseHandover
	// PhaseFencing: a fence is under way.
	PhaseFencing
)

var phaseNames = [...]string{"none", "promoting", "open", "handover", "fencing"}

func (p Phase) String() string { return phaseNames[p] }

// Raft is this node's raft state. Times are on CLOCK_BOOTTIME.
type Raft struct {
	Term       uint64
	Leader     uint64 // raft id, 0 when none is known
	IsLeader   bool
	Commit     uint64
	LeaseUntil time.Duration // leader only: until when leadership is proven
	Transferee uint64        // leader only: the member that leadership is being handed to, 0 if none
	Asked      bool          // leader only: it was handed leadership by the leader before it
	Since      time.Duration // leader only: when this node became leader of Term
	// leader only: it has not applied an entry of its own term yet, so a pause, or who led last, may be news to it
	Unsettled bool
	Voters    int    // voters in the current configuration
	Stuck     string // not empty: this node's own log is stuck; the text says why
	// not empty: a disk of this node is nearly full; another node should lead if there is one with more space
	Full string
}

// Server is this node's mysqld.
type Server struct {
	State   ServerState
	Applied uint64 // highest raft index that InnoDB holds
	Stuck   string // not empty: mysqld is alive but cannot serve, and why
	// StuckSince is when Stuck began; 0: it is not a matter of time.
	StuckSince time.Duration
	Applier    string // not empty: replication from the feed does not run, and why
	Stalled    bool   // it runs, and has applied nothing for a while of what waits
	Problem    string // of the last failed start or judgement; why it is broken
	Ended      string // why its last life has ended; empty: not known
	// RetryAt is when a failed start, judgement or promotion may be tried again.
	RetryAt time.Duration
	// SteppingDown: mysqld has stopped taking writes, by a switchover or a fence, and is being made a follower.
	SteppingDown bool
	Rate         float64       // entries per second that it applied when it last had a backlog; 0: not known
	Heavy        time.Duration // about how long it applies the large transactions and DDL among what it lacks
	Since        time.Duration // since when it has been ready
	Delayed      string        // not empty: it is a delayed learner's, and holds old data on purpose
}

// Serving is what this incarnation of mysqld serves.
type Serving struct {
	Phase Phase
	Term  uint64 // the one term in which it serves (S7)
	// Drained, of a switchover: writes are closed and all that mysqld wrote is committed, so that losing leadership now is
	// the plan and no reason to fence.
	Drained bool
}

// Peer is another member as its last status showed it.
type Peer struct {
	ID      uint64
	Name    string
	Voter   bool
	Data    bool   // has a mysqld
	Live    bool   // its status is fresh and its link is up
	Ready   bool   // its mysqld is judged, fed and not stuck
	Unready Reason // not Ready: why, as it says itself (Unready)
	Applied uint64
	Rate    float64       // entries per second that it applied when it last had a backlog; 0: not known
	Heavy   time.Duration // about how long it applies the large transactions and DDL among what it lacks
	Since   time.Duration // since when it has been live and ready
	Match   uint64        // leader only
	Heard   bool          // leader only: it has answered this leader in its term
	Weight  int
	Full    bool // a disk of it is nearly full
	Stalled bool // as in Server
}

// Transfer is an operator's wish to move leadership.
type Transfer struct {
	To uint64 // 0: the best candidate
}

// View is everything that Decide looks at.
type View struct {
	Now     time.Duration // CLOCK_BOOTTIME
	Self    uint64
	Name    string // of this node
	Weight  int
	Voter   bool
	Raft    Raft
	Server  Server
	Serving Serving
	Peers   []Peer
	// HandoverTriedTerm is the term in which this node last began to hand over or to switch over, HandoverAt when,
	// HandoverTo to whom.
	HandoverTriedTerm uint64
	HandoverAt        time.Duration
	HandoverTo        uint64
	// HandoverFails counts the switchovers that failed in HandoverTriedTerm.
	HandoverFails int
	Request       *Transfer
	Stopping      bool // the daemon was asked to stop (SIGTERM)
	// Open is the node that takes writes in the present term, possibly this one; 0: none.
	Open uint64
	// LastOpen is the node that was last to open writes, according to the log; 0: none yet.
	LastOpen uint64
	// Paused: an operator has paused automatic failover. Leadership stays where it was, unless an operator moves it.
	// Fences and the restart of a mysqld in place are not failover: they go on.
	Paused bool
	// Refused, of a leader: why no writes may be taken although there is a majority; empty: they may.
	Refused string
	// FailbackAfter is how long a node with a higher weight than the leader's has been healthy before it gets
	// leadership; 0: never.
	FailbackAfter time.Duration
}

// Kind names an action.
type Kind uint8

const (
	StartServer Kind = iota + 1 // new incarnation, read-only (S5)
	Judge                       // compare with the committed prefix, plug holes, connect the feed (S5)
	Promote                     // barrier, apply all, open writes (S6)
	Fence                       // make the node unable to serve, for sure
	HandOver                    // transfer raft leadership before writes were opened
	Switchover                  // close writes, drain, transfer leadership
	Restart                     // SIGKILL a mysqld that serves nothing and is stuck; a new incarnation follows
	Seed                        // replace the data of a ServerBehind by a copy of another node's
)

var kindNames = [...]string{"", "start-server", "judge", "promote", "fence", "hand-over", "switchover", "restart",
	"seed"}

func (k Kind) String() string { return kindNames[k] }

// Action is one thing to do. Term is the raft term in which it was decided.
type Action struct {
	Kind   Kind
	Term   uint64
	To     uint64
	Reason string
}

func (a Action) String() string {
	s := fmt.Sprintf("%s term=%d", a.Kind, a.Term)
	if a.To != 0 {
		s += fmt.Sprintf(" to=%d", a.To)
	}
	if a.Reason != "" {
		s += " (" + a.Reason + ")"
	}
	return s
}

// The states of a member, as GET /cluster shows them.
const (
	StateStarting   = "starting"
	StateRecovering = "recovering"
	StateSeeding    = "seeding"
	StateCatchingUp = "catching-up"
	StateHealthy    = "healthy"
	StateFenced     = "fenced"
	StateDown       = "down"
)

// State is the node's state in a word, and the sentence that says what it does and why: that sentence is the log line.
type State struct {
	Name string
	Why  string
}

const (
	// closeEnough is how many entries two candidates may differ in before the one with less to apply is preferred.
	closeEnough = 256
	// handoverPatience bounds how long an elected leader that is not the best waits for its hand-over before it goes
	// on. Raft takes no proposals before it has given a transfer up, which is one election timeout.
	handoverPatience = 1500 * time.Millisecond
	// answerPatience is how long an elected leader waits for a sign of life of the node that should lead instead.
	answerPatience = 250 * time.Millisecond
	// handoverPause is how long a node that could lead itself keeps leadership after it last gave it away, whatever the
	// ranking says: two nodes whose ranks alternate must not pass leadership back and forth.
	handoverPause = 10 * time.Second
	// maxHandoverPause bounds the pause between attempts to move leadership that fail.
	maxHandoverPause = 10 * time.Minute
	// rankDelay separates the campaigns of candidates after the leader's death, so that their votes do not split.
	rankDelay = 120 * time.Millisecond
	// stuckPatience is how long a mysqld that serves nothing may be stuck before it is killed: it may recover, and a
	// restart costs more than waiting.
	stuckPatience = 30 * time.Second
	// heavyWait is how long leadership that is moved on purpose waits for large transactions and DDL to be applied.
	heavyWait = 3 * time.Second
	// catchingUp is by how many entries a follower's mysqld may lag and still be called healthy.
	catchingUp = 4096
)

// Decide is the policy. It returns the node's state and the actions that must follow, in order.
func Decide(v View) (State, []Action) {
	if v.Serving.Phase == PhaseFencing {
		return State{StateFenced, "fencing: clients are cut, mysqld is drained or killed"}, nil
	}
	if reason := mustFence(v); reason != "" {
		return State{StateFenced, "fencing: " + reason}, []Action{{Kind: Fence, Term: v.Raft.Term, Reason: reason}}
	}
	if v.Raft.IsLeader {
		return leader(v)
	}
	return follower(v)
}

// mustFence says why this node must be made unable to serve, or "".
func mustFence(v View) string {
	if v.Serving.Phase == PhaseNone {
		return ""
	}
	if v.Server.State == ServerBroken {
		return "mysqld's data does not match the committed log"
	}
	if v.Server.State != ServerReady {
		return cmp.Or(v.Server.Ended, "mysqld died while it was serving")
	}
	if v.Serving.Phase == PhaseHandover && v.Serving.Drained {
		return ""
	}
	switch {
	case !v.Raft.IsLeader:
		return fmt.Sprintf("no longer leader (serving term %d, now term %d)", v.Serving.Term, v.Raft.Term)
	case v.Serving.Term != v.Raft.Term:
		return fmt.Sprintf("leader of term %d again, but this mysqld served term %d", v.Raft.Term, v.Serving.Term)
	case v.Serving.Phase != PhasePromoting && v.Now > v.Raft.LeaseUntil:
		return "cannot prove that it is still leader: the lease has run out"
	case v.Server.Stuck != "":
		return v.Server.Stuck
	case v.Raft.Stuck != "":
		return v.Raft.Stuck
	case v.Refused != "" && v.Serving.Phase == PhaseOpen:
		return v.Refused
	}
	return ""
}

func leader(v View) (State, []Action) {
	switch v.Serving.Phase {
	case PhaseHandover:
		return State{StateHealthy, "switchover under way"}, nil
	case PhasePromoting:
		return State{StateRecovering, fmt.Sprintf("elected for term %d: applying the rest of the log before writes open",
			v.Raft.Term)}, nil
	case PhaseOpen:
		return leaderOpen(v)
	}
	return elected(v)
}

// elected is a leader that does not serve yet: a better one takes over before writes open, else it is promoted itself.
func elected(v View) (State, []Action) {
	term := v.Raft.Term
	unfit := whyUnfit(v)
	if v.Raft.Unsettled {
		if v.Server.State == ServerReady || v.Server.State == ServerAbsent {
			return State{StateRecovering, fmt.Sprintf("elected for term %d: learning what is committed", term)}, nil
		}
		return recovering(v)
	}
	if handoverPending(v) {
		// Raft takes no proposals now, so a promotion could not even begin; a mysqld can be brought up meanwhile.
		if v.Server.State == ServerReady || v.Server.State == ServerAbsent {
			return State{StateRecovering, fmt.Sprintf("elected for term %d: waiting for %s to take over", term,
				peerName(v, v.HandoverTo))}, nil
		}
		return recovering(v)
	}
	if v.Paused && v.LastOpen != 0 {
		if st, acts, decided := electedInPause(v, unfit); decided {
			return st, acts
		}
	} else if to, why := handOverTo(v, unfit); to == awaited {
		return State{StateRecovering, fmt.Sprintf("elected for term %d: waiting for an answer of the node that should lead",
			term)}, nil
	} else if to != 0 {
		return State{StateRecovering, "handing over to " + peerName(v, to) + ": " + why},
			[]Action{{Kind: HandOver, Term: term, To: to, Reason: why}}
	}
	if unfit == "" && v.HandoverTriedTerm == term && v.Now > v.Raft.LeaseUntil {
		// A transfer ends the lease for longer than itself: the node that was asked may still be elected. Writes opened now
		// would be fenced at once.
		return State{StateRecovering, fmt.Sprintf("elected for term %d: %s did not take over; waiting for a new lease", term,
			peerName(v, v.HandoverTo))}, nil
	}
	if unfit == "" && v.Refused != "" {
		return State{StateRecovering, "elected, but writes are refused: " + v.Refused}, nil
	}
	if unfit == "" {
		return State{StateRecovering, fmt.Sprintf("elected for term %d", term)}, []Action{{Kind: Promote, Term: term}}
	}
	if acts := restart(v); acts != nil {
		return State{StateRecovering, "elected, but " + unfit + ": restarting mysqld"}, acts
	}
	if v.Server.State == ServerReady || v.Server.State == ServerAbsent {
		return State{StateRecovering, "elected, but this node cannot lead (" + unfit +
			") and no other one can: writes stay closed"}, nil
	}
	return recovering(v)
}

// electedInPause keeps leadership where it was: only the last leader, or a node that leadership was moved to on
// purpose, opens writes. decided is false for that node if it can lead now.
func electedInPause(v View, unfit string) (st State, acts []Action, decided bool) {
	mine := v.LastOpen == v.Self || v.Raft.Asked
	if mine && unfit == "" {
		return st, nil, false
	}
	if p, ok := member(v, v.LastOpen); ok && p.ID != v.Self && p.canLead() {
		why := "automatic failover is paused, and it led before"
		return State{StateRecovering, "handing over to " + p.Name + ": " + why},
			[]Action{{Kind: HandOver, Term: v.Raft.Term, To: p.ID, Reason: why}}, true
	}
	if acts := restart(v); acts != nil {
		return State{StateRecovering, "elected, but " + unfit + ": restarting mysqld"}, acts, true
	}
	if v.Server.State != ServerReady && v.Server.State != ServerAbsent {
		st, acts = recovering(v)
		return st, acts, true
	}
	if mine {
		return State{StateRecovering, "elected, but this node cannot lead (" + unfit +
			") and automatic failover is paused: writes stay closed"}, nil, true
	}
	return State{StateRecovering, "elected, but automatic failover is paused: writes stay closed until " +
		peerName(v, v.LastOpen) +
		" can lead again, `trireme resume` or `trireme failover`"}, nil, true
}

// handoverPending reports whether the last hand-over may still succeed.
func handoverPending(v View) bool {
	return v.Raft.Transferee != 0 || v.HandoverTriedTerm == v.Raft.Term && v.Now < v.HandoverAt+handoverPatience
}

func leaderOpen(v View) (State, []Action) {
	open := State{StateHealthy, fmt.Sprintf("leader of term %d, writes are open", v.Raft.Term)}
	switch {
	case v.Stopping && v.Request == nil && v.Paused:
		open.Why += "; stopping: automatic failover is paused, so no node takes over"
		return open, nil
	case v.Stopping && handoverPending(v):
		open.Why += "; stopping: the last switchover failed, it is tried again in a moment"
		return open, nil
	case v.Request != nil && v.Request.To == v.Self:
		return open, nil // an operator's wish that is fulfilled
	case v.Request == nil && !v.Stopping && v.Raft.Full != "":
		return roomier(v, open)
	case v.Request == nil && !v.Stopping:
		return preferred(v, open)
	}
	to, why := switchoverTo(v)
	if to == 0 {
		open.Why += "; no switchover: " + why
		return open, nil
	}
	return State{StateHealthy, "switching over to " + peerName(v, to)},
		[]Action{{Kind: Switchover, Term: v.Raft.Term, To: to}}
}

// roomier moves leadership away from a node whose disk is nearly full, while that can still be done by plan.
func roomier(v View, open State) (State, []Action) {
	open.Why += ", although " + v.Raft.Full
	p, ok := withSpace(v)
	if ok && failing(v) {
		open.Why += failingText(v)
	}
	if v.Paused || !ok || justTried(v) || unapplied(v, p.Applied) > closeEnough {
		return open, nil
	}
	return State{StateHealthy, "switching over to " + p.Name + ": " + v.Raft.Full},
		[]Action{{Kind: Switchover, Term: v.Raft.Term, To: p.ID, Reason: v.Raft.Full}}
}

// justTried reports whether the last attempt of this term to move leadership is too young for another one of this
// node's own accord. Each cuts connections: one that has failed is repeated after twice the time, up to
// maxHandoverPause.
func justTried(v View) bool {
	pause := min(handoverPause<<min(v.HandoverFails, 16), maxHandoverPause)
	return v.HandoverTriedTerm == v.Raft.Term && v.Now < v.HandoverAt+pause
}

// failing reports whether moving leadership has failed again and again; failingText tells it.
func failing(v View) bool { return v.HandoverTriedTerm == v.Raft.Term && v.HandoverFails > 1 }

func failingText(v View) string {
	return fmt.Sprintf("; moving leadership to %s has failed %d times, it is tried again ever more rarely",
		peerName(v, v.HandoverTo), v.HandoverFails)
}

// withSpace is the best candidate whose disks are not nearly full.
func withSpace(v View) (Peer, bool) {
	for _, p := range Candidates(v) {
		if !p.Full {
			return p, true
		}
	}
	return Peer{}, false
}

// preferred moves leadership to the best node if that has a higher weight and has been healthy for a time: a node that
// dies whenever it leads must not get leadership back at once. A leader whose weight was set to 0 does not wait.
func preferred(v View, open State) (State, []Action) {
	c := Candidates(v)
	if v.Paused || len(c) == 0 || c[0].Weight <= v.Weight || c[0].Full || unapplied(v, c[0].Applied) > closeEnough ||
		c[0].Heavy > heavyWait {
		return open, nil
	}
	p := c[0]
	early := v.FailbackAfter <= 0 || v.Now < failbackAt(v, true, p)
	if failing(v) {
		open.Why += failingText(v)
	}
	if justTried(v) || v.Weight > 0 && early {
		return open, nil
	}
	why := fmt.Sprintf("its weight is %d, this node's is %d", p.Weight, v.Weight)
	return State{StateHealthy, "switching over to " + p.Name + ": " + why},
		[]Action{{Kind: Switchover, Term: v.Raft.Term, To: p.ID, Reason: "another node is preferred: " + why}}
}

// switchoverTo picks the node that takes over from a leader in service; 0 and the reason when none can now. One that is
// catching up has to wait: writes would stay closed until it has applied everything.
func switchoverTo(v View) (uint64, string) {
	var to Peer
	if v.Request != nil && v.Request.To != 0 {
		p, known := member(v, v.Request.To)
		if !known {
			return 0, peerName(v, v.Request.To) + " is not a member"
		}
		to = p
	} else {
		c := Candidates(v)
		if len(c) == 0 {
			return 0, "no other node can take over"
		}
		to = next(c, v)
	}
	if rs := switchoverBars(v, to); len(rs) > 0 {
		return 0, peerName(v, to.ID) + ": " + rs[0].Text
	}
	return to.ID, ""
}

// unapplied counts the committed entries above applied.
func unapplied(v View, applied uint64) uint64 { return v.Raft.Commit - min(applied, v.Raft.Commit) }

// next is the best of the candidates c. If a hand-over in this term has failed, it is the candidate after the last
// choice: a node that looks healthy but never takes over must not be asked forever.
func next(c []Peer, v View) Peer {
	if v.HandoverTriedTerm == v.Raft.Term {
		for i, p := range c {
			if p.ID == v.HandoverTo {
				return c[(i+1)%len(c)]
			}
		}
	}
	return c[0]
}

// restart is the end of a mysqld that serves nothing and has been stuck for too long.
func restart(v View) []Action {
	if v.Server.Stuck == "" || v.Server.StuckSince == 0 || v.Now < v.Server.StuckSince+stuckPatience ||
		v.Serving.Phase != PhaseNone ||
		v.Server.State != ServerReady && v.Server.State != ServerUp || v.Stopping {
		return nil
	}
	return []Action{{Kind: Restart, Term: v.Raft.Term, Reason: v.Server.Stuck}}
}

func follower(v View) (State, []Action) {
	if v.Raft.Stuck != "" && (v.Server.State == ServerReady || v.Server.State == ServerAbsent) {
		return State{StateRecovering, v.Raft.Stuck}, nil
	}
	if v.Server.State != ServerReady {
		return recovering(v)
	}
	if v.Serving.Phase == PhaseHandover {
		return State{StateRecovering, "becoming a follower after a switchover"}, nil
	}
	if v.Server.Stuck != "" {
		return State{StateRecovering, v.Server.Stuck}, restart(v)
	}
	if v.Raft.Leader == 0 {
		return State{StateHealthy, fmt.Sprintf("no leader known in term %d: serving reads, refusing writes", v.Raft.Term)},
			nil
	}
	// The sentence is a log line: it holds no figure that changes with every look.
	if unapplied(v, v.Server.Applied) > catchingUp && v.Server.Delayed == "" {
		return State{StateCatchingUp, fmt.Sprintf("lags by more than %d entries", catchingUp)}, nil
	}
	why := "following " + peerName(v, v.Raft.Leader)
	if v.Server.Delayed != "" {
		why += ", " + v.Server.Delayed
	}
	if v.Raft.Full != "" {
		why += ", although " + v.Raft.Full
	}
	return State{StateHealthy, why}, nil
}

// recovering starts mysqld and has it judged, whichever node leads.
func recovering(v View) (State, []Action) {
	switch v.Server.State {
	case ServerAbsent:
		return State{StateHealthy, "logger: keeps the log and votes"}, nil
	case ServerOff:
		switch {
		case v.Stopping:
			return State{StateDown, "stopping"}, nil
		case v.Now < v.Server.RetryAt:
			return State{StateStarting, "mysqld failed to start; it is tried again in a moment"}, nil
		}
		return State{StateStarting, "starting mysqld"}, []Action{{Kind: StartServer, Term: v.Raft.Term}}
	case ServerStarting:
		return State{StateStarting, "starting mysqld"}, nil
	case ServerUp:
		if v.Stopping {
			return State{StateDown, "stopping"}, nil
		}
		if v.Server.Stuck != "" {
			return State{StateRecovering, v.Server.Stuck}, restart(v)
		}
		if v.Raft.Leader == 0 {
			return State{StateRecovering, "mysqld is up read-only; waiting for a leader to learn the commit index"}, nil
		}
		if v.Now < v.Server.RetryAt {
			return State{StateRecovering, "mysqld is up read-only; the judgement is tried again in a moment"}, nil
		}
		return State{StateRecovering, "judging mysqld against the committed log"}, []Action{{Kind: Judge, Term: v.Raft.Term}}
	case ServerJudging:
		return State{StateRecovering, "judging mysqld against the committed log"}, nil
	case ServerDying:
		return State{StateDown,
			"mysqld is dead, and the kernel is not done with it yet; if that lasts, look for a disk that hangs"}, nil
	case ServerBroken:
		return State{StateFenced, "mysqld's data does not match the committed log; `trireme reinit " + v.Name +
			"` throws it away and copies another node's"}, nil
	case ServerBehind:
		switch {
		case v.Stopping:
			return State{StateDown, "stopping"}, nil
		case v.Paused:
			return State{StateSeeding, "mysqld must be seeded from another node, and automatic actions are paused"}, nil
		case v.Now < v.Server.RetryAt:
			return State{StateSeeding, "mysqld must be seeded from another node; it is tried again in a moment"}, nil
		case v.Raft.Leader == 0:
			return State{StateSeeding, "mysqld must be seeded from another node; waiting for a leader"}, nil
		}
		return State{StateSeeding, "seeding mysqld from another node"}, []Action{{Kind: Seed, Term: v.Raft.Term}}
	case ServerSeeding:
		return State{StateSeeding, "seeding mysqld from another node"}, nil
	}
	return State{StateHealthy, "ready"}, nil
}

// Candidates lists the peers that can lead, best first: those whose applier makes progress, of them those that have
// close to the least left to apply, then the highest weight, then the lowest id.
func Candidates(v View) []Peer {
	var out []Peer
	for _, p := range v.Peers {
		if p.canLead() {
			out = append(out, p)
		}
	}
	rank(out)
	return out
}

// rank sorts by fitness to lead, best first. It is a total order, the same on every node that looks at the same
// figures: those that can lead first; of them those whose applier makes progress; of them those within closeEnough of
// the furthest one, by weight, so that noise does not outweigh the operator's wish; then the others by what they have
// applied.
func rank(ps []Peer) {
	backlog := backlogBehind(ps)
	sort.SliceStable(ps, func(i, j int) bool {
		a, b := ps[i], ps[j]
		if a.canLead() != b.canLead() {
			return a.canLead()
		}
		if a.Stalled != b.Stalled { // however little it lacks, it may lack that for ever
			return b.Stalled
		}
		if x, y := backlog(a), backlog(b); x != y {
			return x < y
		}
		if a.Weight != b.Weight {
			return a.Weight > b.Weight
		}
		return a.ID < b.ID
	})
}

// backlogBehind measures what a member has to apply from the furthest of those that can lead; 0 when it is close to it.
func backlogBehind(ps []Peer) func(Peer) uint64 {
	var top uint64
	for _, p := range ps {
		if p.canLead() {
			top = max(top, p.Applied)
		}
	}
	return func(p Peer) uint64 {
		if p.Applied+closeEnough >= top {
			return 0
		}
		return top - p.Applied
	}
}

// awaited stands for a node that should lead and has not answered yet.
const awaited = ^uint64(0)

// handOverTo says to whom an elected leader that has not opened writes should hand over, and why; 0 when it should go
// on. unfit is the answer of whyUnfit.
func handOverTo(v View, unfit string) (uint64, string) {
	c, wait := answered(v, Candidates(v))
	if unfit != "" {
		switch {
		case wait && v.HandoverTriedTerm != v.Raft.Term:
			return awaited, ""
		case len(c) == 0:
			return 0, ""
		}
		return next(c, v).ID, "this node cannot lead: " + unfit
	}
	if v.Server.Stalled && v.HandoverTriedTerm != v.Raft.Term { // who asked it to take over did not know
		for _, p := range c {
			if !p.Stalled {
				return p.ID, "this node's mysqld applies nothing of what it has to apply first"
			}
		}
		if wait {
			return awaited, ""
		}
	}
	// It can lead. What follows is a matter of taste, so it is tried once and never against somebody else's choice: a
	// leader that was asked to take over, by an operator or by a node that found it better, goes on.
	if v.Raft.Asked || v.HandoverTriedTerm == v.Raft.Term || v.HandoverAt > 0 && v.Now < v.HandoverAt+handoverPause {
		return 0, ""
	}
	if wait {
		if to, _ := better(v, Candidates(v)); to != 0 {
			return awaited, ""
		}
	}
	return better(v, c)
}

// answered leaves of the candidates c those that have answered this leader: a status tells for some seconds more what
// its sender was, a leader hands over to one that is there now. wait says that one which is better than all of them may
// still answer. The leader before is not waited for: as a rule it was lost.
func answered(v View, c []Peer) (heard []Peer, wait bool) {
	for _, p := range c {
		switch {
		case p.Heard:
			heard = append(heard, p)
		case len(heard) == 0 && p.ID != v.LastOpen && v.Now < v.Raft.Since+answerPatience:
			wait = true
		}
	}
	return heard, wait
}

// better picks one of the candidates c, best first, that should lead instead of this node, which could.
func better(v View, c []Peer) (uint64, string) {
	me := self(v)
	if v.Raft.Full != "" {
		for _, p := range c {
			if !p.Full && me.Applied <= p.Applied+closeEnough {
				return p.ID, v.Raft.Full
			}
		}
	}
	all := append([]Peer{me}, c...)
	rank(all)
	best := all[0]
	switch {
	case best.ID == me.ID, best.Full:
		return 0, ""
	case best.Applied > me.Applied+closeEnough:
		return best.ID, fmt.Sprintf("it has %d entries less to apply", best.Applied-me.Applied)
	case best.Weight > me.Weight:
		return best.ID, "it has a higher weight"
	}
	return 0, "" // only its id is lower
}

// CampaignDelay says how long this node waits before it campaigns after the leader's daemon was seen to die: the best
// candidate at once, the others one step later each, loggers and unfit nodes last. A candidate whose log is too short
// is refused in pre-vote, and the refusing node campaigns.
func CampaignDelay(v View, dead uint64) time.Duration {
	ps := []Peer{self(v)}
	for _, p := range v.Peers {
		if p.ID != dead && p.Voter && p.Live {
			ps = append(ps, p)
		}
	}
	rank(ps)
	for i, p := range ps {
		if p.ID == v.Self {
			return time.Duration(i) * rankDelay
		}
	}
	return 0
}

func peerName(v View, id uint64) string {
	if id == v.Self && v.Name != "" {
		return v.Name
	}
	for _, p := range v.Peers {
		if p.ID == id && p.Name != "" {
			return p.Name
		}
	}
	return fmt.Sprintf("node %d", id)
}
