package dump

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"trireme/internal/base/failpoint"
	"trireme/internal/base/mutant"
	"trireme/internal/core/raftlog"
	"trireme/internal/mysql/mysqlwire"
)

const (
	// groupLimit is how long a batch waits for the rest of a commit group that has begun to arrive. mysqld marks the
	// last event of a group. No session waits for an ACK of anything before it, so an earlier cut would cost an fsync
	// that releases no session. The rest is already in the binary log: only an unmarked tail, as after a reconnect,
	// waits that long.
	groupLimit = 2 * time.Millisecond
	// reconnectPause separates attempts to resume.
	reconnectPause = 20 * time.Millisecond
	// largeHeadroom is left in front of a large event for a meta that names one GTID at most, bytes.
	largeHeadroom = 256
)

// errLost marks the loss of a dump connection, which a reconnect may cure.
var errLost = errors.New("dump connection lost")

// Next returns the next payload: all whole transactions that have arrived, up to ChunkBytes, or a piece of a larger
// one. It blocks while there is no payload, and resumes a lost connection by itself. It never delays a transaction that
// a session waits for in the hope of more.
//
// It fails with ctx's error, ErrClosed, ErrNotAttached, ErrDisconnected, or an error that wraps ErrInvariant.
func (s *Source) Next(ctx context.Context) (Payload, error) {
	if err := s.usable(ctx); err != nil {
		return Payload{}, err
	}
	s.bind(ctx)
	for {
		if s.lost {
			if err := s.resume(ctx); err != nil {
				return Payload{}, err
			}
		}
		p, err := s.scan(ctx)
		switch {
		case err == nil:
			s.hand(&p)
			failpoint.Hit("source.batch-cut")
			return p, nil
		case ctx.Err() != nil:
			return Payload{}, context.Cause(ctx)
		case s.usable(ctx) != nil:
			return Payload{}, s.usable(ctx)
		case !errors.Is(err, errLost):
			s.disconnect()
			return Payload{}, asInvariant(err)
		}
		s.cfg.Logger.Warn("lost the dump connection to mysqld", "err", err, "handed_out", s.settled.pos.String())
		s.lost = true
	}
}

// asInvariant: whatever is neither a lost connection nor the caller's doing means that the stream cannot be trusted.
func asInvariant(err error) error {
	if errors.Is(err, ErrInvariant) {
		return err
	}
	return fmt.Errorf("%w: %w", ErrInvariant, err)
}

func (s *Source) usable(ctx context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.closed:
		return ErrClosed
	case !s.attached:
		return ErrNotAttached
	}
	return context.Cause(ctx)
}

// scan reads packets until there is a payload.
func (s *Source) scan(ctx context.Context) (Payload, error) {
	for {
		event, needAck, found, err := s.st.next()
		switch {
		case err != nil:
			return Payload{}, err
		case found == stepPartial && s.cutNow():
			return s.takeCut(), nil
		case found == stepPartial && s.st.full() && len(s.b.spans) > 0:
			return s.takeAny(), nil
		case found == stepPartial && s.st.full():
			err = fmt.Errorf("dump stream: packet longer than %d bytes that is no event: %w", len(s.st.buf),
				mysqlwire.ErrMalformed)
		case found == stepPartial:
			err = s.fill(ctx)
		case found == stepLarge && len(s.b.spans) > 0:
			return s.takeAny(), nil
		case found == stepLarge:
			var p Payload
			if p, err = s.takeLarge(); p.Data != nil {
				return p, nil
			}
		default:
			if s.fresh {
				s.fresh = false
				s.retire()
			}
			var ready bool
			if ready, err = s.take(event, needAck); ready {
				return s.takeAny(), nil
			}
		}
		if err != nil {
			return Payload{}, err
		}
	}
}

// take judges one event; ready means that the batch is full, or that the event must wait for the batch to be gone.
func (s *Source) take(event []byte, needAck bool) (ready bool, err error) {
	if s.skipping {
		s.st.accept(event)
		s.st.kept = s.st.scan
		return false, s.skip(event)
	}
	failpoint.Hit("source.event-read")
	v, err := s.b.add(&s.cut, event, s.st.offset())
	if err != nil {
		return false, err
	}
	if v == newFile && len(s.b.spans) > 0 {
		return true, nil // not accepted: it is looked at again after the cut
	}
	s.st.accept(event)
	if v == keepEnd {
		s.b.mark(s.st.scan, needAck)
	}
	if len(s.b.spans) == 0 {
		s.st.kept = s.st.scan
	}
	return s.b.bytes >= s.cfg.ChunkBytes, nil
}

// cutNow tells, when the buffer is used up, whether to hand out what there is.
func (s *Source) cutNow() bool { return s.b.cut.spans > 0 && (s.b.cut.needAck || s.groupWaited) }

// fill reads more: at most groupLimit for the rest of a commit group, else as long as it takes.
func (s *Source) fill(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	s.b.shift(s.st.compact())
	if s.b.cut.spans == 0 {
		return s.st.fill()
	}
	timedOut, err := s.st.fillWithin(groupLimit)
	s.groupWaited = timedOut
	return err
}

