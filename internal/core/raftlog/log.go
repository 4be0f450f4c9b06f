package raftlog

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"path/filepath"
	"sync"
	"sync/atomic"
	"syscall"

	"go.etcd.io/raft/v3/raftpb"

	"trireme/internal/mysql/gtid"
)

// Options say where a log lives and whose it is.
type Options struct {
	Dir string
	// FS is the operating system's when nil.
	FS FS
	// SegmentBytes is the size from which a segment is closed, 128 MiB by default, at most 1 GiB. A transaction in
	// chunks stays in one segment up to 3 GiB.
	SegmentBytes int64
	// CacheBytes bounds the data of recent entries kept in memory, 64 MiB by default.
	CacheBytes int64
	// ZeroAheadBytes is how much of the segment is filled with zeros ahead of the records, 1 MiB by default: an fdatasync
	// that changes neither the file's size nor its blocks takes two thirds of the time.
	ZeroAheadBytes int64
	// Cluster and NodeID (the raft id) are written into every file and checked at Open.
	Cluster uint64
	NodeID  uint64
	// Made says that a log was made in Dir before: an empty or missing directory is ErrGone then, and nothing is made.
	Made bool
	// Base are the GTIDs that are in every data directory before the log's first entry: those of an adopted cluster. A
	// new log begins after them; an existing log keeps its own.
	Base gtid.Set
	// Later runs a job that no writer waits for (the next segment's file, index files) at some time, or never, in any
	// goroutine. If nil, each job runs in a goroutine of its own.
	Later func(job func())
	// Keys encrypt new segments, and read encrypted ones. nil: new segments are not encrypted, and no existing one may
	// be.
	Keys   *Keys
	Logger *slog.Logger

	// hardSegmentBytes is the size from which a segment is closed even within a transaction: offsets have 32 bits.
	hardSegmentBytes int64
}

const (
	defaultSegmentBytes = 128 << 20
	maxSegmentBytes     = 1 << 30
	hardSegmentBytes    = 3 << 30
	defaultCacheBytes   = 64 << 20
	defaultZeroAhead    = 1 << 20
)

