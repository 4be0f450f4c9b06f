package node

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"time"

	"trireme/internal/config"
)

// TestEverywhere: who joins during the wait is waited for as well, who is removed is not any more, and who is behind at the end is named.
func TestEverywhere(t *testing.T) {
	var (
		mu     sync.Mutex
		list   = []config.Member{{ID: 1, Name: "n1"}, {ID: 2, Name: "n2"}, {ID: 3, Name: "n3"}}
		waited []uint64
	)
	members := func() []config.Member {
		mu.Lock()
		defer mu.Unlock()
		return slices.Clone(list)
	}
	cut := errors.New("no connection")
	wait := func(_ context.Context, id uint64) error {
		mu.Lock()
		defer mu.Unlock()
		waited = append(waited, id)
		tries := 0
		for _, w := range waited {
			if w == id {
				tries++
			}
		}
		switch {
		case id == 2: // dead for good; in the end another node takes its place
			if tries == 3 {
				list = []config.Member{{ID: 1, Name: "n1"}, {ID: 3, Name: "n3"}, {ID: 4, Name: "n4"}}
			}
			return cut
		case id == 3 && tries < 5: // for a while only
			return cut
		}
		return nil
	}
	if err := everywhere(t.Context(), members, wait); err != nil {
		t.Fatal(err)
	}
	slices.Sort(waited)
	if want := []uint64{1, 2, 2, 2, 3, 3, 3, 3, 3, 4}; !slices.Equal(waited, want) {
		t.Errorf("waited for %d, want %d", waited, want)
	}

	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	err := everywhere(ctx, members, func(ctx context.Context, id uint64) error {
		if id != 3 {
			return nil
		}
		<-ctx.Done()
		return ctx.Err()
	})
	if !errors.Is(err, context.DeadlineExceeded) || err.Error() != "n3: context deadline exceeded" {
		t.Errorf("n3 is behind: %v", err)
	}
}
