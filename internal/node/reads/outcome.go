package reads

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"trireme/internal/api"
	"trireme/internal/base/poll"
	"trireme/internal/core/ledger"
	"trireme/internal/core/raftlog"
	"trireme/internal/mysql/gtid"
)

// outcomes answers what became of the commits that were under way when a leader was lost. After a failover many ask at
// once, about the same stretch of the log: it is read once.
type outcomes struct {
	mu   sync.Mutex // held while the log is read: TryLock
	tail *ledger.Tail
	long bool // tail has come to its bound: what lies at or below its beginning cannot be told

	patience time.Duration // readPatience, when 0
}

// readPatience bounds how long one question has the log read, or waits for another one that does.
const readPatience = 5 * time.Second

// lookPause is between two looks of one question: each commit is news.
const lookPause = 5 * time.Millisecond

// errReading: what was read is kept.
var errReading = errors.New("there is much to be read in the log; ask again")

// Outcome implements api.Backend; api.OutcomeQuery is the contract. It waits for what it needs to know until ctx ends,
// and says Unknown then: the only error is an invalid question.
func (r *Reads) Outcome(ctx context.Context, q api.OutcomeQuery) (api.Outcome, error) {
	of, after, err := r.parseOutcome(q)
	if err != nil {
		return api.Outcome{}, err
	}
	for {
		span, changed, err := r.ledger.Span(of)
		why := ""
		switch {
		case errors.Is(err, ledger.ErrNotYet):
			why = "this node has not seen the beginning of that leadership; it lags, or is cut off"
		case err != nil:
			return unknown("%v", err), nil
		default:
			o, final := r.lookUp(q, of, after, span)
			if final {
				return o, nil
			}
			why = o.Why
		}
		select {
		case <-changed:
			_ = poll.Pause(ctx, lookPause)
		case <-ctx.Done():
			return unknown("%s", why), nil
		}
	}
}

// parseOutcome reads the names in a question.
func (r *Reads) parseOutcome(q api.OutcomeQuery) (of ledger.Leadership, after gtid.GTID, err error) {
	m, ok := r.host.Settings().Member(q.Node)
	if !ok {
		return of, after, api.Errorf(api.KindNotFound, "no node %q", q.Node)
	}
	inc, term, _ := strings.Cut(q.Epoch, "/")
	of.Node = uint16(m.ID)
	var errs [2]error
	of.Incarnation, errs[0] = strconv.ParseUint(inc, 10, 64)
	of.Term, errs[1] = strconv.ParseUint(term, 10, 64)
	if err := errors.Join(errs[:]...); err != nil || of.Incarnation == 0 || of.Term == 0 {
		return of, after, api.Errorf(api.KindInvalid, "epoch %q is not that of a leader: INCARNATION/TERM", q.Epoch)
	}
	if q.Thread == 0 {
		return of, after, api.Errorf(api.KindInvalid, "thread 0 is no connection of a client")
	}
	if q.Others < 0 {
		return of, after, api.Errorf(api.KindInvalid, "%d other transactions", q.Others)
	}
	if q.After != "" {
		if after, err = gtid.ParseGTID(q.After); err != nil {
			return of, after, api.Errorf(api.KindInvalid, "after: %v", err)
		}
	}
	return of, after, nil
}

// lookUp answers from what is committed here. An answer that is not final may become another one when more is.
func (r *Reads) lookUp(q api.OutcomeQuery, of ledger.Leadership, after gtid.GTID, span ledger.Span) (o api.Outcome,
	final bool) {
	from, to := max(q.Index, span.Begin)+1, span.Seen
	if span.End != 0 {
		to = span.End - 1
	}
	if !after.IsZero() && !r.ledger.Contains(after) {
		if span.End == 0 {
			return unknown("%s is not committed as far as this node knows", after), false
		}
		return unknown("%s was not committed by that leader", after), true
	}
	found, err := r.committedBy(of, q.Thread, from, to, after)
	// they do nothing, on any node
	found = slices.DeleteFunc(found, func(t ledger.ThreadTrx) bool { return r.host.DeclaredVoid(t.GTID) })
	switch {
	case errors.Is(err, raftlog.ErrPurged):
		return unknown("the log was purged above entry %d: %v", from, err), true
	case err != nil:
		return unknown("%v", err), true
	case len(found) == q.Others+1 && q.Sole && !found[q.Others].Undone: // the others were answered, and stand before it
		return api.Outcome{Result: api.Committed, GTID: found[q.Others].GTID.String(), Index: found[q.Others].Index}, true
	case len(found) > 0:
		o := unknown("this connection has committed %d transactions since, and which of them were asked for cannot be told",
			len(found))
		last := found[len(found)-1]
		o.GTID, o.Index = last.GTID.String(), last.Index
		return o, true
	case span.End == 0:
		return unknown("nothing of it is committed until now, and no other leader's writes have opened: it may still be"),
			false
	}
	return api.Outcome{Result: api.NotCommitted, Index: span.End}, true
}

// committedBy returns what a connection committed in [from, to], later than after.
func (r *Reads) committedBy(of ledger.Leadership, thread uint32, from, to uint64, after gtid.GTID) ([]ledger.ThreadTrx,
	error) {
	c := &r.outcomes
	end := now() + cmp.Or(c.patience, readPatience)
	for !c.mu.TryLock() {
		if now() > end {
			return nil, errReading
		}
		time.Sleep(time.Millisecond)
	}
	defer c.mu.Unlock()
	switch {
	case from > to:
		return nil, nil
	case c.tail == nil || c.tail.Leadership != of || from < c.tail.From && !c.long || from > c.tail.From && c.long:
		c.tail, c.long = ledger.NewTail(of, from), false
	case c.long:
		return nil, ledger.ErrTailTooLong
	}
	log := r.host.Log()
	if last, err := log.LastIndex(); err != nil || last < to {
		// What is not read must not be taken for what is not there.
		return nil, errors.Join(err, fmt.Errorf("the log ends at entry %d, %d is committed", last, to))
	}
	if c.tail.Next <= to {
		err := log.Scan(c.tail.Next, to, func(m *raftlog.Meta, index, term uint64, events []byte) error {
			if now() > end {
				return errReading
			}
			return c.tail.Add(m, index, term, events)
		})
		c.long = errors.Is(err, ledger.ErrTailTooLong)
		switch {
		case err == errReading:
			return nil, err
		case err != nil:
			if !c.long {
				c.tail = nil
			}
			return nil, fmt.Errorf("reading the log: %w", err)
		}
		c.tail.Next = to + 1
	}
	return c.tail.Of(thread, from, after), nil
}

func unknown(format string, args ...any) api.Outcome {
	return api.Outcome{Result: api.OutcomeUnknown, Why: fmt.Sprintf(format, args...)}
}
