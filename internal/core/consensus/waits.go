package consensus

import (
	"slices"
	"sync"
)

// indexWaits calls back when an index is reached. Few wait at any one time.
type indexWaits struct {
	mu      sync.Mutex
	reached uint64
	waits   []*indexWait
}

type indexWait struct {
	index uint64
	done  func() // must not wait
}

// wait has done called once index is reached; it may be so already.
func (w *indexWaits) wait(index uint64, done func()) *indexWait {
	w.mu.Lock()
	defer w.mu.Unlock()
	x := &indexWait{index, done}
	if index <= w.reached {
		done()
		return x
	}
	w.waits = append(w.waits, x)
	return x
}

func (w *indexWaits) cancel(x *indexWait) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.waits = slices.DeleteFunc(w.waits, func(y *indexWait) bool { return x == y })
}

func (w *indexWaits) reach(index uint64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.reached = max(w.reached, index)
	w.waits = slices.DeleteFunc(w.waits, func(x *indexWait) bool {
		if x.index > w.reached {
			return false
		}
		x.done()
		return true
	})
}
