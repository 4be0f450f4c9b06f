package ledger

import (
	"slices"

	"trireme/internal/raftlog"
)

// NotHeld are those of some open XA transactions whose XA PREPARE a log does not hold, up to an index. A node with this log cannot be seeded
// while they are open: a copy of another node's data does not have what that one's applier has prepared, and the log could not bring it again.
func NotHeld(open []string, log *raftlog.Log, upTo uint64) ([]string, error) {
	if len(open) == 0 {
		return nil, nil
	}
	left := slices.Clone(open)
	first, err := log.FirstIndex()
	if err != nil || first > upTo {
		return left, err
	}
	var s Scanner
	err = log.Scan(first, upTo, func(m *raftlog.Meta, index, _ uint64, events []byte) error {
		return s.Entry(m, index, events, func(t Txn) error {
			if t.Class == XAPrepare {
				left = slices.DeleteFunc(left, func(xid string) bool { return xid == t.XID })
			}
			return nil
		})
	})
	return left, err
}
