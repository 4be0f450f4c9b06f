package verify

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"trireme/internal/base/poll"
)

// onNodes returns a client that keeps one reader running on each data node, as long as it is one of the cluster, and
// begins a new one when the node's login has become another. Without a list of nodes one reads through the read-write
// address, under an empty name. Make returns a reader's step, for its node.
func (s *Set) onNodes(workload string, make func(node string) func(*session, *rand.Rand) error,
	setup ...string) client {
	reader := func(node string, login Login, rng *rand.Rand) client {
		return s.watched(login, setup, s.cfg.Rate, rng, make(node), func(err error) { s.blind.note(workload, node, err) })
	}
	if s.cfg.Nodes == nil {
		return reader("", s.cfg.Login, s.random(workload+" readers", 0))
	}
	return func(ctx context.Context) error {
		o := observers{running: map[string]*observer{}}
		for ctx.Err() == nil {
			there := map[string]bool{}
			for i, n := range s.cfg.Nodes() {
				there[n.Name] = true
				o.keep(ctx, n, func() client { return reader(n.Name, n.Login, s.random(workload+" reader of "+n.Name, i)) })
			}
			o.keepOnly(there)
			_ = poll.Pause(ctx, time.Second)
		}
		return o.end()
	}
}

// blind is why readers could not read, by workload and node: the last error of each.
type blind struct {
	mu   sync.Mutex
	errs map[[2]string]error
}

func (b *blind) note(workload, node string, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.errs == nil {
		b.errs = map[[2]string]error{}
	}
	b.errs[[2]string{workload, node}] = err
}

func (b *blind) last(workload, node string) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.errs[[2]string{workload, node}]
}

// observers are the readers that were begun, by node. Used by one goroutine.
type observers struct {
	running map[string]*observer
	wg      sync.WaitGroup
	mu      sync.Mutex
	errs    []error
}

// observer is the newest reader of one node.
type observer struct {
	login  string // where and as whom it reads; empty once it was told to end
	cancel context.CancelFunc
	done   chan struct{} // closed when it has ended
}

// stop tells a reader to end after its present statement.
func (r *observer) stop() {
	r.login = ""
	r.cancel()
}

// identity tells logins apart: a node that was replaced has its name, and other ports.
func identity(l Login) string { return fmt.Sprintf("%s %q %q", l.Addr(), l.User, l.Password) }

// keep makes sure that a reader of the node runs with its present login.
func (o *observers) keep(ctx context.Context, n NodeLogin, reader func() client) {
	before, login := o.running[n.Name], identity(n.Login)
	var ended chan struct{}
	if before != nil {
		if before.login == login {
			return
		}
		before.stop()
		ended = before.done // what one node showed is recorded in order
	}
	o.start(ctx, n.Name, login, ended, reader())
}

// start runs a reader once the one before has ended, if there was one.
func (o *observers) start(ctx context.Context, node, login string, before <-chan struct{}, reader client) {
	r := &observer{login: login, done: make(chan struct{})}
	ctx, r.cancel = context.WithCancel(ctx)
	o.running[node] = r
	o.wg.Add(1)
	go func() {
		defer o.wg.Done()
		defer close(r.done)
		if before != nil {
			<-before
		}
		if err := reader(ctx); err != nil {
			o.mu.Lock()
			o.errs = append(o.errs, err)
			o.mu.Unlock()
		}
	}()
}

// keepOnly ends the readers of nodes that are not in the cluster any more.
func (o *observers) keepOnly(there map[string]bool) {
	for node, r := range o.running {
		if !there[node] {
			r.stop()
		}
	}
}

func (o *observers) end() error {
	o.keepOnly(nil)
	o.wg.Wait()
	return errors.Join(o.errs...)
}
