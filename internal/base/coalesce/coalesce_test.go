package coalesce

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"
)

// Who comes while a call runs shares the next run, never that one; the end of the runs can be waited for, and nothing
// is left of them.
func TestRunStartsAfterTheCall(t *testing.T) {
	var g Group[string, int]
	no, runs, first := errors.New("not any more"), 0, make(chan struct{})
	started := make(chan struct{})
	fn := func() (int, error) {
		if runs++; runs == 1 {
			close(started)
			<-first
			return 1, nil
		}
		return runs, no
	}
	var callers sync.WaitGroup
	callers.Go(func() {
		if result, err := g.Do(t.Context(), "db1", fn); result != 1 || err != nil {
			t.Error(result, err)
		}
	})
	<-started
	const late = 50
	for range late {
		callers.Go(func() {
			if result, err := g.Do(t.Context(), "db1", fn); result < 2 || err != no {
				t.Errorf("%d, %v: the result of an older run", result, err)
			}
		})
	}
	for deadline := time.Now().Add(10 * time.Second); ; time.Sleep(time.Millisecond) {
		g.mu.Lock()
		waits := g.queues["db1"].next != nil
		g.mu.Unlock()
		if waits {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("no caller waits for the next run")
		}
	}
	if result, err := g.Do(t.Context(), "db2", func() (int, error) { return 7, nil }); result != 7 || err != nil {
		t.Errorf("another key has to wait meanwhile: %d, %v", result, err)
	}
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := g.Do(gone, "db1", fn); err != context.Canceled {
		t.Error(err)
	}
	close(first)
	callers.Wait()
	g.Wait()
	if runs < 2 || runs > late+2 {
		t.Errorf("%d runs", runs)
	}
	if len(g.queues) != 0 {
		t.Errorf("%d keys are left", len(g.queues))
	}
}
