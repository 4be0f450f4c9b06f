package api

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"trireme/internal/base/config"
	"trireme/internal/core/ha"
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
	// Backup is the newest that is known; absent: no backup is.
	Backup *BackupView `json:"backup,omitempty"`
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
