package backup

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"syscall"
	"time"

	"trireme/internal/mysqld"
)

// leastSpace is what mysqld has to have, in bytes: with less on its disk it fails, in its own words, or waits for more without a word, for ever.
const leastSpace = 16 << 20

// whileSpace gives a context that ends, by ErrNoSpace, when a directory's disk is full.
func whileSpace(ctx context.Context, dir string) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(ctx)
	go func() {
		tick := time.NewTicker(watchPause)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
			}
			if left, err := free(dir); err == nil && left < leastSpace {
				cancel(fmt.Errorf("%w: %d MiB are left in %s", ErrNoSpace, left>>20, dir))
			}
		}
	}()
	return ctx, func() { cancel(nil) }
}

// full: a disk was, by an error of ours or of mysqld.
func full(err error) bool {
	return errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) || errors.Is(err, mysqld.ErrNoSpace) || strings.Contains(err.Error(), "No space left on device")
}
