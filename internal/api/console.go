package api

import (
	"context"
	"net/http"
	"slices"
	"sync"
	"time"

	"trireme/internal/base/pki"
)

// Console is the cluster for pages that this node shows to people. The pages ask who looks, by Login and Holder, and
// tell who acts, by WithPrincipal.
type Console struct {
	s *Server

	mu    sync.Mutex
	peers map[string]*Client // by address, for Loads
}

// Console of this node.
func (s *Server) Console() *Console {
	return &Console{s: s, peers: map[string]*Client{}}
}

// SetPages serves h at / and below /ui/. Call it before Start.
func (s *Server) SetPages(h http.Handler) { s.pages = h }

// Stopping is closed when streams are to end.
func (s *Server) Stopping() <-chan struct{} { return s.stopping }

// Node is the name of the node that answers.
func (c *Console) Node() string { return c.s.opts.Name }

// Login is whose token that is.
func (c *Console) Login(token string) (Principal, bool) {
	return holder(c.s.opts.Backend.Settings(), time.Now(), func(hash string) bool { return pki.TokenMatches(token, hash) })
}

// Holder is who logged in with the token of an id, as long as there is such a token.
func (c *Console) Holder(id string) (Principal, bool) {
	return holder(c.s.opts.Backend.Settings(), time.Now(),
		func(hash string) bool { return hash != "" && tokenID(hash) == id })
}

// View is the whole cluster as this node knows it.
func (c *Console) View(ctx context.Context) ClusterView { return c.s.opts.Backend.View(ctx) }

// History is the latest events, oldest first.
func (c *Console) History(ctx context.Context) ([]Event, error) { return c.s.opts.Backend.History(ctx) }

// Loads asks all members that are up, at once, for what they have counted; those that do not answer in time are left
// out.
func (c *Console) Loads(ctx context.Context, v ClusterView) map[string]LoadView {
	ctx, cancel := context.WithTimeout(ctx, loadTimeout)
	defer cancel()
	out := map[string]LoadView{c.Node(): c.s.opts.Backend.Load()}
	var mu sync.Mutex
	var wg sync.WaitGroup
	for _, m := range v.Members {
		if m.Name == c.Node() || !m.Answers() {
			continue
		}
		client := c.peer(m.Daemon.API)
		wg.Go(func() {
			if l, err := client.Load(ctx); err == nil && l.Node == m.Name {
				mu.Lock()
				out[m.Name] = l
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	return out
}

// Report is what all members have recorded from a time up to another one.
func (c *Console) Report(ctx context.Context, from, to time.Time) (Report, error) {
	ctx, cancel := context.WithTimeout(ctx, reportTimeout)
	defer cancel()
	events, err := c.History(ctx)
	if err != nil {
		return Report{}, err
	}
	return MakeReport(c.View(ctx), events, from, to, func(node string) (PeriodView, error) {
		return c.s.periodOf(ctx, node, from, to, false)
	})
}

// peer keeps one client for each address, so that asking again needs no new connection.
func (c *Console) peer(addr string) *Client {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.peers[addr] == nil {
		c.peers[addr] = NewClient("https://"+addr, "", c.s.opts.ClientTLS)
	}
	return c.peers[addr]
}

// Rest drops the connections to other nodes, until Loads is called again.
func (c *Console) Rest() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for addr, client := range c.peers {
		client.Close()
		delete(c.peers, addr)
	}
}

// Switchover moves leadership, or with DryRun says what would happen.
func (c *Console) Switchover(ctx context.Context, req SwitchoverRequest) (SwitchoverResult, error) {
	return Do(ctx, c, Switchover, req)
}

// Pause switches automatic failover off.
func (c *Console) Pause(ctx context.Context, req PauseRequest) (PauseResult, error) {
	return Do(ctx, c, Pause, req)
}

// Resume switches it on again.
func (c *Console) Resume(ctx context.Context) (PauseResult, error) {
	return Do(ctx, c, Resume, ResumeRequest{})
}

// Remove takes a member out of the cluster.
func (c *Console) Remove(ctx context.Context, req MemberRequest) (MemberResult, error) {
	return Do(ctx, c, Remove, req)
}

// Invite makes a token by which a node may join.
func (c *Console) Invite(ctx context.Context, req JoinTokenRequest) (JoinTokenResult, error) {
	return Do(ctx, c, NewJoinToken, req)
}

// Refused records that who acts may not have a verb carried out.
func (c *Console) Refused(ctx context.Context, path string) {
	if who, err := fromPage(ctx, path); err != nil && who.By != "" {
		c.s.auditAction(who, path, nil, err)
	}
}

// LoginCode is what POST /ui/code answers: a text that logs a browser in, once, at that node.
type LoginCode struct {
	Code    string `json:"code"`
	Seconds int    `json:"seconds"` // that it is good for
}

// CodeRequest is what a node sends to another one's POST /ui/code, for somebody who is logged in to its own pages.
type CodeRequest struct {
	Holder  string `json:"holder"`  // id of the token that the login began with
	Seconds int    `json:"seconds"` // that the login may last, at most
}

// LoginAt has another node make a code for somebody who is logged in here, whose session there may not outlast left. at
// is where that node's pages are. The node gets the id of the token, and finds out by itself who has that token, and
// what that one may.
func (c *Console) LoginAt(ctx context.Context, who Principal, node string, left time.Duration) (at string,
	code LoginCode, err error) {
	ctx, cancel := context.WithTimeout(WithPrincipal(ctx, who), viewTimeout)
	defer cancel()
	members := c.View(ctx).Members
	i := slices.IndexFunc(members, func(m MemberView) bool { return m.Name == node && node != c.Node() })
	if i < 0 {
		return "", code, Errorf(KindNotFound, "there is no other node of that name")
	}
	asks, _ := fromPage(ctx, "/ui/code") // any role may
	to := Leader{Name: node, API: members[i].Daemon.API}
	left -= viewTimeout // which may pass until the node has the request
	err = c.s.pass(AskedAs(ctx, asks.asker()), to, http.MethodPost, "/ui/code",
		CodeRequest{Holder: who.ID, Seconds: int(left.Seconds())}, &code)
	c.s.auditAction(asks, "/ui/code", map[string]string{"node": node}, err)
	return "https://" + to.API, code, err
}

// FromNode reports whether a member has sent a request on behalf of somebody. It proves that by its certificate and the
// nodes' token.
func (c *Console) FromNode(r *http.Request) bool {
	p, err := c.s.authorize(r)
	return err == nil && p.By == byNode && p.Role == pki.Admin && forwarder(r) != ""
}

// AuditCode records that a member has got a code for somebody, or why not.
func (c *Console) AuditCode(r *http.Request, req CodeRequest, err error) {
	c.s.auditAction(askerOf(r, byNode), "/ui/code", req, err)
}

// LoginCode asks for one. The client must have a token, and use HTTPS.
func (c *Client) LoginCode(ctx context.Context) (v LoginCode, err error) {
	return v, c.do(ctx, http.MethodPost, "/ui/code", struct{}{}, &v)
}
