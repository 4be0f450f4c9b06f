package consensus

import (
	"errors"
	"sync"
)

// queue hands batches from many goroutines to one. It has no bound of its own: its input is bounded where it is made
// (raft's limits on what is being proposed, appended and applied, and what the links read in one turn of the loop).
type queue[T any] struct {
	mu    sync.Mutex
	items []T
	spare []T
	wake  func() // called after each put
}

func newQueue[T any]() *queue[T] { return &queue[T]{wake: func() {}} }

func (q *queue[T]) put(items ...T) {
	if len(items) == 0 {
		return
	}
	q.mu.Lock()
	q.items = append(q.items, items...)
	q.mu.Unlock()
	q.wake()
}

func (q *queue[T]) empty() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return len(q.items) == 0
}

// take returns everything queued; the slice is valid until the next take.
func (q *queue[T]) take() []T {
	q.mu.Lock()
	defer q.mu.Unlock()
	clear(q.spare) // the batch before, which is not used any more
	batch := q.items
	q.items, q.spare = q.spare[:0], batch
	return batch
}

// serve has a goroutine of the node do what is put into a queue, until the node stops.
func serve[T any](n *Node, q *queue[T], do func(T) error) {
	woken := make(chan struct{}, 1)
	q.wake = func() {
		select {
		case woken <- struct{}{}:
		default:
		}
	}
	n.wg.Go(func() {
		defer n.guard()
		for {
			select {
			case <-n.ctx.Done():
				return
			case <-woken:
			}
			for _, x := range q.take() {
				if err := do(x); err != nil {
					if !errors.Is(err, ErrStopped) {
						n.fail(err)
					}
					return
				}
			}
		}
	})
}
