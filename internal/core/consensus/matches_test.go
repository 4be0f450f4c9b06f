package consensus

import (
	"sync"
	"testing"
	"time"

	"go.etcd.io/raft/v3/raftpb"
)

// What OnMatch reports of a voter is on its disk. The report comes before the entries that it commits, and never comes
// unless it was asked for.
func TestMatchesAreToldBeforeCommits(t *testing.T) {
	var mu sync.Mutex
	told := map[uint64]uint64{} // of the leader
	early, calls := 0, 0
	g := newGroup(t)
	a, b, _ := g.trio(func(c *Config) {
		if c.ID != 1 {
			return
		}
		deliver := c.OnCommitted
		c.OnMatch = func(m Matches) {
			mu.Lock()
			defer mu.Unlock()
			calls++
			for _, v := range m.Voters {
				told[v.ID] = v.Index
			}
		}
		c.OnCommitted = func(ents []*raftpb.Entry) error {
			mu.Lock()
			n := 0
			for _, index := range told {
				if index >= ents[len(ents)-1].GetIndex() {
					n++
				}
			}
			if calls > 0 && n < 2 {
				early++
			}
			mu.Unlock()
			return deliver(ents)
		}
	})
	put := func() uint64 {
		t.Helper()
		index, _, err := a.Propose(within(t, 20*time.Second), []byte("x"))
		if err != nil {
			t.Fatal(err)
		}
		if err := a.WaitApplied(within(t, 20*time.Second), index); err != nil {
			t.Fatal(err)
		}
		return index
	}
	put()
	if calls != 0 {
		t.Fatalf("%d calls although WatchMatches is off", calls)
	}
	a.WatchMatches(true)
	eventually(t, "all voters are told", func() bool {
		mu.Lock()
		defer mu.Unlock()
		return len(told) == 3 && told[2] > 0 && told[3] > 0
	})
	for range 200 {
		put()
	}

	// One whose disk hangs has the entries and is not told to have them.
	release := make(chan struct{})
	free := sync.OnceFunc(func() { close(release) })
	t.Cleanup(free) // the group cannot end before
	b.store.setHooks(func() error { <-release; return nil }, nil)
	index := put()
	mu.Lock()
	if early != 0 {
		t.Errorf("%d times a commit came before the news of the majority that made it", early)
	}
	if told[2] >= index {
		t.Errorf("voter 2 is said to have entry %d on disk, of %d", told[2], index)
	}
	mu.Unlock()
	free()
	eventually(t, "the slow voter is told", func() bool {
		mu.Lock()
		defer mu.Unlock()
		return told[2] >= index
	})
	m, leads := a.Matches()
	if _, other := b.Matches(); !leads || other || len(m.Voters) != 3 || m.Term != a.Status().Term {
		t.Errorf("%+v, leads %t, the follower says %t", m, leads, other)
	}

	a.WatchMatches(false)
	put() // what was on its way
	mu.Lock()
	before := calls
	mu.Unlock()
	put()
	mu.Lock()
	defer mu.Unlock()
	if calls > before {
		t.Errorf("%d calls after WatchMatches was switched off", calls-before)
	}
}
