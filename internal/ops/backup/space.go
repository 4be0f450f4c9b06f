package backup

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"syscall"
	"time"

	"trireme/internal/base/durable"
	"trireme/internal/mysql/mysqld"
)

// leastSpace is what mysqld has to have, in bytes: with less on its disk it fails, in its own words, or waits for more
// silently, forever.
const leastSpace = 16 << 20

// withSpace has f write to a directory, by mysqld as by ourselves, with a context that ends when its disk is full. An
// error that comes of that is ErrNoSpace and says what to do.
func withSpace(ctx context.Context, dir, advice string, f func(context.Context) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	go func() {
		tick := time.NewTicker(watchPause)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
			}
			if left, err := durable.Free(dir); err == nil && left < leastSpace {
				cancel(fmt.Errorf("%w: %d MiB are left in %s", ErrNoSpace, left>>20, dir))
			}
		}
	}()
	err := f(ctx)
	if err == nil {
		return nil
	}
	// Each may miss it: the watch looks once in a while, and mysqld's files may have gone with mysqld by now.
	if left, ferr := durable.Free(dir); full(err) || errors.Is(context.Cause(ctx), ErrNoSpace) || ferr == nil &&
		left < leastSpace {
		return fmt.Errorf("%w: %s: %w", ErrNoSpace, advice, err)
	}
	return err
}

// full: a disk was, by an error of ours or of mysqld.
func full(err error) bool {
	return errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) || errors.Is(err, mysqld.ErrNoSpace) ||
		strings.Contains(err.Error(), "No space left on device")
}
