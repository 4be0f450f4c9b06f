package sim

import (
	"context"

	"trireme/internal/core/dump"
	"trireme/internal/core/raftlog"
	"trireme/internal/node/lifecycle"
	"trireme/lab/sim/fakemysql"
)

// stream is the dump of a life's binary log (lifecycle.Stream), and the pump that carries it to Raft, node.pump: a
// payload at a time, the next one when raft has taken it.
type stream struct {
	p      *mysqlProcess
	source *dump.Stepper
	conn   *fakemysql.Dump // nil: lost, or never begun
	closed bool
	ackDue raftlog.Pos

	term      uint64 // of the pump
	pumping   bool
	due       bool
	proposing bool
	pending   []byte // a payload that could not be proposed yet
	ended     func() // see lifecycle.Life.CarryStream
}

// NewSource implements lifecycle.Host.
func (g *glue) NewSource(l *lifecycle.Life) lifecycle.Stream {
	return &stream{p: g.proc, source: dump.NewStepper(dump.SourceConfig{Node: uint16(g.n.ID), Incarnation: l.Incarnation,
		ServerUUID: l.UUID, ChunkBytes: g.sql.chunk})}
}

// stream of the life that runs; nil: none runs.
func (g *glue) stream() *stream {
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

// Position and the next ones implement lifecycle.Stream: here it is pump that reads on.
func (s *stream) Position() raftlog.Pos { return s.source.Position() }
func (s *stream) Acked() raftlog.Pos    { return s.source.Acked() }
func (s *stream) Resume()               {}
func (s *stream) Run(context.Context, func(dump.Payload) bool) error {
	return dump.ErrClosed
}

// Close implements lifecycle.Stream.
func (s *stream) Close() error {
	s.closed, s.conn = true, nil
	if !s.proposing {
		s.end()
	}
	return nil
}

// carry begins to carry the stream to Raft.
func (s *stream) carry(term uint64, ended func()) {
	s.term, s.pumping, s.ended = term, true, ended
	s.pumpSoon()
}

// end is that of the pump.
func (s *stream) end() {
	if s.pumping {
		s.pumping = false
		s.ended()
	}
}

// pumpSoon lets the pump carry on.
func (s *stream) pumpSoon() {
	if s == nil || s.due || !s.pumping || !s.p.g.up {
		return
	}
	s.due = true
	s.p.g.n.in(s.p.g.short()/4, func() {
		s.due = false
		if !s.p.dead {
			s.pump()
		}
	})
}

func (s *stream) pump() {
	g := s.p.g
	if !s.pumping || s.proposing || g.hung {
		return
	}
	if s.pending != nil {
		s.propose()
		return
	}
	if s.conn == nil { // resumed from what was acknowledged, over the spare session
		from := s.source.Resume()
		if g.sql.broken("S12") {
			s.source.Attach(from)
		}
		s.conn = g.srv.Dump(fakePos(from), true)
		g.sql.drain(g)
	}
	for {
		p, ok, err := s.source.Next(false)
		if err != nil {
			g.w.Violate("S12", "node %d: the stream of mysqld's binary log is broken: %v", g.n.ID, err)
			return
		}
		if !ok {
			ev, need, more, lost := s.conn.Next()
			if lost {
				s.conn = nil
				return
			}
			if more {
				if !s.take(ev, need) {
					return
				}
				continue
			}
			if p, ok, err = s.source.Next(true); err != nil || !ok {
				return
			}
		}
		s.pending = p.Data
		s.propose()
		if g.sql.broken("S1") {
			g.acks.Acknowledge(s.term, &p.Meta)
		}
		return
	}
}

func (s *stream) propose() {
	g := s.p.g
	s.proposing = true
	g.n.Propose(g.proposalTerm(s.term), s.pending, func(_, _ uint64, err error) {
		s.proposing = false
		if err == nil {
			s.pending = nil
		}
		switch {
		case s.closed:
			s.end()
		case err == nil:
			s.pumpSoon()
		default:
			s.end() // the loop fences: what was dropped makes the life undrained
			g.wakeLoop()
		}
	})
}
