package api

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"trireme/internal/config"
	"trireme/internal/ha"
)

// Roles as shown. A voter is a leader or a follower.
const (
	RoleLeader   = "leader"
	RoleFollower = "follower"
	RoleLogger   = "logger"
	RoleLearner  = "learner"
)

// States of a member.
const (
	StateStarting   = "starting"
	StateRecovering = "recovering"
	StateSeeding    = "seeding"
	StateCatchingUp = "catching-up"
	StateHealthy    = "healthy"
	StateFenced     = "fenced"
	StateDown       = "down"    // it does not answer, or its mysqld is dead
	StateUnknown    = "unknown" // it has reported nothing for a moment: the state is not known yet
)

// Codes of MemberView.ReasonCode besides those of ha.
const (
	NeverStarted ha.Code = "never-started" // it has joined, and its daemon was not started yet
)

// ClusterView is what GET /cluster answers.
type ClusterView struct {
	Cluster     string       `json:"cluster"`
	Term        uint64       `json:"term"`
	Leader      string       `json:"leader"` // a node's name; empty while there is no leader
	CommitIndex uint64       `json:"commit_index"`
	Members     []MemberView `json:"members"`
	Pause       *PauseView   `json:"pause"` // null: automatic failover is on
	Failover    FailoverView `json:"failover"`
	// CommitRules are what the OK of a commit needs beyond Raft's majority, as the leader has it; null: nothing.
	CommitRules *CommitRulesView `json:"commit_rules"`
	Flow        *FlowView        `json:"flow"`            // as the leader has it; null: no lag_objective is set
	Zones       []ZoneView       `json:"zones,omitempty"` // of the voters
	Generation  uint64           `json:"generation"`      // grows with every force-quorum; 1 at first
	// Blocked is a committed entry that cannot be applied and that no node that answers has; absent: no such entry.
	Blocked *BlockedView `json:"blocked,omitempty"`
	SeenBy  string       `json:"seen_by,omitempty"` // the node that answers
	// Doubt says why the rest may not be so: the node that answers does not hear a majority of the voters. Absent: it
	// does.
	Doubt string `json:"doubt,omitempty"`
}

// doubt is Doubt. Voters that are not heard of may have a leader of their own.
func (v ClusterView) doubt() string {
	heard, voters := v.Voters()
	switch {
	case voters == 0:
		return v.SeenBy + " has not heard from the cluster yet; ask another node"
	case 2*heard <= voters:
		return fmt.Sprintf("%s hears %d of %d voters; the others may have a leader of their own", v.SeenBy, heard, voters)
	}
	return ""
}

// Finish adds what follows from the rest.
func (v *ClusterView) Finish() {
	for i := range v.Members {
		m := &v.Members[i]
		if why := Unreached(m.Name, v.Members); why != "" && m.Answers() {
			m.Warnings = append(slices.Clip(m.Warnings), why) // it speaks, and does not hear
		} else if why != "" {
			m.Reason += "; " + why
		}
		if m.Role == RoleLeader && m.Name != v.Leader {
			m.Role = RoleFollower // what it said last: another one leads since, or it is not heard of any more
		}
	}
	v.Blocked, v.Doubt = Blocked(v.Members), v.doubt()
}

// Voters counts the voters that answer, and all.
func (v ClusterView) Voters() (heard, all int) {
	for _, m := range v.Members {
		if m.Raft.Voter {
			all++
			if m.Answers() {
				heard++
			}
		}
	}
	return heard, all
}

// BlockedView is a committed entry without an effect anywhere: the leader that wrote it died before its mysqld had it.
// Nothing after it can be applied either, so no node can open writes.
type BlockedView struct {
	ApplyErrorView
	Nodes   []string `json:"nodes"`             // that could not apply it
	Unknown []string `json:"unknown,omitempty"` // with data, and not heard of: one of them may have it
	Told    string   `json:"told"`              // who was told that it is committed, in words
}

// Blocked finds such an entry; nil: no such entry.
func Blocked(members []MemberView) *BlockedView {
	var b *BlockedView
	for _, m := range members {
		if e := m.ApplyError; e != nil && !e.Resources && e.Index != 0 && m.Answers() && (b == nil || e.Index < b.Index) {
			b = &BlockedView{ApplyErrorView: *e}
		}
	}
	if b == nil {
		return nil
	}
	for _, m := range members {
		switch {
		case m.MySQL == nil && m.Answers() || m.Role == RoleLogger:
		case !m.Answers():
			b.Unknown = append(b.Unknown, m.Name)
		case m.Raft.Applied >= b.Index:
			return nil
		case m.ApplyError != nil && m.ApplyError.Index == b.Index:
			b.Nodes = append(b.Nodes, m.Name)
		case m.Delay != nil: // it comes to it much later
		default:
			return nil // it has not come to it yet, and may be able to
		}
	}
	b.Told = "it is committed, so the client that wrote it on " + b.Node + " may have been told OK"
	b.Next = "no node that answers has what it did"
	if len(b.Unknown) > 0 {
		b.Next += "; start " + strings.Join(b.Unknown, ", ") + " first, which may have it"
	} else {
		b.Next += "; make it applicable, or see what `trireme force-apply --dry-run` and `trireme void --dry-run` say"
	}
	return b
}

