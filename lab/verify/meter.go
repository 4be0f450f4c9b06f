package verify

import (
	"math/bits"
	"slices"
	"sync"
	"time"
)

// Second is what happened in one second of a workload.
type Second struct {
	At       time.Time     // its end
	TPS      float64       // acknowledged writes per second
	P95      time.Duration // of their latency; 0 without any
	Errors   int           // attempts refused or without an answer
	Interval time.Duration // its true length
}

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
	// Acknowledged writes are counted in slots, of which the newest are kept: 80 s.
	slotTime = 10 * time.Millisecond
	maxSlots = 8000
)

// Meter counts acknowledged writes: rates, latencies, and the gaps between them. Safe for concurrent use.
type Meter struct {
	mu     sync.Mutex
	now    func() time.Time
	begin  time.Time
	last   time.Time // of the last acknowledgement, or the start
	slots  [maxSlots]slot
	gaps   []Gap // closed gaps, in order, those over gapFloor
	secAt  time.Time
	acked  int
	errors int
	failed int64 // since the start
	hist   histogram
	total  histogram
}

// slot counts the acknowledgements of one slotTime, the number'th since the start.
type slot struct {
	number int64
	acked  int
}

// NewMeter starts a meter; now is time.Now outside of tests.
func NewMeter(now func() time.Time) *Meter {
	t := now()
	return &Meter{now: now, begin: t, last: t, secAt: t}
}

// Ack counts one acknowledged write that took d.
func (m *Meter) Ack(d time.Duration) {
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
	m.acked++
	number := int64(t.Sub(m.begin) / slotTime)
	if s := &m.slots[number%maxSlots]; s.number == number {
		s.acked++
	} else {
		*s = slot{number, 1}
	}
	m.hist.add(d)
	m.total.add(d)
}

// Error counts one attempt that was not acknowledged.
func (m *Meter) Error() {
	m.mu.Lock()
	m.errors++
	m.failed++
	m.mu.Unlock()
}

// Failed is how many attempts were not acknowledged since the start.
func (m *Meter) Failed() int64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.failed
}

// Tick ends the current second (or whatever time has passed) and returns it.
func (m *Meter) Tick() Second {
	m.mu.Lock()
	defer m.mu.Unlock()
	t := m.now()
	s := Second{At: t, Interval: t.Sub(m.secAt), P95: m.hist.quantile(0.95), Errors: m.errors}
	if s.Interval > 0 {
		s.TPS = float64(m.acked) / s.Interval.Seconds()
	}
	m.secAt, m.acked, m.errors, m.hist = t, 0, 0, histogram{}
	return s
}

// Quantile of all latencies so far, 0 without any. Exact to 6 %.
func (m *Meter) Quantile(q float64) time.Duration {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.total.quantile(q)
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

// Rate is how many writes per second were acknowledged between two times, exact to two slots; only the last 80 s are
// remembered.
func (m *Meter) Rate(from, to time.Time) float64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	first, end := int64(from.Sub(m.begin)/slotTime), int64(to.Sub(m.begin)/slotTime)
	first = max(first, 0, end-maxSlots)
	if end <= first {
		return 0
	}
	acked := 0
	for n := first; n < end; n++ {
		if s := m.slots[n%maxSlots]; s.number == n {
			acked += s.acked
		}
	}
	return float64(acked) / (time.Duration(end-first) * slotTime).Seconds()
}

// AckedSince reports whether a write has been acknowledged after t.
func (m *Meter) AckedSince(t time.Time) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.last.After(t)
}

// histogram of microseconds: 8 buckets for each power of two.
type histogram struct {
	n       int
	buckets [40 * 8]int
}

func (h *histogram) add(d time.Duration) {
	h.n++
	h.buckets[bucketOf(max(d.Microseconds(), 0))]++
}

func bucketOf(us int64) int {
	if us < 8 {
		return int(us)
	}
	exp := bits.Len64(uint64(us)) - 4 // us>>exp is in 8..15
	return min((exp+1)*8+int(us>>exp)-8, 40*8-1)
}

// upperBound is the largest microsecond value of a bucket.
func upperBound(b int) int64 {
	if b < 8 {
		return int64(b)
	}
	exp := b/8 - 1
	return (int64(b%8)+9)<<exp - 1
}

func (h *histogram) quantile(q float64) time.Duration {
	if h.n == 0 {
		return 0
	}
	rest := int(q * float64(h.n))
	for b, c := range h.buckets {
		rest -= c
		if rest < 0 {
			return time.Duration(upperBound(b)) * time.Microsecond
		}
	}
	return time.Duration(upperBound(len(h.buckets)-1)) * time.Microsecond
}
