package node

import (
	"errors"
	"fmt"

	"trireme/internal/base/config"
	"trireme/internal/base/rule"
	"trireme/internal/core/raftlog"
	"trireme/internal/node/membership"
	"trireme/internal/node/recovery"
)

// ErrFinal is the end of a node that would end the same way if it were started again: the service manager should leave
// it down.
var ErrFinal = membership.ErrFinal

// whyStopped are the fields of the log line. The key rule stands in the log when a rule of docs/GUARANTEES.md was found
// broken, and only then.
func whyStopped(err error) []any {
	if r := rule.Of(err); r != "" {
		return []any{"err", err, "rule", r}
	}
	return []any{"err", err}
}

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
