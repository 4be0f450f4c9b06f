package consensus

import "sync"

// queue hands batches from many goroutines to one. It has no bound of its own: its input is bounded where it is made
// (raft's limits on what is being appended and applied).
type queue[T any] struct {
	mu    sync.Mutex
	items []T
	spare []T
	wake  chan struct{} // holds one token while items is not empty
}

func newQueue[T any]() *queue[T] { return &queue[T]{wake: make(chan struct{}, 1)} }

func (q *queue[T]) put(items ...T) {
	if len(items) == 0 {
		return
	}
	q.mu.Lock()
	q.items = append(q.items, items...)
	q.mu.Unlock()
	select {
	case q.wake <- struct{}{}:
	default:
	}
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

// next waits for items; nil means that stop is closed.
func (q *queue[T]) next(stop <-chan struct{}) []T {
	for {
		select {
		case <-stop:
			return nil
		case <-q.wake:
			if b := q.take(); len(b) > 0 {
				return b
			}
		}
	}
}