// WritesWait says, of a cluster without a leader, what writes wait for.
func (v ClusterView) WritesWait() string {
	heard, voters := v.Voters()
	switch {
	case voters == 0:
		return "who leads is not known: " + v.Doubt
	case 2*heard <= voters:
		return fmt.Sprintf("writes are refused until a majority of the voters is up (%d of %d are, as far as %s hears)",
			heard, voters, v.SeenBy)
	}
	return "writes are refused until a node has opened them"
}

// PauseView says that automatic failover is off. Fences are not.
type PauseView struct {
	Since time.Time  `json:"since"`
	Until *time.Time `json:"until"` // null: until `trireme resume`
}

// FailoverView is what the loss of the leader would mean now.
type FailoverView struct {
	To              string  `json:"to"`                // who would lead; empty: no node
	Seconds         float64 `json:"seconds"`           // about how long without writes, when its mysqld or daemon dies
	HostLostSeconds float64 `json:"host_lost_seconds"` // the same when its host or link is lost
	// of both: large transactions and DDL that are committed and not applied there
	HeavySeconds float64 `json:"heavy_seconds"`
	Problem      string  `json:"problem,omitempty"` // why no node could lead
}

// Kinds of HeavyView.
const (
	HeavyTransaction = "transaction"
	HeavyDDL         = "ddl"
)

// HeavyView is what is under way on the leader and will keep every follower busy for long once it is committed. A
// failover until then takes ReplaySeconds longer.
type HeavyView struct {
	Kind       string  `json:"kind"`
	Text       string  `json:"text"`            // a GTID, or the beginning of a statement
	Bytes      uint64  `json:"bytes,omitempty"` // of a transaction
	AgeSeconds float64 `json:"age_seconds"`
	// 0 to 1; of a transaction the part that is in the log already; 0: not known
	Done float64 `json:"done"`
	// about; of a statement that does not tell how far it is, what it has taken so far
	ReplaySeconds float64 `json:"replay_seconds"`
}

// FlowView is what the cluster setting lag_objective makes of commits now.
type FlowView struct {
	ObjectiveSeconds float64 `json:"objective_seconds"`
	DelaySeconds     float64 `json:"delay_seconds"`   // that is added to a commit
	Node             string  `json:"node"`            // the node that causes it; empty: no single node
	BacklogSeconds   float64 `json:"backlog_seconds"` // about how long it needs for what it has still to apply
}

// PauseRequest switches automatic failover off.
type PauseRequest struct {
	For time.Duration `json:"for_ns,omitempty"` // 0: until Resume
}

// ResumeRequest switches it on again.
type ResumeRequest struct{}

// PauseResult is how it is now, and was before.
type PauseResult struct {
	Pause  *PauseView `json:"pause"`
	Before *PauseView `json:"before"`
}

// WhyNotView is what GET /why-not answers.
type WhyNotView struct {
	Node    string      `json:"node"`
	Leads   bool        `json:"leads"`    // it takes writes
	CanLead bool        `json:"can_lead"` // nothing bars it
	Leader  string      `json:"leader"`   // empty: none takes writes
	Term    uint64      `json:"term"`
	SeenBy  string      `json:"seen_by"` // the node that answers: the leader, if it can be reached
	Reasons []ha.Reason `json:"reasons"`
	Zone    *ZoneView   `json:"zone,omitempty"` // the leader's, if it has one: what its loss would mean
}

// ConfigView is what GET /config answers: the cluster settings that an operator may change.
type ConfigView struct {
	Cluster  string           `json:"cluster"`
	Version  uint64           `json:"version"` // grows with every change of any cluster setting
	Settings []config.Setting `json:"settings"`
}

// ConfigChange changes some of them, all or none.
type ConfigChange struct {
	Version uint64            `json:"version,omitempty"` // that the change was made from; 0: whatever it is
	Set     map[string]string `json:"set"`               // key to value
}

