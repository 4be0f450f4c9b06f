package api

import (
	"context"
	"net/http"
	"net/url"
	"strconv"
	"time"
)

// RouterQuestions are the questions of routers in addition to the view of the cluster. Each waits for the answer until
// ctx ends.
type RouterQuestions interface {
	// Outcome says what became of a statement whose leader was lost.
	Outcome(ctx context.Context, q OutcomeQuery) (Outcome, error)
	// ReadIndex is a point that a read must not be older than to see what was answered before.
	ReadIndex(ctx context.Context, q ReadIndexQuery) (ReadIndexView, error)
	// Applied returns once mysqld has applied something.
	Applied(ctx context.Context, q AppliedQuery) (AppliedView, error)
}

// LiveFor is for how long a router may read the nodes of ReadIndexView.Live at AFTER, counted from before it asked, by
// CLOCK_BOOTTIME. Followers are read at AFTER for as long while there is no leader; and the leader is asked that often
// while there are such reads.
const LiveFor = time.Second

// ReadIndexQuery asks for a point that a read must not be older than.
type ReadIndexQuery struct {
	GTIDs bool // also as a set, for WAIT_FOR_EXECUTED_GTID_SET on any of the mysqlds
	// Live: who counts as live, for reads at AFTER. All that nodes' servers had answered at AFTER lies at or below Index.
	Live bool
}

// ReadIndexView is that point: a mysqld that has applied it shows everything that was answered before the question was
// asked.
type ReadIndexView struct {
	Index uint64 `json:"index"`
	GTIDs string `json:"gtids,omitempty"` // all that is committed up to Index, and perhaps a little more
	// Live are the nodes that count as live, by name: writes at AFTER wait for them, for more than LiveFor from now on.
	Live []string `json:"live,omitempty"`
}

// AppliedQuery is what the asked node's mysqld should have applied: everything up to Index, and GTIDs (a set; empty:
// none).
type AppliedQuery struct {
	Index uint64
	GTIDs string
	// Everywhere: the mysqlds of all data nodes that count as live (ReadIndexView.Live); with GTIDs everything that is
	// committed by now.
	Everywhere bool
}

// AppliedView says up to where it has; everywhere: what was waited for.
type AppliedView struct {
	Index uint64 `json:"index"`
}

// ReadIndex asks for a point that a read must not be older than. KindNoLeader: no majority confirms it.
func (c *Client) ReadIndex(ctx context.Context, q ReadIndexQuery) (ReadIndexView, error) {
	return ask[ReadIndexView](ctx, c, http.MethodGet, "/read-index?gtids="+strconv.FormatBool(q.GTIDs)+"&live="+
		strconv.FormatBool(q.Live), nil)
}

// Applied waits until the node's mysqld has applied what is asked for. KindTimeout: it lags. KindConflict: it is not in
// service.
func (c *Client) Applied(ctx context.Context, q AppliedQuery, wait time.Duration) (AppliedView, error) {
	p := url.Values{"index": {strconv.FormatUint(q.Index, 10)}, "gtids": {q.GTIDs},
		"everywhere": {strconv.FormatBool(q.Everywhere)}, "wait": {wait.String()}}
	return ask[AppliedView](ctx, c, http.MethodGet, "/applied?"+p.Encode(), nil)
}

func (s *Server) readIndex(w http.ResponseWriter, r *http.Request) {
	p := params{v: r.URL.Query()}
	answer(s, w, r, &p, func(ctx context.Context) (ReadIndexView, error) {
		return s.opts.Backend.ReadIndex(ctx,
			ReadIndexQuery{GTIDs: p.v.Get("gtids") == "true", Live: p.v.Get("live") == "true"})
	})
}

func (s *Server) applied(w http.ResponseWriter, r *http.Request) {
	p := params{v: r.URL.Query()}
	q := AppliedQuery{GTIDs: p.v.Get("gtids"), Everywhere: p.v.Get("everywhere") == "true"}
	if q.GTIDs == "" || p.v.Has("index") {
		q.Index = p.number("index", 64)
	}
	answer(s, w, r, &p, func(ctx context.Context) (AppliedView, error) { return s.opts.Backend.Applied(ctx, q) })
}

// answer writes what ask returns within the wait that the parameters give.
func answer[V any](s *Server, w http.ResponseWriter, r *http.Request, p *params, ask func(context.Context) (V, error)) {
	ctx, cancel := context.WithTimeout(r.Context(), p.wait())
	defer cancel()
	if p.err != nil {
		s.fail(w, p.err)
		return
	}
	v, err := ask(ctx)
	if err != nil {
		s.fail(w, err)
		return
	}
	writeJSON(w, http.StatusOK, v)
}
