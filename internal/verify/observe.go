package verify

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"time"
)

// onNodes returns a client that keeps one reader running on each data node, as long as it is one of the cluster. Without a list of
// nodes one reads through the read-write address, under an empty name. Make returns a reader's step, for its node.
func (s *Set) onNodes(workload string, make func(node string) func(*session, *rand.Rand) error, setup ...string) client {
	if s.cfg.Nodes == nil {
		return s.loop(s.cfg.Login, setup, s.cfg.Rate, s.random(workload+" readers", 0), make(""))
	}
	return func(ctx context.Context) error {
		o := observers{running: map[string]context.CancelFunc{}}
		for ctx.Err() == nil {
			there := map[string]bool{}
			for i, n := range s.cfg.Nodes() {
				there[n.Name] = true
				if o.running[n.Name] == nil {
					o.start(ctx, n.Name, s.loop(n.Login, setup, s.cfg.Rate, s.random(workload+" reader of "+n.Name, i), make(n.Name)))
				}
			}
			o.keepOnly(there)
			rest(ctx, time.Second)
		}
		return o.end()
	}
}

// observers are the readers that run now, by node. Used by one goroutine.
type observers struct {
	running map[string]context.CancelFunc
	wg      sync.WaitGroup
	mu      sync.Mutex
	errs    []error
}

func (o *observers) start(ctx context.Context, node string, reader client) {
	ctx, o.running[node] = context.WithCancel(ctx)
	o.wg.Add(1)
	go func() {
		defer o.wg.Done()
		if err := reader(ctx); err != nil {
			o.mu.Lock()
			o.errs = append(o.errs, err)
			o.mu.Unlock()
		}
	}()
}

// keepOnly ends the readers of nodes that are not in the cluster any more.
func (o *observers) keepOnly(there map[string]bool) {
	for node, cancel := range o.running {
		if !there[node] {
			cancel()
			delete(o.running, node)
		}
	}
}

func (o *observers) end() error {
	o.keepOnly(nil)
	o.wg.Wait()
	return errors.Join(o.errs...)
}
