package reads

import (
	"context"
	"errors"
	"sync"
	"testing"
)

// Everybody is released by the first look that shows their index, the one that asks mysqld asks for the lowest one, and
// stops when no question waits.
func TestAppliedWaits(t *testing.T) {
	h := &testHost{}
	steps := make(chan uint64) // up to where the mysqld has come
	asked := make(chan uint64, 10)
	follow := func(_ context.Context, index uint64) (uint64, error) {
		asked <- index
		at := <-steps
		if at == 0 {
			return 0, errors.New("its mysqld is dead")
		}
		return at, nil
	}
	r := appliedWaits{host: h, follow: follow}
	begin := func(ctx context.Context, index uint64) chan error {
		before := waiting(&r)
		done := make(chan error, 1)
		go func() { done <- r.wait(ctx, index) }()
		until(t, func() bool { return waiting(&r) > before })
		return done
	}
	patient, cancel := context.WithCancel(t.Context())
	followed := func(want uint64) {
		t.Helper()
		if got := <-asked; got != want {
			t.Errorf("asked for %d, want %d", got, want)
		}
	}
	first := begin(t.Context(), 10)
	followed(10)
	second, third := begin(t.Context(), 7), begin(patient, 20)
	steps <- 5
	followed(7)
	steps <- 12
	for _, done := range []chan error{first, second} {
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
	followed(20)
	cancel()
	if err := <-third; !errors.Is(err, context.Canceled) {
		t.Errorf("who does not wait any more hears %v", err)
	}
	steps <- 13
	h.tasks.Wait() // mysqld is not asked any more
	fourth, fifth := begin(t.Context(), 30), begin(t.Context(), 31)
	followed(30)
	steps <- 0
	for _, done := range []chan error{fourth, fifth} {
		if err := <-done; err == nil || err.Error() != "its mysqld is dead" {
			t.Errorf("%v", err)
		}
	}
	h.tasks.Wait()
	if len(asked) != 0 {
		t.Errorf("asked for %d, too", <-asked)
	}
}

func waiting(r *appliedWaits) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.waiting)
}

// Many who come and go are all released, and the last one ends the following.
func TestAppliedWaitsCrowd(t *testing.T) {
	h := &testHost{}
	var mu sync.Mutex
	at := uint64(0)
	follow := func(_ context.Context, index uint64) (uint64, error) {
		mu.Lock()
		defer mu.Unlock()
		at = max(at, index)
		return at, nil
	}
	r := appliedWaits{host: h, follow: follow}
	var wg sync.WaitGroup
	for i := range 200 {
		wg.Go(func() {
			for k := range 20 {
				index := uint64(i + 200*k)
				if err := r.wait(t.Context(), index); err != nil {
					t.Error(err)
				}
				mu.Lock()
				if at < index {
					t.Errorf("released at %d, waited for %d", at, index)
				}
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	h.tasks.Wait()
	if waiting(&r) != 0 || r.running {
		t.Errorf("%d wait, followed: %t", waiting(&r), r.running)
	}
}
