package reads

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// TestEverywhere: each node that the leader names is waited for, through whatever keeps a node or the leader from
// answering, until one of its answers is met; who lags at the end is named. Its time is the bubble's, so n1's answer
// comes before the 50 ms are over on a machine that gives it no CPU, too.
func TestEverywhere(t *testing.T) { synctest.Test(t, everywhere) }

func everywhere(t *testing.T) {
	name := func(id uint64) string { return fmt.Sprintf("n%d", id) }
	cut := errors.New("no connection")
	var (
		mu     sync.Mutex
		waited = map[uint64]int{}
		asked  int
	)
	whom := func(context.Context) ([]uint64, error) {
		mu.Lock()
		defer mu.Unlock()
		switch asked++; {
		case asked == 1:
			return nil, errors.New("no leader")
		case waited[2] < 3:
			return []uint64{1, 2, 3}, nil
		}
		return []uint64{1, 3, 4}, nil // dead for good
	}
	wait := func(_ context.Context, id uint64) error {
		mu.Lock()
		defer mu.Unlock()
		waited[id]++
		if id == 2 || id == 3 && waited[id] < 5 { // 3: for a while only
			return cut
		}
		return nil
	}
	if err := waitOnAll(t.Context(), []uint64{1, 2}, whom, wait, name); err != nil {
		t.Fatal(err)
	}
	mu.Lock()
	if waited[1] != 1 || waited[2] < 3 || waited[3] != 5 || waited[4] != 1 {
		t.Errorf("waited for %v", waited)
	}
	mu.Unlock()

	onlyOthers := func(ctx context.Context, id uint64) error {
		if id != 3 {
			return nil
		}
		<-ctx.Done()
		return ctx.Err()
	}
	short := func() context.Context {
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		t.Cleanup(cancel)
		return ctx
	}
	err := waitOnAll(short(), []uint64{1, 3}, func(context.Context) ([]uint64, error) { return []uint64{1, 3}, nil },
		onlyOthers, name)
	if !errors.Is(err, context.DeadlineExceeded) || err.Error() != "n3: context deadline exceeded" {
		t.Errorf("n3 lags: %v", err)
	}
	// There is no time left for the answer to the second question.
	late, cancel := context.WithTimeout(t.Context(), liveAgain+50*time.Millisecond)
	defer cancel()
	questions := 0
	err = waitOnAll(late, []uint64{1}, func(ctx context.Context) ([]uint64, error) {
		if questions++; questions == 1 {
			return []uint64{1, 3}, nil
		}
		<-ctx.Done()
		return nil, errors.New("the leader does not answer")
	}, onlyOthers, name)
	if err == nil || err.Error() != "n3: context deadline exceeded" {
		t.Errorf("n3 lags: %v", err)
	}
	// All that seem to serve show it, and no leader says that these are all.
	err = waitOnAll(short(), []uint64{1, 2},
		func(context.Context) ([]uint64, error) { return nil, errors.New("no leader") }, onlyOthers, name)
	if !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "no leader") {
		t.Errorf("no node leads: %v", err)
	}
	if err := waitOnAll(t.Context(), []uint64{3}, func(context.Context) ([]uint64, error) { return []uint64{1}, nil },
		onlyOthers, name); err != nil {
		t.Errorf("n3 seemed to serve, and is not waited for: %v", err)
	}
}
