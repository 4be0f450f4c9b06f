package poll

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"
)

// TestWithin: it asks again after an error, and its error says what was waited for, and what came last.
func TestWithin(t *testing.T) {
	asked := 0
	soon := errors.New("not yet")
	f := func(context.Context) error {
		if asked++; asked < 3 {
			return soon
		}
		return nil
	}
	if err := Within(t.Context(), time.Minute, "a word", f); err != nil || asked != 3 {
		t.Errorf("asked %d times: %v", asked, err)
	}
	never := func(context.Context) error { return soon }
	if err := Within(t.Context(), time.Millisecond, "a word", never); !errors.Is(err, soon) ||
		!strings.Contains(err.Error(), "a word") {
		t.Errorf("never: %v", err)
	}
}

// TestPause ends with its context.
func TestPause(t *testing.T) {
	if err := Pause(t.Context(), time.Millisecond); err != nil {
		t.Error(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := Pause(ctx, time.Hour); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}
