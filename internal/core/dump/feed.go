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

	"trireme/internal/base/loop"
	"trireme/internal/base/nbio"
	"trireme/internal/mysql/binlog"
	"trireme/internal/mysql/gtid"
	"trireme/internal/mysql/mysqlwire"
)

// Log is the part of the raft log that a feed reads. Nothing above the commit index is ever asked for or may be given
// (S3). All methods but Committed are called by one goroutine at a time.
type Log interface {
	// Committed is the commit index as this node knows it.
	Committed() uint64
	// WaitCommitted returns when Committed() >= index, or ctx's error.
	WaitCommitted(ctx context.Context, index uint64) error
	// Read returns consecutive entries from index from on, at least one, none above to, about maxBytes of data.
	// It fails with ErrPurged when the log has no entry from any more.
	Read(ctx context.Context, from, to uint64, maxBytes int) ([]Entry, error)
	// SeekGTID returns the index of the first entry that holds a transaction not in set (of its first chunk, for one in
	// chunks), or one past the commit index; and the FORMAT_DESCRIPTION event in force there, nil when none is. It
	// fails with ErrPurged when that entry is gone.
	SeekGTID(set gtid.Set) (index uint64, fde []byte, err error)
}

// Entry is a raft entry. Data is meta | events, or empty for an entry that raft made for itself; it is not changed and
// not kept.
type Entry struct {
	Index, Term uint64
	Data        []byte
}

// FeedConfig says where to serve, whom, and as whom.
type FeedConfig struct {
	// Listen is a TCP address; "127.0.0.1:0" takes a free port. A receiver cannot use a unix socket.
	Listen string
	// User and Password of the one account.
	User, Password string
	// UID is the user of the receiver's process. Connections of other users are closed, where the system tells whose
	// they are.
	UID int
	// ServerID and ServerUUID are the source's, towards the receiver: they must differ from its own (error 13117),
	// and ServerID from those of all nodes.
	ServerID   uint32
	ServerUUID gtid.UUID
	// ServerVersion stands in the greeting; below 8.3 a receiver would drop tagged GTIDs, so such a version is
	// replaced by DefaultServerVersion.
	ServerVersion string
	// Appliers is the receiver's number of workers: transactions wait for each other so that no more are applied at
	// once. 0 leaves them as they are (binlog.LimitInFlight).
	Appliers int
	// Loop, when set, is the one on which entries are committed: it sends them itself, as long as nothing has to wait.
	// Cached gives it entries as Log.Read does, without reading from disk; there may be none.
	Loop   *loop.Loop
	Cached func(from, to uint64, maxBytes int) []Entry
	// Report, when set, is told what stops a feed permanently: ErrPurged (this node must be seeded), raftlog.ErrCorrupt
	// (it cannot be fed) and ErrInvariant (it must be fenced). It must not block.
	Report func(error)
	// Gate, when set, says which transactions must wait.
	Gate Gate
	// Void, when set, says which transactions are sent as empty ones. It must not block.
	Void func(gtid.GTID) bool
	// Tolerance, when set, says which transactions are sent to be applied tolerantly.
	Tolerance *Tolerance
	Logger    *slog.Logger
}

// Gate holds transactions of a feed back. Its methods are called from the goroutine of the one receiver.
type Gate interface {
	// Begin tells that a receiver begins that has these transactions. The set is not to be changed.
	Begin(has gtid.Set)
	// Pass is asked about each transaction that the receiver lacks, in log order, until wait is 0: then the transaction
	// is sent. Otherwise it is asked again after wait, or when changed is closed. It may be asked once more about those
	// that it let pass: they still pass.
	Pass(trx *binlog.TrxInfo) (wait time.Duration, changed <-chan struct{})
}

// DefaultServerVersion is what a feed claims to be when it is told nothing better.
const DefaultServerVersion = "9.7.0-trireme"

// Feed serves the committed part of the log to one receiver: this node's own mysqld. A new dump replaces the one
// before it.
type Feed struct {
	cfg    FeedConfig
	server dumpServer
	lis    net.Listener
	ctx    context.Context
	cancel context.CancelFunc
	tasks  sync.WaitGroup
	slots  chan struct{}
	nextID atomic.Uint32

	mu      sync.Mutex
	paused  bool
	current *packetWriter // nil: no receiver is being served
	// complained is when a line about somebody who was not let in was logged last.
	complained time.Time

	stats counters
}

const (
	// maxConnections bounds what is served at once: one dump, its successor, and room for strangers.
	maxConnections = 8
	// maxArgument bounds a command of a receiver, bytes; a GTID set is its only large part.
	maxArgument = 16 << 20
	// loginLimit bounds the connection phase, commandLimit the wait for each command before the dump.
	loginLimit   = 10 * time.Second
	commandLimit = time.Minute
)

