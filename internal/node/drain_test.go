package node

import (
	"errors"
	"testing"
)

// A mysqld that was asked to open writes and did not answer is not drained: whatever it is asked next, it may still open them.
func TestUnansweredOpenIsNotDrained(t *testing.T) {
	if err := newTestNode(t).drain(t.Context(), &life{mayOpen: true}); !errors.Is(err, errUnsure) {
		t.Fatalf("drain: %v, want %v", err, errUnsure)
	}
}
