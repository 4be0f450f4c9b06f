package ledger

import (
	"context"
	"errors"
	"slices"

	"trireme/internal/core/raftlog"
)

// errAllHeld ends a scan that has found all it looks for.
var errAllHeld = errors.New("all are held")

// ScannedLog is a raft log that is read from its first entry on.
type ScannedLog interface {
	FirstIndex() (uint64, error)
	Scan(from, to uint64, f func(m *raftlog.Meta, index, term uint64, events []byte) error) error
}

// NotHeld are those XA transactions, prepared on a node that had applied everything up to an index, whose XA PREPARE a
// log does not hold up to another one. A node with this log cannot be seeded from that one while they are prepared: the
// copy would not have them, and the log could not bring them again.
func NotHeld(ctx context.Context, prepared []string, applied uint64, log ScannedLog, upTo uint64) ([]string, error) {
	if len(prepared) == 0 {
		return nil, nil
	}
	left := slices.Clone(prepared)
	first, err := log.FirstIndex()
	if err != nil || first > upTo {
		return left, err
	}
	var s Scanner
	ended := map[string]bool{} // what is prepared there may be an earlier transaction of that name
	err = log.Scan(first, upTo, func(m *raftlog.Meta, index, _ uint64, events []byte) error {
		if len(left) == 0 {
			return errAllHeld
		}
		if err := ctx.Err(); err != nil {
			return err
		}
		return s.Entry(m, index, events, func(t Txn) error {
			switch {
			case t.Class == XAPrepare && !ended[t.XID]:
				left = slices.DeleteFunc(left, func(xid string) bool { return xid == t.XID })
			case t.Class == XAEnd && t.Index > applied && slices.Contains(left, t.XID):
				ended[t.XID] = true
			}
			return nil
		})
	})
	if errors.Is(err, errAllHeld) {
		err = nil
	}
	return left, err
}
