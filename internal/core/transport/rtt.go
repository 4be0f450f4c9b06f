package transport

import (
	"slices"
	"sync"
	"time"
)

// rttSamples is how many round trips of a link are remembered: those of two minutes, at a ping every 500 ms.
const rttSamples = 240

// RTT is what the pings of the control stream to a peer have measured in the last two minutes. What a peer's process or
// its host takes to answer is part of it, as it is of a heartbeat's way.
type RTT struct {
	Samples int
	Median  time.Duration
	P99     time.Duration
}

// rtts are the round trips of one link.
type rtts struct {
	mu   sync.Mutex
	ring [rttSamples]time.Duration
	n    int       // taken in all
	last time.Time // when the newest answer came
}

func (r *rtts) add(d time.Duration) {
	if d <= 0 {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.ring[r.n%rttSamples] = d
	r.n++
	r.last = time.Now()
}

// reset forgets them: the next connection may take another way.
func (r *rtts) reset() {
	r.mu.Lock()
	r.n = 0
	r.mu.Unlock()
}

func (r *rtts) get() RTT {
	r.mu.Lock()
	have := min(r.n, rttSamples)
	sorted := slices.Clone(r.ring[:have])
	r.mu.Unlock()
	if have == 0 {
		return RTT{}
	}
	slices.Sort(sorted)
	return RTT{Samples: have, Median: sorted[have/2], P99: sorted[have*99/100]}
}

// Silence is how long ago a peer last answered a ping; false: it has not yet.
func (t *Transport) Silence(id uint64) (time.Duration, bool) {
	p := t.peer(id)
	if p == nil {
		return 0, false
	}
	p.rtts.mu.Lock()
	defer p.rtts.mu.Unlock()
	return time.Since(p.rtts.last), !p.rtts.last.IsZero()
}

// RTT is of the control stream to a peer; zero while unknown.
func (t *Transport) RTT(id uint64) RTT {
	if p := t.peer(id); p != nil {
		return p.rtts.get()
	}
	return RTT{}
}
