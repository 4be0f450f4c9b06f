package dump

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"sync/atomic"
	"time"

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
	// LogName is the base name of mysqld's binary log files; "binlog" by default.
	LogName string
	// ReplicaServerID is what we call ourselves; it must differ from the server_id of every mysqld.
	ReplicaServerID uint32

	// HeartbeatPeriod of an idle stream; 100 ms by default.
	HeartbeatPeriod time.Duration
	// SilenceLimit is how long the stream may bring nothing, heartbeats included, before the connection counts as
	// lost; 10 s by default.
	SilenceLimit time.Duration
	// LoginLimit bounds one attempt to log in; 1 min by default. It is long because a login that waits for an account
	// statement succeeds as soon as that statement has its ACK, and because each login given up holds a thread of
	// mysqld until then. The time of callers is limited by their own contexts and by ReconnectLimit.
	LoginLimit time.Duration
	// ReconnectLimit bounds the attempts to resume a lost stream within one call of Next; 10 s by default.
	ReconnectLimit time.Duration
	// ChunkBytes is how many bytes of events a payload holds at most, unless one event is larger; 1 MiB by default.
	ChunkBytes int

	Logger *slog.Logger
}

// Payload is one entry to be proposed.
type Payload struct {
	// Data is meta | events, ready for the raft log. It belongs to the receiver.
	Data []byte
	// Meta is what stands at the beginning of Data. Its GTIDs belong to the receiver.
	Meta raftlog.Meta
}

// SourceStats counts since NewSource.
type SourceStats struct {
	Payloads     uint64
	Transactions uint64
	Bytes        uint64 // of events handed out
	Acks         uint64 // packets sent
	Reconnects   uint64
	SkippedBytes uint64 // of events read again after a reconnect
}

// Source reads one incarnation of a leader's mysqld as its only semi-sync replica. See the package comment for the
// caller's duties.
type Source struct {
	cfg  SourceConfig
	pool *sessionPool

	// Owned by the goroutine that calls Attach and Next.
	cut     cutterConfig
	st      *stream
	b       batch
	settled cutter // at the end of what was handed out
	// skipping is set after a reconnect until skipper, which began at the acknowledged position, is at settled.
	skipping    bool
	skipper     cutter
	lost        bool // the connection is of no use any more
	fresh       bool // it has brought nothing yet
	groupWaited bool // the rest of a commit group did not come within groupLimit
	lostSince   time.Time
	boundTo     <-chan struct{} // what bind was given last; nil: nothing, or what never ends

	mu       sync.Mutex
	unbind   func() bool
	attached bool
	closed   bool
	handed   raftlog.Pos  // end of what was handed out
	acked    raftlog.Pos  // newest position given to Ack, or where the stream began
	wire     *ackWriter   // of the newest connection, perhaps a lost one; nil before the first
	retired  []*ackWriter // of connections before it, to be closed
	binding  uint64       // counts bind, so that a context which ends late touches nothing

	stats struct {
		payloads, transactions, bytes, acks, reconnects, skipped atomic.Uint64
	}
}

// NewSource makes a Source; nothing is connected yet.
func NewSource(cfg SourceConfig) *Source {
	cfg.setDefaults()
	s := &Source{cfg: cfg, cut: cutterConfig{uuid: cfg.ServerUUID, logName: cfg.LogName}}
	s.pool = newSessionPool(s.openSession, cfg.Logger)
	return s
}

// streamSlackBytes is what the buffer holds beyond a chunk: the rest of the transaction on which a chunk is cut.
const streamSlackBytes = 128 << 10

func (cfg *SourceConfig) setDefaults() {
	setDefault(&cfg.LogName, "binlog")
	setDefault(&cfg.HeartbeatPeriod, 100*time.Millisecond)
	setDefault(&cfg.SilenceLimit, 10*time.Second)
	setDefault(&cfg.LoginLimit, time.Minute)
	setDefault(&cfg.ReconnectLimit, 10*time.Second)
	setDefault(&cfg.ChunkBytes, 1<<20)
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
}

func setDefault[T comparable](v *T, value T) {
	var zero T
	if *v == zero {
		*v = value
	}
}

func (cfg *SourceConfig) appendFileName(dst []byte, number uint32) []byte {
	return appendFileName(dst, cfg.LogName, number)
}

// Prepare opens the two sessions that Attach and a later reconnect use, and from then on keeps a spare: a login hangs
// for as long as an account statement waits for its ACK. Call it when mysqld has started, before it takes writes.
func (s *Source) Prepare(ctx context.Context) error { return s.pool.prepare(ctx) }

// Attach begins the stream at from: {1, 4} for a fresh incarnation, else the end of a committed entry of it, because
// mysqld takes the position as acknowledged. It returns the incarnation's FORMAT_DESCRIPTION event for its barrier,
// with created 0; it belongs to the caller.
func (s *Source) Attach(ctx context.Context, from raftlog.Pos) (fde []byte, err error) {
	s.mu.Lock()
	switch {
	case s.closed:
		err = ErrClosed
	case s.attached:
		err = errors.New("dump: already attached")
	}
	if err == nil {
		s.handed, s.acked = from, from
	}
	s.mu.Unlock()
	if err != nil {
		return nil, err
	}
	if s.st == nil {
		s.st = newStream(s.cfg.ChunkBytes + streamSlackBytes)
	}
	s.settled = cutter{pos: from, placed: true, midway: from != raftlog.Pos{File: 1, Off: firstOffset}}
	if err := s.connect(ctx, time.Now().Add(s.cfg.ReconnectLimit)); err != nil {
		return nil, fmt.Errorf("attach to mysqld at %v: %w", from, err)
	}
	err = s.readFDE(ctx)
	s.release()
	if err != nil {
		s.disconnect()
		return nil, fmt.Errorf("attach to mysqld at %v: %w", from, err)
	}
	s.mu.Lock()
	s.attached = true
	s.mu.Unlock()
	s.cfg.Logger.Info("reading the binary log", "from", from.String(), "incarnation", s.cfg.Incarnation)
	return append([]byte(nil), s.cut.fde...), nil
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

// Stats returns the counters.
func (s *Source) Stats() SourceStats {
	return SourceStats{
		Payloads: s.stats.payloads.Load(), Transactions: s.stats.transactions.Load(), Bytes: s.stats.bytes.Load(),
		Acks: s.stats.acks.Load(), Reconnects: s.stats.reconnects.Load(), SkippedBytes: s.stats.skipped.Load(),
	}
}

// Close ends the stream and the spare; Next returns ErrClosed. Waiting commits stay waiting.
func (s *Source) Close() error {
	s.mu.Lock()
	s.closed = true
	s.forget()
	wire := s.wire
	s.wire = nil
	s.mu.Unlock()
	s.retire()
	if wire != nil {
		wire.close()
	}
	s.pool.close()
	return nil
}
