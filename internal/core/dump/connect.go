package dump

import (
	"context"
	"errors"
	"fmt"
	"time"

	"trireme/internal/base/loop"
	"trireme/internal/base/mutant"
	"trireme/internal/base/poll"
	"trireme/internal/core/raftlog"
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
func (s *Source) connect(ctx context.Context, deadline time.Time) (from raftlog.Pos, err error) {
	ctx, cancel := context.WithDeadlineCause(ctx, deadline, errNoSession)
	defer cancel()
	client, err := s.pool.take(ctx)
	if err != nil {
		return from, err
	}
	from = s.Acked()
	nc, rest, err := startDump(ctx, client, &s.cfg, from)
	if err == nil {
		err = s.st.reset(rest)
	}
	var sock *loop.Socket
	if err == nil {
		sock, err = loop.Adopt(nc)
	}
	if err != nil {
		_ = client.Close()
		return from, err
	}
	s.rewind(from)
	s.install(sock, from)
	return from, nil
}

// rewind makes the stream, which restarts at from, continue after what was handed out.
func (s *Source) rewind(from raftlog.Pos) {
	if mutant.S12 {
		s.settled = cutter{pos: from, midway: true}
	}
	s.settle(s.settled)
	s.b.cutter = s.settled
	s.b.cutter.rewind(from)
}

// install puts the connection to use for ACKs and sends the one that came meanwhile. The connection before it is closed
// by retire, when the new stream has begun.
func (s *Source) install(sock *loop.Socket, from raftlog.Pos) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.retired == nil {
		s.retired = s.wire
	} else { // it never brought anything: nothing polls it
		_ = s.wire.sock.Close()
	}
	s.wire, s.lost = &wire{sock: sock, told: from}, false
	s.send(s.wire)
}

// retire closes the connection before the one in use, now that mysqld has registered this one as a replica. Its ACK
// receiver polls the replicas that it knew when it began to poll, for up to a second (semisync_source_ack_receiver.cc);
// the close wakes it, and it finds the new one. Closed earlier, it would leave it polling nothing, and every commit
// waiting for that second.
func (s *Source) retire() {
	if s.retired != nil {
		_ = s.retired.sock.Close()
		s.retired = nil
	}
}

// disconnect closes all connections but the spare; none is read any more. s.mu is held.
func (s *Source) disconnect() {
	s.retire()
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
		from, err := s.connect(ctx, deadline)
		if err == nil {
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
