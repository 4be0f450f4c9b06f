package dump

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"time"

	"trireme/internal/base/loop"
	"trireme/internal/core/raftlog"
	"trireme/internal/mysql/gtid"
)

// SourceConfig says which mysqld to read and as whom. Zero durations and sizes take their defaults.
type SourceConfig struct {
	// Dial connects to mysqld: its unix socket, or TCP.
	Dial           func(ctx context.Context) (net.Conn, error)
	User, Password string

	// Node, Incarnation and ServerUUID are the identity of this life of mysqld.
	Node        uint16
	Incarnation uint64
	ServerUUID  gtid.UUID
	// ReplicaServerID is what we call ourselves; it must differ from the server_id of every mysqld.
	ReplicaServerID uint32

	// SilenceLimit is how long the stream may bring nothing, heartbeats included, before the connection counts as
	// lost; 10 s by default.
	SilenceLimit time.Duration
	// LoginLimit bounds one attempt to log in; 1 min by default. It is long because a login that waits for an account
	// statement succeeds as soon as that statement has its ACK, and because each login given up holds a thread of
	// mysqld until then. The time of callers is limited by their own contexts and by ReconnectLimit.
	LoginLimit time.Duration
	// ReconnectLimit bounds the attempts to resume a lost stream; 10 s by default.
	ReconnectLimit time.Duration
	// ChunkBytes is how many bytes of events a payload holds at most, unless one event is larger; 1 MiB by default.
	ChunkBytes int

	// Loop reads the connection. It has to run until Attach and Run return.
	Loop   *loop.Loop
	Logger *slog.Logger
}

// Payload is one entry to be proposed.
type Payload struct {
	// Data is meta | events, ready for the raft log. It belongs to the receiver.
	Data []byte
	// Meta is what stands at the beginning of Data. Its GTIDs belong to the receiver.
	Meta raftlog.Meta
	// Release gives Data back, on the loop; nil: it is not worth it.
	Release func()
}

// Source reads one incarnation of a leader's mysqld as its only semi-sync replica. See the package comment for the
// caller's duties.
type Source struct {
	cfg  SourceConfig
	pool *sessionPool

	// Owned by the loop while a reader runs there, else by the goroutine in Attach or Run.
	cut         cutterConfig
	st          *stream
	b           batch
	settled     cutter // at the end of what was handed out
	lost        bool   // the connection is of no use any more
	groupWaited bool   // the rest of a commit group did not come within groupLimit
	lostSince   time.Time
	spare       []byte  // the memory of a piece that was given back; nil: there is none
	retired     *wire   // the connection before the newest one, to be closed when that brings something; nil: it has
	reader      *reader // of the connection, on the loop; nil: none is read

	mu       sync.Mutex
	attached bool
	closed   bool
	running  bool        // Attach or Run closes the connections
	handed   raftlog.Pos // end of what was handed out
	acked    raftlog.Pos // newest position given to Ack, or where the stream began
	wire     *wire       // the newest connection, perhaps a lost one; nil before the first
}

// NewSource makes a Source; nothing is connected yet.
func NewSource(cfg SourceConfig) *Source {
	cfg.setDefaults()
	s := &Source{cfg: cfg, cut: cutterConfig{uuid: cfg.ServerUUID}}
	s.pool = newSessionPool(s.openSession, cfg.Logger)
	return s
}

// streamSlackBytes is what the buffer holds beyond a chunk: the rest of the transaction on which a chunk is cut.
const streamSlackBytes = 128 << 10

func (cfg *SourceConfig) setDefaults() {
	setDefault(&cfg.SilenceLimit, 10*time.Second)
	setDefault(&cfg.LoginLimit, time.Minute)
	setDefault(&cfg.ReconnectLimit, 10*time.Second)
	setDefault(&cfg.ChunkBytes, 1<<20)
	setDefault(&cfg.Logger, slog.New(slog.DiscardHandler))
}

func setDefault[T comparable](v *T, value T) {
	var zero T
	if *v == zero {
		*v = value
	}
}

// Prepare opens the two sessions that Attach and a later reconnect use, and from then on keeps a spare: a login hangs
// for as long as an account statement waits for its ACK. Call it when mysqld has started, before it takes writes.
func (s *Source) Prepare(ctx context.Context) error { return s.pool.prepare(ctx) }

