package lifecycle

import (
	"context"
	"sync"

	"go.etcd.io/raft/v3/raftpb"

	"trireme/internal/base/mutant"
	"trireme/internal/core/dump"
	"trireme/internal/core/ledger"
	"trireme/internal/core/raftlog"
	"trireme/internal/mysql/gtid"
)

// FeedLog shows the committed part of the raft log to the feed, or to one consumer of the change stream (S3):
// dump.PublishedLog.
type FeedLog struct {
	log    *raftlog.Log
	ledger *ledger.Ledger
	mu     sync.Mutex
	reader *raftlog.Reader // of the one receiver
}

// NewFeedLog is for one receiver.
func NewFeedLog(log *raftlog.Log, led *ledger.Ledger) *FeedLog {
	return &FeedLog{log: log, ledger: led}
}

// Committed implements dump.Log.
func (f *FeedLog) Committed() uint64 {
	if mutant.S3 {
		last, _ := f.log.LastIndex()
		return last
	}
	return f.ledger.Index()
}

// WaitCommitted implements dump.Log.
func (f *FeedLog) WaitCommitted(ctx context.Context, index uint64) error {
	return f.ledger.Await(ctx, index)
}

// SeekGTID implements dump.Log.
func (f *FeedLog) SeekGTID(set gtid.Set) (uint64, []byte, error) {
	return f.log.SeekGTID(set, f.Committed())
}

// Read returns entries of [from, to], at least one and about maxBytes.
func (f *FeedLog) Read(ctx context.Context, from, to uint64, maxBytes int) ([]dump.Entry, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.reader == nil || f.reader.Index() != from {
		f.reader = f.log.NewReader(from)
	}
	es, err := f.reader.Next(min(to, f.Committed()), maxBytes)
	if err != nil {
		return nil, err
	}
	return feedEntries(es), ctx.Err()
}

// Cached returns entries of [from, to] that are in memory, perhaps none.
func (f *FeedLog) Cached(from, to uint64, maxBytes int) []dump.Entry {
	return feedEntries(f.log.Cached(from, min(to, f.Committed())+1, uint64(maxBytes)))
}

// Sets implements dump.PublishedLog.
func (f *FeedLog) Sets() (purged, committed gtid.Set) {
	_, committed = f.ledger.Snapshot()
	return f.log.Boundary().GTIDs, committed
}

// GTIDsBefore implements dump.PublishedLog.
func (f *FeedLog) GTIDsBefore(node uint16, incarnation uint64, at raftlog.Pos) (gtid.Set, raftlog.Pos, error) {
	return f.log.GTIDsBefore(node, incarnation, at, f.Committed())
}

// Close implements dump.PublishedLog.
func (f *FeedLog) Close() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.reader = nil
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
