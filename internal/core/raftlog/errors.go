package raftlog

import (
	"errors"

	"trireme/internal/base/rule"
)

// The errors of this package, in addition to raft.ErrCompacted and raft.ErrUnavailable of the raft.Storage methods. All
// of them but ErrPurged, ErrNoPosition and ErrBeyond mean that this node must not continue.
var (
	// ErrCorrupt: something that had been fsynced is damaged or missing. The node has to rejoin under a new raft id (S2).
	ErrCorrupt = errors.New("raftlog: corrupt")
	// ErrGone: Options.Made says that there was a log, but there is no log now. The node has to rejoin under a new raft
	// id (S2).
	ErrGone = errors.New("raftlog: the log is gone")
	// ErrForeign: the directory belongs to another cluster or to another node of it.
	ErrForeign = errors.New("raftlog: directory of another node")
	// ErrNewer: the directory was written by a newer version of Trireme.
	ErrNewer = errors.New("raftlog: directory of a newer version")
	// ErrLocked: another process has the directory open.
	ErrLocked = errors.New("raftlog: directory in use")
	// ErrFailed: a write or an fsync failed earlier; nothing more is accepted (S2). It wraps the first failure.
	ErrFailed = errors.New("raftlog: failed permanently")
	// ErrNoSpace: the disk is full. It is as final as ErrFailed, which it accompanies.
	ErrNoSpace = errors.New("raftlog: no space")
	// ErrInvariant: the caller broke a rule on which acknowledged transactions depend (S2, S6, S12). Nothing was
	// written. The node has to fence itself.
	ErrInvariant = rule.Breaks("S2", "raftlog: invariant violated")
	// ErrPurged: the entry asked for lies below the log's first index.
	ErrPurged = errors.New("raftlog: purged")
	// ErrNoPosition: no entry is of the binary log that a position names.
	ErrNoPosition = errors.New("raftlog: no entry of that binary log")
	// ErrBeyond: the entries of that binary log end before the position.
	ErrBeyond = errors.New("raftlog: the log ends before that position")
	// ErrClosed: the log has been closed.
	ErrClosed = errors.New("raftlog: closed")
)
