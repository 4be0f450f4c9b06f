package transport

import (
	"math/rand/v2"
	"net"
	"slices"
	"time"
)

// Two processes with the identity of one node, such as a cloned machine and the original, take each other's streams
// away. A process that was replaced by another one, and is back with a connection that it began afterwards, has not
// been restarted: both run. The younger one is refused. All listeners agree on which is younger, because the processes
// report it themselves.

// newInstance names this process: milliseconds since 1970 above 20 random bits, so that the younger of two has the
// higher one.
func newInstance() uint64 { return uint64(time.Now().UnixMilli())<<20 | rand.Uint64N(1<<20) }

// lives are the processes that have said that they are one node.
type lives struct {
	now     uint64    // the last one
	since   time.Time // it has introduced itself
	before  []uint64  // the last ones before it
	refused []uint64
}

// maxLives bounds each list of lives.
const maxLives = 8

// met takes a process that introduces itself over a connection that was accepted at some time. younger is one of two
// that are known to run since then; 0: none is.
func (l *lives) met(instance uint64, accepted, now time.Time) (younger uint64) {
	if instance == l.now || slices.Contains(l.refused, instance) {
		return 0
	}
	if slices.Contains(l.before, instance) {
		if !accepted.After(l.since) {
			return 0 // what it said may have waited here while it ended
		}
		younger = max(instance, l.now)
		l.refused = lastOf(append(l.refused, younger))
		l.now = min(instance, l.now)
		l.before = slices.DeleteFunc(l.before, func(i uint64) bool { return i == instance })
		return younger
	}
	if l.now != 0 {
		l.before = lastOf(append(l.before, l.now))
	}
	l.now, l.since = instance, now
	return 0
}

func lastOf(list []uint64) []uint64 { return list[max(0, len(list)-maxLives):] }

// isTwin reports whether a hello is of the younger of two processes, and ends the streams of such a one.
func (t *Transport) isTwin(h *hello, raw net.Conn, accepted time.Time) bool {
	t.mu.Lock()
	l := t.lives[h.from]
	if l == nil { // certificates bound how many there are
		l = &lives{}
		t.lives[h.from] = l
	}
	younger := l.met(h.instance, accepted, time.Now())
	refused, addr := slices.Contains(l.refused, h.instance), raw.RemoteAddr().String()
	for _, s := range []stream{controlStream, bulkStream} {
		if in := t.inbound[inboundKey{h.from, s}]; younger != 0 && in != nil && in.instance == younger {
			addr = in.s.RemoteAddr().String()
			in.hangUp()
		}
	}
	t.mu.Unlock()
	if younger != 0 {
		t.cfg.Twin(h.from, addr)
	}
	return refused
}
