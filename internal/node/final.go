package node

import (
	"errors"
	"fmt"

	"trireme/internal/base/config"
	"trireme/internal/core/raftlog"
	"trireme/internal/node/membership"
	"trireme/internal/node/recovery"
)

// ErrFinal is the end of a node that would end the same way if it were started again: the service manager should leave
// it down.
var ErrFinal = membership.ErrFinal

// final marks the errors that another start would meet again. Disks and servers that cannot be reached do not count:
// they may be back.
func final(err error) error {
	for _, e := range []error{raftlog.ErrGone, raftlog.ErrForeign, raftlog.ErrNewer, raftlog.ErrCorrupt, config.ErrNewer,
		config.ErrDamaged,
		recovery.ErrLeftBehind} {
		if errors.Is(err, e) {
			return fmt.Errorf("%w: %w", ErrFinal, err)
		}
	}
	return err
}
