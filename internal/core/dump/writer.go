package dump

import (
	"context"
	"encoding/binary"
	"fmt"
	"math"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"trireme/internal/base/nbio"
	"trireme/internal/mysql/binlog"
	"trireme/internal/mysql/mysqlwire"
)

const (
	// writeBufferBytes is sent in one write; directBytes or more of an event go to the socket without a copy.
	writeBufferBytes = 128 << 10
	directBytes      = 32 << 10
	// writeLimit bounds one write: a receiver may hold us back for long, while its relay log is full.
	writeLimit = 10 * time.Minute
)

// packetWriter is a dump under way: it sends events as packets, sequence, 00, event. A goroutine of its own adds
// heartbeats when nothing is sent; it and the dump exclude each other by mu, which is held over a whole transaction.
type packetWriter struct {
	ctx    context.Context // ends with the dump
	cancel context.CancelCauseFunc
	nc     net.Conn
	buf    []byte
	gather bool // nothing is written before tryFlush
	place

	longHB bool // the receiver takes heartbeats of version 2

	mu      sync.Mutex
	touched atomic.Bool // something was flushed since the last look
}

// place is how far the conversation with the receiver has come.
type place struct {
	seq byte

	// Where the receiver counts itself to be: it adds up event lengths from the last ROTATE on, and refuses a
	// heartbeat that lies before that.
	file string
	pos  uint64

	plain bool // the next ROTATE goes without a checksum
}

func newPacketWriter(ctx context.Context, nc net.Conn, seq byte) *packetWriter {
	w := &packetWriter{nc: nc, place: place{seq: seq}, buf: make([]byte, 0, writeBufferBytes)}
	w.ctx, w.cancel = context.WithCancelCause(ctx)
	return w
}

// stop ends the dump from any goroutine.
func (w *packetWriter) stop(cause error) {
	w.cancel(cause)
	_ = w.nc.Close()
}

// rotate announces a file and the offset from which on the receiver counts. Until the first FORMAT_DESCRIPTION event a
// receiver may not expect checksums (@source_binlog_checksum = 'NONE').
func (w *packetWriter) rotate(serverID uint32, file string, offset uint64) error {
	w.file, w.pos = file, offset
	ev := binlog.AppendArtificialRotate(nil, serverID, file, offset)
	if w.plain {
		w.plain = false
		ev = ev[:len(ev)-binlog.ChecksumLen]
		binary.LittleEndian.PutUint32(ev[9:], uint32(len(ev)))
	}
	return w.packet(ev)
}

// event sends one event of the file.
func (w *packetWriter) event(ev []byte) error {
	w.pos += uint64(len(ev))
	return w.packet(ev)
}

// packet sends a status byte and an event as one packet, or several. A large event is not copied into the buffer.
func (w *packetWriter) packet(ev []byte) error {
	for status := statusLen; ; status = 0 {
		n := min(len(ev), mysqlwire.MaxPayload-status)
		direct := n >= directBytes && !w.gather
		size := mysqlwire.HeaderLen + status
		if !direct {
			size += n
		}
		if len(w.buf)+size > cap(w.buf) && !w.gather {
			if err := w.flush(); err != nil {
				return err
			}
		}
		w.header(status + n)
		w.buf = append(w.buf, make([]byte, status)...)
		if !direct {
			w.buf = append(w.buf, ev[:n]...)
		} else if err := w.flush(); err != nil {
			return err
		} else if err := w.write(ev[:n]); err != nil {
			return err
		}
		if ev = ev[n:]; status+n < mysqlwire.MaxPayload {
			return nil
		}
	}
}

func (w *packetWriter) header(length int) {
	var head [mysqlwire.HeaderLen]byte
	mysqlwire.PutHeader(head[:], length, w.seq)
	w.buf = append(w.buf, head[:]...)
	w.seq++
}

// flush sends what is buffered.
func (w *packetWriter) flush() error {
	if len(w.buf) == 0 {
		return nil
	}
	if err := w.write(w.buf); err != nil {
		return err
	}
	w.buf = w.buf[:0]
	return nil
}

func (w *packetWriter) write(b []byte) error {
	w.touched.Store(true)
	if err := w.nc.SetWriteDeadline(time.Now().Add(writeLimit)); err != nil {
		return fmt.Errorf("limit write to the receiver: %w", err)
	}
	if _, err := w.nc.Write(b); err != nil {
		return fmt.Errorf("write to the receiver: %w", err)
	}
	return nil
}

// tryFlush sends what the socket takes at once; done is false when something is left in the buffer.
func (w *packetWriter) tryFlush() (done bool, err error) {
	nc, ok := w.nc.(*nbio.Conn)
	if !ok {
		return true, w.flush() // a connection of tests
	}
	if len(w.buf) == 0 {
		return true, nil
	}
	w.touched.Store(true)
	n, err := nc.TryWrite(w.buf)
	if err != nil {
		return false, fmt.Errorf("write to the receiver: %w", err)
	}
	w.buf = w.buf[:copy(w.buf, w.buf[n:])]
	return len(w.buf) == 0, nil
}

// fail sends an ERR packet in the place of an event.
func (w *packetWriter) fail(cause error) error {
	return w.last(mysqlwire.AppendERR(nil, fatalDump(clip(cause.Error()))))
}

// last sends a short packet that ends the dump.
func (w *packetWriter) last(payload []byte) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.header(len(payload))
	w.buf = append(w.buf, payload...)
	return w.flush()
}

// beat sends a heartbeat whenever period has passed without another packet, until the dump ends.
func (w *packetWriter) beat(serverID uint32, period time.Duration) {
	// Ticking twice a period and sending at the second silent tick keeps the gap between one and one and a half.
	tick := time.NewTicker(period / 2)
	defer tick.Stop()
	silent := 0
	for {
		select {
		case <-w.ctx.Done():
			return
		case <-tick.C:
		}
		if silent++; w.touched.Swap(false) {
			silent = 0
		}
		if silent < 2 || !w.mu.TryLock() { // locked: the dump is sending
			continue
		}
		err := w.heartbeat(serverID)
		w.mu.Unlock()
		if err != nil {
			w.stop(err)
			return
		}
		w.touched.Store(false)
		silent = 0
	}
}

// heartbeat sends one, of version 1 where its 32 bits hold the position. A receiver that takes no other one is left
// without, and one that does not take what came before needs none. It does not wait.
func (w *packetWriter) heartbeat(serverID uint32) error {
	if len(w.buf) > 0 {
		return nil
	}
	ev := binlog.AppendHeartbeat(nil, serverID, w.file, uint32(w.pos))
	if w.pos > math.MaxUint32 {
		if !w.longHB {
			return nil
		}
		ev = binlog.AppendHeartbeatV2(nil, serverID, w.file, w.pos)
	}
	if err := w.packet(ev); err != nil {
		return err
	}
	_, err := w.tryFlush()
	return err
}

// withServerID returns a copy of ev that names another server: a receiver drops or misreads a FORMAT_DESCRIPTION event
// with its own server id.
func withServerID(ev []byte, id uint32) []byte {
	out := append([]byte(nil), ev...)
	binary.LittleEndian.PutUint32(out[5:], id)
	binlog.PutChecksum(out)
	return out
}
