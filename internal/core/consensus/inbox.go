package consensus

import (
	"sync"

	"go.etcd.io/raft/v3/raftpb"
)

// input is one thing for the raft goroutine; exactly one of m, proposal and call is set.
type input struct {
	m        *raftpb.Message
	local    bool // m comes from this node's storage threads
	proposal *proposal
	call     func(*core)
}

// inbox is the raft goroutine's queue. Messages with entries are bounded in bytes: receive blocks, which stops the
// peer's bulk connection. Small messages from peers are bounded in number, and those above the bound are dropped,
// because raft repeats them. Input from this node itself is bounded where it is made.
type inbox struct {
	mu    sync.Mutex
	space sync.Cond // bytes has fallen, or closed
	items []input
	spare []input
	wake  chan struct{}
	limit uint64
	bytes uint64
	small int
	ended bool
}

// maxSmallMessages bounds the messages without entries that wait for the raft goroutine.
const maxSmallMessages = 1 << 16

func newInbox(limit uint64) *inbox {
	b := &inbox{wake: make(chan struct{}, 1), limit: limit}
	b.space.L = &b.mu
	return b
}

// put adds inputs that are bounded elsewhere.
func (b *inbox) put(in ...input) {
	if len(in) == 0 {
		return
	}
	b.mu.Lock()
	b.items = append(b.items, in...)
	b.mu.Unlock()
	b.signal()
}

func (b *inbox) signal() {
	select {
	case b.wake <- struct{}{}:
	default:
	}
}

// receive adds a peer's message; false means that the inbox has ended.
func (b *inbox) receive(m *raftpb.Message) bool {
	size := messageBytes(m)
	b.mu.Lock()
	for size > 0 && b.bytes > 0 && b.bytes+size > b.limit && !b.ended {
		b.space.Wait()
	}
	if b.ended {
		b.mu.Unlock()
		return false
	}
	if size == 0 {
		if b.small >= maxSmallMessages {
			b.mu.Unlock()
			return true
		}
		b.small++
	}
	b.bytes += size
	b.items = append(b.items, input{m: m})
	b.mu.Unlock()
	b.signal()
	return true
}

// fits reports whether receive would not wait.
func (b *inbox) fits(m *raftpb.Message) bool {
	size := messageBytes(m)
	b.mu.Lock()
	defer b.mu.Unlock()
	return size == 0 || b.bytes == 0 || b.bytes+size <= b.limit
}

func (b *inbox) idle() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.items) == 0
}

// take returns everything queued; the slice is valid until the next take.
func (b *inbox) take() []input {
	b.mu.Lock()
	defer b.mu.Unlock()
	clear(b.spare) // the batch before, which is not used any more
	batch := b.items
	b.items, b.spare = b.spare[:0], batch
	b.bytes, b.small = 0, 0
	b.space.Broadcast()
	return batch
}

// end releases all callers that wait in receive.
func (b *inbox) end() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.ended = true
	b.space.Broadcast()
}

// entryOverhead is what an entry costs besides its data, in every count of bytes.
const entryOverhead = 32

// messageBytes is what a message weighs: its entries and snapshot; 0 for the small ones.
func messageBytes(m *raftpb.Message) uint64 {
	n := uint64(len(m.GetSnapshot().GetData()))
	for _, e := range m.GetEntries() {
		n += uint64(len(e.GetData())) + entryOverhead
	}
	return n
}
