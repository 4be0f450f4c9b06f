package coalesce

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"
)

// line is a Waits of one key, and the goroutines of it.
type line struct {
	Waits[string]
	tasks sync.WaitGroup
}

func newLine(t *testing.T, ask func(index uint64) (at uint64, late, err error)) *line {
	l := &line{}
	l.Go = func(f func(context.Context)) { l.tasks.Go(func() { f(t.Context()) }) }
	l.Ask = func(_ context.Context, key string, index uint64) (uint64, error, error) {
		if key != "n1" {
			return 0, nil, errors.New("another key")
		}
		return ask(index)
	}
	return l
}

func (l *line) waiting() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	if q := l.queues["n1"]; q != nil {
		return len(q.all)
	}
	return 0
}

// begin returns once the caller waits.
func (l *line) begin(t *testing.T, ctx context.Context, index uint64) chan error {
	t.Helper()
	before, done := l.waiting(), make(chan error, 1)
	go func() { done <- l.Wait(ctx, "n1", index) }()
	l.until(t, before+1)
	return done
}

func (l *line) until(t *testing.T, waiting int) {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); l.waiting() != waiting; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%d wait, not %d", l.waiting(), waiting)
		}
	}
}

// Each caller is released by the first answer that shows its index, the lowest index is asked for, and no question is
// put when no caller waits.
func TestWaitsAscending(t *testing.T) {
	steps, asked := make(chan uint64), make(chan uint64, 10)
	l := newLine(t, func(index uint64) (uint64, error, error) {
		asked <- index
		if at := <-steps; at != 0 {
			return at, nil, nil
		}
		return 0, nil, errors.New("its mysqld is dead")
	})
	l.Ascending, l.Most = true, 3
	patient, cancel := context.WithCancel(t.Context())
	followed := func(want uint64) {
		t.Helper()
		if got := <-asked; got != want {
			t.Errorf("asked for %d, want %d", got, want)
		}
	}
	first := l.begin(t, t.Context(), 10)
	followed(10)
	second, third := l.begin(t, t.Context(), 7), l.begin(t, patient, 20)
	if err := l.Wait(t.Context(), "n1", 1); err == nil || !strings.Contains(err.Error(), "3 wait already") {
		t.Errorf("one too many: %v", err)
	}
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
	l.tasks.Wait()
	fourth := l.begin(t, t.Context(), 30)
	followed(30)
	fifth := l.begin(t, t.Context(), 31)
	steps <- 0
	for _, done := range []chan error{fourth, fifth} {
		if err := <-done; err == nil || err.Error() != "its mysqld is dead" {
			t.Errorf("%v", err)
		}
	}
	l.tasks.Wait()
	if len(asked) != 0 || len(l.queues) != 0 {
		t.Errorf("%d questions more, %d keys", len(asked), len(l.queues))
	}
}

// The highest index is asked for, since its answer is for all.
func TestWaitsShare(t *testing.T) {
	hold, asked := make(chan struct{}), make(chan uint64, 10)
	l := newLine(t, func(index uint64) (uint64, error, error) {
		asked <- index
		<-hold
		return index, nil, nil
	})
	all := []chan error{l.begin(t, t.Context(), 1)}
	<-asked
	for index := range uint64(3) {
		all = append(all, l.begin(t, t.Context(), 2+index))
	}
	close(hold)
	for _, done := range all {
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
	l.tasks.Wait()
	if got := <-asked; got != 4 || len(asked) > 0 {
		t.Errorf("asked for %d, and %d times more", got, len(asked))
	}
}

// While the highest index is late the lowest is asked for. Whose time ends then hears why.
func TestWaitsLate(t *testing.T) {
	answers, asked := make(chan uint64), make(chan uint64, 10)
	l := newLine(t, func(index uint64) (uint64, error, error) {
		asked <- index
		if at := <-answers; at >= index {
			return at, nil, nil
		}
		return 0, errors.New("n7 is late"), nil
	})
	patient, leave := context.WithCancel(t.Context())
	high := l.begin(t, patient, 9)
	<-asked
	low := l.begin(t, t.Context(), 3)
	answers <- 0
	if got := <-asked; got != 3 {
		t.Errorf("asked for %d, not for what comes first", got)
	}
	leave()
	if err := <-high; err == nil || err.Error() != "n7 is late" {
		t.Errorf("whose time has ended hears %v", err)
	}
	answers <- 3
	if err := <-low; err != nil {
		t.Error(err)
	}
	l.tasks.Wait()
}

// An answer that took long is not used for a later question: the server that it describes may have ended since.
func TestWaitsOld(t *testing.T) {
	answers, asked := make(chan uint64), make(chan uint64, 10)
	l := newLine(t, func(index uint64) (uint64, error, error) {
		asked <- index
		return <-answers, nil, nil
	})
	first := l.begin(t, t.Context(), 5)
	<-asked
	later := l.begin(t, t.Context(), 4)
	l.mu.Lock()
	l.queues["n1"].at = time.Now().Add(-time.Minute)
	l.mu.Unlock()
	answers <- 5
	if err := <-first; err != nil {
		t.Error(err)
	}
	select {
	case got := <-asked:
		if got != 4 {
			t.Errorf("asked for %d", got)
		}
	case err := <-later:
		t.Fatalf("an old answer was taken: %v", err)
	}
	answers <- 4
	if err := <-later; err != nil {
		t.Error(err)
	}
	l.tasks.Wait()
}

// Many who come and go are all released, and the last one ends the questions.
func TestWaitsCrowd(t *testing.T) {
	for _, ascending := range []bool{true, false} {
		var mu sync.Mutex
		at := uint64(0)
		l := newLine(t, func(index uint64) (uint64, error, error) {
			mu.Lock()
			defer mu.Unlock()
			at = max(at, index)
			return at, nil, nil
		})
		l.Ascending = ascending
		var wg sync.WaitGroup
		for i := range 200 {
			wg.Go(func() {
				for k := range 20 {
					index := uint64(i + 200*k)
					if err := l.Wait(t.Context(), "n1", index); err != nil {
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
		l.tasks.Wait()
		if len(l.queues) != 0 {
			t.Errorf("%d keys are left", len(l.queues))
		}
	}
}
