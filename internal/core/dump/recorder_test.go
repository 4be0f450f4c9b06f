package dump

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"trireme/internal/base/loop"
	"trireme/internal/core/raftlog"
	"trireme/internal/mysql/binlog"
	"trireme/internal/mysql/gtid"
)

// recorder plays consensus: it takes payloads from a Source, checks the stream's chain and GTIDs as the log would,
// and acknowledges them, unless told not to.
type recorder struct {
	t    *testing.T
	src  *Source
	l    *loop.Loop
	stop func()
	done chan error

	mu       sync.Mutex
	hold     bool // no ACKs
	payloads []Payload
	discard  atomic.Bool // keep no data
	gtids    gtid.Set
	count    uint64 // transactions
	asm      binlog.Assembler
	end      raftlog.Pos
	largest  int
	sink     func(Payload)
	proposed func(Payload)     // gets the payload before its ACK
	delayed  chan raftlog.Meta // ACKs on their way, when they take a round trip
}

// delayAcks makes every ACK come d after its payload, as from a majority far away.
func (r *recorder) delayAcks(d time.Duration) {
	type due struct {
		at   time.Time
		meta raftlog.Meta
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.delayed = make(chan raftlog.Meta, 1<<16)
	queue := make(chan due, 1<<16)
	ctx := r.t.Context()
	go func() {
		for {
			select {
			case m := <-r.delayed:
				queue <- due{time.Now().Add(d), m}
			case <-ctx.Done():
				close(queue)
				return
			}
		}
	}()
	go func() {
		for q := range queue {
			time.Sleep(time.Until(q.at)) // the delay is what is being modelled
			if err := r.src.Ack(q.meta.Incarnation, q.meta.End); err != nil && !errors.Is(err, ErrClosed) {
				r.t.Error(err)
			}
		}
	}()
}

func record(t *testing.T, src *Source, from raftlog.Pos) *recorder {
	t.Helper()
	fde, err := src.Attach(limit(t, 10*time.Second), from)
	if err != nil {
		t.Fatal(err)
	}
	d, err := binlog.ParseFormatDescription(fde)
	if err != nil || d.Created != 0 || binlog.VerifyChecksum(fde) != nil {
		t.Fatalf("FDE %+v %v", d, err)
	}
	r := &recorder{t: t, src: src, done: make(chan error, 1), end: from}
	r.start()
	t.Cleanup(r.finish)
	return r
}

func (r *recorder) start() {
	ctx, cancel := context.WithCancelCause(context.Background())
	r.stop = func() { cancel(nil) }
	r.l = r.src.cfg.Loop
	go func() {
		r.done <- r.src.Run(ctx, func(p Payload) bool {
			err := r.take(p)
			if err != nil {
				cancel(err)
			}
			return err == nil
		})
	}()
}

func (r *recorder) finish() {
	r.stop()
	select {
	case err := <-r.done:
		r.done <- err
		if !errors.Is(err, context.Canceled) && !errors.Is(err, ErrClosed) {
			r.t.Errorf("Run: %v", err)
		}
	case <-time.After(20 * time.Second):
		r.t.Error("Run outlives its context")
	}
}

func (r *recorder) take(p Payload) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	m, events, err := raftlog.DecodeMeta(p.Data)
	if err != nil {
		return err
	}
	if fmt.Sprint(m) != fmt.Sprint(p.Meta) {
		return fmt.Errorf("meta %+v in data, %+v next to it", m, p.Meta)
	}
	step := raftlog.Pos{File: r.end.File + 1, Off: 4}
	if m.Start != r.end && m.Start != step {
		return fmt.Errorf("payload starts at %v, the one before it ended at %v", m.Start, r.end)
	}
	r.end = m.End
	if continues := m.Flags&raftlog.FlagContinues != 0; continues != r.asm.InTransaction() {
		return fmt.Errorf("continues %v, unfinished before %v", continues, r.asm.InTransaction())
	}
	r.largest = max(r.largest, len(events))
	for len(events) > 0 {
		h, ev, rest, err := binlog.Cut(events)
		if err != nil {
			return err
		}
		if err := binlog.VerifyChecksum(ev); err != nil {
			return err
		}
		b, err := r.asm.Feed(h, ev)
		if err != nil {
			return err
		}
		if b == binlog.End {
			r.count++
			if !r.gtids.Add(r.asm.Trx().GTID) {
				return fmt.Errorf("GTID %v came twice", r.asm.Trx().GTID)
			}
		}
		events = rest
	}
	if unfinished := m.Flags&raftlog.FlagUnfinished != 0; unfinished != r.asm.InTransaction() {
		return fmt.Errorf("flag unfinished %v, in transaction %v", unfinished, r.asm.InTransaction())
	}
	if r.proposed != nil {
		r.proposed(p)
	}
	if r.discard.Load() {
		p.Data = nil
	}
	r.payloads = append(r.payloads, p)
	if r.sink != nil {
		r.sink(p)
	}
	if r.hold {
		return nil
	}
	if r.delayed != nil {
		r.delayed <- p.Meta
		return nil
	}
	return r.src.Ack(m.Incarnation, m.End)
}

// release acknowledges everything that was handed out.
func (r *recorder) release() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.hold = false
	if n := len(r.payloads); n > 0 {
		m := r.payloads[n-1].Meta
		if err := r.src.Ack(m.Incarnation, m.End); err != nil {
			r.t.Error(err)
		}
	}
}

func (r *recorder) setHold(hold bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.hold = hold
}

func (r *recorder) transactions() uint64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.count
}

// seen tells how many payloads came, and how many bytes of events the largest has.
func (r *recorder) seen() (payloads, largest int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.payloads), r.largest
}

// kinds lists the flags of the payloads since the n-th.
func (r *recorder) special() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.payloads[len(r.payloads)-1].Meta.Flags&raftlog.FlagSpecial != 0
}
