package api

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"trireme/internal/core/ha"
)

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

// Answers reports whether the node is heard of. What is told of one that does not is what it said last.
func (m MemberView) Answers() bool { return m.State != StateDown && m.State != StateUnknown }

// Lag is how far the node's mysqld lags; false: it is not known.
func (m MemberView) Lag() (seconds float64, bytes uint64, known bool) {
	my := m.MySQL
	if my == nil || my.LagSeconds == nil || !m.Answers() {
		return 0, 0, false
	}
	if my.LagBytes != nil {
		bytes = *my.LagBytes
	}
	return *my.LagSeconds, bytes, true
}

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

// FollowedSessions is the sum of those of several routers.
func FollowedSessions(routers ...RouterView) (sum int) {
	for _, r := range routers {
		sum += r.FollowedSessions
	}
	return sum
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
