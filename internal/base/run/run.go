// Package run is what code waits with that runs in the product and in the simulation of whole nodes (lab/sim) alike.
// Such code reads no clock, blocks on no lock that is held over a wait, and has no select: it asks an Exec, which the
// simulation answers in a time and an order of its own.
package run

import (
	"context"
	"time"

	"trireme/internal/base/poll"
)

// Exec lets time pass. A context that it is given, or one derived from it, ends the wait.
type Exec interface {
	// Now is CLOCK_BOOTTIME.
	Now() time.Duration
	// Sleep returns after d, or with the error of a context that ends before.
	Sleep(ctx context.Context, d time.Duration) error
	// Wait returns once ch is closed, or with the error of a context that ends before.
	Wait(ctx context.Context, ch <-chan struct{}) error
	// Either returns once a or b is closed, or with the error of a context that ends before.
	Either(ctx context.Context, a, b <-chan struct{}) error
	// WithCancel is context.WithCancel, and WithTimeout context.WithTimeout.
	WithCancel(ctx context.Context) (context.Context, context.CancelFunc)
	WithTimeout(ctx context.Context, d time.Duration) (context.Context, context.CancelFunc)
}

// Clock is the time that goes by while nothing is waited for.
type Clock interface {
	// Now is CLOCK_BOOTTIME.
	Now() time.Duration
	// Wall is the time of day, for people to see.
	Wall() time.Time
	// AfterFunc calls f once d has passed.
	AfterFunc(d time.Duration, f func())
}

// Time is both: what waits, and what only looks.
type Time interface {
	Exec
	Clock
}

// Closed says whether ch is closed.
func Closed(ch <-chan struct{}) bool {
	select {
	case <-ch:
		return true
	default:
		return false
	}
}

// Real is the time of this machine.
type Real struct {
	Boottime func() int64 // CLOCK_BOOTTIME, in nanoseconds
}

// Now implements Exec.
func (r Real) Now() time.Duration { return time.Duration(r.Boottime()) }

// Wall implements Clock.
func (Real) Wall() time.Time { return time.Now() }

// AfterFunc implements Clock.
func (Real) AfterFunc(d time.Duration, f func()) { time.AfterFunc(d, f) }

// Sleep implements Exec.
func (Real) Sleep(ctx context.Context, d time.Duration) error { return poll.Pause(ctx, d) }

// Wait implements Exec.
func (Real) Wait(ctx context.Context, ch <-chan struct{}) error {
	select {
	case <-ch:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Either implements Exec.
func (Real) Either(ctx context.Context, a, b <-chan struct{}) error {
	select {
	case <-a:
		return nil
	case <-b:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// WithCancel implements Exec.
func (Real) WithCancel(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithCancel(ctx)
}

// WithTimeout implements Exec.
func (Real) WithTimeout(ctx context.Context, d time.Duration) (context.Context, context.CancelFunc) {
	return context.WithTimeout(ctx, d)
}
