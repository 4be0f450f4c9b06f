package leadership

import (
	"context"
	"errors"
	"time"

	"trireme/internal/api"
	"trireme/internal/mysql/mysqld"
)

// Request is an operator's switchover on its way: ha.Decide sees it until a switchover takes it, or it is dropped.
type Request struct {
	by   string // who asked
	to   uint64
	term uint64        // in which it was asked for, and may begin
	wait time.Duration // for open transactions to end

	begun bool // Leadership.mu guards it
	moved Moved
	done  chan struct{} // closed once moved is there
}

// Moved is what became of an attempt to move leadership.
type Moved struct {
	Err error
	// Continues: it did not move, and this member takes writes, again or still. It is not set when leadership was lost
	// meanwhile, or writes could not be opened again.
	Continues bool
	Closing   time.Duration            // when writes began to close; 0: they did not
	Open      []mysqld.OpenTransaction // that were rolled back
	Cut       int                      // connections of applications
	Carried   int                      // sessions that routers moved, as those last told
}

// OpenTransactions is a list for an operator.
func OpenTransactions(list []mysqld.OpenTransaction) []api.OpenTransaction {
	out := []api.OpenTransaction{}
	for _, t := range list[:min(len(list), api.MaxOpenTrx)] {
		out = append(out, api.OpenTransaction{User: t.User, Host: t.Host, AgeS: t.AgeS, Rows: t.Rows, Statement: t.Statement})
	}
	return out
}

// finishLocked answers the operator, once: the request is forgotten.
func (l *Leadership) finishLocked(r *Request, m Moved) {
	l.request, r.moved = nil, m
	close(r.done)
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
	l.request = &Request{by: by, to: to, term: term, wait: wait, done: make(chan struct{})}
	return l.request
}

// Asked says whether an operator's request is on its way.
func (l *Leadership) Asked() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.request != nil
}

// end tells the operator what became of a request that was taken.
func (l *Leadership) end(r *Request, m Moved) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.finishLocked(r, m)
}

// Await waits for the outcome of a request, for some time beyond that for open transactions. One that has not begun in
// time is taken back; a switchover that has begun goes on, and what becomes of it is not known then.
func (l *Leadership) Await(ctx context.Context, r *Request, patience time.Duration) (m Moved, err error) {
	limited, cancel := l.exec.WithTimeout(ctx, patience+r.wait)
	defer cancel()
	if err = l.exec.Wait(limited, r.done); err == nil {
		return r.moved, nil
	}
	if m.Err = ctx.Err(); m.Err == nil {
		m.Err = errors.New("no outcome in time")
	}
	to := l.name(r.to)
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.request != r:
		return r.moved, nil // it has come just now
	case r.begun:
		return m,
			api.Errorf(api.KindTimeout, "the switchover to %s has begun and continues; its outcome is not known yet: %v", to,
				m.Err).
				With("see `trireme status`")
	}
	l.request = nil
	m.Continues = true
	return m, nil
}
