package api

import (
	"time"
)

// Kinds of events of which only those who have logged in see all.
const (
	EventApplyError = "apply-error" // a follower could not apply an entry and is copied from another node
	EventDivergent  = "divergent"   // a node's data is not what the log says
	EventToken      = "token"       // a token was made or removed
	EventBackup     = "backup"      // `trireme backup` has made a copy
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

	Backup *BackupCopy `json:"backup,omitempty"` // of backup: what was made
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
