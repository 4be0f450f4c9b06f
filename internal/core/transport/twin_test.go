package transport

import (
	"errors"
	"sync/atomic"
	"testing"
	"time"
)

// TestTwins: what two processes of one identity look like, and what restarts look like.
func TestTwins(t *testing.T) {
	at := func(s int) time.Time { return time.Unix(1000+int64(s), 0) }
	type hello struct {
		instance          uint64
		accepted, said    int // seconds
		younger, refusing uint64
	}
	for name, hellos := range map[string][]hello{
		"restarts": {{10, 1, 1, 0, 0}, {10, 2, 2, 0, 0}, {20, 3, 3, 0, 0}, {30, 4, 4, 0, 0},
			{30, 5, 5, 0, 0}},
		"a clone": {{10, 1, 1, 0, 0}, {20, 2, 2, 0, 0}, {10, 3, 3, 20, 20}, {20, 4, 4, 0, 20},
			{10, 5, 5, 0, 20}, {30, 6, 6, 0, 20}},
		"the clone was met first": {{20, 1, 1, 0, 0}, {10, 2, 2, 0, 0}, {20, 3, 3, 20, 20}},
		"three": {{10, 1, 1, 0, 0}, {20, 2, 2, 0, 0}, {30, 3, 3, 0, 0}, {10, 4, 4, 30, 30},
			{20, 5, 5, 20, 20}},
		"a last word that waited":    {{10, 1, 1, 0, 0}, {20, 3, 3, 0, 0}, {10, 2, 4, 0, 0}, {20, 5, 5, 0, 0}},
		"and was accepted with it":   {{10, 1, 1, 0, 0}, {20, 3, 3, 0, 0}, {10, 3, 4, 0, 0}},
		"a clone of a restarted one": {{10, 1, 1, 0, 0}, {20, 2, 2, 0, 0}, {30, 3, 3, 0, 0}, {20, 4, 4, 30, 30}},
	} {
		var l lives
		for i, h := range hellos {
			if younger := l.met(h.instance, at(h.accepted), at(h.said)); younger != h.younger {
				t.Errorf("%s, hello %d: %d is the younger one, want %d", name, i, younger, h.younger)
			}
			if h.refusing != 0 && l.refused[len(l.refused)-1] != h.refusing {
				t.Errorf("%s, hello %d: refuses %v", name, i, l.refused)
			}
			if h.refusing == 0 && len(l.refused) > 0 {
				t.Errorf("%s, hello %d: refuses %v", name, i, l.refused)
			}
		}
	}
	var l lives
	for i := range uint64(1000) {
		l.met(i+1, at(0), at(0))
	}
	if len(l.before) > maxLives {
		t.Errorf("%d lives are kept", len(l.before))
	}
	if a, b := newInstance(), uint64(time.Now().Add(time.Second).UnixMilli())<<20; a >= b || a == 0 {
		t.Errorf("instance %x is not older than %x", a, b)
	}
}

// TestCloneIsRefused: of two processes with one identity the younger one is told so by each peer, is refused, and the
// older one keeps its links.
func TestCloneIsRefused(t *testing.T) {
	var ended, told, twins atomic.Int32
	a := startNode(t, 1, func(c *Config) { c.Twin = func(uint64, string) { twins.Add(1) } })
	b := startNode(t, 2, func(c *Config) { c.ToldTwin = func(uint64, string) { ended.Add(1) } })
	connect(a, b)
	clone := startNode(t, 2, func(c *Config) { c.ToldTwin = func(uint64, string) { told.Add(1) } })
	clone.SetPeers(map[uint64]string{1: a.Addr()})
	eventually(t, "the clone is told", func() bool { return told.Load() > 0 })
	eventually(t, "the clone has no link", func() bool { return !clone.Connected(1) })
	eventually(t, "the original has one", func() bool { return b.Connected(1) })
	if twins.Load() != 1 || ended.Load() != 0 {
		t.Errorf("%d alerts; the original was told %d times", twins.Load(), ended.Load())
	}
	h := goodHello(controlStream)
	h.instance = clone.instance
	if _, w, err := introduce(t, a, bundle(t, testCA(), 2), h); err != nil || !errors.Is(w.err(), ErrTwin) {
		t.Errorf("it is back: %v, %+v", err, w)
	}
}
