package node

import (
	"context"
	"fmt"
	"sync"
	"time"

	"trireme/internal/router"
)

// confirmPatience bounds one question to the leader.
const confirmPatience = time.Second

// confirmRoute says whether a target of a view still takes writes in its epoch. What this node was told may be seconds old, or have waited
// that long in a socket; by then another node may lead, and the mysqld at that address may be a later one, which follows or is not even
// judged. Only the node itself knows, and its word counts from when it was asked.
func (n *Node) confirmRoute(ctx context.Context, t router.Target) error {
	if t.Name == n.id.Name {
		return n.servesHere(ctx, t.Epoch)
	}
	m, err := n.findMember(t.Name)
	if err != nil {
		return err
	}
	return n.routing.ask(ctx, t, func() error {
		ctx, cancel := context.WithTimeout(n.ctx, confirmPatience)
		defer cancel()
		_, err := n.tr.Request(ctx, m.ID, reqServes, []byte(t.Epoch))
		return err
	})
}

// servesHere says whether this node's mysqld takes writes in an epoch, and may be read from (S10).
func (n *Node) servesHere(ctx context.Context, epoch string) error {
	// The death of a voter takes its answer out of the lease; a fresh round gives it back a moment later.
	if err := n.awaitLease(ctx, n.grace()); err != nil {
		return err
	}
	st := n.cons.Status()
	n.mu.Lock()
	defer n.mu.Unlock()
	if open, mine := n.epochLocked(&st); open == 0 || mine != epoch || n.srv.life == nil || !n.cons.HoldsLease() {
		return fmt.Errorf("%s does not take writes in epoch %q any more", n.id.Name, epoch)
	}
	return nil
}

// asker asks about targets, one question about each at a time: many connections that come at once share an answer. None takes the answer
// to a question that was asked before it came.
type asker struct {
	mu     sync.Mutex
	queues map[router.Target]*asked
}

// asked is a target that is being asked about. next is not asked yet; nil: nobody waits for it.
type asked struct{ next *question }

type question struct {
	done chan struct{} // closed when err is there
	err  error
}

// ask waits for the answer to a question that begins after the call.
func (a *asker) ask(ctx context.Context, t router.Target, put func() error) error {
	a.mu.Lock()
	q, busy := a.queues[t]
	if !busy {
		if a.queues == nil {
			a.queues = map[router.Target]*asked{}
		}
		q = &asked{}
		a.queues[t] = q
	}
	if q.next == nil {
		q.next = &question{done: make(chan struct{})}
	}
	mine := q.next
	a.mu.Unlock()
	if !busy {
		go a.run(t, q, put)
	}
	select {
	case <-mine.done:
		return mine.err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// run puts questions about a target until nobody waits for one.
func (a *asker) run(t router.Target, q *asked, put func() error) {
	for {
		a.mu.Lock()
		this := q.next
		q.next = nil
		if this == nil {
			delete(a.queues, t)
			a.mu.Unlock()
			return
		}
		a.mu.Unlock()
		this.err = put()
		close(this.done)
	}
}