// Attach begins the stream at from: {1, 4} for a fresh incarnation, else the end of a committed entry of it, because
// mysqld takes the position as acknowledged. It returns the incarnation's FORMAT_DESCRIPTION event for its barrier,
// with created 0; it belongs to the caller.
func (s *Source) Attach(ctx context.Context, from raftlog.Pos) (fde []byte, err error) {
	if err := s.enter(true); err != nil {
		return nil, err
	}
	defer s.leave()
	s.begin(from)
	ctx, end := s.untilClosed(ctx)
	defer end()
	_, err = s.connect(ctx, time.Now().Add(s.cfg.ReconnectLimit))
	if err == nil {
		err = s.read(ctx, nil)
	}
	if err == nil {
		err = context.Cause(ctx)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if err != nil {
		s.disconnect()
		return nil, fmt.Errorf("attach to mysqld at %v: %w", from, err)
	}
	s.attached = true
	s.cfg.Logger.Info("reading the binary log", "from", from.String(), "incarnation", s.cfg.Incarnation)
	return bytes.Clone(s.cut.fde), nil
}

// begin makes from the end of what was handed out and acknowledged.
func (s *Source) begin(from raftlog.Pos) {
	if s.st == nil {
		s.st = newStream(s.cfg.ChunkBytes + streamSlackBytes)
	}
	s.cut.fde = nil
	s.settled = cutter{pos: from, midway: from != raftlog.Pos{File: 1, Off: firstOffset}}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.handed, s.acked = from, from
}

// Run hands payloads to take, on the loop, in order, until the stream has ended, and says why: ctx's cause, ErrClosed,
// ErrNotAttached, ErrDisconnected, or an error that wraps ErrInvariant. It waits; what waits for mysqld to log in and
// to resume a lost connection does so in its goroutine.
//
// take must not wait. After it has returned false nothing is read until Resume, which it may call itself. After ctx's
// end and ErrDisconnected Run may be called again, and goes on where it was; the connection stays open for Ack.
func (s *Source) Run(ctx context.Context, take func(Payload) (more bool)) error {
	if err := s.enter(false); err != nil {
		return err
	}
	defer s.leave()
	ctx, end := s.untilClosed(ctx)
	defer end()
	for ctx.Err() == nil {
		if s.lost {
			if err := s.resume(ctx); err != nil {
				return err
			}
		}
		err := s.read(ctx, take)
		if err == nil {
			break
		}
		s.lost = true
		switch {
		case ctx.Err() != nil:
		case errors.Is(err, errLost):
			s.cfg.Logger.Warn("lost the dump connection to mysqld", "err", err, "handed_out", s.settled.pos.String())
		default:
			s.mu.Lock()
			s.disconnect()
			s.mu.Unlock()
			return asInvariant(err)
		}
	}
	return context.Cause(ctx)
}

// read has the loop read the connection until it is lost, broken, or ctx has ended: nil. Without take it ends, with
// nil, when the FORMAT_DESCRIPTION event has come.
func (s *Source) read(ctx context.Context, take func(Payload) bool) error {
	r := &reader{s: s, w: s.wire, l: s.cfg.Loop, take: take, ended: make(chan error, 1)}
	r.l.Do(r.begin)
	select {
	case err := <-r.ended:
		return err
	case <-ctx.Done():
		r.l.Do(func() { r.end(nil) })
		return <-r.ended
	}
}

// Resume has payloads handed out again after take has returned false. It is called on the loop.
func (s *Source) Resume() {
	if r := s.reader; r != nil && r.full {
		r.resume()
	}
}

// enter has Close leave the connections to leave.
func (s *Source) enter(attaching bool) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch err := s.usable(); {
	case attaching && err == nil:
		return errors.New("dump: already attached")
	case err != nil && !(attaching && err == ErrNotAttached):
		return err
	}
	s.running = true
	return nil
}

// usable: s.mu is held.
func (s *Source) usable() error {
	switch {
	case s.closed:
		return ErrClosed
	case !s.attached:
		return ErrNotAttached
	}
	return nil
}

func (s *Source) leave() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.running = false; s.closed {
		s.disconnect()
	}
}

// asInvariant: whatever is neither a lost connection nor the caller's doing means that the stream cannot be trusted.
func asInvariant(err error) error {
	if errors.Is(err, ErrInvariant) {
		return err
	}
	return fmt.Errorf("%w: %w", ErrInvariant, err)
}

// Position returns the end of what was handed out.
func (s *Source) Position() raftlog.Pos {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.handed
}

// Acked returns the newest acknowledged position.
func (s *Source) Acked() raftlog.Pos {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.acked
}

// Close ends the stream and the spare; Run returns ErrClosed. Waiting commits stay waiting. It waits for an attempt to
// log in to end, and is not for the loop.
func (s *Source) Close() error {
	s.mu.Lock()
	s.closed = true
	if !s.running {
		s.disconnect()
	}
	s.mu.Unlock()
	s.pool.close()
	return nil
}
