package consensus

import (
	"sync"

	"go.etcd.io/raft/v3/raftpb"
)

// input is one thing for raft; exactly one of m, proposal and call is set.
type input struct {
	m        *raftpb.Message
	local    bool // m comes from this node's storage
	proposal *proposal
	call     func(*core)
}

// inbox is what waits for raft's next turn. Small messages from peers are bounded in number, and those above the bound
// are dropped, because raft repeats them. All else is bounded where it is made.
type inbox struct {
	mu    sync.Mutex
	items []input
	spare []input
	small int
	wake  func() // brings about the next turn
}

// maxSmallMessages bounds the messages without entries that wait for raft's turn.
const maxSmallMessages = 1 << 16

// put adds inputs that are bounded elsewhere.
func (b *inbox) put(in ...input) {
	if len(in) == 0 {
		return
	}
	b.mu.Lock()
	b.items = append(b.items, in...)
	b.mu.Unlock()
	b.wake()
}

// receive adds a peer's message.
func (b *inbox) receive(m *raftpb.Message) {
	b.mu.Lock()
	if len(m.GetEntries()) == 0 {
		if b.small >= maxSmallMessages {
			b.mu.Unlock()
			return
		}
		b.small++
	}
	b.items = append(b.items, input{m: m})
	b.mu.Unlock()
	b.wake()
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
	b.small = 0
	return batch
}

// entryOverhead is what an entry costs besides its data, in every count of bytes.
const entryOverhead = 32
