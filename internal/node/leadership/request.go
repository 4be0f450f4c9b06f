package leadership

import (
	"context"
	"errors"
	"time"

	"trireme/internal/api"
	"trireme/internal/core/ha"
	"trireme/internal/mysql/mysqld"
)

// Request is an operator's switchover on its way: ha.Decide sees it, and a switchover takes it or it is dropped.
type Request struct {
	By   string // who asked
	to   uint64
	term uint64        // in which it was asked for, and may begin
	wait time.Duration // for open transactions to end

	begun  bool       // Leadership.mu guards it
	result chan Moved // gets exactly one value
}

// Moved is what became of an attempt to move leadership.
type Moved struct {
	Err     error
	Closing time.Duration            // when writes began to close; 0: they did not
	Open    []mysqld.OpenTransaction // that were rolled back
	Cut     int                      // connections of applications
	Carried int                      // sessions that routers moved, as those last told
}

// finish answers the operator, once.
func (r *Request) finish(m Moved) {
	select {
	case r.result <- m:
	default:
	}
}

// UnderWay refuses a second switchover.
func UnderWay() error {
	return api.Errorf(api.KindBusy, "another switchover is under way").
		With("wait for it to end, then look at `trireme status`")
}

// Ask makes a request for a switchover in a term, for the loop to see; nil: there is one already. wait is for open
// transactions to end.
func (l *Leadership) Ask(to, term uint64, by string, wait time.Duration) *Request {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.request != nil {
		return nil
	}
	l.request = &Request{By: by, to: to, term: term, wait: wait, result: make(chan Moved, 1)}
	return l.request
}

// Asked says whether an operator's request is on its way.
func (l *Leadership) Asked() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.request != nil
}

// Take is the operator's request that a switchover which begins now fulfils, or nil, and how long open transactions may
// go on before it. A daemon that is stopping has no time.
func (l *Leadership) Take(a ha.Action, stopping bool) (*Request, time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch r := l.request; {
	case r != nil && r.to == a.To && r.term == a.Term:
		r.begun = true
		return r, r.wait
	case stopping:
		return nil, 0
	}
	return nil, api.DefaultTrxWait
}

// End tells the operator what became of a request that was taken.
func (l *Leadership) End(r *Request, m Moved) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.request = nil
	r.finish(m)
}

// Await waits for the outcome of a request, for some time beyond that for open transactions. One that has not begun in
// time is taken back; a switchover that has begun goes on, and what becomes of it is not known then.
func (l *Leadership) Await(ctx context.Context, r *Request, patience time.Duration) (m Moved, err error) {
	select {
	case m = <-r.result:
		return m, nil
	case <-ctx.Done():
		m.Err = ctx.Err()
	case <-time.After(patience + r.wait):
		m.Err = errors.New("no outcome in time")
	}
	to := l.name(r.to)
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.request != r:
		return <-r.result, nil // it has come just now
	case r.begun:
		return m,
			api.Errorf(api.KindTimeout, "the switchover to %s has begun and continues; its outcome is not known yet: %v", to,
				m.Err).
				With("see `trireme status`")
	}
	l.request = nil
	return m, nil
}
