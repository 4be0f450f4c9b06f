package dump

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"strings"
	"sync"
	"time"

	"trireme/internal/core/raftlog"
	"trireme/internal/mysql/gtid"
	"trireme/internal/mysql/mysqlwire"
)

// PublishedLog is the log for one consumer, with a place of its own in it. Its methods are called from one goroutine.
type PublishedLog interface {
	Log
	// Sets returns the GTIDs that lie below FirstIndex, and all that are committed.
	Sets() (purged, committed gtid.Set)
	// GTIDsBefore is raftlog's.
	GTIDsBefore(node uint16, incarnation uint64, at raftlog.Pos) (has gtid.Set, end raftlog.Pos, err error)
	// Close gives up what the place holds.
	Close()
}

// PublisherConfig says whose log is published, and as whom.
type PublisherConfig struct {
	// Cluster is the one whose incarnations wrote the log.
	Cluster uint64
	// ServerID stands in events that are in no log; no consumer has it.
	ServerID uint32
	// ServerVersion stands in the FORMAT_DESCRIPTION event until the log has one.
	ServerVersion string
	// Open makes a log for one more consumer.
	Open func() PublishedLog
	// ReadIndex returns an index at or above all that was committed in the cluster when it was called. It fails without
	// a majority.
	ReadIndex func(ctx context.Context) (uint64, error)
	// Reserved: server ids up to it are those of nodes, now or later, whose events a replica of the same id would drop.
	Reserved uint32
	// MaxConsumers are served at once; one more is told so. 64 by default: each takes up to 3 MiB.
	MaxConsumers int
	// Void is FeedConfig's.
	Void func(gtid.GTID) bool
	// Report, when set, is told of ErrInvariant, upon which the node must be fenced. It must not block.
	Report func(error)
	Logger *slog.Logger
}

// Consumer is a logged-in connection that has asked for a dump and may have one. What it has set in its session stands
// here as the session's server told it.
type Consumer struct {
	Conn     net.Conn // Serve closes it
	Seq      byte     // number of the next packet
	Command  byte     // COM_BINLOG_DUMP or COM_BINLOG_DUMP_GTID
	Argument []byte
	Account  string        // for log lines
	Beat     time.Duration // @source_heartbeat_period; 0: no heartbeats
	Checksum string        // @source_binlog_checksum; empty: it knows of none
	Replica  bool          // @replica_uuid is set: a mysqld, which drops events that carry its own server id
	SemiSync bool          // @rpl_semi_sync_replica: it expects another framing
}

// PublisherStats counts since NewPublisher.
type PublisherStats struct {
	Consumers    int    // now
	Behind       uint64 // entries that still have to be sent to the slowest of them
	Dumps        uint64 // begun
	Refused      uint64 // that were not
	Transactions uint64 // sent
	Bytes        uint64 // of their events
}

// Publisher serves the committed part of the log to foreign replicas: any number, at any place in it. Events are sent
// as they are in the log. A consumer reads with a cursor of its own, so a slow one delays no other and keeps nothing in
// memory or on disk. If the log is purged above its place, it gets an error.
type Publisher struct {
	cfg    PublisherConfig
	tasks  sync.WaitGroup
	closed context.Context
	cancel context.CancelFunc

	mu      sync.Mutex
	readers map[*counters]struct{} // of who is served
	gone    PublisherStats         // of who is not any more
}

// Limits of what a dump waits for before it begins.
const (
	agreeLimit       = 5 * time.Second
	catchUpLimit     = 10 * time.Second
	defaultConsumers = 64
)

// NewPublisher makes one; Close ends all it serves.
func NewPublisher(cfg PublisherConfig) *Publisher {
	setDefault(&cfg.Logger, slog.New(slog.DiscardHandler))
	setDefault(&cfg.MaxConsumers, defaultConsumers)
	setDefault(&cfg.ServerVersion, DefaultServerVersion)
	p := &Publisher{cfg: cfg, readers: map[*counters]struct{}{}}
	p.closed, p.cancel = context.WithCancel(context.Background())
	return p
}

// Close ends all dumps and returns when none is served any more.
func (p *Publisher) Close() {
	p.mu.Lock()
	p.cancel()
	p.mu.Unlock()
	p.tasks.Wait()
}

