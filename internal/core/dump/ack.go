package dump

import (
	"golang.org/x/sys/unix"

	"trireme/internal/base/loop"
	"trireme/internal/core/raftlog"
)

// Ack tells mysqld that everything up to pos is durable on a majority: the end position written in a committed entry
// of incarnation inc, in the term that proposed it (S1). It is cumulative and never blocks; a position at or below the
// newest one is ignored. While there is no connection the position is kept and sent with the next.
//
// It fails with ErrInvariant, and sends nothing, for another incarnation or for a position that was never handed out.
func (s *Source) Ack(inc uint64, pos raftlog.Pos) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.usable(); err != nil {
		return err
	}
	switch {
	case inc != s.cfg.Incarnation:
		return broken(errAck, "ACK for incarnation %d, this is %d", inc, s.cfg.Incarnation)
	case s.handed.Less(pos):
		return broken(errAck, "ACK for %v, handed out up to %v", pos, s.handed)
	case !s.acked.Less(pos):
		return nil
	}
	s.acked = pos
	if s.wire != nil {
		s.send(pos)
	}
	return nil
}

// wire is a connection to mysqld. Source.mu guards it; only the reader on the loop reads from the socket, without it.
type wire struct {
	sock   *loop.Socket
	packet []byte      // the newest one
	rest   []byte      // of packet, that the socket did not take
	next   raftlog.Pos // newest position, when it is newer than packet's
	failed bool        // a write has; that shows on the reading side, which reconnects
	// await has the loop wait until the socket takes more. nil: no loop watches it.
	await func()
}

// send writes a position on the newest connection: the packet is small, and the socket nearly always has room for it.
// What it does not take is left to the loop, and then only the newest position follows. s.mu is held.
func (s *Source) send(pos raftlog.Pos) {
	w := s.wire
	switch {
	case w.failed:
		return
	case len(w.rest) > 0:
		w.next = pos
		return
	}
	s.begin(w, pos)
	if s.flush(w); len(w.rest) > 0 && w.await != nil {
		w.await()
	}
}

func (s *Source) begin(w *wire, pos raftlog.Pos) {
	w.packet = ackPacket(w.packet[:0], &s.cfg, pos)
	w.rest = w.packet
}

// flush writes what the socket takes, without waiting. s.mu is held.
func (s *Source) flush(w *wire) {
	for len(w.rest) > 0 {
		n, err := w.sock.Write(w.rest)
		switch {
		case err == unix.EAGAIN:
			return
		case err != nil:
			w.failed, w.rest = true, nil
			return
		}
		if w.rest = w.rest[n:]; len(w.rest) > 0 {
			continue
		}
		s.stats.acks.Add(1)
		if w.next != (raftlog.Pos{}) {
			s.begin(w, w.next)
			w.next = raftlog.Pos{}
		}
	}
}
