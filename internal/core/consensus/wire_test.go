package consensus_test

import (
	"context"
	"crypto/rand"
	"io"
	"net"
	"net/netip"
	"sync"
	"testing"
	"time"

	"trireme/lab/needs"
	"trireme/lab/trips"
	"trireme/lab/wan"
)

// TestRoundTripsOnTheWire counts what commits cost on the links and disks of three stacks on hosts that are far from
// each other. In place of mysqld there is a client on the leader's host's door: a byte asks for a commit, a byte comes
// back when it is delivered. Test/robustness does the same with all that there is.
func TestRoundTripsOnTheWire(t *testing.T) {
	topo, err := wan.Load("lan")
	if err != nil {
		t.Fatal(err)
	}
	n, err := wan.New(topo, []string{"n1", "n2", "n3"})
	needs.Netns(t, err)
	t.Cleanup(func() { _ = n.Close() })
	ms := startStackOn(t, n.Hosts(), nil)
	w := &trips.Wire{Leader: "n1", Followers: []string{"n2", "n3"}, Peer: map[string]uint16{}}
	for i, m := range ms {
		w.Peer[n.Hosts()[i].Name] = netip.MustParseAddrPort(m.tr.Addr()).Port()
	}
	door := openDoor(t, n.Hosts()[0], ms[0])
	w.Client = netip.MustParseAddrPort(door.RemoteAddr().String()).Port()
	for _, pair := range [][2]string{{"n1", "n2"}, {"n2", "n3"}, {"n3", "n1"}} {
		if err := n.Slow(pair[0], pair[1], 100*time.Millisecond, 0); err != nil {
			t.Fatal(err)
		}
	}
	commit := func(times int) {
		t.Helper()
		b := []byte{0}
		for range times {
			if _, err := door.Write(b); err != nil {
				t.Fatal(err)
			}
			if _, err := io.ReadFull(door, b); err != nil {
				t.Fatal(err)
			}
		}
	}
	traced := func(f func()) (trace []wan.Segment, syncs [3]int64) {
		t.Helper()
		level(t, ms)
		for i, m := range ms {
			syncs[i] = -m.disk.syncs.Load()
		}
		if err := n.StartTrace(); err != nil {
			t.Fatal(err)
		}
		f()
		trace, err := n.StopTrace()
		if err != nil {
			t.Fatal(err)
		}
		level(t, ms)
		for i, m := range ms {
			syncs[i] += m.disk.syncs.Load()
		}
		return trace, syncs
	}

	commit(5) // TCP learns of the distance
	const lone = 15
	trace, syncs := traced(func() { commit(lone) })
	w.ReadLong(trace)
	told, problems := w.Judge(lone)
	t.Logf("%s; fsyncs %v", told, syncs)
	for _, p := range problems {
		t.Error(p)
	}
	if syncs != [3]int64{lone, lone, lone} {
		t.Errorf("%d commits one after the other took %v fsyncs", lone, syncs)
	}

	const crowd, each = 16, 8
	trace, syncs = traced(func() { proposeAtOnce(t, ms[0], crowd, each) })
	w.Read(trace)
	t.Logf("%d sessions, %d commits: %s; fsyncs %v", crowd, crowd*each, w, syncs)
	for i, s := range syncs {
		if s >= crowd*each {
			t.Errorf("%d fsyncs of %s for %d commits of %d sessions", s, n.Hosts()[i].Name, crowd*each, crowd)
		}
	}
	for _, f := range w.Followers {
		if k := w.Sent(f, trips.Entry); k == 0 || k >= crowd*each {
			t.Errorf("%d segments with entries to %s for %d commits of %d sessions", k, f, crowd*each, crowd)
		}
	}
}

// openDoor connects this machine to a host on which each byte that comes makes a member commit a long row, and is
// answered when that is delivered.
func openDoor(t *testing.T, h *wan.Host, m *member) net.Conn {
	t.Helper()
	var l net.Listener
	if err := h.Do(func() (err error) {
		l, err = net.Listen("tcp", net.JoinHostPort(h.Addr.String(), "0"))
		return err
	}); err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	c, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	s, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		defer s.Close()
		for b := []byte{0}; ; {
			if _, err := io.ReadFull(s, b); err != nil {
				return
			}
			row := payload(trips.Row)
			rand.Read(row[len(row)-trips.Row:]) // so that nothing can compress it; never fails (crypto/rand)
			index, _, err := m.node.Load().Propose(t.Context(), row)
			if err == nil {
				err = m.node.Load().WaitApplied(t.Context(), index)
			}
			if err != nil {
				t.Error(err)
				return
			}
			if _, err := s.Write(b); err != nil {
				return
			}
		}
	}()
	t.Cleanup(func() {
		c.Close()
		<-ended
	})
	return c
}

// proposeAtOnce lets many sessions commit small entries.
func proposeAtOnce(t *testing.T, m *member, sessions, each int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	var wg sync.WaitGroup
	for range sessions {
		wg.Go(func() {
			for range each {
				index, _, err := m.node.Load().Propose(ctx, payload(100))
				if err == nil {
					err = m.node.Load().WaitApplied(ctx, index)
				}
				if err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
}

// level waits until all members have delivered what the first one has.
func level(t *testing.T, ms []*member) {
	t.Helper()
	wait(t, "all have what is committed", func() bool {
		for _, m := range ms {
			if m.delivered.Load() != ms[0].node.Load().Status().LastIndex {
				return false
			}
		}
		return true
	})
}
