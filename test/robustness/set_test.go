package robustness

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"trireme/lab/verify"
)

// TestAllWorkloads runs every workload of the safety kit at once, kills the leader's mysqld and a follower's daemon and
// moves leadership meanwhile, and has every checker judge what clients saw and what the nodes hold.
func TestAllWorkloads(t *testing.T) {
	t.Parallel()
	c := lease(t)
	s, err := verify.NewSet(verify.SetConfig{Login: c.Routed(), Split: c.Split(), Nodes: verify.Nodes(c),
		Database: "workloads", Seed: 6, Dir: t.TempDir()})
	must(t, err)
	defer s.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 2*healLimit)
	defer cancel()
	must(t, s.Prepare(ctx))
	s.Start(context.WithoutCancel(t.Context()))
	t.Cleanup(func() { _ = s.Stop() })

	work := func(d time.Duration) {
		t.Helper()
		begin := time.Now()
		eventually(t, healLimit, "work goes on", func() error {
			if left := d - time.Since(begin); left > 0 || !s.Meter().AckedSince(begin) {
				return context.DeadlineExceeded
			}
			return nil
		})
	}
	work(5 * time.Second)
	leader := c.healthy()
	before := c.view()
	c.crash(leader)
	c.failedOver(before.Term)
	work(4 * time.Second)
	follower := c.others(c.healthy())[0]
	c.KillDaemon(follower)
	c.start(follower)
	work(4 * time.Second)
	c.healthy()
	// a follower may have DDL or a large transaction to apply first
	eventually(t, healLimit, "a switchover", func() error {
		_, err := c.Switchover(ctx, "")
		return err
	})
	work(2 * time.Second)
	must(t, s.Stop())
	c.healthy()

	for name, n := range s.Counts() {
		if n.Acked == 0 {
			t.Errorf("%s: nothing was acknowledged: %+v", name, n)
		}
	}
	check, cancel := context.WithTimeout(t.Context(), checkLimit)
	defer cancel()
	nodes, err := c.Endpoints()
	must(t, err)
	defer verify.CloseEndpoints(nodes)
	r, err := s.Check(check, nodes)
	must(t, err)
	t.Logf("%s", r)
	if !r.OK() {
		t.Error("there are problems")
	}
	if len(r.Parts) != len(verify.Workloads) {
		t.Errorf("%d workloads were judged, of %d", len(r.Parts), len(verify.Workloads))
	}
}

// astray is an address that leads to the first server, and once it is switched on to the second as well, in turn and
// for a moment each.
func astray(t *testing.T, on *atomic.Bool, moment time.Duration, right, wrong verify.Login) verify.Login {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	t.Cleanup(func() { l.Close() })
	go func() {
		for next := 0; ; next++ {
			client, err := l.Accept()
			if err != nil {
				return
			}
			to := right
			if on.Load() && next%2 == 0 {
				to = wrong
			}
			go func() {
				defer client.Close()
				server, err := net.Dial("tcp", to.Addr())
				if err != nil {
					return
				}
				defer server.Close()
				if on.Load() {
					until := time.Now().Add(moment)
					_ = errors.Join(client.SetDeadline(until), server.SetDeadline(until))
				}
				go io.Copy(server, client)
				_, _ = io.Copy(client, server)
			}()
		}
	}()
	login := right
	login.Addr = verify.Fixed(l.Addr().String())
	return login
}

// TestStaleReadsAreFound: the checkers find on real servers what they are for. Clients are led to the leader and to a
// follower in turn, as if a router believed that both lead; the follower's daemon is stopped meanwhile, so that its
// mysqld shows what is seconds old.
func TestStaleReadsAreFound(t *testing.T) {
	t.Parallel()
	c := lease(t)
	leader := c.healthy()
	follower := c.others(leader)[0]
	var on atomic.Bool
	s, err := verify.NewSet(verify.SetConfig{
		Login: astray(t, &on, 300*time.Millisecond, c.Direct(leader), c.Direct(follower)), Database: "workloads",
		Workloads: []string{"register", "append"}, Seed: 6,
	})
	must(t, err)
	defer s.Close()
	ctx, cancel := context.WithTimeout(t.Context(), healLimit)
	defer cancel()
	must(t, s.Prepare(ctx))
	nodes, err := c.Endpoints()
	must(t, err)
	defer verify.CloseEndpoints(nodes)
	_, _, err = verify.WaitEqual(ctx, nodes) // the follower has the tables
	must(t, err)
	must(t, c.Signal(follower, syscall.SIGSTOP))
	on.Store(true)
	s.Start(context.WithoutCancel(t.Context()))
	begin := time.Now()
	eventually(t, healLimit, "operations of all kinds", func() error {
		for name, n := range s.Counts() {
			if n.Acked < 60 || time.Since(begin) < 4*time.Second {
				return fmt.Errorf("%s: %+v", name, n)
			}
		}
		return nil
	})
	must(t, c.Signal(follower, syscall.SIGCONT))
	must(t, s.Stop())
	c.healthy()
	r, err := s.Check(ctx, nodes)
	must(t, err)
	t.Logf("%s", r)
	for _, p := range r.Parts {
		kind := map[string]verify.Kind{"register": verify.Stale, "append": verify.GSingleReal}[p.Workload]
		if len(p.Stale) == 0 || !slices.ContainsFunc(p.Problems, func(x verify.Problem) bool { return x.Kind == kind }) {
			t.Errorf("%s: no %q found", p.Workload, kind)
		}
		for _, x := range p.Problems {
			if x.Kind == verify.Lost || x.Kind == verify.Resurrected || x.Kind == verify.G1a {
				t.Errorf("%s: %s, though only reads were led astray", p.Workload, x)
			}
		}
	}
}