// takeAny hands out the whole transactions of the batch, or all of it if it has no whole transaction.
func (s *Source) takeAny() Payload {
	if s.b.cut.spans > 0 {
		return s.takeCut()
	}
	return s.takePiece()
}

// takeCut hands out the batch up to its cut point. What was scanned after it is scanned again.
func (s *Source) takeCut() Payload {
	cut := &s.b.cut
	p := s.assemble(&cut.cutter, s.b.spans[:cut.spans], cut.bytes, 0)
	s.st.kept, s.st.scan = cut.scan, cut.scan
	s.settle(cut.cutter)
	return p
}

// takePiece hands out all of a batch that holds no end of a transaction.
func (s *Source) takePiece() Payload {
	p := s.assemble(&s.b.cutter, s.b.spans, s.b.bytes, raftlog.FlagUnfinished)
	s.st.kept = s.st.scan
	s.settle(s.b.cutter)
	return p
}

// assemble copies events from the buffer after a meta.
func (s *Source) assemble(end *cutter, spans []span, bytes int, flags raftlog.Flags) Payload {
	p := Payload{Meta: s.meta(end, flags)}
	p.Data = make([]byte, 0, raftlog.MetaSize(&p.Meta)+bytes)
	p.Data = raftlog.AppendMeta(p.Data, &p.Meta)
	for _, e := range spans {
		p.Data = append(p.Data, s.st.buf[e.off:e.off+e.size]...)
	}
	s.count(bytes)
	return p
}

// meta describes the batch as ending at end.
func (s *Source) meta(end *cutter, flags raftlog.Flags) raftlog.Meta {
	if s.b.continues {
		flags |= raftlog.FlagContinues
	}
	if s.b.special {
		flags |= raftlog.FlagSpecial
	}
	start := s.settled.pos
	if start.File != end.pos.File { // files without a transaction may lie between: one step is what the chain allows
		start = raftlog.Pos{File: start.File + 1, Off: firstOffset}
	}
	return raftlog.Meta{
		Kind: raftlog.Trx, Flags: flags, Node: s.cfg.Node, Incarnation: s.cfg.Incarnation,
		Start: start, End: end.pos, GTIDs: s.b.gtids,
	}
}

func (s *Source) count(bytes int) {
	s.stats.payloads.Add(1)
	s.stats.transactions.Add(s.b.trxs)
	s.stats.bytes.Add(uint64(bytes))
}

// takeLarge reads an event that does not fit the buffer straight into a payload of its own. Data is nil when the event
// is not one to hand out.
func (s *Source) takeLarge() (Payload, error) {
	size, err := s.st.largeHead()
	if err != nil {
		return Payload{}, err
	}
	data := make([]byte, largeHeadroom+size)
	event := data[largeHeadroom:]
	if _, err := s.st.readLarge(event); err != nil {
		return Payload{}, err
	}
	if s.skipping {
		return Payload{}, s.skip(event)
	}
	v, err := s.b.add(&s.cut, event, 0)
	if err != nil || v == drop || v == newFile {
		return Payload{}, err
	}
	var flags raftlog.Flags
	if v == keep {
		flags = raftlog.FlagUnfinished
	}
	p := Payload{Meta: s.meta(&s.b.cutter, flags)}
	head := largeHeadroom - raftlog.MetaSize(&p.Meta)
	raftlog.AppendMeta(data[head:head], &p.Meta)
	p.Data = data[head:]
	s.count(size)
	s.settle(s.b.cutter)
	return p, nil
}

// settle makes at the point from which the next payload begins.
func (s *Source) settle(at cutter) {
	s.settled = at
	s.b.begin(&s.settled)
	s.groupWaited = false
}

// hand records that p is the caller's, so that it may be acknowledged.
func (s *Source) hand(p *Payload) {
	s.lostSince = time.Time{}
	s.mu.Lock()
	s.handed = p.Meta.End
	s.mu.Unlock()
}

// skip passes over an event that was handed out before the connection was lost.
func (s *Source) skip(event []byte) error {
	done, err := s.skipper.pass(&s.cut, event, s.settled.pos)
	if err != nil {
		return err
	}
	s.stats.skipped.Add(uint64(len(event)))
	if done {
		s.skipping = false
		s.b.begin(&s.settled)
	}
	return nil
}

