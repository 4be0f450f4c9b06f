// Package advise is `trireme advise`: it reads what servers and daemons count, and says what stops followers from
// applying in parallel and what would make a failover or a switchover take longer. It is a client and changes nothing.
//
// Look reads Facts, and Judge, which is pure, makes Findings of them. Each finding says what it costs and what to do.
// Counters are those since the start of the leader's mysqld; what happens at this moment is looked at some times in a
// row (Options.For).
package advise

import (
	"time"

	"trireme/internal/api"
)

// Severities of a finding.
const (
	Warn = "warn" // it costs something now
	Info = "info" // it would, with other load
)

// Finding is one piece of advice.
type Finding struct {
	Code     string `json:"code"`
	Severity string `json:"severity"`
	Where    string `json:"where"` // a table, a statement, a node
	What     string `json:"what"`
	Cost     string `json:"cost"`
	Do       string `json:"do"`
}

// Codes of findings.
const (
	NoPrimaryKey     = "no-primary-key"
	NoIndex          = "no-index"
	SpatialKey       = "spatial-key"
	ForeignKeys      = "foreign-keys"
	UnsafeCascade    = "unsafe-cascade"
	SessionDependent = "session-dependent"
	HotRow           = "hot-row"
	LockWaits        = "lock-waits"
	LargeStatement   = "large-statement"
	LargeTransaction = "large-transaction"
	LongTransaction  = "long-transaction"
	CacheOnDisk      = "binlog-cache-on-disk"
	OneWorker        = "one-applier-worker"
	Dependent        = "dependent-transactions"
	SettingsDiffer   = "settings-differ"
	SmallMemory      = "follower-with-less-memory"
	Lag              = "lag"
	NoFailover       = "no-failover"
)

// Options of a look.
type Options struct {
	View     api.ClusterView
	User     string // the same on all nodes, with SELECT and PROCESS
	Password string
	For      time.Duration // how long what happens at this moment is looked at
}

// Facts are what was read.
type Facts struct {
	View         api.ClusterView
	Tables       []Table
	Blind        bool // the account has no right to see all triggers
	Statements   []Statement
	Transactions []Transaction
	Status       map[string]uint64 // counters of the leader, by lower-case name
	Nodes        []Node            // with data, the leader first
	Hot          map[Key]int       // in how many samples a session waited for this row
	Samples      int
}

// Table of the leader.
type Table struct {
	Name     string // schema.table
	Rows     uint64 // as the dictionary estimates them
	Primary  bool
	Unique   bool // a unique key without NULL
	Spatial  bool // an index that is SPATIAL
	Indexes  int
	Inserted uint64 // rows, since the server started
	Changed  uint64 // updated and deleted rows, since the server started
	Children []string
	Cascades []string // of Children: those whose rows change with this table's
	Triggers bool     // something runs when its rows change
	// BeforeDelete are the texts of its BEFORE DELETE triggers.
	BeforeDelete []string
	// Expressions are those that a follower computes again.
	Expressions []Expression
}

// Statement is a kind of statement.
type Statement struct {
	Text   string // normalised
	Count  uint64
	Rows   uint64 // changed by all of them
	LockMS float64
	AllMS  float64
}

// Transaction that is open on the leader.
type Transaction struct {
	Thread    uint64
	AgeS      uint64
	Rows      uint64 // that it has changed
	Statement string
}

// Node with data.
type Node struct {
	Name     string
	Settings map[string]string
	Waits    map[string]int // states of applier threads, in how many samples
}

// Key names a row, as performance_schema.data_locks does.
type Key struct{ Table, Index, Row string }
