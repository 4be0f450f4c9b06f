package dump

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"time"

	"trireme/internal/base/loop"
	"trireme/internal/base/mutant"
	"trireme/internal/base/poll"
	"trireme/internal/core/raftlog"
	"trireme/internal/mysql/mysqlwire"
)

// reconnectPause separates attempts to resume.
const reconnectPause = 20 * time.Millisecond

var (
	// errLost marks the loss of a dump connection, which a reconnect may cure.
	errLost = errors.New("dump connection lost")
	// errNoSession says why connect ran out of time: most often a login that waits for an account statement.
	errNoSession = errors.New("no session with mysqld could be opened in time")
)

func lost(err error) error { return fmt.Errorf("%w: %w", errLost, err) }

// untilClosed is ctx, which Close ends too.
func (s *Source) untilClosed(ctx context.Context) (context.Context, func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	forget := context.AfterFunc(s.pool.ctx, func() { cancel(ErrClosed) })
	return ctx, func() {
		forget()
		cancel(nil)
	}
}

// connect starts a dump on an idle session, from the acknowledged position: mysqld takes that position as acknowledged,
// so starting from what was handed out would release commits that no majority has (S1). What lies between is skipped.
func (s *Source) connect(ctx context.Context, deadline time.Time) (nc net.Conn, from raftlog.Pos, err error) {
	ctx, cancel := context.WithDeadlineCause(ctx, deadline, errNoSession)
	defer cancel()
	session, err := s.pool.take(ctx)
	if err != nil {
		return nil, from, err
	}
	from = s.Acked()
	nc, rest, err := session.startDump(ctx, &s.cfg, from)
	if err == nil {
		err = s.st.reset(rest)
	}
	if err != nil {
		session.close()
		return nil, from, err
	}
	s.rewind(from)
	return nc, from, nil
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

// readFDE reads until the stream has told the incarnation's FORMAT_DESCRIPTION event. It waits.
func (s *Source) readFDE(ctx context.Context, nc net.Conn) error {
	if err := nc.SetReadDeadline(time.Now().Add(s.cfg.SilenceLimit)); err != nil {
		return err
	}
	defer context.AfterFunc(ctx, func() { _ = nc.SetReadDeadline(time.Unix(1, 0)) })()
	for s.cut.fde == nil {
		event, needAck, found, err := s.st.next()
		switch {
		case err != nil:
		case found == stepPartial:
			var n int
			s.b.shift(s.st.compact())
			if n, err = io.ReadAtLeast(nc, s.st.space(), 1); err == nil {
				s.st.came(n)
			}
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

// install puts the connection to use for ACKs and sends the one that came meanwhile. The connection before it is closed
// by retire, when the new stream has begun.
func (s *Source) install(nc net.Conn, from raftlog.Pos) error {
	sock, err := loop.Adopt(nc)
	if err != nil {
		_ = nc.Close()
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		_ = sock.Close()
		return ErrClosed
	}
	switch {
	case s.wire == nil:
	case s.fresh: // it never brought anything: nothing polls it
		_ = s.wire.sock.Close()
	default:
		s.retired = append(s.retired, s.wire)
	}
	s.wire, s.fresh, s.lost = &wire{sock: sock}, true, false
	if s.acked != from {
		s.send(s.acked)
	}
	return nil
}

// retire closes the connections before the one in use, now that mysqld has registered this one as a replica. Its ACK
// receiver polls the replicas that it knew when it began to poll, for up to a second (semisync_source_ack_receiver.cc);
// the close wakes it, and it finds the new one. Closed earlier, they would leave it polling nothing, and every commit
// waiting for that second.
func (s *Source) retire() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closeRetired()
}

func (s *Source) closeRetired() {
	for _, w := range s.retired {
		_ = w.sock.Close()
	}
	s.retired = nil
}

// disconnect closes all connections but the spare; none is read any more. s.mu is held.
func (s *Source) disconnect() {
	s.closeRetired()
	if s.wire != nil {
		_ = s.wire.sock.Close()
		s.wire = nil
	}
}

// resume brings back a lost stream, within ReconnectLimit since it was lost.
func (s *Source) resume(ctx context.Context) error {
	if s.lostSince.IsZero() {
		s.lostSince = time.Now()
	} else if poll.Pause(ctx, reconnectPause) != nil {
		return context.Cause(ctx)
	}
	deadline := s.lostSince.Add(s.cfg.ReconnectLimit)
	last := errLost
	for time.Now().Before(deadline) {
		nc, from, err := s.connect(ctx, deadline)
		if err == nil {
			err = s.install(nc, from)
		}
		if err == nil {
			s.stats.reconnects.Add(1)
			s.cfg.Logger.Info("resumed the binary log", "from", from.String(), "handed_out", s.settled.pos.String())
			return nil
		}
		last = err
		if poll.Pause(ctx, reconnectPause) != nil {
			return context.Cause(ctx)
		}
	}
	s.lostSince = time.Time{}
	return fmt.Errorf("%w for %v: %w", ErrDisconnected, s.cfg.ReconnectLimit, last)
}
