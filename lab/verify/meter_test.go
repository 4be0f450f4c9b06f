package verify

import (
	"testing"
	"time"
)

// clock is a hand-set time.
type clock struct{ t time.Time }

func (c *clock) now() time.Time          { return c.t }
func (c *clock) forward(d time.Duration) { c.t = c.t.Add(d) }

// TestGaps: a gap that began before counts from then on, and the open one too.
func TestGaps(t *testing.T) {
	at := time.Unix(1000, 0)
	m := NewMeter(func() time.Time { return at })
	begin := at
	for _, d := range []time.Duration{time.Second, 10 * time.Millisecond, 4 * time.Second, 20 * time.Millisecond,
		3 * time.Second} {
		at = at.Add(d)
		m.Ack()
	}
	at = at.Add(2 * time.Second)
	got := m.Gaps(begin.Add(2010*time.Millisecond), 2*time.Second)
	if len(got) != 3 || got[0].Length() != 3*time.Second || got[1].Length() != 3*time.Second ||
		got[2].Length() != 2*time.Second {
		t.Errorf("%v", got)
	}
}

func TestLongestGap(t *testing.T) {
	c := &clock{time.Unix(1000, 0)}
	m := NewMeter(c.now)
	ackFor := func(n int) {
		for range n {
			c.forward(time.Millisecond)
			m.Ack()
		}
	}
	ackFor(100)
	c.forward(700 * time.Millisecond) // an earlier pause that does not belong to the fault
	ackFor(100)
	c.forward(30 * time.Millisecond)
	fault := c.now()
	c.forward(250 * time.Millisecond)
	ackFor(100)
	c.forward(40 * time.Millisecond)
	ackFor(10)
	if got := m.LongestGap(fault).Length(); got != 281*time.Millisecond {
		t.Errorf("gap around the fault is %v, want 281ms: it begins at the last acknowledgement before the fault", got)
	}
	if got := m.LongestGap(time.Unix(1000, 0)).Length(); got != 701*time.Millisecond {
		t.Errorf("gap since the start is %v, want 701ms", got)
	}
	fault = c.now()
	c.forward(3 * time.Second)
	if got := m.LongestGap(fault).Length(); got != 3*time.Second {
		t.Errorf("open gap is %v, want 3s", got)
	}
	if m.AckedSince(fault) {
		t.Error("nothing was acknowledged since the second fault")
	}
}

func TestGapsAreBounded(t *testing.T) {
	c := &clock{time.Unix(1000, 0)}
	m := NewMeter(c.now)
	for range maxGaps * 2 {
		c.forward(10 * time.Millisecond)
		m.Ack()
	}
	if len(m.gaps) > maxGaps {
		t.Fatalf("%d gaps kept, bound is %d", len(m.gaps), maxGaps)
	}
}

func TestRate(t *testing.T) {
	c := &clock{time.Unix(1000, 0)}
	m := NewMeter(c.now)
	begin := c.now()
	for i := range 120_000 { // two writes a millisecond in every second second
		c.forward(time.Millisecond)
		if i/1000%2 == 0 {
			m.Ack()
			m.Ack()
		}
	}
	end := c.now()
	for _, x := range []struct {
		from, to time.Time
		want     float64
	}{
		{end.Add(-2 * time.Second), end, 1000},
		{end.Add(-2 * time.Second), end.Add(-time.Second), 2000},
		{end.Add(-time.Second), end, 0},
		{end, end, 0},
		{begin, begin.Add(time.Second), 2000},
		{end.Add(-80 * time.Second), end, 1000},
		{end.Add(-time.Second), end.Add(time.Second), 0}, // not yet
		{begin.Add(-time.Second), begin.Add(-1), 0},      // before the start
	} {
		if got := m.Rate(x.from, x.to); got < x.want-25 || got > x.want+25 {
			t.Errorf("rate from %v to %v is %.0f, want %.0f", x.from.Sub(begin), x.to.Sub(begin), got, x.want)
		}
	}
}
