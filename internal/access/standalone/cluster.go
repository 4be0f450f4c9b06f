package standalone

import (
	"context"
	"time"

	"trireme/internal/api"
)

// View implements router.Cluster.
func (f *follower) View(ctx context.Context) (api.ClusterView, error) {
	return askOne(ctx, f, viewWait, (*api.Client).Cluster)
}

// History implements router.Cluster.
func (f *follower) History(ctx context.Context) ([]api.Event, error) {
	return askOne(ctx, f, viewWait, (*api.Client).History)
}

// viewWait is for one node's answer; another one is asked then.
const viewWait = 2 * time.Second

// askOne asks the node whose view counts, and the others if it does not answer in time.
func askOne[V any](ctx context.Context, f *follower, limit time.Duration, ask func(*api.Client, context.Context) (V,
	error)) (v V, err error) {
	err = api.Errorf(api.KindNoLeader, "no node answers")
	for _, client := range f.clients() {
		wctx, cancel := context.WithTimeout(ctx, limit)
		v, err = ask(client, wctx)
		cancel()
		if err == nil || ctx.Err() != nil {
			break
		}
	}
	return v, err
}

// clients is the nodes that are heard, the one whose view counts first; without nodes that a force-quorum gave up, and
// without former members.
func (f *follower) clients() (clients []*api.Client) {
	f.mu.Lock()
	defer f.mu.Unlock()
	all := make([]heard, 0, len(f.sources))
	for _, s := range f.sources {
		all = append(all, s.heard)
	}
	best, found := choose(all, f.last, time.Now())
	for _, s := range f.sources {
		switch {
		case !found || s.heard.at.IsZero() || logOf(s.heard.view) != logOf(best.view), best.view.Disowns(s.heard.view):
		case s.heard.view.Node == best.view.Node:
			clients = append([]*api.Client{s.client}, clients...)
		default:
			clients = append(clients, s.client)
		}
	}
	return clients
}
