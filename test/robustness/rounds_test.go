package robustness

import (
	"context"
	"crypto/rand"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"trireme/internal/base/config"
	"trireme/internal/ops/demo"
	"trireme/lab/testkit"
	"trireme/lab/trips"
	"trireme/lab/wan"
)

const (
	farAway     = 200 * time.Millisecond // round trip between any two nodes
	loneCommits = 20                     // of one session, one after the other
	crowd       = 16                     // sessions at once
	crowdEach   = 12                     // commits of each
	crowdTrip   = 50 * time.Millisecond
)

// TestRoundTrips counts what commits cost on the wire and on the disks of a real cluster. Of one session, each commit
// is one message to each follower and one fsync on every node, and its OK leaves the leader's mysqld after one round
// trip: nothing that the leader sent after the first answer has been answered by then. Commits of many sessions share
// messages and fsyncs. Times are only shown, `trireme-lab bench` measures them; order on the wire does not depend on
// the machine's load.
func TestRoundTrips(t *testing.T) {
	testkit.Quiet(t, "which commits meet no heartbeat")
	topo := emulated(t, "city")
	c := createShape(t, shape{nodes: 3, wan: &topo, tune: func(n *config.Node) {
		n.Raft.HeartbeatMS, n.Raft.ElectionTimeoutMS = 500, 5000 // so that most commits meet no heartbeat
	}})
	leader := c.healthy()
	term := c.view().Term
	w := &trips.Wire{Leader: leader.Name, Client: uint16(leader.Ports.MySQL), Peer: map[string]uint16{}}
	for _, n := range c.Nodes() {
		w.Peer[n.Name] = uint16(n.Ports.Peer)
		if n != leader {
			w.Followers = append(w.Followers, n.Name)
		}
	}
	session := c.connect(leader)
	c.exec(session, "CREATE DATABASE rounds")
	c.exec(session, "CREATE TABLE rounds.t (id INT AUTO_INCREMENT PRIMARY KEY, v VARBINARY(2000))")

	c.apart(0)
	local := c.insert(session, loneCommits)
	c.apart(farAway)
	c.insert(session, 5) // TCP learns of the distance
	var far time.Duration
	trace, s := c.traced(leader, loneCommits, func() { far = c.insert(session, loneCommits) })
	w.ReadLong(trace)
	told, problems := w.Judge(loneCommits)
	t.Logf("one session: a commit takes %v where all nodes are at one place (median), %v with round trips of %v; %s; %d entries, fsyncs %v",
		local, far, farAway, told, s.entries, s.syncs)
	for _, p := range problems {
		t.Error(p)
	}
	// An entry of another kind that falls in between may cost one more.
	c.each(s, "one after the other",
		func(fsyncs uint64) bool { return fsyncs >= loneCommits && fsyncs <= max(loneCommits, s.entries) })

	c.apart(crowdTrip)
	trace, s = c.traced(leader, crowd*crowdEach, func() { c.crowd(leader) })
	w.Read(trace)
	t.Logf("%d sessions, %d commits: %s; %d entries, fsyncs %v", crowd, crowd*crowdEach, w, s.entries, s.syncs)
	c.each(s, "of many sessions", func(fsyncs uint64) bool { return fsyncs < crowd*crowdEach })
	for _, f := range w.Followers {
		if n := w.Sent(f, trips.Entry); n == 0 || n >= crowd*crowdEach {
			t.Errorf("%d segments with entries went to %s for %d commits of %d sessions, want fewer", n, f, crowd*crowdEach,
				crowd)
		}
	}
	if now := c.view(); now.Term != term {
		t.Errorf("term %d is over, the counts are of more than one leader", term)
	}
}

// apart puts all nodes at a distance from each other.
func (c *cluster) apart(rtt time.Duration) {
	c.t.Helper()
	for i, a := range c.Nodes() {
		for _, b := range c.Nodes()[:i] {
			must(c.t, c.Network().Slow(a.Name, b.Name, rtt, 0))
		}
	}
}