// Stats returns the counters.
func (p *Publisher) Stats() PublisherStats {
	p.mu.Lock()
	defer p.mu.Unlock()
	s := p.gone
	s.Consumers = len(p.readers)
	if len(p.readers) == 0 {
		return s
	}
	log := p.cfg.Open()
	defer log.Close()
	committed := log.Committed()
	for c := range p.readers {
		s.Transactions += c.transactions.Load()
		s.Bytes += c.bytes.Load()
		if next := c.next.Load(); next != 0 && next <= committed {
			s.Behind = max(s.Behind, committed+1-next)
		}
	}
	return s
}

// refusal is an error that a consumer is told.
type refusal struct {
	*mysqlwire.ServerError
	cause error
}

func (r refusal) Unwrap() []error { return []error{r.ServerError, r.cause} }

// fatal refuses permanently: a replica stops and does not come back by itself. cause may be nil.
func fatal(cause error, format string, args ...any) error {
	return refusal{fatalDump(fmt.Sprintf(format, args...)), cause}
}

// Serve answers a consumer's dump command until one of both ends it, and closes the connection.
func (p *Publisher) Serve(ctx context.Context, c Consumer) {
	w := newPacketWriter(ctx, c.Conn, c.Seq)
	defer w.stop(nil)
	stats := &counters{}
	if !p.enter(stats) {
		_ = w.last(mysqlwire.AppendERR(nil, &mysqlwire.ServerError{Code: mysqlwire.CodeTooManyConns, State: "08004",
			Message: fmt.Sprintf("Trireme: %d consumers are served already, or this node stops; ask another one",
				p.cfg.MaxConsumers)}))
		return
	}
	defer p.leave(stats)
	defer context.AfterFunc(p.closed, func() { w.stop(ErrClosed) })()
	defer context.AfterFunc(ctx, func() { w.stop(ErrClosed) })()
	log := p.cfg.Open()
	defer log.Close()
	logger := p.cfg.Logger.With("remote", c.Conn.RemoteAddr().String(), "account", c.Account)
	err := p.dump(w, log, stats, &c, logger)
	var told refusal
	switch {
	case errors.As(err, &told):
		p.mu.Lock()
		p.gone.Refused++
		p.mu.Unlock()
		logger.Warn("change stream: a consumer is refused", "why", clip(err.Error()))
		_ = w.last(mysqlwire.AppendERR(nil, told.ServerError))
		return
	case errors.Is(err, errComplete):
		_ = w.last(mysqlwire.AppendEOF(nil, mysqlwire.StatusAutocommit))
	case w.ctx.Err() != nil:
		err = context.Cause(w.ctx)
	case errors.Is(err, ErrPurged):
		_ = w.fail(fmt.Errorf("the log was purged past this consumer's position: %w", err))
	default:
		if errors.Is(err, ErrInvariant) && p.cfg.Report != nil {
			p.cfg.Report(err)
		}
		_ = w.fail(err)
	}
	logger.Info("change stream: a consumer is not served any more", "why", err)
}

func (p *Publisher) enter(stats *counters) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed.Err() != nil || len(p.readers) >= p.cfg.MaxConsumers {
		p.gone.Refused++
		return false
	}
	p.readers[stats] = struct{}{}
	p.tasks.Add(1)
	return true
}

func (p *Publisher) leave(stats *counters) {
	p.mu.Lock()
	delete(p.readers, stats)
	p.gone.Transactions += stats.transactions.Load()
	p.gone.Bytes += stats.bytes.Load()
	p.mu.Unlock()
	p.tasks.Done()
}

// dump finds where a consumer is to begin, and sends.
func (p *Publisher) dump(w *packetWriter, log PublishedLog, stats *counters, c *Consumer, logger *slog.Logger) error {
	r, err := parseDump(c.Command, c.Argument)
	if err != nil {
		return fatal(err, "%v", err)
	}
	if err := p.check(&r, c); err != nil {
		return err
	}
	s := &sending{heartbeat: c.Beat, plain: !strings.EqualFold(c.Checksum, "CRC32")}
	if s.heartbeat > 0 {
		s.heartbeat = max(s.heartbeat, minHeartbeat)
	}
	if err := p.place(w.ctx, log, &r, s); err != nil {
		return err
	}
	w.longHB = r.flags&flagHeartbeatV2 != 0
	p.mu.Lock()
	p.gone.Dumps++
	p.mu.Unlock()
	logger.Info("change stream: serving a consumer", "server_id", r.serverID, "has", clip(s.has.String()))
	o := dumpServer{log: log, serverID: p.cfg.ServerID, version: p.cfg.ServerVersion, exact: true, void: p.cfg.Void,
		stats: stats, tasks: &p.tasks}
	return o.serve(w, s)
}

