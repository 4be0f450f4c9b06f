package demo

import (
	"context"
	"errors"
	"io"
	"strings"
	"testing"
	"time"
)

// TestStory: acts are told in order; a tour waits for its reader at each, and not at the end of the input.
func TestStory(t *testing.T) {
	var out strings.Builder
	plain := newStory(&printer{out: &out}, false, strings.NewReader(""))
	if err := plain.act(t.Context(), "A load", loadText(8, 5)); err != nil {
		t.Fatal(err)
	}
	if got := out.String(); !strings.Contains(got, "\n== 1. A load\n   8 sessions") ||
		!strings.Contains(got, "disks of 3 of the\n   5 voters") ||
		strings.Contains(got, "Enter") {
		t.Errorf("%s", got)
	}
	out.Reset()
	in, reader := io.Pipe()
	tour := newStory(&printer{out: &out}, true, in)
	ended := make(chan error, 1)
	go func() { ended <- tour.act(t.Context(), "A cluster", clusterText) }()
	for deadline := time.Now().Add(10 * time.Second); !tour.waiting.Load(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("it does not wait")
		}
	}
	select {
	case err := <-ended:
		t.Fatal("it went on by itself:", err)
	default:
	}
	if _, err := reader.Write([]byte("\n")); err != nil {
		t.Fatal(err)
	}
	if err := <-ended; err != nil || tour.waiting.Load() || !strings.Contains(out.String(), "Press Enter") {
		t.Errorf("%v: %s", err, out.String())
	}
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	if err := tour.act(gone, "The next", ""); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	if err := reader.Close(); err != nil {
		t.Fatal(err)
	}
	if err := tour.act(t.Context(), "The last", ""); err != nil {
		t.Error(err)
	}
}