// NewFeed listens and serves until Close.
func NewFeed(cfg FeedConfig, log Log) (*Feed, error) {
	setDefault(&cfg.Logger, slog.New(slog.DiscardHandler))
	if !speaksTags(cfg.ServerVersion) {
		cfg.ServerVersion = DefaultServerVersion
	}
	if cfg.ServerID == 0 || cfg.ServerUUID.IsZero() {
		return nil, errors.New("dump: a feed needs a server id and a server uuid")
	}
	lis, err := net.Listen("tcp", cfg.Listen)
	if err != nil {
		return nil, fmt.Errorf("listen for this node's mysqld: %w", err)
	}
	f := &Feed{cfg: cfg, lis: &nbio.Listener{Listener: lis, Log: cfg.Logger}, slots: make(chan struct{}, maxConnections)}
	f.server = dumpServer{log: log, serverID: cfg.ServerID, version: cfg.ServerVersion, appliers: cfg.Appliers,
		void: cfg.Void, tolerance: cfg.Tolerance, stats: &f.stats, tasks: &f.tasks}
	if cfg.Gate != nil {
		f.server.gates = append(f.server.gates, cfg.Gate)
	}
	if cfg.Tolerance != nil {
		f.server.gates = append(f.server.gates, cfg.Tolerance)
	}
	if cfg.Loop != nil {
		f.server.loan = newLoan(cfg.Loop, cfg.Cached)
	}
	f.ctx, f.cancel = context.WithCancel(context.Background())
	f.tasks.Go(f.accept)
	return f, nil
}

// speaksTags reports a version from which receivers take tagged GTIDs.
func speaksTags(version string) bool {
	var major, minor int
	_, err := fmt.Sscanf(version, "%d.%d", &major, &minor)
	return err == nil && (major > 8 || major == 8 && minor >= 3)
}

// Addr is the address listened on, "host:port".
func (f *Feed) Addr() string { return f.lis.Addr().String() }

// SetPaused makes the feed send heartbeats only, as on a leader, or serve again. A change closes the receiver's
// connection, so that it comes back with the GTID set that it has then.
func (f *Feed) SetPaused(paused bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.paused == paused {
		return
	}
	f.paused = paused
	if f.current != nil {
		f.current.stop(errPaused)
	}
}

// Again ends the dump under way: the receiver comes back with the GTID set that it has then.
func (f *Feed) Again() {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.current != nil {
		f.current.stop(errAgain)
	}
}

// Close ends all connections and waits for their goroutines.
func (f *Feed) Close() error {
	f.cancel()
	err := f.lis.Close()
	f.tasks.Wait()
	return err
}

func (f *Feed) accept() {
	for {
		nc, err := f.lis.Accept()
		if err != nil {
			return
		}
		uid, known := ownerOf(nc)
		why := ""
		if known && uid != f.cfg.UID {
			why = "it is for mysqld's user only"
		} else {
			select {
			case f.slots <- struct{}{}:
			default:
				why = "too many"
			}
		}
		if why != "" {
			if f.mayComplain() {
				f.cfg.Logger.Warn("feed refuses a connection: "+why, "remote", nc.RemoteAddr().String(), "uid", uid)
			}
			_ = nc.Close()
			continue
		}
		f.tasks.Go(func() {
			defer func() { <-f.slots }()
			f.serve(nbio.Wrap(nc))
		})
	}
}

// serve runs one connection.
func (f *Feed) serve(nc net.Conn) {
	defer func() { _ = nc.Close() }()
	defer context.AfterFunc(f.ctx, func() { _ = nc.Close() })()
	ctx, cancel := context.WithTimeout(f.ctx, loginLimit)
	s, err := mysqlwire.Accept(ctx, nc, mysqlwire.ServerConfig{
		User: f.cfg.User, Password: f.cfg.Password, Version: f.cfg.ServerVersion,
		ConnectionID: f.nextID.Add(1), MaxPacket: maxArgument,
	})
	cancel()
	if err != nil && !f.mayComplain() {
		return
	}
	if err == nil {
		r := &receiver{f: f, s: s, heartbeat: defaultHeartbeat}
		err = r.run()
	}
	if f.ctx.Err() == nil && err != nil {
		f.cfg.Logger.Info("feed connection ended", "err", err)
	}
}

// complaintPause keeps strangers of this host from filling the log.
const complaintPause = 10 * time.Second

// mayComplain reports whether a line about somebody who is not let in is due, and counts it as given.
func (f *Feed) mayComplain() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.complained.IsZero() && time.Since(f.complained) < complaintPause {
		return false
	}
	f.complained = time.Now()
	return true
}

var (
	errPaused   = errors.New("the feed was paused or resumed")
	errAgain    = errors.New("the feed starts again")
	errReplaced = errors.New("another dump took its place")
	errGone     = errors.New("the receiver went away")
)

// begin makes a dump the current one and tells whether it is to send heartbeats only.
func (f *Feed) begin(s *mysqlwire.Session) (w *packetWriter, paused bool) {
	w = newPacketWriter(f.ctx, s.NetConn(), s.Sequence())
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.current != nil {
		f.current.stop(errReplaced)
	}
	f.current = w
	return w, f.paused
}

func (f *Feed) end(w *packetWriter) {
	w.stop(nil)
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.current == w {
		f.current = nil
	}
}