func (c *cluster) exec(conn *sql.Conn, query string) {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(c.t.Context(), healLimit)
	defer cancel()
	_, err := conn.ExecContext(ctx, query)
	must(c.t, err)
}

// insert commits long rows that nothing can compress, one after the other, and returns the median of the times.
func (c *cluster) insert(conn *sql.Conn, commits int) time.Duration {
	c.t.Helper()
	row := make([]byte, trips.Row)
	rand.Read(row) // never fails (crypto/rand)
	query := fmt.Sprintf("INSERT INTO rounds.t (v) VALUES (X'%x')", row)
	var took []time.Duration
	for range commits {
		at := time.Now()
		c.exec(conn, query)
		took = append(took, time.Since(at))
	}
	slices.Sort(took)
	return took[len(took)/2].Round(100 * time.Microsecond)
}

// crowd lets many sessions commit small rows at once.
func (c *cluster) crowd(leader *demo.Node) {
	c.t.Helper()
	db, err := c.Direct(leader).Open("rounds")
	must(c.t, err)
	defer db.Close()
	db.SetMaxOpenConns(crowd)
	db.SetMaxIdleConns(crowd)
	ctx, cancel := context.WithTimeout(c.t.Context(), healLimit)
	defer cancel()
	errs := make([]error, crowd)
	var wg sync.WaitGroup
	for i := range crowd {
		wg.Go(func() {
			for range crowdEach {
				if _, errs[i] = db.ExecContext(ctx, "INSERT INTO t (v) VALUES ('small')"); errs[i] != nil {
					return
				}
			}
		})
	}
	wg.Wait()
	for _, err := range errs {
		must(c.t, err)
	}
}

// spending is what the nodes have counted themselves.
type spending struct {
	commits, syncs map[string]uint64 // by node
	entries        uint64            // of the log
}

// spent waits until every node holds what the leader's log has, so that all is counted.
func (c *cluster) spent(leader *demo.Node) (s spending) {
	c.t.Helper()
	eventually(c.t, healLimit, "every node holds the whole log", func() error {
		s = spending{commits: map[string]uint64{}, syncs: map[string]uint64{}}
		for _, n := range append([]*demo.Node{leader}, c.others(leader)...) {
			cl := c.Client(n)
			m, err := cl.Member(c.t.Context())
			l, lerr := cl.Load(c.t.Context())
			cl.Close()
			if err := errors.Join(err, lerr); err != nil {
				return err
			}
			if n == leader {
				s.entries = m.Raft.Last
			}
			if m.Raft.Applied < s.entries {
				return fmt.Errorf("%s has applied %d of %d", n.Name, m.Raft.Applied, s.entries)
			}
			s.commits[n.Name], s.syncs[n.Name] = l.Transactions, l.LogWrites.Count
		}
		return nil
	})
	return s
}

// traced is what happens on the wire while f makes so many commits, and what they cost the nodes.
func (c *cluster) traced(leader *demo.Node, commits uint64, f func()) ([]wan.Segment, spending) {
	c.t.Helper()
	before := c.spent(leader)
	must(c.t, c.Network().StartTrace())
	f()
	trace, err := c.Network().StopTrace()
	must(c.t, err)
	s := c.spent(leader)
	s.entries -= before.entries
	for name := range s.commits {
		s.syncs[name] -= before.syncs[name]
		if n := s.commits[name] - before.commits[name]; n != commits {
			c.t.Errorf("%s counts %d commits, want %d", name, n, commits)
		}
	}
	return trace, s
}

// each judges the fsyncs of every node's log.
func (c *cluster) each(s spending, what string, good func(fsyncs uint64) bool) {
	c.t.Helper()
	for name, n := range s.syncs {
		if !good(n) {
			c.t.Errorf("%s has synced its log %d times for commits %s", name, n, what)
		}
	}
}
