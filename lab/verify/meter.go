package verify

import (
	"slices"
	"sync"
	"time"
)

// Gap is a time without any acknowledged write.
type Gap struct {
	From, To time.Time
}

// Length of the gap.
func (g Gap) Length() time.Duration { return g.To.Sub(g.From) }

const (
	// gapFloor: shorter pauses are not remembered one by one.
	gapFloor = 5 * time.Millisecond
	// maxGaps bounds the memory for gaps; the oldest are forgotten first.
	maxGaps = 1 << 16
	// slotTime: acknowledged writes are counted in slots of so long.
	slotTime = 10 * time.Millisecond
)

// Meter counts acknowledged writes: rates, and the gaps between them. Safe for concurrent use.
type Meter struct {
	mu     sync.Mutex
	now    func() time.Time
	begin  time.Time
	last   time.Time // of the last acknowledgement, or the start
	slots  []int32
	gaps   []Gap // closed gaps, in order, those over gapFloor
	failed int64 // since the start
}

// NewMeter starts a meter; now is time.Now outside of tests.
func NewMeter(now func() time.Time) *Meter {
	t := now()
	return &Meter{now: now, begin: t, last: t}
}

// Ack counts one acknowledged write.
func (m *Meter) Ack() {
	m.mu.Lock()
	defer m.mu.Unlock()
	t := m.now()
	if t.Sub(m.last) >= gapFloor {
		if len(m.gaps) >= maxGaps {
			m.gaps = append(m.gaps[:0], m.gaps[maxGaps/2:]...)
		}
		m.gaps = append(m.gaps, Gap{m.last, t})
	}
	m.last = t
	n := int(t.Sub(m.begin) / slotTime)
	m.slots = append(m.slots, make([]int32, max(0, n+1-len(m.slots)))...)
	m.slots[n]++
}

// Error counts one attempt that was not acknowledged.
func (m *Meter) Error() {
	m.mu.Lock()
	m.failed++
	m.mu.Unlock()
}

// Failed is how many attempts were not acknowledged since the start.
func (m *Meter) Failed() int64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.failed
}

// LongestGap returns the longest time without an acknowledgement that overlaps [from, now], the one still open
// included. Called some seconds after a fault at from, it is the write gap that the fault caused.
func (m *Meter) LongestGap(from time.Time) Gap {
	m.mu.Lock()
	defer m.mu.Unlock()
	longest := Gap{m.last, m.now()}
	for i := len(m.gaps) - 1; i >= 0 && m.gaps[i].To.After(from); i-- {
		if m.gaps[i].Length() > longest.Length() {
			longest = m.gaps[i]
		}
	}
	return longest
}

// Gaps are the times without an acknowledgement since from that last at least so long, in order, the one still open
// included.
func (m *Meter) Gaps(from time.Time, least time.Duration) (out []Gap) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, g := range append(slices.Clone(m.gaps), Gap{m.last, m.now()}) {
		if g.From.Before(from) {
			g.From = from
		}
		if g.Length() >= least {
			out = append(out, g)
		}
	}
	return out
}

// Rate is how many writes per second were acknowledged between two times, exact to two slots.
func (m *Meter) Rate(from, to time.Time) float64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	first, end := max(0, int(from.Sub(m.begin)/slotTime)), int(to.Sub(m.begin)/slotTime)
	acked := int32(0)
	for n := first; n < min(end, len(m.slots)); n++ {
		acked += m.slots[n]
	}
	return float64(acked) / (time.Duration(max(end-first, 1)) * slotTime).Seconds()
}

// AckedSince reports whether a write has been acknowledged after t.
func (m *Meter) AckedSince(t time.Time) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.last.After(t)
}
