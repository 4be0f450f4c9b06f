package router

import (
	"context"
	"errors"
	"net"
	"sync/atomic"
	"testing"
	"time"
)

// TestOldViewLeadsNobodyAstray: the view still names n1 as the leader, but at its address a later incarnation listens,
// which follows. No read-write client gets a byte of it; they wait until there is a leader. The read-only port does not
// ask.
func TestOldViewLeadsNobodyAstray(t *testing.T) {
	restarted, n2 := newServer(t, "n1 again"), newServer(t, "n2")
	old, leader := restarted.target("1/4"), n2.target("1/5")
	var refused atomic.Int64
	r := start(t, Config{Confirm: func(_ context.Context, target Target) error {
		if target != leader {
			refused.Add(1)
			return errors.New("it does not lead")
		}
		return nil
	}})
	r.SetView(View{RW: &old})
	var clients []client
	for range 5 {
		clients = append(clients, dial(t, r.RWAddr()))
	}
	if got := dial(t, r.ROAddr()).greeting(); got != "n1 again" {
		t.Fatalf("the read-only port led to %s", got)
	}
	eventually(t, "all wait", func() bool { return r.Stats().RW.Held == 5 && refused.Load() >= 5 })
	if s := r.Stats().RW; s.Open != 0 {
		t.Fatalf("led to a server that does not lead: %+v", s)
	}
	eventually(t, "connections that were not confirmed are closed", func() bool { return restarted.open.Load() == 1 })
	r.SetView(View{RW: &leader})
	for _, c := range clients {
		if got := c.greeting(); got != "n2" {
			t.Fatalf("led to %s", got)
		}
		c.echo("hello")
	}
}

// TestConfirmedBehindTheGreeting: a connection that waits to be accepted belongs to no process yet, and does not show
// which process will serve it.
func TestConfirmedBehindTheGreeting(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var serving, early atomic.Bool
	r := start(t, Config{DialTimeout: time.Hour, Confirm: func(context.Context, Target) error {
		early.Store(!serving.Load())
		return nil
	}})
	r.SetView(View{RW: &Target{Name: "n1", Addr: l.Addr().String(), Epoch: "1/4"}})
	c := dial(t, r.RWAddr())
	eventually(t, "an attempt to reach n1", func() bool {
		r.mu.Lock()
		defer r.mu.Unlock()
		return len(r.dials) == 1
	})
	serving.Store(true)
	serve(t, l, "n1")
	if got := c.greeting(); got != "n1" || early.Load() {
		t.Fatalf("led to %q, confirmed before the server accepted: %v", got, early.Load())
	}
}

// TestConfirmationIsGivenUp: who waits for a server that accepts and says nothing, or for a leader that does not
// answer, waits no longer than for the next view.
func TestConfirmationIsGivenUp(t *testing.T) {
	for name, mute := range map[string]bool{"mute server": true, "mute leader": false} {
		t.Run(name, func(t *testing.T) {
			l, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			defer l.Close() // connections are not accepted
			addr := l.Addr().String()
			if !mute {
				addr = newServer(t, "n1").Addr().String()
			}
			n2 := newServer(t, "n2")
			r := start(t, Config{HoldTimeout: time.Hour, Confirm: func(ctx context.Context, target Target) error {
				if target.Name == "n1" {
					<-ctx.Done()
				}
				return ctx.Err()
			}})
			r.SetView(View{RW: &Target{Name: "n1", Addr: addr, Epoch: "1/4"}})
			c := dial(t, r.RWAddr())
			eventually(t, "an attempt to reach n1", func() bool {
				r.mu.Lock()
				defer r.mu.Unlock()
				return len(r.dials) == 1
			})
			target := n2.target("1/5")
			r.SetView(View{RW: &target})
			if got := c.greeting(); got != "n2" {
				t.Fatalf("led to %s", got)
			}
		})
	}
}
