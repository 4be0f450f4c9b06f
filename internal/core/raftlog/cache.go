package raftlog

import "go.etcd.io/raft/v3/raftpb"

// cache keeps the newest entries, without gaps up to the log's last one, in the order in which they came: a reader that
// lags far never evicts what the others need. Log.mu protects it.
type cache struct {
	limit int64
	bytes int64
	// ring[i % len(ring)] is the entry at index i, for those from first to end-1.
	ring       []*raftpb.Entry
	first, end uint64
}

// cacheEntryCost is what an entry takes besides its data.
const cacheEntryCost = 128

func cacheCost(e *raftpb.Entry) int64 { return int64(len(e.Data)) + cacheEntryCost }

func (c *cache) at(index uint64) **raftpb.Entry { return &c.ring[index%uint64(len(c.ring))] }

func (c *cache) drop(index uint64) {
	c.bytes -= cacheCost(*c.at(index))
	*c.at(index) = nil
}

// push takes the entry that follows the newest one, and drops the oldest ones over the limit.
func (c *cache) push(e *raftpb.Entry) {
	if c.first == c.end {
		c.first, c.end = e.GetIndex(), e.GetIndex()
	}
	if c.end-c.first == uint64(len(c.ring)) {
		grown := cache{ring: make([]*raftpb.Entry, max(64, 2*len(c.ring)))}
		for i := c.first; i < c.end; i++ {
			*grown.at(i) = *c.at(i)
		}
		c.ring = grown.ring
	}
	*c.at(c.end) = e
	c.end++
	for c.bytes += cacheCost(e); c.bytes > c.limit && c.first < c.end; c.first++ {
		c.drop(c.first)
	}
}

// cut forgets the entries from index on.
func (c *cache) cut(index uint64) {
	for c.end > max(c.first, index) {
		c.end--
		c.drop(c.end)
	}
}

// get returns the entries from lo to hi-1 that are there, as long as the data stays below maxBytes, at least one. None
// means that lo is not in the cache.
func (c *cache) get(lo, hi, maxBytes uint64) (out []*raftpb.Entry) {
	var size uint64
	for i := lo; i >= c.first && i < min(hi, c.end); i++ {
		e := *c.at(i)
		if size += entryCost(len(e.Data)); size > maxBytes && len(out) > 0 {
			break
		}
		out = append(out, e)
	}
	return out
}

// entryCost is what an entry counts in the limits of Entries and Next: about its size in a message.
func entryCost(data int) uint64 { return uint64(data) + 24 }