func (o *Options) setDefaults() error {
	if o.FS == nil {
		o.FS = OSFS{}
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	o.SegmentBytes = cmp.Or(o.SegmentBytes, defaultSegmentBytes)
	o.CacheBytes = cmp.Or(o.CacheBytes, defaultCacheBytes)
	o.ZeroAheadBytes = cmp.Or(o.ZeroAheadBytes, defaultZeroAhead)
	o.hardSegmentBytes = cmp.Or(o.hardSegmentBytes, hardSegmentBytes)
	if o.Later == nil {
		o.Later = func(job func()) { go job() }
	}
	if o.ZeroAheadBytes < 0 {
		return fmt.Errorf("raftlog: %d bytes of zeros ahead are less than none", o.ZeroAheadBytes)
	}
	if o.SegmentBytes < 0 || o.SegmentBytes > maxSegmentBytes {
		return fmt.Errorf("raftlog: segment size %d is not in 1..%d bytes", o.SegmentBytes, maxSegmentBytes)
	}
	if o.NodeID == 0 {
		return errors.New("raftlog: node id 0")
	}
	return nil
}

// BarrierInfo is what the log remembers of the newest Barrier entry at some index. The zero value: none yet.
type BarrierInfo struct {
	Index, Term uint64
	Node        uint16
	Incarnation uint64
	// FDE is the barrier's FORMAT_DESCRIPTION event; of one below FirstIndex it has another log_pos.
	FDE []byte
}

// Boundary is the state of the log at an index: what a node must know to go on from there without the entries below.
type Boundary struct {
	Index, Term uint64
	GTIDs       gtid.Set
	Barrier     BarrierInfo
	Open        uint64 // first entry of a transaction that has not ended; 0: none
}

// Log is a node's raft log. Append, Sync, SetHardState, SetConfState, ResetTo and the purges are serialised by the log
// itself; everything else may run concurrently with them.
//
// A failed write or fsync is final (S2): it and every later call that writes return ErrFailed; reads still work.
type Log struct {
	opts   Options
	fs     FS
	dir    string
	log    *slog.Logger
	lock   io.Closer
	failed atomic.Pointer[error]

	// durable is the highest index that is known to be fsynced.
	durable atomic.Uint64

	// wmu serialises writers. It protects the fields up to mu and is taken before mu.
	wmu     sync.Mutex
	closed  bool
	state   *stateFile // term, vote, commit index and configuration are changed with mu held too
	chain   chain      // of the last record
	dirty   bool       // something was written since the last fdatasync
	fileEnd int64      // of the last segment's file, zeros ahead included

	spare atomic.Int32 // the state of the spare file: spareNone and so on

	// side is held by code that changes index files and the spare file concurrently with the writer. It is taken after
	// wmu and before mu.
	side       sync.Mutex
	sideClosed bool

	// What is gathered for the next write.
	head     []byte // records, as far as they are copied
	iovs     [][]byte
	pending  []*raftpb.Entry
	slots    []slot
	gathered int64 // offset in the segment after pending
	ranges   []gtid.Range
	nonce    nonce // of the newest thing that was sealed

	// mu protects what readers see. Writers change it while they hold wmu too.
	mu       sync.RWMutex
	segs     []*segment // ascending, without gaps; the last one is written to
	last     uint64
	ledger   ledger // at last
	cache    cache
	idxClock uint64
	// epoch counts truncations, purges and resets: a reader whose bytes were removed meanwhile tries again.
	epoch uint64
	// snap is the last answer of Snapshot.
	snap *raftpb.Snapshot
	// replacing: ResetTo is under way, and the configuration is not that of these segments.
	replacing bool
}

// active returns the segment that is written to. Call it with wmu or mu held.
func (l *Log) active() *segment { return l.segs[len(l.segs)-1] }

func (l *Log) first() uint64 { return l.segs[0].first() }

func (l *Log) path(name string) string { return filepath.Join(l.dir, name) }

// usable returns why nothing may be written any more. Call it with wmu held.
func (l *Log) usable() error {
	if e := l.failed.Load(); e != nil {
		return *e
	}
	if l.closed {
		return ErrClosed
	}
	return nil
}

// fail makes err final and returns what every later writer gets too.
func (l *Log) fail(doing string, err error) error {
	if errors.Is(err, syscall.ENOSPC) {
		free, _ := l.fs.Free(l.dir)
		err = fmt.Errorf("%w: %d bytes are free in %s; make room and start this node again: %w", ErrNoSpace, free, l.dir, err)
	}
	err = fmt.Errorf("%w: %s: %w", ErrFailed, doing, err)
	l.failed.CompareAndSwap(nil, &err)
	return *l.failed.Load()
}

// DurableIndex returns the highest index known to be fsynced.
func (l *Log) DurableIndex() uint64 { return l.durable.Load() }

// GTIDSet returns all GTIDs of the log, with those below FirstIndex, up to LastIndex.
func (l *Log) GTIDSet() gtid.Set {
	l.mu.RLock()
	defer l.mu.RUnlock()
	return l.ledger.gtids.Clone()
}

// Boundary returns the state just below FirstIndex.
func (l *Log) Boundary() Boundary {
	l.mu.RLock()
	defer l.mu.RUnlock()
	return l.segs[0].head.boundary()
}

// BoundaryAt returns the newest boundary that lies at or below index: the state below the first entry of some segment.
// A node that knows everything up to index to be committed starts there instead of reading the whole log again.
func (l *Log) BoundaryAt(index uint64) Boundary {
	l.mu.RLock()
	defer l.mu.RUnlock()
	return l.find(max(index+1, l.first())).head.boundary()
}

// Size returns the bytes that the log's entries take on disk.
func (l *Log) Size() int64 {
	l.mu.RLock()
	defer l.mu.RUnlock()
	return l.sizeLocked()
}

func (l *Log) sizeLocked() int64 {
	var n int64
	for _, s := range l.segs {
		n += s.end
	}
	return n
}

// Close makes everything durable that was appended, writes what was put off and releases the directory. Readers must be
// done.
func (l *Log) Close() error {
	l.wmu.Lock()
	defer l.wmu.Unlock()
	if l.closed {
		return nil
	}
	err := l.usable()
	if err == nil {
		err = l.seal()
	}
	if err == nil {
		err = l.writeState("close", true)
	}
	l.closed = true
	l.endUpkeep(err == nil)
	l.mu.Lock()
	for _, s := range l.segs {
		s.release()
	}
	l.mu.Unlock()
	return errors.Join(err, l.state.f.Close(), l.lock.Close())
}
