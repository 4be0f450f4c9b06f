package raftlog

import (
	"errors"
	"fmt"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"
)

// Reader reads committed entries in order, from the cache or with its own read-ahead from disk. However far it lags, it
// neither evicts anything from the cache nor makes the writer wait. It is used by one goroutine.
type Reader struct {
	l     *Log
	next  uint64
	ahead []*raftpb.Entry // entries next, next+1, …
}

// NewReader makes a reader whose first entry is the one at index from.
func (l *Log) NewReader(from uint64) *Reader { return &Reader{l: l, next: from} }

// Index returns the index of the entry that Next returns first.
func (r *Reader) Index() uint64 { return r.next }

// Next returns the next entries up to index upTo, at least one and at most about maxBytes of data; none when the log
// holds no further one up to upTo. upTo must not exceed the commit index: what is not committed may be cut. The entries
// must not be changed. The errors are ErrPurged when the reader fell below FirstIndex, ErrCorrupt, or the file
// system's.
func (r *Reader) Next(upTo uint64, maxBytes int) ([]*raftpb.Entry, error) {
	last, _ := r.l.LastIndex()
	upTo = min(upTo, last)
	if r.next > upTo {
		return nil, nil
	}
	if len(r.ahead) == 0 {
		es, err := r.l.Entries(r.next, upTo+1, readAhead)
		if errors.Is(err, raft.ErrCompacted) {
			first, _ := r.l.FirstIndex()
			return nil, fmt.Errorf("%w: entry %d, the log begins at %d", ErrPurged, r.next, first)
		}
		if err != nil {
			return nil, err
		}
		r.ahead = es
	}
	n, size := 0, uint64(0)
	for n < len(r.ahead) && r.next+uint64(n) <= upTo {
		size += entryCost(len(r.ahead[n].Data))
		if size > uint64(max(maxBytes, 0)) && n > 0 {
			break
		}
		n++
	}
	out := r.ahead[:n:n]
	r.ahead = r.ahead[n:]
	r.next += uint64(n)
	return out, nil
}
