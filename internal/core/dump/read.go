package dump

import (
	"fmt"
	"time"

	"trireme/internal/base/failpoint"
	"trireme/internal/core/raftlog"
	"trireme/internal/mysql/mysqlwire"
)

const (
	// groupLimit is how long a batch waits for the rest of a commit group that has begun to arrive. mysqld marks the
	// last event of a group. No session waits for an ACK of anything before it, so an earlier cut would cost an fsync
	// that releases no session. The rest is already in the binary log: only an unmarked tail, as after a reconnect,
	// waits that long.
	groupLimit = 2 * time.Millisecond
	// largeHeadroom is left in front of a large event for a meta that names one GTID at most, bytes.
	largeHeadroom = 256
)

// scan makes the next payload of what has been read: all whole transactions, up to ChunkBytes, or a piece of a larger
// one. ok is false if more has to be read first. It never delays a transaction that a session waits for in the hope of
// more.
func (s *Source) scan() (p Payload, ok bool, err error) {
	for {
		event, needAck, found, err := s.st.next()
		switch {
		case err != nil:
			return p, false, err
		case found == stepPartial && s.cutNow():
			return s.takeCut(), true, nil
		case found == stepPartial && s.st.full() && len(s.b.spans) > 0:
			return s.takeAny(), true, nil
		case found == stepPartial && s.st.full():
			err = fmt.Errorf("dump stream: packet longer than %d bytes that is no event: %w", len(s.st.buf),
				mysqlwire.ErrMalformed)
		case found == stepPartial:
			return p, false, nil
		case found == stepLarge && len(s.b.spans) > 0:
			return s.takeAny(), true, nil
		case found == stepLarge:
			err = s.st.begin()
		case found == stepLargeEnd:
			if p, err = s.takeLarge(); p.Data != nil {
				return p, true, nil
			}
		default:
			if s.fresh {
				s.fresh = false
				s.retire()
			}
			var ready bool
			if ready, err = s.take(event, needAck); ready {
				return s.takeAny(), true, nil
			}
		}
		if err != nil {
			return p, false, err
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

// cutNow tells, when all that was read has been looked at, whether to hand out what there is.
func (s *Source) cutNow() bool { return s.b.cut.spans > 0 && (s.b.cut.needAck || s.groupWaited) }

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
	size := raftlog.MetaSize(&p.Meta) + bytes
	if bytes < s.cfg.ChunkBytes {
		p.Data = make([]byte, 0, size)
	} else {
		p.Data, p.Release = s.room(size)
	}
	p.Data = raftlog.AppendMeta(p.Data, &p.Meta)
	for _, e := range spans {
		p.Data = append(p.Data, s.st.buf[e.off:e.off+e.size]...)
	}
	s.count(bytes)
	return p
}

// room is memory for a piece, that of an earlier one where it was released.
func (s *Source) room(size int) (b []byte, release func()) {
	b, s.spare = s.spare, nil
	if cap(b) < size {
		b = make([]byte, 0, size)
	}
	return b, func() { s.spare = b }
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

// takeLarge hands out the large event that has come. Data is nil when it is not one to hand out.
func (s *Source) takeLarge() (Payload, error) {
	data, event := s.st.large.data, s.st.large.event()
	s.st.large = nil
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
	s.count(len(event))
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
