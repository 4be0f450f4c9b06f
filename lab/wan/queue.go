package wan

import (
	"encoding/binary"
	"math/rand/v2"
	"time"
)

const (
	largestPacket = virtioHeader + 65535
	recordHeader  = 8 + 4                         // deadline, length
	chunkSize     = 128 << 10                     // holds at least one largest packet
	queueLimit    = 64 << 20                      // bytes under way in one direction: more are dropped
	rateQueue     = int64(100 * time.Millisecond) // what waits in front of a link with a rate, as time: more is dropped
)

// chunk is a piece of a queue. Packets never span two.
type chunk struct {
	next *chunk
	r, w int
	buf  [chunkSize]byte
}

// chunkPool keeps chunks that no queue needs. One thread uses it.
type chunkPool struct{ free *chunk }

func (p *chunkPool) get() *chunk {
	c := p.free
	if c == nil {
		return new(chunk)
	}
	p.free, c.next = c.next, nil
	c.r, c.w = 0, 0
	return c
}

func (p *chunkPool) put(c *chunk) { c.next, p.free = p.free, c }

// queue holds packets with their deadlines, first in, first out.
type queue struct {
	first, last *chunk
	bytes       int
}

func (q *queue) empty() bool { return q.bytes == 0 }

func (q *queue) push(pool *chunkPool, deadline int64, packet []byte) {
	need := recordHeader + len(packet)
	if q.last == nil || chunkSize-q.last.w < need {
		c := pool.get()
		if q.last == nil {
			q.first = c
		} else {
			q.last.next = c
		}
		q.last = c
	}
	b := q.last.buf[q.last.w:]
	binary.LittleEndian.PutUint64(b, uint64(deadline))
	binary.LittleEndian.PutUint32(b[8:], uint32(len(packet)))
	copy(b[recordHeader:], packet)
	q.last.w += need
	q.bytes += len(packet)
}

// head is the oldest packet, valid until pop. The queue is not empty.
func (q *queue) head() (deadline int64, packet []byte) {
	b := q.first.buf[q.first.r:q.first.w]
	n := int(binary.LittleEndian.Uint32(b[8:]))
	return int64(binary.LittleEndian.Uint64(b)), b[recordHeader : recordHeader+n]
}

func (q *queue) pop(pool *chunkPool) {
	_, packet := q.head()
	q.bytes -= len(packet)
	c := q.first
	if c.r += recordHeader + len(packet); c.r < c.w {
		return
	}
	q.first = c.next
	if q.first == nil {
		q.last = nil
	}
	pool.put(c)
}

// path is one direction between two hosts.
type path struct {
	from, host uint8 // numbers of its two hosts
	to         int   // descriptor of the receiver's device
	state      *linkState

	queue queue
	last  int64 // deadline of the newest packet: a later one never comes earlier
	busy  int64 // until when the rate limit has the link sending
}

// verdict on a packet.
type verdict int

const (
	pass verdict = iota
	lost
	cut
	overflow
)

// admit decides on a packet of some bytes at a moment, ns, and if it passes when it arrives.
func (p *path) admit(now int64, bytes int, chance *rand.Rand) (deadline int64, v verdict) {
	s, isCut := p.state.load()
	if isCut {
		return 0, cut
	}
	if s.Loss > 0 && chance.Float64() < s.Loss {
		return 0, lost
	}
	sent := now
	if s.Rate > 0 {
		start := max(now, p.busy)
		if start-now > rateQueue {
			return 0, overflow
		}
		p.busy = start + int64(float64(bytes)*8*1e9/float64(s.Rate))
		sent = p.busy
	}
	if p.queue.bytes+bytes > queueLimit {
		return 0, overflow
	}
	deadline = sent + int64(s.RTT/2)
	if s.Jitter > 0 {
		deadline += chance.Int64N(int64(s.Jitter))
	}
	p.last = max(p.last, deadline)
	return p.last, pass
}

// deadlines is a heap of the paths with a packet under way, the earliest first (container/heap).
type deadlines []*path

func (d deadlines) Len() int { return len(d) }
func (d deadlines) Less(i, j int) bool {
	a, _ := d[i].queue.head()
	b, _ := d[j].queue.head()
	return a < b
}
func (d deadlines) Swap(i, j int) { d[i], d[j] = d[j], d[i] }
func (d *deadlines) Push(p any)   { *d = append(*d, p.(*path)) }
func (d *deadlines) Pop() any {
	n := len(*d) - 1
	p := (*d)[n]
	*d = (*d)[:n]
	return p
}
