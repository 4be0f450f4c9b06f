package check

import (
	"context"
	"errors"
	"time"

	"trireme/internal/api"
)

// Options of a run.
type Options struct {
	Cluster  Cluster
	User     string // the same on all nodes; needs SELECT, and UPDATE, DELETE or LOCK TABLES, on the tables to check
	Password string
	Only     []string      // "schema" or "schema.table"; none: everything
	Share    float64       // of the time that queries of ours run on each node at most, in (0, 1]
	MaxLag   time.Duration // the check waits while a follower lags more
	MaxBusy  int           // and while more threads than this run on the leader
	State    string        // file to go on from after an interruption; empty: none
	Say      func(format string, args ...any)
	Progress func(Progress)
}

// Cluster is what is asked of the daemons. Ask makes one.
type Cluster interface {
	Cluster(ctx context.Context) (api.ClusterView, error)
	Reinit(ctx context.Context, req api.MemberRequest) (api.MemberResult, error)
}

// Ask is a Cluster that asks a node.
type Ask struct{ *api.Client }

// Reinit has a member copy another node's data.
func (a Ask) Reinit(ctx context.Context, req api.MemberRequest) (api.MemberResult, error) {
	return api.Reinit.Ask(ctx, a.Client, req)
}

// Progress is how far a run is.
type Progress struct {
	Table      string
	Rows       uint64 // compared
	TotalRows  uint64 // as the leader's dictionary estimates them
	RowsPerSec float64
	Left       time.Duration // 0: not known
}

// Result of a run.
type Result struct {
	Cluster string    `json:"cluster"`
	Leader  string    `json:"leader"`
	Nodes   []string  `json:"nodes"` // compared
	Began   time.Time `json:"began"`
	Ended   time.Time `json:"ended"`
	Tables  int       `json:"tables"`
	Rows    uint64    `json:"rows"`
	Ranges  int       `json:"ranges"`
	Locked  int       `json:"locked_ranges"` // compared under a lock, because they differed at first
	// of the leader when the run began: everything up to here was compared, or what replaced it
	Position string `json:"gtid_executed"`
	// Differences are what the nodes do not agree about.
	Differences []Difference `json:"differences"`
	NotChecked  []NotChecked `json:"not_checked"`
	// LeftOut are the delayed learners: what they lack, they lack on purpose.
	LeftOut []string `json:"left_out,omitempty"`
}

// OK: everything was compared but what is left out on purpose, and all nodes agree.
func (r Result) OK() bool { return len(r.Differences) == 0 && len(r.NotChecked) == 0 }

// Kinds of difference.
const (
	KindRows       = "rows"
	KindDefinition = "definition"
	KindMissing    = "missing-table"
	KindExtra      = "extra-table"
)

// Difference is one range of a table, or a table, that nodes do not agree about.
type Difference struct {
	Table   string   `json:"table"` // schema.table
	Kind    string   `json:"kind"`
	Key     string   `json:"key,omitempty"`  // columns of the key
	From    string   `json:"from,omitempty"` // rows after this key; empty: from the first
	To      string   `json:"to,omitempty"`   // up to and with this one; empty: to the last
	Rows    []Row    `json:"rows,omitempty"` // the first maxRows of them
	Count   int      `json:"row_count,omitempty"`
	Wrong   []string `json:"wrong"`                   // nodes that differ from the majority; empty: there is no majority
	Leader  bool     `json:"leader_is_wrong"`         // the leader is one of them
	At      string   `json:"gtid_executed,omitempty"` // position of the comparison on the leader
	Details string   `json:"details,omitempty"`
}

// Row that nodes do not agree about.
type Row struct {
	Key     string            `json:"key"`
	Hash    map[string]string `json:"hash"` // of the row, by node; "absent" where it is missing
	Columns []string          `json:"columns,omitempty"`
}

// Absent stands for the hash of a row that a node does not have.
const Absent = "absent"

// NotChecked is what could not be compared.
type NotChecked struct {
	What string `json:"what"` // a table, or a node
	Why  string `json:"why"`
}

const (
	maxRows        = 50   // rows named for a difference
	maxDifferences = 1000 // of a run; more would be no help
	smallRange     = 500  // rows that are looked at under one lock
	keylessRows    = 5e6  // tables without a key are hashed in one query up to here
)

// Limits of waits, each its own (S13).
const (
	loginLimit   = 10 * time.Second
	quickLimit   = 10 * time.Second
	readLimit    = 60 * time.Second // reads the dictionary
	chunkLimit   = 60 * time.Second // hashes a range
	wholeLimit   = 10 * time.Minute // hashes a table without a key
	lockLimit    = 3 * time.Second  // until the leader has all locks of a small range
	holdLimit    = 5 * time.Second  // until the followers have answered while they are held
	followLimit  = 20 * time.Second // until a follower has executed what the leader had
	settleLimit  = 60 * time.Second // until followers have caught up when the sessions are opened
	clusterLimit = 2 * time.Minute  // without a leader, or without getting on
	targetTime   = 250 * time.Millisecond
)

// Errors.
var (
	ErrNoLeader  = errors.New("no node takes writes; a check needs a leader to compare with")
	ErrAlone     = errors.New("there is no second node with data to compare with")
	ErrNoAccount = errors.New("the account cannot check")
	ErrNoTable   = errors.New("no node shows a table")
	errBusy      = errors.New("rows are locked by a transaction that does not end")
	errLagging   = errors.New("a follower has not executed what the leader had in time")
	errMoved     = errors.New("another node leads now")
	errUnstable  = errors.New("it changed all the time")
)

// Unreachable reports whether a run could not begin, or go on, because the cluster cannot be compared now: no leader,
// no second node.
func Unreachable(err error) bool {
	return errors.Is(err, ErrNoLeader) || errors.Is(err, ErrAlone) || errors.Is(err, errMoved)
}
