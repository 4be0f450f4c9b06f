package ask

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"
)

// Who comes while a question is out shares the next one, never that one; the end of the questions can be waited for,
// and nothing is left of them.
func TestAskedBehindTheCall(t *testing.T) {
	var s Shared[string, int]
	no, asked, first := errors.New("not any more"), 0, make(chan struct{})
	out := make(chan struct{})
	put := func() (int, error) {
		if asked++; asked == 1 {
			close(out)
			<-first
			return 1, nil
		}
		return asked, no
	}
	var callers sync.WaitGroup
	callers.Go(func() {
		if answer, err := s.Ask(t.Context(), "db1", put); answer != 1 || err != nil {
			t.Error(answer, err)
		}
	})
	<-out
	const late = 50
	for range late {
		callers.Go(func() {
			if answer, err := s.Ask(t.Context(), "db1", put); answer < 2 || err != no {
				t.Errorf("%d, %v: the answer to an older question", answer, err)
			}
		})
	}
	for deadline := time.Now().Add(10 * time.Second); ; time.Sleep(time.Millisecond) {
		s.mu.Lock()
		waits := s.queues["db1"].next != nil
		s.mu.Unlock()
		if waits {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("no caller waits for the next question")
		}
	}
	if answer, err := s.Ask(t.Context(), "db2", func() (int, error) { return 7, nil }); answer != 7 || err != nil {
		t.Errorf("another key is not asked about meanwhile: %d, %v", answer, err)
	}
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := s.Ask(gone, "db1", put); err != context.Canceled {
		t.Error(err)
	}
	close(first)
	callers.Wait()
	s.Wait()
	if asked < 2 || asked > late+2 {
		t.Errorf("asked %d times", asked)
	}
	if len(s.queues) != 0 {
		t.Errorf("%d keys are left", len(s.queues))
	}
}
