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
	if w := s.wire; w != nil && len(w.rest) == 0 {
		s.send(w)
	}
	return nil
}

// wire is a connection to mysqld. Source.mu guards it; only the reader on the loop reads from the socket, without it.
type wire struct {
	sock   *loop.Socket
	told   raftlog.Pos // position of the newest packet
	packet []byte      // its memory
	rest   []byte      // of it, that the socket did not take
	failed bool        // a write has; that shows on the reading side, which reconnects
	// await has the loop wait until the socket takes more. nil: no loop watches it.
	await func()
}

// send writes the newest position, as far as the socket takes it at once: the packet is small, and the socket nearly
// always has room for it. What it does not take is left to the loop, and then only the newest position follows. s.mu is
// held.
func (s *Source) send(w *wire) {
	for !w.failed && (len(w.rest) > 0 || w.told != s.acked) {
		if len(w.rest) == 0 {
			w.told = s.acked
			w.packet = ackPacket(w.packet[:0], w.told)
			w.rest = w.packet
		}
		n, err := w.sock.Write(w.rest)
		if w.rest = w.rest[n:]; err == unix.EAGAIN {
			if w.await != nil {
				w.await()
			}
			return
		}
		if w.failed = err != nil; w.failed {
			w.rest = nil // nobody waits for room any more
		}
	}
}
