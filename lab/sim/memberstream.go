package sim

import (
	"context"

	"trireme/internal/core/dump"
	"trireme/internal/core/raftlog"
	"trireme/internal/node/lifecycle"
	"trireme/lab/sim/fakemysql"
)

// stream is the dump of a life's binary log (lifecycle.Stream).
type stream struct {
	p      *mysqlProcess
	source *dump.Stepper
	conn   *fakemysql.Dump // nil: lost, or never begun
	closed bool
	ackDue raftlog.Pos

	reader *task // in Run
	full   bool  // see dump.Source.Run
	due    bool  // the reader is about to go on
}

// NewSource implements lifecycle.Host.
func (g *member) NewSource(l *lifecycle.Life) lifecycle.Stream {
	return &stream{p: g.proc, source: dump.NewStepper(dump.SourceConfig{Node: uint16(g.n.ID), Incarnation: l.Incarnation,
		ServerUUID: l.UUID, ChunkBytes: g.sql.chunk})}
}

// stream of the life that runs; nil: none runs.
func (g *member) stream() *stream {
	l := g.lives.Life()
	if l == nil {
		return nil
	}
	src, _ := l.Stream()
	return src.(*stream)
}

// Prepare implements lifecycle.Stream.
func (s *stream) Prepare(ctx context.Context) error { return s.p.do(ctx, nil) }

// Attach implements lifecycle.Stream.
func (s *stream) Attach(ctx context.Context, from raftlog.Pos) (format []byte, err error) {
	g := s.p.g
	s.source.Attach(from)
	if err := s.p.do(ctx, func() { s.conn = g.srv.Dump(fakePos(from), true) }); err != nil {
		return nil, err
	}
	err = exec{g}.until(ctx, func() bool {
		for s.conn != nil && len(s.source.FDE()) == 0 {
			ev, need, ok, lost := s.conn.Next()
			if lost || !ok {
				return s.p.dead
			}
			if !s.take(ev, need) {
				return false
			}
			if _, ok, err := s.source.Next(false); ok || err != nil {
				g.w.Violate("S12", "node %d: a payload before the FORMAT_DESCRIPTION event: %v", g.n.ID, err)
				return false
			}
		}
		return s.conn != nil || s.p.dead
	})
	if s.p.dead {
		err = errDeadMySQL
	}
	return s.source.FDE(), err
}

// take gives the source an event. A broken stream is a violated invariant.
func (s *stream) take(ev []byte, need bool) bool {
	err := s.source.Event(ev, need)
	if err != nil {
		s.p.g.w.Violate("S12", "node %d: %v", s.p.g.n.ID, err)
	}
	return err == nil
}

// Ack implements lifecycle.Stream.
func (s *stream) Ack(incarnation uint64, pos raftlog.Pos) error {
	before := s.source.Acked()
	err := s.source.Ack(incarnation, pos)
	if s.source.Acked() != before && s.conn != nil {
		s.ackDue = pos
		s.sendAck()
	}
	return err
}

// sendAck tells mysqld what may go on, unless it hangs.
func (s *stream) sendAck() {
	if s.p.g.alive() && s.p.g.proc == s.p && s.conn != nil {
		s.p.g.srv.Ack(fakePos(s.ackDue))
		s.p.g.sql.drain(s.p.g)
	}
}

// Position and Acked implement lifecycle.Stream.
func (s *stream) Position() raftlog.Pos { return s.source.Position() }
func (s *stream) Acked() raftlog.Pos    { return s.source.Acked() }

// Resume implements lifecycle.Stream.
func (s *stream) Resume() {
	s.full = false
	s.readSoon()
}

// Close implements lifecycle.Stream.
func (s *stream) Close() error {
	s.closed, s.conn = true, nil
	s.readSoon()
	return nil
}

// Run implements lifecycle.Stream. A few payloads are handed out at a time.
func (s *stream) Run(ctx context.Context, take func(dump.Payload) (more bool)) error {
	g := s.p.g
	s.reader, s.full = g.running, false
	defer func() { s.reader = nil }()
	for ctx.Err() == nil && !s.closed {
		if !s.p.dead && !g.hung && !s.full {
			p, ok, err := s.next()
			if err != nil {
				g.w.Violate("S12", "node %d: the stream of mysqld's binary log is broken: %v", g.n.ID, err)
				return err
			}
			if ok {
				s.full = true
				if take(p) {
					s.full = false
				} else {
					g.w.Count("waits for room", 1)
				}
				if g.w.rnd.IntN(3) == 0 {
					continue
				}
				s.readSoon()
			}
		}
		g.running.park()
	}
	if s.closed {
		return dump.ErrClosed
	}
	return ctx.Err()
}

// readSoon lets the reader go on, if there is one.
func (s *stream) readSoon() {
	if s == nil || s.reader == nil || s.due {
		return
	}
	s.due = true
	s.p.g.n.in(s.p.g.short()/4, func() {
		if s.due = false; s.reader != nil {
			s.reader.unpark()
		}
	})
}

// next is the next payload, if there is one.
func (s *stream) next() (p dump.Payload, ok bool, err error) {
	g := s.p.g
	if s.conn == nil { // resumed from what was acknowledged, over the spare session
		from := s.source.Resume()
		if g.sql.broken("S12") {
			s.source.Attach(from)
		}
		s.conn = g.srv.Dump(fakePos(from), true)
		g.sql.drain(g)
	}
	for {
		if p, ok, err = s.source.Next(false); ok || err != nil {
			return p, ok, err
		}
		ev, need, more, lost := s.conn.Next()
		switch {
		case lost:
			s.conn = nil
			return p, false, nil
		case !more:
			return s.source.Next(true)
		}
		if err := s.source.Event(ev, need); err != nil {
			return p, false, err
		}
	}
}
