package standalone

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"trireme/internal/access/router"
	"trireme/internal/api"
	"trireme/internal/base/poll"
)

// How current servers are, nodes are asked: the questions that a node's router asks within its daemon (package node,
// reading.go), over the API. Any node can say what is committed and who has applied it; what one server has applied,
// its own node says.

var _ router.Reads = (*follower)(nil)

const (
	// for which a node is asked to wait: somebody may come who waits for a lower index
	appliedWait = 200 * time.Millisecond
	// mostPatience is the same for all servers. It is long compared with the round trips between nodes, of which such a
	// question takes several.
	mostPatience = 2 * time.Second
)

// everywherePatience is how long one question about all servers may take: so much shorter than the sessions' own limit
// that the answer, which names who is late, comes within it.
func everywherePatience(limit time.Duration) time.Duration { return min(mostPatience, limit/3) }

// Log implements router.Reads.
func (f *follower) Log() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.logName
}

// Answered implements router.Reads.
func (f *follower) Answered(ctx context.Context, _ string) (uint64, error) { return f.Barrier(ctx) }

// Barrier implements router.Reads. While leadership moves it waits for who leads next.
func (f *follower) Barrier(ctx context.Context) (uint64, error) {
	for why := error(nil); ; _ = poll.Pause(ctx, leastPause) {
		v, err := f.point(ctx, api.ReadIndexQuery{})
		switch {
		case err == nil:
			return v.Index, nil
		case ctx.Err() != nil:
			return 0, cmp.Or(why, err)
		}
		why = err
	}
}

// point asks the node whose view counts, or another one. Sessions that come at once share an answer.
func (f *follower) point(ctx context.Context, q api.ReadIndexQuery) (api.ReadIndexView, error) {
	return f.points.Do(ctx, q, func() (api.ReadIndexView, error) {
		return askOne(f.ctx, f, f.answerWait, func(c *api.Client, ctx context.Context) (api.ReadIndexView, error) {
			return c.ReadIndex(ctx, q)
		})
	})
}

// Live implements router.Reads.
func (f *follower) Live(ctx context.Context) (api.ReadIndexView, error) {
	return f.point(ctx, api.ReadIndexQuery{Live: true})
}

// Applied implements router.Reads.
func (f *follower) Applied(ctx context.Context, node string, index uint64) error {
	return f.applied.Wait(ctx, node, index)
}

// Everywhere implements router.Reads.
func (f *follower) Everywhere(ctx context.Context, index uint64) error {
	return f.applied.Wait(ctx, allNodes, index)
}

// allNodes stands for a node's name.
const allNodes = ""

// askApplied asks a node about its own server.
func (f *follower) askApplied(ctx context.Context, node string, index uint64) (at uint64, late, err error) {
	if node == allNodes {
		at, late = f.askEverywhere(ctx, index)
		return at, late, nil
	}
	f.mu.Lock()
	client := f.clientOfLocked(node)
	f.mu.Unlock()
	if client == nil {
		return 0, nil, fmt.Errorf("%s is not followed", node)
	}
	asking, cancel := context.WithTimeout(ctx, appliedWait+f.answerWait)
	defer cancel()
	v, err := client.Applied(asking, api.AppliedQuery{Index: index}, appliedWait)
	switch {
	case err != nil && asking.Err() != nil:
		err = fmt.Errorf("%s does not say what it has applied: %s does not answer", node, client.URL())
	case api.KindOf(err) == api.KindTimeout:
		late, err = err, nil
	}
	return v.Index, late, err
}

// askEverywhere asks the node whose view counts, or another one, about all servers. Whatever keeps them from answering,
// the sessions wait on: what they have written stays, and may be applied already.
func (f *follower) askEverywhere(ctx context.Context, index uint64) (at uint64, late error) {
	at, err := askOne(ctx, f, f.patience+f.answerWait, func(c *api.Client, ctx context.Context) (uint64, error) {
		v, err := c.Applied(ctx, api.AppliedQuery{Index: index, Everywhere: true}, f.patience)
		if api.KindOf(err) == api.KindTimeout && ctx.Err() == nil { // its answer, which another node would give as well
			late, err = err, nil
		}
		return v.Index, err
	})
	if err != nil {
		_ = poll.Pause(ctx, leastPause)
		late = err
	}
	return at, late
}
