package api

import (
	"context"
	"net/http"
	"net/url"
	"sync"
)

// Routers are the routers without a node that follow this one's view and have shown a token. A planned switchover
// waits, for a bounded time, until each has reported that it holds its sessions with nothing under way. Switchovers do
// not wait for other routers. The zero value is ready.
type Routers struct {
	mu  sync.Mutex
	all map[string]*followed // by the name that each has given itself
}

type followed struct {
	streams int    // GET /route
	quiet   uint64 // the last hold in which it said that nothing is under way
}

// Follow notes a router; leave must be called once, when its stream ends.
func (r *Routers) Follow(name string) (leave func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.all == nil {
		r.all = map[string]*followed{}
	}
	f := r.all[name]
	if f == nil {
		f = &followed{}
		r.all[name] = f
	}
	f.streams++
	return func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		if f.streams--; f.streams == 0 {
			delete(r.all, name)
		}
	}
}

// Quiet records that a router has nothing under way in a hold (RouteView.Hold); false: no switchover waits for it.
func (r *Routers) Quiet(name string, hold uint64) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	f := r.all[name]
	if f == nil {
		return false
	}
	f.quiet = hold
	return true
}

// AllQuiet reports whether all have nothing under way in a hold.
func (r *Routers) AllQuiet(hold uint64) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, f := range r.all {
		if f.quiet != hold {
			return false
		}
	}
	return true
}

// Any reports whether there are any.
func (r *Routers) Any() bool { return r.Count() > 0 }

// Count is how many there are.
func (r *Routers) Count() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.all)
}

// maxRouterName bounds what a router calls itself.
const maxRouterName = 64

// waitsFor returns the name of the router that asks for the view, if a switchover must wait for it: the router may POST
// /quiet now. Empty: no wait.
func (s *Server) waitsFor(r *http.Request) string {
	name := r.URL.Query().Get("router")
	if name == "" || len(name) > maxRouterName || !encrypted(r) {
		return ""
	}
	if p, err := s.authorize(r); err != nil || !p.May("/quiet") {
		return ""
	}
	return name
}

// QuietRequest is a router's word that it holds its sessions and has nothing under way.
type QuietRequest struct {
	Router string `json:"router"` // as in its GET /route?router=
	Hold   uint64 `json:"hold"`   // RouteView.Hold
}

// QuietResult is the answer.
type QuietResult struct {
	Waited bool `json:"waited"` // false: the node has no stream of such a router, or has taken no token with it
}

// ForRouter makes c the client of a router that planned switchovers are to wait for, which needs a token. name is no
// other router's.
func (c *Client) ForRouter(name string) *Client {
	c.router = name
	return c
}

// Quiet tells the asked node that this router has nothing under way in a hold.
func (c *Client) Quiet(ctx context.Context, hold uint64) (QuietResult, error) {
	return Quiet.Ask(ctx, c, QuietRequest{Router: c.router, Hold: hold})
}

func (s *Server) quiet(_ context.Context, _ *http.Request, req QuietRequest) (QuietResult, error) {
	return QuietResult{Waited: s.opts.Routers.Quiet(req.Router, req.Hold)}, nil
}

// routePath is where c finds the view.
func (c *Client) routePath() string {
	if c.router == "" {
		return "/route"
	}
	return "/route?" + url.Values{"router": {c.router}}.Encode()
}
