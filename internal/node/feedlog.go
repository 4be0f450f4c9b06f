package node

import (
	"context"
	"sync"

	"go.etcd.io/raft/v3/raftpb"

	"trireme/internal/base/mutant"
	"trireme/internal/core/dump"
	"trireme/internal/core/raftlog"
	"trireme/internal/mysql/gtid"
)

// feedLog shows the committed part of the raft log to the feed, or to one consumer of the change stream (S3).
type feedLog struct {
	n      *Node
	mu     sync.Mutex
	reader *raftlog.Reader // of the one receiver
}

func (f *feedLog) Committed() uint64 {
	if mutant.S3 {
		last, _ := f.n.rlog.LastIndex()
		return last
	}
	i, _ := f.n.led.At()
	return i
}

func (f *feedLog) WaitCommitted(ctx context.Context, index uint64) error {
	return f.n.led.Await(ctx, index)
}

func (f *feedLog) SeekGTID(set gtid.Set) (uint64, []byte, error) {
	return f.n.rlog.SeekGTID(set, f.Committed())
}

// Read returns entries of [from, to], at least one and about maxBytes.
func (f *feedLog) Read(ctx context.Context, from, to uint64, maxBytes int) ([]dump.Entry, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.reader == nil || f.reader.Index() != from {
		f.reader = f.n.rlog.NewReader(from)
	}
	es, err := f.reader.Next(min(to, f.Committed()), maxBytes)
	if err != nil {
		return nil, err
	}
	return feedEntries(es), ctx.Err()
}

// Cached returns entries of [from, to] that are in memory, perhaps none.
func (f *feedLog) Cached(from, to uint64, maxBytes int) []dump.Entry {
	return feedEntries(f.n.rlog.Cached(from, min(to, f.Committed())+1, uint64(maxBytes)))
}

func feedEntries(es []*raftpb.Entry) []dump.Entry {
	out := make([]dump.Entry, len(es))
	for i, e := range es {
		out[i] = dump.Entry{Index: e.GetIndex(), Term: e.GetTerm(), Data: e.GetData()}
		if e.GetType() != raftpb.EntryNormal {
			out[i].Data = nil // a membership change
		}
	}
	return out
}