// Flags of the two dump commands (sql/rpl_constants.h). The second one is COM_BINLOG_DUMP's
// BINLOG_SEND_ANNOTATE_ROWS_EVENT in MariaDB.
const (
	flagNonBlock    = 1 << 0
	flagHeartbeatV2 = 1 << 1
)

// wanted is a dump command.
type wanted struct {
	dumpRequest
	byPosition bool
	file       string
	pos        uint32
}

// parseDump decodes COM_BINLOG_DUMP_GTID, or COM_BINLOG_DUMP: position u32, flags u16, server id u32, file name.
func parseDump(command byte, b []byte) (w wanted, err error) {
	if len(b) > maxArgument {
		return w, fmt.Errorf("dump request of %d bytes: %w", len(b), mysqlwire.ErrTooLarge)
	}
	if command == mysqlwire.ComBinlogDumpGTID {
		w.dumpRequest, err = parseDumpRequest(b)
		return w, err
	}
	if len(b) < 10 {
		return w, fmt.Errorf("dump request of %d bytes: %w", len(b), mysqlwire.ErrMalformed)
	}
	le := binary.LittleEndian
	w.byPosition, w.pos, w.flags, w.serverID = true, le.Uint32(b), le.Uint16(b[4:]), le.Uint32(b[6:])
	w.file, _, _ = strings.Cut(string(b[10:]), "\x00")
	return w, nil
}

// check refuses a consumer that could not take the stream, or not all of it.
func (p *Publisher) check(r *wanted, c *Consumer) error {
	switch {
	case c.SemiSync:
		return fatal(nil,
			"Trireme: the change stream is asynchronous, and this replica has asked for semi-synchronous replication; "+
				"SET GLOBAL rpl_semi_sync_replica_enabled = OFF there, or connect to router.stream_port, which tells it so")
	case c.Checksum == "":
		return fatal(nil, "Replica can not handle replication events with the checksum that source is configured to log")
	case !c.Replica:
		return nil
	case r.serverID == p.cfg.ServerID || r.serverID <= p.cfg.Reserved:
		return fatal(nil,
			"Trireme: server ids up to %d, and %d, are those of nodes, now or later, and a replica drops events that carry its own; give it a "+
				"server_id above %d", p.cfg.Reserved, p.cfg.ServerID, p.cfg.ServerID)
	}
	return nil
}

// place finds what a consumer has, and makes sure that this node knows at least as much.
func (p *Publisher) place(ctx context.Context, log PublishedLog, r *wanted, s *sending) error {
	if r.serverID == 0 || r.flags&flagNonBlock != 0 {
		if err := p.agree(ctx, log); err != nil {
			return err
		}
		s.until = log.Committed()
	}
	err := p.locate(log, r, s)
	if errors.Is(err, errFuture) { // as far as this node knows, which may lag
		if err = p.agree(ctx, log); err == nil {
			err = p.locate(log, r, s)
		}
	}
	if err != nil {
		return err
	}
	purged, _ := log.Sets()
	if missing := purged.Subtract(s.has); !missing.Empty() {
		return purgedError(s.has, missing)
	}
	return nil
}

// agree waits until this node knows all that was committed in the cluster when it was called.
func (p *Publisher) agree(ctx context.Context, log PublishedLog) error {
	ctx, cancel := context.WithTimeout(ctx, agreeLimit+catchUpLimit)
	defer cancel()
	asking, done := context.WithTimeout(ctx, agreeLimit)
	index, err := p.cfg.ReadIndex(asking)
	done()
	if err == nil {
		err = log.WaitCommitted(ctx, index)
	}
	if err != nil {
		return refusal{&mysqlwire.ServerError{Code: mysqlwire.CodeServerUnavailable, State: "HY000", // a replica tries again
			Message: fmt.Sprintf("Trireme: this node cannot say now what is committed (%v); try again, or ask another node",
				err)}, err}
	}
	return nil
}

// errFuture: a consumer says that it has more than is known to be committed.
var errFuture = errors.New("a consumer is ahead of the log")

// judge refuses a set with transactions that only a dump from a mysqld itself can have shown: written by an incarnation
// of the cluster after it led, and not committed.
func (p *Publisher) judge(log PublishedLog, has gtid.Set) error {
	ahead := p.ahead(log, has)
	if ahead.Empty() {
		return nil
	}
	return fatal(errFuture,
		"Replica has more GTIDs than the source has: this cluster has never committed %s. If they were read from a mysqld's own binary log, they "+
			"were rolled back by a failover, and the replica must be rebuilt; if they came with a copy of a node's data, they are local statements of "+
			"that node, and its gtid_purged may do without them", clip(ahead.String()))
}

