package node

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"trireme/internal/api"
)

// TestWarningsAreTold: a problem is told once, and again when it has changed or was gone in between.
func TestWarningsAreTold(t *testing.T) {
	var w warnings
	a, b := errors.New("a"), errors.New("b")
	late, later := fmt.Errorf("entry 5: %w", context.DeadlineExceeded), api.Errorf(api.KindTimeout, "entry 6")
	for i, step := range []struct {
		what string
		err  error
		want bool
	}{
		{"disk", nil, false}, {"disk", a, true}, {"disk", a, false}, {"link", a, true}, {"disk", b, true},
		{"disk", nil, false}, {"disk", b, true}, {"disk", late, true}, {"disk", later, false}, {"disk", a, true},
	} {
		if got := w.isNew(step.what, step.err); got != step.want {
			t.Errorf("step %d: %+v: %t", i, step, got)
		}
	}
}

// eventually waits for something that happens by itself.
func eventually(t *testing.T, done func() bool) {
	t.Helper()
	for deadline := time.Now().Add(30 * time.Second); !done(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("it did not happen in time")
		}
	}
}
