package api

import (
	"context"
	"net/http"
	"net/url"
	"strconv"
	"time"
)

// OutcomeQuery asks what became of one statement (COMMIT, or one that commits by itself) whose connection to a leader
// broke before it was answered.
//
// The caller must know Node, Epoch, Thread and Index exactly. "Not committed" rests on them: Index was a commit index
// *before* the statement was sent, as any node knew it, however old; and the session has not changed its
// pseudo_thread_id or sql_log_bin, which takes SESSION_VARIABLES_ADMIN. "Committed" rests on Sole besides.
type OutcomeQuery struct {
	Node   string // the leader's name
	Epoch  string // of its mysqld, as routers have it: INCARNATION/TERM
	Thread uint32 // id of the connection: CONNECTION_ID(), also in the server's greeting
	Index  uint64
	// After is the GTID of the last transaction of this session that was answered with its GTID (session_track_gtids =
	// OWN_GTID); empty: none.
	After string
	// Sole says that after Index and After this connection can have committed one transaction at most: that of the
	// statement, which is then done. Set it for COMMIT, one DML statement that commits by itself, one DDL or account
	// statement outside a transaction, XA PREPARE, XA COMMIT and XA ROLLBACK.
	//
	// Do not set it for CALL or for several statements in one packet, a part of which may have been committed; nor for
	// a statement that commits the open transaction first and then something of its own (DDL inside a transaction); nor
	// if an answer since Index and After may have hidden a transaction: an error to one of those, or any answer if
	// GTIDs are not tracked. Nothing is hidden from a session whose Index was taken on the leader's own node after its
	// last answer.
	Sole bool
	// Others is the highest number of other transactions that this connection may have committed after Index and After,
	// all of which were answered before.
	Others int
}

// OutcomeResult is what became of it.
type OutcomeResult string

// Results. Committed and NotCommitted are final.
const (
	// Committed: the one transaction of this connection is in the log, and on every leader from now on.
	Committed OutcomeResult = "committed"
	// NotCommitted: nothing of it is in the log, nor will be: another leader's barrier is committed (S6). The statement
	// may be sent again.
	NotCommitted OutcomeResult = "not-committed"
	// OutcomeUnknown: asked too early, or asked a node that lags or is cut off; or the log was purged; or Sole was not
	// set and something was committed.
	OutcomeUnknown OutcomeResult = "unknown"
)

// Outcome is the answer.
type Outcome struct {
	Result OutcomeResult `json:"result"`
	// of the transaction; when unknown, of the last one that the connection has committed
	GTID  string `json:"gtid,omitempty"`
	Index uint64 `json:"index,omitempty"` // of its entry; when not committed, of the barrier that makes it final
	Why   string `json:"why,omitempty"`   // it is not known
}

// Limits of ?wait=.
const (
	defaultWait = viewTimeout
	maxWait     = 10 * time.Second
)

// Outcome asks what became of a statement. The node waits for up to wait for what it needs to know, and says
// OutcomeUnknown then.
func (c *Client) Outcome(ctx context.Context, q OutcomeQuery, wait time.Duration) (Outcome, error) {
	v := url.Values{"node": {q.Node}, "epoch": {q.Epoch}, "thread": {strconv.FormatUint(uint64(q.Thread), 10)},
		"index": {strconv.FormatUint(q.Index, 10)}, "after": {q.After}, "sole": {strconv.FormatBool(q.Sole)},
		"others": {strconv.Itoa(q.Others)}, "wait": {wait.String()}}
	return ask[Outcome](ctx, c, http.MethodGet, "/outcome?"+v.Encode(), nil)
}

func (s *Server) outcome(w http.ResponseWriter, r *http.Request) {
	p := params{v: r.URL.Query()}
	q := OutcomeQuery{Node: p.v.Get("node"), Epoch: p.v.Get("epoch"), Thread: uint32(p.number("thread", 32)),
		Index: p.number("index", 64),
		After: p.v.Get("after"), Sole: p.v.Get("sole") == "true"}
	if p.v.Has("others") {
		q.Others = int(p.number("others", 31))
	}
	answer(s, w, r, &p, func(ctx context.Context) (Outcome, error) { return s.opts.Backend.Outcome(ctx, q) })
}

// params reads the parameters of a question, and keeps the first error.
type params struct {
	v   url.Values
	err error
}

func (p *params) number(name string, bits int) uint64 {
	n, err := strconv.ParseUint(p.v.Get(name), 10, bits)
	if err != nil && p.err == nil {
		p.err = Errorf(KindInvalid, "%s=%s is not a number of %d bits", name, p.v.Get(name), bits)
	}
	return n
}

// wait is how long the answer may take.
func (p *params) wait() time.Duration {
	text := p.v.Get("wait")
	if text == "" {
		return defaultWait
	}
	d, err := time.ParseDuration(text)
	if (err != nil || d < 0 || d > maxWait) && p.err == nil {
		p.err = Errorf(KindInvalid, "wait=%s is not a time of up to %v", text, maxWait)
	}
	return d
}