// MemberView is one node as the cluster sees it. A node that does not answer has state "down" and what the others know
// of it.
type MemberView struct {
	Name   string `json:"name"`
	Role   string `json:"role"`
	State  string `json:"state"`
	Reason string `json:"reason,omitempty"` // why it is in that state, one sentence
	// ReasonCode is why it cannot serve, for programs: a code of `trireme why-not`, or NeverStarted; empty: nothing is
	// known against it.
	ReasonCode ha.Code     `json:"reason_code,omitempty"`
	Raft       RaftView    `json:"raft"`
	MySQL      *MySQLView  `json:"mysql"`           // null for a logger
	Seed       *SeedView   `json:"seed,omitempty"`  // while its data is being copied from another node
	Delay      *DelayView  `json:"delay,omitempty"` // of a delayed learner
	Router     RouterView  `json:"router"`
	Daemon     DaemonView  `json:"daemon"`
	VIPs       []VIPView   `json:"vips,omitempty"`  // all that its settings name
	Heavy      []HeavyView `json:"heavy,omitempty"` // of the leader
	// ApplyError is what its applier has stopped at; null: nothing.
	ApplyError *ApplyErrorView `json:"apply_error,omitempty"`
	// Links are those to the other nodes, as this one measures them.
	Links    []LinkView `json:"links,omitempty"`
	Warnings []string   `json:"warnings,omitempty"` // what is not as it should be although it works, a sentence each
	// AgeSeconds is how old all this is: since the node has told it; absent: it is the node that answers, or never told
	// anything.
	AgeSeconds *float64 `json:"age_seconds,omitempty"`
	// DiskFull is a folder of the node whose disk is full, or nearly; absent: none is.
	DiskFull string `json:"disk_full,omitempty"`
}

// FullDisk says whose disk is full, and which; empty: none is, as far as is known.
func (m MemberView) FullDisk() string {
	if m.DiskFull == "" || !m.Answers() {
		return ""
	}
	return fmt.Sprintf("%s: the disk of %s is full, or nearly: make room", m.Name, m.DiskFull)
}

// Answers reports whether the node is heard of. What is told of one that does not is what it said last.
func (m MemberView) Answers() bool { return m.State != StateDown && m.State != StateUnknown }

// ApplyErrorView is an entry of the log that a node's mysqld could not apply, and what becomes of it.
type ApplyErrorView struct {
	Number    int    `json:"errno"` // mysqld's
	Error     string `json:"error"`
	Resources bool   `json:"resources"` // it says nothing of the data: a full disk, a lock, memory
	// a session on this node has ended the XA transaction, or mysqld has left this one out: the node's data is no good
	Diverged  bool         `json:"diverged,omitempty"`
	Trx       string       `json:"-"`                   // the transaction as mysqld names it; empty: it does not
	GTID      string       `json:"gtid,omitempty"`      // empty: it could not be found in the log
	Index     uint64       `json:"index,omitempty"`     // of the entry
	Node      string       `json:"node,omitempty"`      // that wrote it, as the leader
	Entry     string       `json:"entry,omitempty"`     // what it does, in words
	Statement string       `json:"statement,omitempty"` // of DDL, its beginning
	Changes   []ChangeView `json:"changes,omitempty"`
	XA        bool         `json:"xa,omitempty"` // it prepares or ends an XA transaction
	Since     time.Time    `json:"since"`
	Next      string       `json:"next"` // what becomes of it
}

// VoidRequest decides about the entry in ClusterView.Blocked: it is void, or is applied tolerantly.
type VoidRequest struct {
	GTID    string   `json:"gtid,omitempty"`    // of that entry, typed back; empty: only report
	Without []string `json:"without,omitempty"` // nodes that do not answer, and whose data is thrown away if they have it
	By      string   `json:"by,omitempty"`
}

// VoidReport says what would be lost or may be, or is.
type VoidReport struct {
	Entry BlockedView `json:"entry"`
	Loss  string      `json:"loss"`
	// Problem is why it must not be done; ProblemKind and Advice are the error's that it would be.
	Problem     string `json:"problem,omitempty"`
	ProblemKind Kind   `json:"problem_kind,omitempty"`
	Advice      string `json:"advice,omitempty"`
	Done        bool   `json:"done"` // it is decided
}

// ChangeView is what a transaction does to one table.
type ChangeView struct {
	Table     string `json:"table"`
	Operation string `json:"operation"` // insert, update, delete
	Events    int    `json:"events"`    // row events
}

// VIPView is a virtual IP address on one node.
type VIPView struct {
	Address   string `json:"address"`
	Access    string `json:"access"` // read-write, read-only
	Held      bool   `json:"held"`
	Interface string `json:"interface,omitempty"`
	MAC       string `json:"mac,omitempty"`     // of the interface
	Problem   string `json:"problem,omitempty"` // why it should be held and is not
}

