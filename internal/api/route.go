package api

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"time"

	"trireme/internal/base/pki"
)

// Pace of GET /route.
const (
	routeBeat = 500 * time.Millisecond // an unchanged view is sent again
	// a view that was received longer ago is not to be used: its node is cut off, or hangs
	RouteLimit = 4 * routeBeat
	routeWrite = 5 * time.Second // for one view to a slow reader
	// one connection in so many is kept for everybody else: balancers, operators, questions of routers
	routeShare = 4
)

// RouteView is where connections should go, as one node knows it: what its own router follows. Of the views of several
// nodes the one with the highest generation and term is right.
type RouteView struct {
	Cluster    string        `json:"cluster"`
	Node       string        `json:"node"` // whose view this is
	Generation uint64        `json:"generation"`
	Term       uint64        `json:"term"`
	RW         *RouteTarget  `json:"rw"`      // the leader with writes open; null: no such leader
	RO         []RouteTarget `json:"ro"`      // healthy followers
	KeepRW     bool          `json:"keep_rw"` // with rw null: a planned switchover is under way, open connections may stay
	Nodes      []RouteNode   `json:"nodes"`   // all members
	// Hold is the number of the planned switchover for which this node, the leader, closes writes: it waits a moment
	// until routers without a node have nothing under way (POST /quiet), those that have shown a token. 0: none, in the
	// view of any other node as well.
	Hold uint64 `json:"hold,omitempty"`
	// Lags is how far nodes' mysqlds lag behind what is committed, in seconds, by name. A missing node does not know
	// its lag, or was not heard. A lag that changes is no change of the view: it comes with the next one.
	Lags map[string]float64 `json:"lags"`
	// Proofs is how nodes' mysqlds are known, by name, as those nodes say; who is not in it is older. A change is no
	// change of the view, as with Lags.
	Proofs map[string]MySQLProof `json:"proofs,omitempty"`
	// Next is the id that the next member will get, so an id below it that Nodes lacks is a former member's; 0: an
	// older node, which does not say. Revoked are the serials of certificates that are not trusted.
	Next    uint64   `json:"next_id,omitempty"`
	Revoked []string `json:"revoked,omitempty"`

	// From is the node whose certificate the connection has shown. The client sets it.
	From   pki.Identity `json:"-"`
	Serial string       `json:"-"`
}

// Disowns reports whether the node that sent v does not take the one that sent other for a member with a good
// certificate.
func (v RouteView) Disowns(other RouteView) bool {
	if v.Next == 0 || other.From.ID == 0 {
		return false
	}
	for _, n := range v.Nodes {
		if n.ID == other.From.ID {
			return n.Revoked || slices.Contains(v.Revoked, other.Serial)
		}
	}
	return other.From.ID < v.Next || slices.Contains(v.Revoked, other.Serial)
}

// RouteTarget is a mysqld.
type RouteTarget struct {
	Name  string `json:"name"`
	Addr  string `json:"addr"`  // host:port
	Epoch string `json:"epoch"` // opaque; another one with each incarnation and, for a leader, each term
}

// RouteNode is where a member's API is.
type RouteNode struct {
	Name string `json:"name"`
	API  string `json:"api"` // host:port
	ID   uint64 `json:"id,omitempty"`
	// Revoked: none of its certificates is trusted.
	Revoked bool `json:"revoked,omitempty"`
}

