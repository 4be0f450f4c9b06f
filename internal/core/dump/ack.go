package dump

import (
	"net"
	"sync"

	"trireme/internal/base/nbio"
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
	switch {
	case s.closed:
		return ErrClosed
	case !s.attached:
		return ErrNotAttached
	case inc != s.cfg.Incarnation:
		return broken(errAck, "ACK for incarnation %d, this is %d", inc, s.cfg.Incarnation)
	case s.handed.Less(pos):
		return broken(errAck, "ACK for %v, handed out up to %v", pos, s.handed)
	case !s.acked.Less(pos):
		return nil
	}
	s.acked = pos
	if s.wire != nil {
		s.wire.send(pos)
	}
	return nil
}

// ackWriter sends positions on one connection. The packet is small and the socket nearly always has room for it, so
// send writes it at once, without handing over to another goroutine; only what the socket does not take is left to the
// goroutine, which then sends the newest position alone.
type ackWriter struct {
	cfg  *SourceConfig
	nc   net.Conn
	sent func()

	mu     sync.Mutex
	wake   *sync.Cond
	packet []byte      // the packet being written
	rest   []byte      // its unwritten end, owned by the goroutine while busy
	busy   bool        // the goroutine has something to write
	next   raftlog.Pos // newest position, when it is newer than packet's
	closed bool
}

func newAckWriter(cfg *SourceConfig, nc net.Conn, sent func()) *ackWriter {
	w := &ackWriter{cfg: cfg, nc: nc, sent: sent}
	w.wake = sync.NewCond(&w.mu)
	go w.run()
	return w
}

// send never blocks.
func (w *ackWriter) send(pos raftlog.Pos) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed {
		return
	}
	if w.busy {
		w.next = pos
		return
	}
	w.packet = ackPacket(w.packet[:0], w.cfg, pos)
	wrote := 0
	if nb, ok := w.nc.(*nbio.Conn); ok {
		wrote, _ = nb.TryWrite(w.packet) // a failure is left to the goroutine, whose write meets the same
	}
	if wrote == len(w.packet) {
		w.sent()
		return
	}
	w.rest, w.busy = w.packet[wrote:], true
	w.wake.Signal()
}

// run writes what send could not.
func (w *ackWriter) run() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for {
		for !w.busy && !w.closed {
			w.wake.Wait()
		}
		if w.closed {
			return
		}
		rest := w.rest
		w.mu.Unlock()
		_, err := w.nc.Write(rest) // a failure shows on the reading side, which reconnects
		w.mu.Lock()
		if err != nil {
			w.closed = true
			return
		}
		w.sent()
		if w.busy = w.next != (raftlog.Pos{}); w.busy {
			w.packet = ackPacket(w.packet[:0], w.cfg, w.next)
			w.rest, w.next = w.packet, raftlog.Pos{}
		}
	}
}

// close closes the connection too, which ends a blocked write.
func (w *ackWriter) close() {
	_ = w.nc.Close()
	w.mu.Lock()
	w.closed = true
	w.mu.Unlock()
	w.wake.Signal()
}
