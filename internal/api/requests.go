package api

import (
	"fmt"
	"time"

	"trireme/internal/base/config"
)

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

// ConfigChange changes some of them, all or none.
type ConfigChange struct {
	Version uint64            `json:"version,omitempty"` // that the change was made from; 0: whatever it is
	Set     map[string]string `json:"set"`               // key to value
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
	return fmt.Sprintf("%s leads now, in term %d (before: %s); writes were held for %.0f ms", r.To, r.Term, r.From,
		r.WriteGapMS)
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