// LinkView is the way to another node and back: of the pings of the last two minutes.
type LinkView struct {
	To    string  `json:"to"`
	RTTMS float64 `json:"rtt_ms"` // median; 0 without pings
	P99MS float64 `json:"p99_ms"`
	// Address and Error say why it cannot be reached; absent: it can.
	Address string `json:"address,omitempty"`
	Error   string `json:"error,omitempty"`
}

// Unreached names the members that report that they cannot reach a node, and at which address; empty: none does.
func Unreached(name string, members []MemberView) string {
	var out []string
	for _, m := range members {
		if !m.Answers() || m.Name == name {
			continue
		}
		for _, l := range m.Links {
			if l.To == name && l.Error != "" {
				out = append(out, fmt.Sprintf("%s cannot reach it at %s: %s", m.Name, l.Address, l.Error))
			}
		}
	}
	return strings.Join(out, "; ")
}

// RaftView is a node's place in the consensus.
type RaftView struct {
	ID      uint64 `json:"id"`
	State   string `json:"state"` // leader, follower, candidate, pre-candidate
	Term    uint64 `json:"term"`
	Voter   bool   `json:"voter"`
	Weight  int    `json:"weight"`
	Zone    string `json:"zone,omitempty"`
	MustAck bool   `json:"must_ack,omitempty"`
	Match   uint64 `json:"match"`   // highest index known durable in its log
	First   uint64 `json:"first"`   // first index of its log: what lies below was purged
	Last    uint64 `json:"last"`    // last index of its log
	Commit  uint64 `json:"commit"`  // its commit index
	Applied uint64 `json:"applied"` // highest index executed by its mysqld; a logger's is its commit index
	Durable uint64 `json:"durable"` // durable index (S8)

	LogBytes  int64  `json:"log_bytes"`            // that its log's entries take on disk
	LogPinned string `json:"log_pinned,omitempty"` // its log is larger than raft.log_max, and who needs it
}

// MySQLView is a node's mysqld.
type MySQLView struct {
	Host string `json:"host"`
	Port int    `json:"port"`
	PID  int    `json:"pid"` // 0 while it is not running
	// Epoch is INCARNATION, or INCARNATION/TERM while it takes writes: two that are equal are one life of mysqld, in
	// one leadership.
	Epoch        string `json:"epoch,omitempty"`
	Version      string `json:"version"`
	ReadOnly     bool   `json:"read_only"`
	GTIDExecuted string `json:"gtid_executed"`
	// null if not known; for a delayed learner, relative to what it should have applied by now
	LagSeconds *float64 `json:"lag_seconds"`
	LagBytes   *uint64  `json:"lag_bytes"` // committed and not yet executed; null when not known
	// CatchUpSeconds is about how long it needs for what it lacks, if nothing is added, as fast as it applied last;
	// absent when not known.
	CatchUpSeconds *float64 `json:"catch_up_seconds,omitempty"`
	// Proof is how the server is known; absent: it does not run, or its daemon is older and does not say.
	Proof *MySQLProof `json:"proof,omitempty"`
}

// MySQLProof is by what a node's mysqld is known to those who connect to it.
type MySQLProof struct {
	// SHA-256 of the one that it shows, and of one that it may show soon; empty: it speaks no TLS
	Certificates []string `json:"certificates"`
	// SHA-256 of the key by which passwords are sealed without TLS; empty: it has none
	Key     string `json:"key,omitempty"`
	Cluster bool   `json:"cluster,omitempty"` // the certificate is of the cluster's CA
}

// SeedView is how far the copy of another node's data has come.
type SeedView struct {
	From       string    `json:"from"`  // the donor's name
	Stage      string    `json:"stage"` // of CLONE: file copy, page copy, redo copy, …; empty at the beginning
	DoneBytes  uint64    `json:"done_bytes"`
	TotalBytes uint64    `json:"total_bytes"` // as the donor estimates it; 0: not known yet
	Since      time.Time `json:"since"`
	// BytesPerSecond is the mean since the copy began, by the clock of the node that copies; 0: not known yet.
	BytesPerSecond uint64 `json:"bytes_per_second,omitempty"`
}

// RouterView is where a node's router listens.
type RouterView struct {
	RWPort     int `json:"rw_port"`
	ROPort     int `json:"ro_port"`
	SplitPort  int `json:"split_port,omitempty"`  // 0: not known, or none
	StreamPort int `json:"stream_port,omitempty"` // likewise
	// of clients, joined to a server now; those of the splitting port may count twice
	Connections int `json:"connections"`
	// TiedSessions are sessions on the read-write and the splitting port that a planned switchover ends: what ties them
	// to the leader, and how many each.
	TiedSessions map[string]int `json:"tied_sessions,omitempty"`
	// FollowedSessions are the others on those two ports: they survive a planned switchover.
	FollowedSessions int `json:"followed_sessions,omitempty"`
}

