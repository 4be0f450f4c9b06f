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

// batch is what has been scanned and not yet handed out. The stream's buffer keeps its events.
type batch struct {
	cutter cutter       // after the newest event
	meta   raftlog.Meta // GTIDs and flags of its transactions
	cut    cutPoint
}

// cutPoint is the newest end of a transaction in a batch, where the batch can end without splitting one. There is no
// such point if bytes is 0.
type cutPoint struct {
	cutter  cutter
	bytes   int  // of events before it
	needAck bool // mysqld marked the event: it ends a commit group, and somebody waits for it
}

// scan makes the next payload of what has been read: all whole transactions, up to ChunkBytes, or a piece of a larger
// one. ok is false if more has to be read first, and once when the FORMAT_DESCRIPTION event has come. It never delays a
// transaction that a session waits for in the hope of more.
func (s *Source) scan() (p Payload, ok bool, err error) {
	for {
		event, needAck, found, err := s.st.next()
		switch {
		case err != nil:
			return p, false, err
		case found == stepPartial && s.cutNow():
			return s.takeAny(), true, nil
		case found == stepPartial && !s.st.full():
			return p, false, nil
		case found != stepEvent && found != stepLargeEnd && s.st.held() > 0:
			return s.takeAny(), true, nil
		case found == stepPartial:
			err = fmt.Errorf("dump stream: packet longer than %d bytes that is no event: %w", len(s.st.buf),
				mysqlwire.ErrMalformed)
		case found == stepLarge:
			err = s.st.begin()
		case found == stepLargeEnd:
			if p, err = s.takeLarge(); p.Data != nil {
				return p, true, nil
			}
		default:
			s.retire()
			begins := s.cut.fde == nil
			var ready bool
			if ready, err = s.take(event, needAck); ready {
				return s.takeAny(), true, nil
			}
			if begins && s.cut.fde != nil {
				return p, false, err
			}
		}
		if err != nil {
			return p, false, err
		}
	}
}

// take judges one event; ready means that the batch is full, or belongs to a file that has ended.
func (s *Source) take(event []byte, needAck bool) (ready bool, err error) {
	failpoint.Hit("source.event-read")
	v, err := s.judge(event)
	if err != nil {
		return false, err
	}
	s.st.pass(event, v == keep || v == keepEnd)
	held := s.st.held()
	if v == keepEnd {
		s.b.cut = cutPoint{s.b.cutter, held, needAck}
	}
	return held >= s.cfg.ChunkBytes || v == newFile && held > 0, nil
}

// judge checks an event, and counts the transaction that it ends.
func (s *Source) judge(event []byte) (verdict, error) {
	v, err := s.b.cutter.add(&s.cut, event)
	if err == nil && v == keepEnd {
		trx := s.b.cutter.asm.Trx()
		s.b.meta.AddGTID(trx.GTID)
		if trx.Special {
			s.b.meta.Flags |= raftlog.FlagSpecial
		}
	}
	return v, err
}

// cutNow tells, when all that was read has been looked at, whether to hand out what there is.
func (s *Source) cutNow() bool { return s.b.cut.bytes > 0 && (s.b.cut.needAck || s.groupWaited) }

// takeAny hands out the whole transactions of the batch, or all of it if it has no whole transaction.
func (s *Source) takeAny() Payload {
	end, bytes, flags := s.b.cut.cutter, s.b.cut.bytes, raftlog.Flags(0)
	if bytes == 0 {
		end, bytes, flags = s.b.cutter, s.st.held(), raftlog.FlagUnfinished
	}
	p := Payload{Meta: s.meta(&end, flags)}
	size := raftlog.MetaSize(&p.Meta) + bytes
	if bytes < s.cfg.ChunkBytes {
		p.Data = make([]byte, 0, size)
	} else {
		p.Data, p.Release = s.room(size)
	}
	p.Data = append(raftlog.AppendMeta(p.Data, &p.Meta), s.st.give(bytes)...)
	s.settle(end)
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
	m := s.b.meta
	m.Kind, m.Flags, m.Node, m.Incarnation = raftlog.Trx, m.Flags|flags, s.cfg.Node, s.cfg.Incarnation
	m.Start, m.End = s.settled.pos, end.pos
	if m.Start.File != m.End.File { // files without a transaction may lie between: one step is what the chain allows
		m.Start = raftlog.Pos{File: m.Start.File + 1, Off: firstOffset}
	}
	return m
}

// takeLarge hands out the large event that has come. Data is nil when it is not one to hand out.
func (s *Source) takeLarge() (Payload, error) {
	data, event := s.st.large.data, s.st.large.event()
	s.st.large = nil
	v, err := s.judge(event)
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
	s.settle(s.b.cutter)
	return p, nil
}

// settle makes at the point from which the next payload begins. What was kept after it stays.
func (s *Source) settle(at cutter) {
	s.settled = at
	s.b.meta, s.b.cut = raftlog.Meta{}, cutPoint{}
	if at.asm.InTransaction() {
		s.b.meta.Flags = raftlog.FlagContinues
	}
	s.groupWaited = false
}

// hand records that p is the caller's, so that it may be acknowledged.
func (s *Source) hand(p *Payload) {
	s.lostSince = time.Time{}
	s.mu.Lock()
	s.handed = p.Meta.End
	s.mu.Unlock()
}