// route sends the node's view, a JSON document in a line, at once, at each change and as a sign of life, until the
// client goes away.
func (s *Server) route(w http.ResponseWriter, r *http.Request) {
	done, _, ok := s.streams.take(r.RemoteAddr)
	if !ok {
		s.fail(w, Errorf(KindConflict, "%d routers follow %s already, or %d from your address", s.streams.most, s.opts.Name,
			s.streams.each).
			With("let several applications share a router"))
		return
	}
	defer done()
	conn := http.NewResponseController(w)
	_ = conn.SetReadDeadline(time.Time{}) // no more is read, and the limit of a request would end the stream
	w.Header().Set("Content-Type", "application/x-ndjson")
	w.Header().Set("Cache-Control", "no-store")
	beat := time.NewTicker(routeBeat)
	defer beat.Stop()
	leave := func() {}
	defer func() { leave() }()
	for enc, waited := json.NewEncoder(w), ""; ; {
		if name := s.waitsFor(r); name != waited { // a token comes and goes
			leave()
			leave, waited = func() {}, name
			if name != "" {
				leave = s.opts.Routers.Follow(name)
			}
		}
		view, changed := s.opts.Backend.Route()
		_ = conn.SetWriteDeadline(time.Now().Add(routeWrite))
		if enc.Encode(view) != nil || conn.Flush() != nil || r.Method == http.MethodHead {
			return
		}
		select {
		case <-changed:
		case <-beat.C:
		case <-r.Context().Done():
			return
		case <-s.stopping:
			return
		}
	}
}

// servesView is what a node says that takes writes.
type servesView struct {
	Index uint64 `json:"index"`
}

// serves answers 200 when this node takes writes in the epoch asked for at this moment, by its lease; else 503.
func (s *Server) serves(w http.ResponseWriter, r *http.Request) {
	ctx, cancel := context.WithTimeout(r.Context(), viewTimeout)
	defer cancel()
	index, err := s.opts.Backend.Serves(ctx, r.URL.Query().Get("epoch"))
	if err != nil {
		s.fail(w, Errorf(KindNoLeader, "%v", err))
		return
	}
	writeJSON(w, http.StatusOK, servesView{Index: index})
}

// Serves fails unless the asked node takes writes in an epoch at this moment. Everything that was answered in it before
// the call lies at or below index of the log; 0: the node is too old to say.
func (c *Client) Serves(ctx context.Context, epoch string) (index uint64, err error) {
	v, err := ask[servesView](ctx, c, http.MethodGet, "/serves?epoch="+url.QueryEscape(epoch), nil)
	return v.Index, err
}

// WatchRoute calls f with each view of the asked node, until ctx ends or the node is silent for RouteLimit. It always
// returns an error.
func (c *Client) WatchRoute(ctx context.Context, f func(RouteView)) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	silence := time.AfterFunc(RouteLimit, func() { cancel(Errorf(KindUnreachable, "%s is silent", c.base)) })
	defer silence.Stop()
	req, err := c.request(ctx, http.MethodGet, c.routePath(), nil)
	if err != nil {
		return err
	}
	res, err := c.http.Do(req)
	if err != nil {
		return cause(ctx, c.unreachable(ctx, err))
	}
	defer func() { _ = res.Body.Close() }()
	if res.StatusCode != http.StatusOK {
		body, _ := io.ReadAll(io.LimitReader(res.Body, maxBody))
		return cause(ctx, c.failure(ctx, res.StatusCode, body))
	}
	var from pki.Identity
	var serial string
	if res.TLS != nil {
		if from, err = pki.PeerIdentity(*res.TLS); err != nil {
			return err
		}
		serial = pki.SerialOf(res.TLS.PeerCertificates[0])
	}
	lines := bufio.NewScanner(res.Body)
	lines.Buffer(nil, maxBody)
	for lines.Scan() {
		var v RouteView
		if err := json.Unmarshal(lines.Bytes(), &v); err != nil {
			return fmt.Errorf("%s/route: %w", c.base, err)
		}
		if from.ID != 0 && v.Node != from.Name {
			return Errorf(KindInternal, "%s answers as %q, and its certificate is of %q", c.base, v.Node, from.Name)
		}
		v.From, v.Serial = from, serial
		silence.Reset(RouteLimit)
		f(v)
	}
	err = lines.Err()
	if err == nil {
		err = io.EOF
	}
	return cause(ctx, c.unreachable(ctx, err))
}

// cause is why ctx ended, and else err.
func cause(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return err
}
