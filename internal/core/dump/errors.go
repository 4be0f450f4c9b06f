package dump

import (
	"errors"
	"fmt"

	"trireme/internal/base/rule"
	"trireme/internal/core/raftlog"
	"trireme/internal/mysql/mysqlwire"
)

// The errors of this package.
var (
	// ErrInvariant: something happened that no acknowledged transaction survives being ignored (S1, S3, S12). The node has
	// to fence itself: kill mysqld, exit.
	ErrInvariant = rule.Breaks("S12", "dump: invariant violated")
	// errFeed is an ErrInvariant too: what the log holds cannot be fed as whole transactions in its order.
	errFeed = fmt.Errorf("%w: %w", rule.Breaks("S3", "what the log holds cannot be fed"), ErrInvariant)
	// errAck likewise: an acknowledgement for what was not handed out.
	errAck = fmt.Errorf("%w: %w", rule.Breaks("S1", "acknowledgement"), ErrInvariant)
	// ErrDisconnected: the dump connection was lost and could not be resumed within ReconnectLimit. Run may be called
	// again; it goes on trying.
	ErrDisconnected = errors.New("dump: no dump connection to mysqld")
	// ErrClosed: Close was called.
	ErrClosed = errors.New("dump: closed")
	// ErrNotAttached: Run or Ack before a successful Attach.
	ErrNotAttached = errors.New("dump: not attached")
	// ErrNotSemiSync: mysqld does not treat the connection as a semi-sync replica's, so no session would wait for an
	// ACK.
	ErrNotSemiSync = errors.New("dump: mysqld does not run semi-sync towards us")
	// ErrPurged: a receiver needs entries that the log no longer has. It is raftlog's, for Log implementations.
	ErrPurged = raftlog.ErrPurged
)

// fatalDump ends a receiver permanently: error 1236 makes it stop and not come back by itself.
func fatalDump(message string) *mysqlwire.ServerError {
	return &mysqlwire.ServerError{Code: mysqlwire.CodeSourceFatalDump, State: "HY000", Message: message}
}

func invariant(format string, args ...any) error { return broken(ErrInvariant, format, args...) }

func broken(what error, format string, args ...any) error {
	return fmt.Errorf("%w: %s", what, fmt.Sprintf(format, args...))
}
