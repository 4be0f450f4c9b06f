package consensus

import (
	"context"
	"sync"
)

// quota is a semaphore over bytes, first come first served. A request larger than the limit is let through alone.
type quota struct {
	mu      sync.Mutex
	limit   uint64
	used    uint64
	waiters []*quotaWaiter
	room    func() // called once bytes are within the limit
}

type quotaWaiter struct {
	bytes   uint64
	granted bool // under mu
	ready   chan struct{}
}

func newQuota(limit uint64) *quota { return &quota{limit: limit} }

func (q *quota) fits(bytes uint64) bool { return q.used == 0 || q.used+bytes <= q.limit }

// acquire waits until bytes fit, ctx is done or stop is closed; false means that nothing was acquired.
func (q *quota) acquire(ctx context.Context, stop <-chan struct{}, bytes uint64) bool {
	q.mu.Lock()
	if len(q.waiters) == 0 && q.fits(bytes) {
		q.used += bytes
		q.mu.Unlock()
		return true
	}
	w := &quotaWaiter{bytes: bytes, ready: make(chan struct{})}
	q.waiters = append(q.waiters, w)
	q.mu.Unlock()
	select {
	case <-w.ready:
		return true
	case <-ctx.Done():
	case <-stop:
	}
	return !q.abandon(w)
}

// abandon takes w out of the queue; false means that it was granted in the meantime.
func (q *quota) abandon(w *quotaWaiter) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if w.granted {
		return false
	}
	for i, x := range q.waiters {
		if x == w {
			q.waiters = append(q.waiters[:i], q.waiters[i+1:]...)
			break
		}
	}
	q.grant() // w may have blocked smaller ones
	return true
}

// take acquires without waiting, also what does not fit; more reports whether more would fit.
func (q *quota) take(bytes uint64) (more bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.used += bytes
	return q.used < q.limit && len(q.waiters) == 0
}

// whenRoom has f called, once, when bytes are within the limit.
func (q *quota) whenRoom(f func()) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.room = f
	q.grant()
}

func (q *quota) release(bytes uint64) {
	if bytes == 0 {
		return
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	q.used -= min(bytes, q.used)
	q.grant()
}

func (q *quota) grant() {
	for len(q.waiters) > 0 && q.fits(q.waiters[0].bytes) {
		w := q.waiters[0]
		q.waiters = q.waiters[1:]
		q.used += w.bytes
		w.granted = true
		close(w.ready)
	}
	if f := q.room; f != nil && q.used < q.limit && len(q.waiters) == 0 {
		q.room = nil
		f()
	}
}

func (q *quota) inUse() uint64 {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.used
}