// TiedSessions is the sum of those of several routers; nil: no tied sessions.
func TiedSessions(routers ...RouterView) map[string]int {
	sum := map[string]int{}
	for _, r := range routers {
		for why, n := range r.TiedSessions {
			sum[why] += n
		}
	}
	if len(sum) == 0 {
		return nil
	}
	return sum
}

// TiedSessions is the sum of those of the nodes that answer.
func (v ClusterView) TiedSessions() map[string]int {
	var routers []RouterView
	for _, m := range v.Members {
		if m.Answers() {
			routers = append(routers, m.Router)
		}
	}
	return TiedSessions(routers...)
}

// TiedText counts tied sessions and says what ties them, the most frequent first: 3, "temporary tables (2), user locks
// (1)".
func TiedText(tied map[string]int) (sessions int, why string) {
	reasons := slices.SortedFunc(maps.Keys(tied), func(a, b string) int {
		return cmp.Or(cmp.Compare(tied[b], tied[a]), cmp.Compare(a, b))
	})
	parts := make([]string, len(reasons))
	for i, r := range reasons {
		sessions += tied[r]
		parts[i] = fmt.Sprintf("%s (%d)", r, tied[r])
	}
	return sessions, strings.Join(parts, ", ")
}

// DaemonView is a node's daemon. API and Peer are host:port as others reach it.
type DaemonView struct {
	PID     int    `json:"pid"`
	Version string `json:"version"`
	API     string `json:"api"`
	Peer    string `json:"peer"`
}

// Health is what the health checks are made of. It is asked for on every check: the backend answers from memory.
type Health struct {
	Name       string          `json:"name"`
	Role       string          `json:"role"`
	State      string          `json:"state"`
	Reason     string          `json:"reason,omitempty"`
	Leader     string          `json:"leader"` // empty: none known
	Term       uint64          `json:"term"`
	Writable   bool            `json:"writable"` // leader, writes open, lease held now
	Readable   bool            `json:"readable"` // mysqld answers and its data is not in doubt
	MySQLAlive bool            `json:"mysql_alive"`
	Delayed    string          `json:"delayed,omitempty"` // of a delayed learner: "delayed by 1h as configured"
	LagKnown   bool            `json:"-"`
	Lag        time.Duration   `json:"-"`
	LagBytes   uint64          `json:"-"`
	ApplyError *ApplyErrorView `json:"-"` // what Reason may quote of it only those who have logged in see
	// RulesSuspended are the commit rules that OKs of this leader do not wait for.
	RulesSuspended []string `json:"commit_rules_suspended,omitempty"`
}

// SwitchoverRequest asks for a planned change of leader.
type SwitchoverRequest struct {
	To     string `json:"to,omitempty"` // empty: the best candidate
	DryRun bool   `json:"dry_run,omitempty"`
	IfTerm uint64 `json:"if_term,omitempty"` // refused unless this is the term still; 0: any
	// OpenTrxWait is how long transactions that are open may go on before they are rolled back; 0: not at all. Absent:
	// DefaultTrxWait.
	OpenTrxWait *time.Duration `json:"open_trx_wait_ns,omitempty"`
}

// Limits of SwitchoverRequest.OpenTrxWait.
const (
	DefaultTrxWait = 2 * time.Second
	MaxTrxWait     = time.Minute
)

// OpenTransaction is a transaction of an application on the leader.
type OpenTransaction struct {
	User      string `json:"user"`
	Host      string `json:"host"`
	AgeS      int64  `json:"age_s"`
	Rows      uint64 `json:"rows"`                // that it has changed
	Statement string `json:"statement,omitempty"` // running or last one, shortened
}

// SwitchoverResult is what was done, or with DryRun what would be.
type SwitchoverResult struct {
	From   string `json:"from"`
	To     string `json:"to"`
	Term   uint64 `json:"term"` // of the new leader; with DryRun of the present one
	DryRun bool   `json:"dry_run"`
	// WriteGapMS is from the closing of writes on the old leader to writes open on the new one; with DryRun what is
	// expected.
	WriteGapMS float64     `json:"write_gap_ms"`
	Candidates []Candidate `json:"candidates"`
	// Problem is why it would not work (with DryRun only; else that is the error).
	Problem     string `json:"problem,omitempty"`
	ProblemKind Kind   `json:"problem_kind,omitempty"` // of the error that it would be
	// OpenTransactions are those that were rolled back, the oldest MaxOpenTrx of them; with DryRun those that are open
	// now.
	OpenTransactions []OpenTransaction `json:"open_transactions"`
	OpenCount        int               `json:"open_count"`      // of all of them
	ConnectionsCut   int               `json:"connections_cut"` // to the old leader's mysqld, those of routers included
	// SessionsMoved are sessions of clients that the nodes' routers moved to the new leader, as those last told. A router
	// alone does not tell.
	SessionsMoved int `json:"sessions_moved,omitempty"`
	// TiedSessions are, with DryRun, those that would end; see RouterView.
	TiedSessions map[string]int `json:"tied_sessions,omitempty"`
}

