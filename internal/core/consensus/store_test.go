package consensus

import (
	"fmt"
	"sync"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"
)

// memStore is a Storage in memory that knows what a crash would leave: what was appended and not synced is lost.
type memStore struct {
	*raft.MemoryStorage
	mu        sync.Mutex
	hard      *raftpb.HardState
	conf      *raftpb.ConfState
	confIndex uint64
	synced    []*raftpb.Entry // all entries as of the last Sync
	syncs     int
	// beforeSync and beforeAppend, if set, run first and may fail; both may block.
	beforeSync, beforeAppend func() error
	beforeRead               func() error // of entries; must not fail
}

func newMemStore(voters ...uint64) *memStore {
	return &memStore{MemoryStorage: raft.NewMemoryStorage(), conf: &raftpb.ConfState{Voters: voters}}
}

func (s *memStore) InitialState() (*raftpb.HardState, *raftpb.ConfState, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.hard, s.conf, nil
}

func (s *memStore) hook(f *func() error) error {
	s.mu.Lock()
	h := *f
	s.mu.Unlock()
	if h == nil {
		return nil
	}
	return h()
}

func (s *memStore) Append(ents []*raftpb.Entry) error {
	if err := s.hook(&s.beforeAppend); err != nil {
		return err
	}
	last, _ := s.LastIndex()
	if ents[0].GetIndex() > last+1 {
		return fmt.Errorf("gap: %d after %d", ents[0].GetIndex(), last)
	}
	return s.MemoryStorage.Append(ents)
}

func (s *memStore) Entries(lo, hi, maxSize uint64) ([]*raftpb.Entry, error) {
	if err := s.hook(&s.beforeRead); err != nil {
		return nil, err
	}
	return s.MemoryStorage.Entries(lo, hi, maxSize)
}

func (s *memStore) all() []*raftpb.Entry {
	first, _ := s.FirstIndex()
	last, _ := s.LastIndex()
	if last < first {
		return nil
	}
	ents, err := s.Entries(first, last+1, 1<<40)
	if err != nil {
		panic(err)
	}
	return append([]*raftpb.Entry(nil), ents...)
}

func (s *memStore) Sync() error {
	ents := s.all()
	if err := s.hook(&s.beforeSync); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.synced = ents
	s.syncs++
	return nil
}

func (s *memStore) SetHardState(hs *raftpb.HardState) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	// as lazy with the commit index as is allowed
	if s.hard.GetTerm() != hs.GetTerm() || s.hard.GetVote() != hs.GetVote() {
		s.hard = proto.Clone(hs).(*raftpb.HardState)
	}
	return nil
}

func (s *memStore) SetConfState(cs *raftpb.ConfState, index uint64) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.conf, s.confIndex = proto.Clone(cs).(*raftpb.ConfState), index
	return nil
}

func (s *memStore) ConfStateIndex() uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.confIndex
}

func (s *memStore) ResetTo(snap *raftpb.Snapshot) error {
	if err := s.ApplySnapshot(snap); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.conf, s.confIndex = snap.GetMetadata().GetConfState(), snap.GetMetadata().GetIndex()
	s.synced = nil
	return nil
}

// purge throws away the entries up to index, as a log does that has a snapshot boundary there.
func (s *memStore) purge(index uint64) {
	if _, err := s.CreateSnapshot(index, s.conf, []byte("boundary")); err != nil {
		panic(err)
	}
	if err := s.Compact(index); err != nil {
		panic(err)
	}
}

// crash returns what a machine that lost power finds. Term and vote are always durable; the log is what was synced.
func (s *memStore) crash() *memStore {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := &memStore{MemoryStorage: raft.NewMemoryStorage(), hard: s.hard, conf: s.conf, confIndex: s.confIndex,
		synced: s.synced}
	snap, _ := s.Snapshot()
	if !raft.IsEmptySnap(snap) {
		if err := c.ApplySnapshot(snap); err != nil {
			panic(err)
		}
	}
	if len(s.synced) > 0 {
		if err := c.MemoryStorage.Append(s.synced); err != nil {
			panic(err)
		}
	}
	return c
}

func (s *memStore) setHooks(beforeSync, beforeAppend func() error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.beforeSync, s.beforeAppend = beforeSync, beforeAppend
}
