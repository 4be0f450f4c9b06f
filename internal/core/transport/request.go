package transport

import (
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"time"
)

// request:  id u64 | limit ms u32 | kind u8 | body
// response: id u64 | outcome u8 | body, or the error's text
const (
	requestHeader  = 13
	responseHeader = 9
)

type outcome uint8

const (
	outcomeOK outcome = iota
	outcomeError
	outcomeBusy
	outcomeTooLarge
)

// maxRequestTime bounds what a peer may ask for.
const maxRequestTime = time.Minute

// request sends a request on the control stream and waits for its answer.
func (l *link) request(ctx context.Context, kind uint8, body []byte) (answer []byte, err error) {
	var remote *RemoteError
	defer func() {
		if err != nil && !errors.As(err, &remote) {
			err = fmt.Errorf("request %d to peer %d: %w", kind, l.p.id, err)
		}
	}()
	limit := maxRequestTime
	if d, ok := ctx.Deadline(); ok {
		limit = min(limit, time.Until(d))
	}
	if limit <= 0 || ctx.Err() != nil {
		return nil, cmp.Or(context.Cause(ctx), context.DeadlineExceeded)
	}
	id, ch, err := l.call(kind, body, limit)
	if err != nil {
		return nil, err
	}
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case a := <-ch:
		return a.body, a.err
	case <-ctx.Done():
		err = ctx.Err()
	case <-timer.C:
		err = context.DeadlineExceeded
	case <-l.p.ctx.Done():
		err = ErrClosed
		if l.p.t.ctx.Err() == nil {
			err = ErrRemoved
		}
	}
	l.mu.Lock()
	delete(l.calls, id)
	l.mu.Unlock()
	return nil, err
}

// call queues a request.
func (l *link) call(kind uint8, body []byte, limit time.Duration) (uint64, chan answer, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.conn == nil {
		return 0, nil, ErrNotConnected
	}
	if len(l.calls) >= maxCalls || l.bytes > 0 && l.bytes+len(body) > l.limit {
		return 0, nil, ErrBusy
	}
	l.lastID++
	ch := make(chan answer, 1)
	l.calls[l.lastID] = ch
	f := make([]byte, 0, requestHeader+len(body))
	f = binary.LittleEndian.AppendUint64(f, l.lastID)
	f = binary.LittleEndian.AppendUint32(f, uint32((limit+time.Millisecond-1)/time.Millisecond))
	f = append(append(f, kind), body...)
	l.frames = append(l.frames, f)
	l.bytes += len(f)
	l.mark()
	l.p.t.loop.Wake()
	return l.lastID, ch, nil
}

// answered matches a response with its request, and drops a response that no caller waits for any more.
func (l *link) answered(body []byte) error {
	if len(body) < responseHeader {
		return fmt.Errorf("%w: response of %d bytes", ErrProtocol, len(body))
	}
	id, how, rest := binary.LittleEndian.Uint64(body), outcome(body[8]), body[responseHeader:]
	a := answer{body: rest}
	switch how {
	case outcomeOK:
	case outcomeError:
		a = answer{err: &RemoteError{Peer: l.p.id, Text: string(rest)}}
	case outcomeBusy:
		a = answer{err: ErrBusy}
	case outcomeTooLarge:
		a = answer{err: ErrTooLarge}
	default:
		return fmt.Errorf("%w: response with outcome %d", ErrProtocol, how)
	}
	l.mu.Lock()
	ch := l.calls[id]
	delete(l.calls, id)
	l.mu.Unlock()
	if ch != nil {
		ch <- a
	}
	return nil
}

// response is what a request came to.
type response struct {
	id   uint64
	how  outcome
	body []byte
}

func (in *inbound) respond(r response) error {
	head := append(binary.LittleEndian.AppendUint64(nil, r.id), byte(r.how))
	return in.w.frame(frameResponse, head, r.body)
}

// startRequest handles one request of a peer in a goroutine of its own.
func (in *inbound) startRequest(body []byte) error {
	if len(body) < requestHeader {
		return fmt.Errorf("%w: request of %d bytes", ErrProtocol, len(body))
	}
	id, limit, kind := binary.LittleEndian.Uint64(body), binary.LittleEndian.Uint32(body[8:]), body[12]
	if in.requests >= maxRequestsPerPeer {
		return in.respond(response{id: id, how: outcomeBusy})
	}
	in.requests++
	in.t.wg.Add(1)
	go func() {
		defer in.t.wg.Done()
		ctx, cancel := context.WithTimeout(in.ctx, min(time.Duration(limit)*time.Millisecond, maxRequestTime))
		defer cancel()
		answer, err := in.t.cfg.Handler.HandleRequest(ctx, in.from, kind, body[requestHeader:])
		if in.ctx.Err() != nil {
			return // an answer cut short by the end of the connection does not count
		}
		how := outcomeOK
		switch {
		case err != nil:
			text := err.Error()
			how, answer = outcomeError, []byte(text[:min(len(text), 4096)])
		case len(answer) > MaxRequestBytes:
			how, answer = outcomeTooLarge, nil
		}
		in.mu.Lock()
		in.responses = append(in.responses, response{id, how, answer})
		in.mu.Unlock()
		in.t.mark(in.conn)
		in.t.loop.Wake()
	}()
	return nil
}

// next writes an answer.
func (in *inbound) next() (bool, error) {
	in.mu.Lock()
	if len(in.responses) == 0 {
		in.mu.Unlock()
		return false, nil
	}
	r := in.responses[0]
	in.responses[0].body = nil
	in.responses = in.responses[1:]
	in.mu.Unlock()
	in.requests--
	return true, in.respond(r)
}