// Text says in a sentence what was done.
func (r SwitchoverResult) Text() string {
	return fmt.Sprintf("%s leads now, in term %d (before: %s); writes were held for %.0f ms", r.To, r.Term, r.From, r.WriteGapMS)
}

// LeaveRequest ends the cluster: its servers become plain ones.
type LeaveRequest struct {
	DryRun bool   `json:"dry_run,omitempty"`
	IfTerm uint64 `json:"if_term,omitempty"` // as of SwitchoverRequest
	// OpenTrxWait as of SwitchoverRequest.
	OpenTrxWait *time.Duration `json:"open_trx_wait_ns,omitempty"`
}

// LeaveResult is what the cluster has become, or with DryRun what it would.
type LeaveResult struct {
	DryRun   bool          `json:"dry_run"`
	Cluster  string        `json:"cluster"`
	Term     uint64        `json:"term"`
	Source   PlainServer   `json:"source"`
	Replicas []PlainServer `json:"replicas"`
	Loggers  []string      `json:"loggers"`           // their daemons end
	Account  string        `json:"account,omitempty"` // of the replicas
	// Problem is why it would not work (with DryRun only; else that is the error).
	Problem          string            `json:"problem,omitempty"`
	ProblemKind      Kind              `json:"problem_kind,omitempty"` // of the error that it would be
	OpenTransactions []OpenTransaction `json:"open_transactions"`      // as of SwitchoverResult
	OpenCount        int               `json:"open_count"`
}

// PlainServer is a server that was a node.
type PlainServer struct {
	Name string `json:"name"`
	Addr string `json:"addr"` // host:port
}

// MaxOpenTrx is how many transactions are listed.
const MaxOpenTrx = 20

// Candidate is a node weighed for a switchover.
type Candidate struct {
	Name     string `json:"name"`
	Eligible bool   `json:"eligible"`
	Reason   string `json:"reason"` // why (not)
}

// FailoverRequest asks for a change of leader without the present leader's help.
type FailoverRequest struct {
	To     string `json:"to,omitempty"`      // empty: the best node that can lead
	Force  bool   `json:"force,omitempty"`   // also when the leader is well
	DryRun bool   `json:"dry_run,omitempty"` // only say to whom
	IfTerm uint64 `json:"if_term,omitempty"` // refused unless this is the term still; 0: any
}

// FailoverResult is what was done.
type FailoverResult struct {
	From   string  `json:"from"` // the last node that took writes; empty: none
	To     string  `json:"to"`
	Term   uint64  `json:"term"` // of the new leader; with DryRun the present one
	DryRun bool    `json:"dry_run"`
	TookMS float64 `json:"took_ms"` // until the new leader took writes
}

// JoinTokenRequest asks for an invitation.
type JoinTokenRequest struct {
	Name string        `json:"name,omitempty"` // the node it is for; empty: any new name
	Role string        `json:"role"`           // config.RoleVoter, RoleLogger or RoleLearner
	TTL  time.Duration `json:"ttl_ns,omitempty"`
	// IfTerm: refused unless this is the term still; 0: any.
	IfTerm uint64 `json:"if_term,omitempty"`
}

// JoinTokenResult is the invitation. The token is shown once and kept nowhere.
type JoinTokenResult struct {
	Token   string    `json:"token"`
	Name    string    `json:"name,omitempty"`
	Role    string    `json:"role"`
	Expires time.Time `json:"expires"`
}

// JoinRequest is a new node asking to become a member.
type JoinRequest struct {
	Token  string        `json:"token"`
	CSR    []byte        `json:"csr"`    // PEM certificate request
	Member config.Member `json:"member"` // ID is ignored: the leader gives one
	// Executed is gtid_executed of the data that the node brings (`trireme adopt`); nil: it brings none.
	Executed *string `json:"executed,omitempty"`
	// Proof is a word that the joining node's ports say to who connects, until it has been answered; empty: they are
	// not asked.
	Proof string `json:"proof,omitempty"`
}

