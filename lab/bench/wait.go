package bench

import (
	"context"
	"fmt"
	"time"
)

// poll until ok, an error that lasts, or the limit.
func poll(ctx context.Context, limit time.Duration, what string, f func(context.Context) (bool, error)) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	for {
		ok, err := f(ctx)
		if err == nil && ok {
			return nil
		}
		select {
		case <-ctx.Done():
			if err == nil {
				err = ctx.Err()
			}
			return fmt.Errorf("waiting for %s: %w", what, err)
		case <-time.After(20 * time.Millisecond):
		}
	}
}

func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}