// readFDE reads until the stream has told the incarnation's FORMAT_DESCRIPTION event.
func (s *Source) readFDE(ctx context.Context) error {
	s.bind(ctx)
	for s.cut.fde == nil {
		event, needAck, found, err := s.st.next()
		switch {
		case err != nil:
		case found == stepPartial:
			err = s.fill(ctx)
		case found == stepLarge:
			err = fmt.Errorf("dump stream begins with a large event: %w", mysqlwire.ErrMalformed)
		default:
			_, err = s.take(event, needAck)
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// resume brings back a lost stream, within ReconnectLimit since it was lost.
func (s *Source) resume(ctx context.Context) error {
	if s.lostSince.IsZero() {
		s.lostSince = time.Now()
	} else if err := pause(ctx, reconnectPause); err != nil {
		return err
	}
	deadline := s.lostSince.Add(s.cfg.ReconnectLimit)
	var last error
	for time.Now().Before(deadline) {
		err := s.connect(ctx, deadline)
		if err == nil {
			s.stats.reconnects.Add(1)
			s.cfg.Logger.Info("resumed the binary log", "from", s.skipper.pos.String(), "handed_out", s.settled.pos.String())
			return nil
		}
		if u := s.usable(ctx); u != nil {
			return u
		}
		last = err
		if err := pause(ctx, reconnectPause); err != nil {
			return err
		}
	}
	s.lostSince = time.Time{}
	if last == nil {
		last = errLost
	}
	return fmt.Errorf("%w for %v: %w", ErrDisconnected, s.cfg.ReconnectLimit, last)
}

func pause(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// connect starts a dump on an idle session, from the acknowledged position: mysqld takes that position as acknowledged,
// so starting from what was handed out would release commits that no majority has (S1). What lies between is skipped.
func (s *Source) connect(ctx context.Context, deadline time.Time) error {
	ctx, cancel := context.WithDeadlineCause(ctx, deadline, errNoSession)
	defer cancel()
	session, err := s.pool.take(ctx)
	if err != nil {
		return err
	}
	from := s.Acked()
	nc, rest, err := session.startDump(ctx, &s.cfg, from)
	if err != nil {
		session.close()
		return err
	}
	if err := s.st.reset(nc, rest, s.cfg.SilenceLimit); err != nil {
		session.close()
		return err
	}
	s.rewind(from)
	s.lost = false
	return s.install(from)
}

// rewind makes the stream, which restarts at from, continue after what was handed out.
func (s *Source) rewind(from raftlog.Pos) {
	if mutant.S12 {
		s.settled = cutter{pos: from, placed: true, midway: true}
	}
	s.skipper = cutter{pos: from}
	s.skipping = from != s.settled.pos
	s.b.begin(&s.settled)
	s.b.cutter.placed = false
	s.groupWaited = false
}

// errNoSession says why connect ran out of time: most often a login that waits for an account statement.
var errNoSession = errors.New("no session with mysqld could be opened in time")

// install puts the connection to use for ACKs and sends the one that came meanwhile. The connection before it is closed
// by retire, when the new stream has begun.
func (s *Source) install(from raftlog.Pos) error {
	wire := newAckWriter(&s.cfg, s.st.nc, func() { s.stats.acks.Add(1) })
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		wire.close()
		return ErrClosed
	}
	switch {
	case s.wire == nil:
	case s.fresh: // it never brought anything: nothing polls it
		s.wire.close()
	default:
		s.retired = append(s.retired, s.wire)
	}
	s.wire, s.fresh = wire, true
	if s.acked != from {
		wire.send(s.acked)
	}
	return nil
}

// retire closes the connections before the one in use, now that mysqld has registered this one as a replica. Its ACK
// receiver polls the replicas that it knew when it began to poll, for up to a second (semisync_source_ack_receiver.cc);
// the close wakes it, and it finds the new one. Closed earlier, they would leave it polling nothing, and every commit
// waiting for that second.
func (s *Source) retire() {
	s.mu.Lock()
	old := s.retired
	s.retired = nil
	s.mu.Unlock()
	for _, w := range old {
		w.close()
	}
}

// disconnect closes all connections but the spare.
func (s *Source) disconnect() {
	s.retire()
	s.mu.Lock()
	wire := s.wire
	s.wire = nil
	s.mu.Unlock()
	if wire != nil {
		wire.close()
	}
	s.lost = true
}

// bind makes the end of ctx end a blocked read. The context of consecutive calls is nearly always the same.
func (s *Source) bind(ctx context.Context) {
	if s.boundTo == ctx.Done() {
		return
	}
	s.release()
	s.boundTo = ctx.Done()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return
	}
	binding := s.binding
	s.unbind = context.AfterFunc(ctx, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.wire != nil && s.binding == binding {
			// Next may be about to set a later deadline; it then sees ctx at the next heartbeat.
			_ = s.wire.nc.SetReadDeadline(time.Unix(1, 0))
		}
	})
}

// release undoes bind: the end of the context has no effect any more.
func (s *Source) release() {
	if s.boundTo == nil {
		return
	}
	s.boundTo = nil
	s.mu.Lock()
	s.forget()
	s.binding++
	s.mu.Unlock()
	s.st.deadline = time.Time{} // whatever it was set to, it is set again
}

// forget takes this Source out of the context, which would keep it, and its buffer, for as long as it lasts itself.
// s.mu is held.
func (s *Source) forget() {
	if s.unbind != nil {
		s.unbind()
		s.unbind = nil
	}
}

func lost(err error) error {
	if err == nil {
		err = io.ErrUnexpectedEOF
	}
	return fmt.Errorf("%w: %w", errLost, err)
}