// JoinResult is all that a new node needs to start.
type JoinResult struct {
	ID      uint64          `json:"id"`      // raft id
	Cert    []byte          `json:"cert"`    // PEM, for the CSR
	CA      []byte          `json:"ca"`      // PEM
	CAKey   []byte          `json:"ca_key"`  // PEM; each node can sign the next one's certificate
	Cluster *config.Cluster `json:"cluster"` // settings with the new member in them
	Secrets config.Secrets  `json:"secrets"`
}

// MemberRequest names the member that a change of the membership is about.
type MemberRequest struct {
	Name   string `json:"name"`
	IfTerm uint64 `json:"if_term,omitempty"` // refused unless this is the term still; 0: any
	// OpenTrxWait is for the leader, which hands leadership over first: see SwitchoverRequest.
	OpenTrxWait *time.Duration `json:"open_trx_wait_ns,omitempty"`
}

// PromoteRequest gives learners a vote, all at the same moment, in which others may lose theirs.
type PromoteRequest struct {
	Names  []string `json:"names"`
	Demote []string `json:"demote,omitempty"`
	Remove []string `json:"remove,omitempty"`
	IfTerm uint64   `json:"if_term,omitempty"` // refused unless this is the term still; 0: any
}

// MemberResult says what became of it, and what the cluster can bear now.
type MemberResult struct {
	Name     string `json:"name"`
	Message  string `json:"message"`
	Version  uint64 `json:"version"` // of the cluster settings with the change in them
	Voters   int    `json:"voters"`
	Survives int    `json:"survives"` // how many of the voters may fail
	// Switchover is how the member handed leadership over first, if it led.
	Switchover *SwitchoverResult `json:"switchover,omitempty"`
}

// ForceRequest asks for a force-quorum, or without Confirm for the report only.
type ForceRequest struct {
	Voters  []string `json:"voters,omitempty"`       // of the new generation; none: the voters that answer
	Confirm uint64   `json:"confirm_term,omitempty"` // ForceReport.Term, as the operator has typed it
	// ForceReport.Seen of the report that the operator has read; empty: not checked
	Seen string `json:"seen,omitempty"`
	By   string `json:"by,omitempty"` // who asks, for the records
}

// ForceReport says what a force-quorum would do, or has done.
type ForceReport struct {
	Cluster    string `json:"cluster"`
	Generation uint64 `json:"generation"` // now
	Term       uint64 `json:"term"`       // to be confirmed: the highest that a survivor knows
	Problem    string `json:"problem,omitempty"`
	// ProblemKind is the kind of the error that it would be.
	ProblemKind Kind   `json:"problem_kind,omitempty"`
	Advice      string `json:"advice,omitempty"` // what to do about Problem
	Source      string `json:"source"`           // the survivor whose log counts, up to its end
	SourceAPI   string `json:"source_api"`
	LastTerm    uint64 `json:"last_term"` // of that log's last entry
	LastIndex   uint64 `json:"last_index"`
	Commit      uint64 `json:"commit"` // what it knew to be committed
	// when the last transaction of that log began, in whole seconds
	LastWrite *time.Time      `json:"last_write,omitempty"`
	GTIDs     string          `json:"gtids"`              // of that log: what is kept
	Certain   bool            `json:"certain"`            // nothing that was acknowledged is lost
	Loss      string          `json:"loss"`               // the same in words
	Voters    []string        `json:"voters"`             // of the new generation
	Learners  []string        `json:"learners,omitempty"` // of the new generation
	Survivors []ForceSurvivor `json:"survivors"`          // those that answer
	GivenUp   []ForceMember   `json:"given_up"`
	Seen      string          `json:"seen"` // names this report

	Done          bool   `json:"done"` // it is decided, and goes on by itself
	NewGeneration uint64 `json:"new_generation,omitempty"`
	NewTerm       uint64 `json:"new_term,omitempty"` // of the entries that begin it
}

// ForceSurvivor is a member that answers.
type ForceSurvivor struct {
	Name      string `json:"name"`
	Role      string `json:"role"`
	Voter     bool   `json:"voter"` // until now
	Term      uint64 `json:"term"`
	LastTerm  uint64 `json:"last_term"`
	LastIndex uint64 `json:"last_index"`
	Commit    uint64 `json:"commit"`
	Drops     string `json:"drops,omitempty"` // GTIDs of its log that Source has not and that were never committed
}

// ForceMember is one that does not.
type ForceMember struct {
	Name    string `json:"name"`
	ID      uint64 `json:"id"`
	Role    string `json:"role"`
	Pending bool   `json:"pending,omitempty"` // it never took part
}

