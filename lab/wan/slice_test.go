package wan

import (
	"errors"
	"os"
	"testing"
)

// TestSlice: while there are budgets the kernel hands them out in small pieces, and as before afterwards.
func TestSlice(t *testing.T) {
	before, err := os.ReadFile(sliceFile)
	if err != nil {
		t.Skip(err)
	}
	a, err := NewBudget("slice-a", 0.5)
	if errors.Is(err, ErrNoBudget) {
		t.Skip(err)
	} else if err != nil {
		t.Fatal(err)
	}
	b, err := NewBudget("slice-b", 0.5)
	if err != nil {
		t.Fatal(err)
	}
	now := func() string {
		text, err := os.ReadFile(sliceFile)
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	if got := now(); got != "1000\n" {
		t.Errorf("with budgets it is %q", got)
	}
	for _, x := range []*Budget{a, a, b} { // closing twice is allowed
		if got := now(); got != "1000\n" {
			t.Errorf("with a budget it is %q", got)
		}
		if err := x.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if got := now(); got != string(before) {
		t.Errorf("without budgets it is %q, and was %q", got, before)
	}
}
