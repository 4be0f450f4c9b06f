// Package poll waits for what can only be asked for again and again.
package poll

import (
	"context"
	"fmt"
	"time"
)

// Until asks f until it returns nil. When ctx ends first, the error is what f said last.
func Until(ctx context.Context, f func(context.Context) error) error {
	for began := time.Now(); ; {
		err := f(ctx)
		if err == nil {
			return nil
		}
		// Most f ask servers, so it asks less often when it waits long.
		if Pause(ctx, min(max(time.Since(began)/10, 20*time.Millisecond), 50*time.Millisecond)) != nil {
			return err
		}
	}
}

// Within is Until for at most a time. The error says what was waited for.
func Within(ctx context.Context, limit time.Duration, what string, f func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	if err := Until(ctx, f); err != nil {
		return fmt.Errorf("waiting for %s: %w", what, err)
	}
	return nil
}

// Pause waits for a time. It ends early, with an error, when ctx does.
func Pause(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}
