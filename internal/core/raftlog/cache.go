package raftlog

import "go.etcd.io/raft/v3/raftpb"

// cache keeps the newest entries, without gaps up to the log's last one, in the order in which they came: a reader that
// lags far never evicts what the others need. Log.mu protects it.
type cache struct {
	limit int64
	bytes int64
	// ring[(head+i) % len(ring)] is the i-th of n entries.
	ring    []*raftpb.Entry
	head, n int
}

// cacheEntryCost is what an entry takes besides its data.
const cacheEntryCost = 128

func cacheCost(e *raftpb.Entry) int64 { return int64(len(e.Data)) + cacheEntryCost }

func (c *cache) at(i int) *raftpb.Entry { return c.ring[(c.head+i)%len(c.ring)] }

// push takes the entry that follows the newest one, and drops the oldest ones over the limit.
func (c *cache) push(e *raftpb.Entry) {
	if c.n == len(c.ring) {
		grown := make([]*raftpb.Entry, max(64, 2*len(c.ring)))
		for i := range c.n {
			grown[i] = c.at(i)
		}
		c.ring, c.head = grown, 0
	}
	c.ring[(c.head+c.n)%len(c.ring)] = e
	c.n++
	c.bytes += cacheCost(e)
	for c.bytes > c.limit && c.n > 0 {
		c.bytes -= cacheCost(c.ring[c.head])
		c.ring[c.head] = nil
		c.head = (c.head + 1) % len(c.ring)
		c.n--
	}
}

// cut forgets the entries from index on.
func (c *cache) cut(index uint64) {
	for c.n > 0 && c.at(c.n-1).GetIndex() >= index {
		i := (c.head + c.n - 1) % len(c.ring)
		c.bytes -= cacheCost(c.ring[i])
		c.ring[i] = nil
		c.n--
	}
}

// get appends to dst the entries from lo to hi-1 that are there, as long as the data stays below maxBytes, at least
// one. None means that lo is not in the cache.
func (c *cache) get(dst []*raftpb.Entry, lo, hi, maxBytes uint64) []*raftpb.Entry {
	if c.n == 0 {
		return dst
	}
	first := c.at(0).GetIndex()
	if lo < first {
		return dst
	}
	var size uint64
	for i := int(lo - first); i < c.n && lo < hi; i, lo = i+1, lo+1 {
		e := c.at(i)
		size += entryCost(len(e.Data))
		if size > maxBytes && len(dst) > 0 {
			break
		}
		dst = append(dst, e)
	}
	return dst
}

// entryCost is what an entry counts in the limits of Entries and Next: about its size in a message.
func entryCost(data int) uint64 { return uint64(data) + 24 }
