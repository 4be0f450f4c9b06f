package gossip

import (
	"net/netip"
	"strconv"
	"strings"
	"time"

	"trireme/internal/api"
	"trireme/internal/core/ha"
)

// Status is what each daemon tells all others, at every change that they wait for and a few times a second.
type Status struct {
	Member   api.MemberView `json:"member"`
	Leader   uint64         `json:"leader"`    // raft id, 0 when it knows none
	OpenTerm uint64         `json:"open_term"` // its mysqld takes writes in this term; 0: it does not
	Handover bool           `json:"handover"`  // a planned switchover is under way: hold, do not cut
	Ready    bool           `json:"ready"`     // its mysqld is judged and fed
	Unready  ha.Reason      `json:"unready"`   // not Ready: why
	// entries per second that its mysqld applied when it last had a backlog; 0: not known
	Rate float64 `json:"rate"`
	// about how long its mysqld needs for what is heavy in its backlog
	Heavy time.Duration `json:"heavy_ns,omitempty"`
	// bytes per second of large transactions that its mysqld applies; 0: not known
	LargeRate float64 `json:"large_rate,omitempty"`
	// how long its backlog will take, when the leader should mind it (ha.Laggard)
	Lagging time.Duration `json:"lagging_ns,omitempty"`
	Flow    *api.FlowView `json:"flow,omitempty"` // of the leader
	Clock   time.Time     `json:"clock,omitzero"` // its time of day as this is sent
	Epoch   string        `json:"epoch"`          // of its mysqld, for routers
	Known
	Routed uint64 `json:"routed"` // term of the leader that its router leads to; 0: none
	// Quiet is the term of the leader whose sessions its router holds, with nothing under way; 0: none.
	Quiet    uint64 `json:"quiet,omitempty"`
	Follows  bool   `json:"follows,omitempty"` // its router follows sessions that write
	History  uint64 `json:"history"`           // digest of the history that it knows; 0: none
	Full     bool   `json:"full"`              // a disk is nearly full: it should not lead
	Settings uint64 `json:"settings"`          // version of the cluster settings it has
	// Rules are the commit rules as they are on the leader; nil elsewhere and without any.
	Rules   *api.CommitRulesView `json:"rules,omitempty"`
	Timeout time.Duration        `json:"election_timeout_ns"` // its raft.election_timeout_ms
	// lowest index that its recovery may need (S8); 0: not known
	KeepFrom uint64 `json:"keep_from"`
	// Reads says who is to hold which read-only virtual address, as the leader gives them: address to raft id; nil:
	// it gives none.
	Reads map[netip.Addr]uint64 `json:"reads,omitempty"`
	CA    CAStatus              `json:"ca,omitzero"`
	// Bound says why its raft log should take no more; empty: it has room.
	Bound string `json:"bound,omitempty"`
}

// Known is what a node has seen or heard of, over its restarts or those of others.
type Known struct {
	Left Leave    `json:"left"`               // when and why it last stopped taking writes
	Seen OpenSeen `json:"open_seen,omitzero"` // when it last knew somebody to take writes
	// Archive is how far the log is archived, the newest that it knows of; nil: it knows of none.
	Archive *api.BackupArchive `json:"archive,omitempty"`
}

// Leave is what a node says when it stops taking writes: in which term, why, and how long ago. Durations travel,
// times do not: clocks differ.
type Leave struct {
	Term    uint64        `json:"term"`
	Planned bool          `json:"planned"` // a switchover
	Cause   string        `json:"cause"`
	By      string        `json:"by,omitempty"` // who ordered it
	Ago     time.Duration `json:"ago_ns"`
}

// OpenSeen is when a node last knew that the leader of a term took writes.
type OpenSeen struct {
	Term uint64    `json:"term"` // 0: never
	At   time.Time `json:"at"`   // by the clock of the node that says so
}

// CAStatus is how far a node is in a change of the CA.
type CAStatus struct {
	Signer string   `json:"signer"` // digest of the CA that has signed its certificate
	Trusts []string `json:"trusts"` // digests
	// Clone is the pki.HashToken of the password of trireme_clone that it has.
	Clone string `json:"clone,omitempty"`
	// MySQL is the digest of the CA that has signed the certificate which its mysqld shows; empty: none of the
	// cluster's has.
	MySQL string `json:"mysql,omitempty"`
}

// Incarnation of the node's mysqld, 0 while it has none.
func (s *Status) Incarnation() uint64 {
	text, _, _ := strings.Cut(s.Epoch, "/")
	i, _ := strconv.ParseUint(text, 10, 64)
	return i
}
