package router

import (
	"context"
	"sync"
	"time"
)

// The outcome of a statement is found among what its connection has committed after some index of the log. Earlier
// transactions, committed and answered before, must not be taken for it: the index has to come after them, or the
// number of them that may come after the index has to be known.
//
// A commit index of this node's own proves nothing: the leader may have acknowledged later commits. So the leader is
// asked, concurrently with the statements and for all sessions at once: the answer covers everything that sessions had
// heard when the question was put.

// pointPause is between two questions. Sessions whose statements follow each other faster count them meanwhile.
const pointPause = 5 * time.Millisecond

// countless is more transactions than are counted: of a procedure, of several statements.
const countless = 1 << 16

// point is an index of the log that comes after everything that was answered before question number `asked`.
type point struct {
	asked  uint64
	target Target
	index  uint64
}

// points asks the leader for points as long as sessions want newer ones.
type points struct {
	wanted chan struct{} // of capacity 1

	mu    sync.Mutex
	asked uint64 // questions put so far
	last  point
}

// trace is what a session may have left in the log at its present server.
type trace struct {
	thread uint32 // connection id there
	base   uint64 // index
	since  int    // the highest number of this connection's transactions that come after it
	asked  uint64 // questions put when the last of these was answered
	newest int    // of since, those since that question was put
	fresh  bool   // nothing was answered yet: init_connect, which may commit, may not be over
}

// begin is a new connection. Nothing of it comes after any point except what init_connect does.
func (p *points) begin(t Target, thread uint32) trace {
	p.mu.Lock()
	defer p.mu.Unlock()
	tr := trace{thread: thread, since: countless, newest: countless, fresh: true}
	if p.last.target == t {
		tr.base = p.last.index
	}
	return tr
}

// answered notes the answer to what may have committed n transactions.
func (p *points) answered(tr *trace, n int) {
	if tr.fresh {
		tr.fresh, n = false, countless
	}
	if n == 0 {
		return
	}
	p.mu.Lock()
	if tr.asked != p.asked {
		tr.asked, tr.newest = p.asked, 0
	}
	p.mu.Unlock()
	tr.newest = min(tr.newest+n, countless)
	tr.since = min(tr.since+n, countless)
	p.want()
}

func (p *points) want() {
	select {
	case p.wanted <- struct{}{}:
	default:
	}
}

// now brings a trace up to date before a statement is sent.
func (p *points) now(tr *trace, t Target) {
	if tr.since == 0 || tr.fresh {
		return
	}
	p.mu.Lock()
	last := p.last
	p.mu.Unlock()
	switch {
	case last.target != t:
	case last.asked > tr.asked:
		tr.base, tr.since, tr.newest = last.index, 0, 0
	case last.asked == tr.asked && last.asked != 0:
		tr.base, tr.since = last.index, tr.newest
	}
}

// run puts questions until ctx ends. target returns the node to ask.
func (p *points) run(ctx context.Context, target func() *Target,
	reached func(context.Context, Target) (uint64, error)) {
	pause := time.NewTimer(0)
	defer pause.Stop()
	for {
		select {
		case <-p.wanted:
		case <-ctx.Done():
			return
		}
		t := target()
		if t == nil {
			continue // who writes then wants one again
		}
		p.mu.Lock()
		p.asked++
		asked := p.asked
		p.mu.Unlock()
		index, err := reached(ctx, *t)
		next := pointPause
		if err == nil && index != 0 {
			p.mu.Lock()
			p.last = point{asked, *t, index}
			p.mu.Unlock()
		} else {
			next = retryPause
			p.want()
		}
		pause.Reset(next)
		select {
		case <-pause.C:
		case <-ctx.Done():
			return
		}
	}
}
