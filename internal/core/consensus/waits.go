package consensus

import (
	"container/heap"
	"sync"
)

// indexWaits wakes callers when an index is reached.
type indexWaits struct {
	mu      sync.Mutex
	reached uint64
	heap    waitHeap
}

type indexWait struct {
	index uint64
	pos   int // in the heap; -1 when taken out
	done  chan struct{}
}

// wait returns nil if index is reached already.
func (w *indexWaits) wait(index uint64) *indexWait {
	w.mu.Lock()
	defer w.mu.Unlock()
	if index <= w.reached {
		return nil
	}
	x := &indexWait{index: index, done: make(chan struct{})}
	heap.Push(&w.heap, x)
	return x
}

func (w *indexWaits) cancel(x *indexWait) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if x.pos >= 0 {
		heap.Remove(&w.heap, x.pos)
	}
}

func (w *indexWaits) reach(index uint64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if index <= w.reached {
		return
	}
	w.reached = index
	for len(w.heap) > 0 && w.heap[0].index <= index {
		close(heap.Pop(&w.heap).(*indexWait).done)
	}
}

type waitHeap []*indexWait

func (h waitHeap) Len() int           { return len(h) }
func (h waitHeap) Less(i, j int) bool { return h[i].index < h[j].index }
func (h waitHeap) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].pos, h[j].pos = i, j
}
func (h *waitHeap) Push(x any) {
	w := x.(*indexWait)
	w.pos = len(*h)
	*h = append(*h, w)
}
func (h *waitHeap) Pop() any {
	old := *h
	w := old[len(old)-1]
	old[len(old)-1] = nil
	*h = old[:len(old)-1]
	w.pos = -1
	return w
}
