package node

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"

	"trireme/internal/api"
	"trireme/internal/consensus"
	"trireme/internal/router"
)

// A node that knows no leader leads nobody to one of an earlier term: that one may have been fenced, and its mysqld started again at the same
// address, before the status that said so has arrived.
func TestNoLeaderKnownIsNoLeader(t *testing.T) {
	for _, c := range []struct {
		what string
		raft consensus.State
		want bool
	}{
		{"its term", consensus.State{Term: 4, Leader: 1}, true},
		{"its term, and it was silent", consensus.State{Term: 4}, true},
		{"a term behind, following another", consensus.State{Term: 3, Leader: 2}, true},
		{"a later term, following another", consensus.State{Term: 5, Leader: 2}, false},
		{"a later term without a leader", consensus.State{Term: 5}, false},
	} {
		n := listener()
		n.raft = c.raft
		n.peers[1] = &peer{up: true, at: now(), status: status{OpenTerm: 4, Epoch: "2/4",
			Member: api.MemberView{Name: "db1", MySQL: &api.MySQLView{Host: "db1", Port: 3306}}}}
		if v, term := n.routerViewLocked(status{}); (v.RW != nil) != c.want || (term == 4) != c.want {
			t.Errorf("%s: %+v in term %d", c.what, v.RW, term)
		}
	}
}

// Connections that come while the leader is being asked share the next question, never the one that was asked before they came.
func TestAskerAsksBehindTheCall(t *testing.T) {
	var a asker
	var asked atomic.Int64
	first, others := make(chan struct{}), errors.New("not any more")
	target := router.Target{Name: "db1", Epoch: "2/4"}
	put := func() error {
		if asked.Add(1) == 1 {
			<-first
			return nil
		}
		return others
	}
	var wg sync.WaitGroup
	wg.Go(func() {
		if err := a.ask(t.Context(), target, put); err != nil {
			t.Error(err)
		}
	})
	until(t, func() bool { return asked.Load() == 1 })
	const late = 50
	for range late {
		wg.Go(func() {
			if err := a.ask(t.Context(), target, put); !errors.Is(err, others) {
				t.Errorf("%v: the answer to an older question", err)
			}
		})
	}
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	if err := a.ask(gone, router.Target{Name: "db2"}, func() error { return nil }); err != nil && !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	close(first)
	wg.Wait()
	if n := asked.Load(); n < 2 || n > late+1 {
		t.Errorf("asked %d times", n)
	}
	until(t, func() bool { a.mu.Lock(); defer a.mu.Unlock(); return len(a.queues) == 0 })
}