// Kinds of events of which only those who have logged in see all.
const (
	EventApplyError = "apply-error" // a follower could not apply an entry and is copied from another node
	EventDivergent  = "divergent"   // a node's data is not what the log says
	EventToken      = "token"       // a token was made or removed
)

// Event is one line of the cluster's history.
type Event struct {
	Time    time.Time `json:"time"`
	Kind    string    `json:"kind"` // election, failover, switchover, fence, rejoin, join, …
	Node    string    `json:"node"`
	Term    uint64    `json:"term"`
	Index   uint64    `json:"index"`
	Message string    `json:"message"`
	GapMS   float64   `json:"gap_ms,omitempty"` // time without a writable leader
	GTIDs   string    `json:"gtids,omitempty"`  // such as those rolled back

	// Of an election, failover or switchover, which Node = To records:
	From            string      `json:"from,omitempty"` // the last node that opened writes; empty: none
	To              string      `json:"to,omitempty"`
	FromTerm        uint64      `json:"from_term,omitempty"`
	FromIncarnation uint64      `json:"from_incarnation,omitempty"` // of From's mysqld
	Cause           string      `json:"cause,omitempty"`
	Phases          *Phases     `json:"phases,omitempty"`
	RolledBack      *RolledBack `json:"rolled_back,omitempty"` // by From

	Member      string `json:"member,omitempty"`      // of down and up: whom the leader lost sight of
	Incarnation uint64 `json:"incarnation,omitempty"` // of the mysqld that leads, or of a rejoin
	Drained     bool   `json:"drained,omitempty"`     // of a fence: nothing was left to roll back
	By          string `json:"by,omitempty"`          // of an order: who gave it, as in the audit log
}

// Phases divides the time without writes of a change of leaders, in ms. With an unknown past detect, close and vote are
// 0 or short.
type Phases struct {
	DetectMS float64 `json:"detect_ms"` // from the last sign of life of the leader before until its loss is known
	CloseMS  float64 `json:"close_ms"`  // the leader before drains or fences its mysqld and hands over
	VoteMS   float64 `json:"vote_ms"`   // until the new leader is elected
	ApplyMS  float64 `json:"apply_ms"`  // barrier committed, everything below it applied
	OpenMS   float64 `json:"open_ms"`   // settings verified, lease held, writes open
	RouteMS  float64 `json:"route_ms"`  // until the routers of all live nodes have followed, as the leader knows it
}

// RolledBack is what a leader that was lost had written and Raft did not keep. None of it was acknowledged.
type RolledBack struct {
	Known bool   `json:"known"` // false: it is not back yet
	Count uint64 `json:"count"`
	GTIDs string `json:"gtids,omitempty"`
	More  bool   `json:"more,omitempty"` // there may be more: the event keeps the first of a long list only
}

// Leader is where requests for the leader go.
type Leader struct {
	Name string // empty: no leader now
	API  string // host:port
	Self bool   // this node is the leader
}

// Backend is the node that the API serves. Methods are called from many goroutines, return when ctx ends, and report
// failures that an operator should understand as *Error; any other error is shown as an internal one.
type Backend interface {
	RouterQuestions
	// Local is the health of this node, from memory: no I/O, no waiting.
	Local() Health
	// Leader is the present leader as this node knows it.
	Leader() Leader
	// Self is this node's part of a ClusterView.
	Self(ctx context.Context) MemberView
	// Load is what this node has counted, from memory: no I/O, no waiting.
	Load() LoadView
	// Route is where this node's router leads, and a channel that is closed when that has changed.
	Route() (RouteView, <-chan struct{})
	// Serves fails unless this node's mysqld takes writes in an epoch of RouteTarget, and the lease is held, after the
	// call. Every commit that mysqld had answered in it before lies at or below index.
	Serves(ctx context.Context, epoch string) (index uint64, err error)
	// View is the whole cluster, as far as this node has heard of it: it asks no other node.
	View(ctx context.Context) ClusterView
	// Period is what this node has recorded between two times.
	Period(ctx context.Context, from, to time.Time) (PeriodView, error)
	// History is the latest events, oldest first.
	History(ctx context.Context) ([]Event, error)
	// WhyNot says why a node does not lead, as this node sees it.
	WhyNot(ctx context.Context, node string) (WhyNotView, error)
	// ForceQuorum makes a cluster out of the survivors of a lost majority, or reports what that would mean. If at is
	// not this node, nothing was done, and the caller must ask at.
	ForceQuorum(ctx context.Context, req ForceRequest) (rep ForceReport, at Leader, err error)
	// Settings are those of the cluster, from memory. They are not to be changed.
	Settings() *config.Cluster
	// Metrics is the node's registry.
	Metrics() prometheus.Gatherer
}
