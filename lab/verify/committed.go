package verify

import "context"

// Committed is what the cluster's log has committed since a set began, as its change stream tells it: what became of a
// statement without an answer stands there. Large transactions and those of workloads that look up nothing are left
// out.
type Committed struct {
	// Why it is not known whole; then nothing is settled by it.
	Why string `json:"why,omitempty"`
	// Statements as the log has them: DDL and account statements.
	Statements []string `json:"statements"`
	// XA are decisions and preparations in their order, by xid.
	XA map[string][]string `json:"xa"`
	// Rows as they were after a change, by table.
	Rows map[string][]LoggedRow `json:"rows"`
	// End is when the stream was at the end, on the clock of the histories.
	End int64 `json:"end"`
}

// LoggedRow is a row after one change to it.
type LoggedRow struct {
	Trx    int64    `json:"t"` // one number for each transaction
	Values []string `json:"v"`
}

// What Committed.XA says of a transaction.
const (
	XAPrepared   = "prepared"
	XACommitted  = "committed"
	XARolledBack = "rolled back"
)

// known: there is a log, and all of it was read.
func (c *Committed) known() bool { return c != nil && c.Why == "" }

// Follower reads what the cluster commits. Its methods are called from one goroutine.
type Follower interface {
	// Started waits until the start of the reading is known. Only what is written after that can be looked up.
	Started(ctx context.Context) error
	// Ends waits until all that nodes have executed was read, in MySQL's text form, ends the follower, and says what it
	// was. now is the clock of the histories.
	Ends(ctx context.Context, executed string, now func() int64) *Committed
	Stop()
}