// ahead are the GTIDs of a set that may have been rolled back: numbers above all that an incarnation which led has
// committed. Lower numbers that are not committed are a node's own statements (FLUSH STATUS, say): an incarnation that
// has lost a transaction commits nothing after it. So are those of incarnations that never led.
func (p *Publisher) ahead(log PublishedLog, set gtid.Set) (ahead gtid.Set) {
	_, committed := log.Sets()
	for _, r := range set.Subtract(committed).Ranges() {
		cluster, _, _, ours := gtid.ParseIncarnation(r.SID.UUID)
		if last := committed.Last(r.SID); ours && cluster == p.cfg.Cluster && last > 0 && r.First > last {
			ahead.AddRange(r)
		}
	}
	return ahead
}

// Known returns what a mysqld has executed without what ahead finds in it: statements of its own from after it led,
// with which judge would refuse a consumer. An error is a *mysqlwire.ServerError.
func (p *Publisher) Known(ctx context.Context, executed gtid.Set) (gtid.Set, error) {
	log := p.cfg.Open()
	defer log.Close()
	if p.ahead(log, executed).Empty() {
		return executed, nil
	}
	if err := p.agree(ctx, log); err != nil { // this node may only lag
		return gtid.Set{}, err
	}
	return executed.Subtract(p.ahead(log, executed)), nil
}

// locate finds the set of what a consumer has: it names it, or a file and an offset in it, as this stream names them,
// in front of which all of it lies.
func (p *Publisher) locate(log PublishedLog, r *wanted, s *sending) error {
	if !r.byPosition {
		s.has = r.set
		return p.judge(log, r.set)
	}
	if r.pos < uint32(firstOffset) {
		return fatal(nil, "Client requested source to start replication from position < 4")
	}
	id, ours := parseFileID(r.file)
	switch {
	case r.file == "": // from the first file there is
		s.has, _ = log.Sets()
		return nil
	case !ours:
		return fatal(nil,
			"Could not find first log file name in binary log index file: Trireme: %q is a file of one mysqld's own binary log, whose positions no other "+
				"node knows; begin with a GTID set (SOURCE_AUTO_POSITION = 1), or with a file and position that this stream has told", clip(r.file))
	}
	s.from, s.offset = id, 0
	if id == (fileID{}) { // nothing was received
		s.has = gtid.Set{}
		return nil
	}
	at := raftlog.Pos{File: id.file, Off: uint64(r.pos)}
	has, end, err := log.GTIDsBefore(id.node, id.incarnation, at)
	s.has = has
	if s.offset = at.Off; end.File == at.File { // in front of the transaction of which it has a part
		s.offset = end.Off
	}
	switch {
	case errors.Is(err, raftlog.ErrBeyond):
		return fatal(errFuture,
			"Client requested source to start replication from position > file size: %s:%d was never committed", r.file, r.pos)
	case errors.Is(err, raftlog.ErrNoPosition):
		return fatal(errFuture,
			"Could not find first log file name in binary log index file: %s is not in the log of this cluster, or not any more",
			r.file)
	case errors.Is(err, ErrPurged):
		return fatal(nil, "Could not find first log file name in binary log index file: %s:%d was purged (%v)", r.file, r.pos,
			err)
	}
	return err
}

// parseFileID undoes fileID.String.
func parseFileID(name string) (id fileID, ok bool) {
	_, err := fmt.Sscanf(name, "trireme-%d-%d.%d", &id.node, &id.incarnation, &id.file)
	return id, err == nil && id.String() == name
}

// purgedError is mysqld's ER_SOURCE_HAS_PURGED_REQUIRED_GTIDS (1789), which travels in a 1236.
func purgedError(has, missing gtid.Set) error {
	const most = 400 // of a message of 1024 bytes
	sets := "The GTID sets and the missing purged transactions are too long to print in this message."
	if a, b := has.String(), missing.String(); len(a)+len(b) <= most {
		sets = fmt.Sprintf("The GTID set sent by the replica is '%s', and the missing transactions are '%s'.", a, b)
	}
	return fatal(nil,
		"Cannot replicate because the source purged required binary logs. Replicate the missing transactions from elsewhere, or provision a new "+
			"replica from backup. Consider increasing the source's binary log expiration period. %s", sets)
}
