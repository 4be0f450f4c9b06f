package api

import (
	"context"
	"net"
	"net/http"
	"sync"
	"testing"
	"time"
)

// started is a server of a backend, and a client of it.
func started(t *testing.T, b *backend) (*Server, *Client) {
	t.Helper()
	s := NewServer(Options{Name: "n1", Listen: "127.0.0.1:0", Backend: b})
	if err := s.Start(); err != nil {
		t.Fatal(err)
	}
	c := NewClient("http://"+s.Addr(), "", nil)
	t.Cleanup(func() {
		c.Close()
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		if err := s.Close(ctx); err != nil {
			t.Errorf("a stream kept the server from ending: %v", err)
		}
	})
	return s, c
}

// TestWatchRoute: the view comes at once, changes are pushed, an unchanged one is repeated, and the stream ends with
// its server.
func TestWatchRoute(t *testing.T) {
	b := &backend{}
	b.move(RouteView{Node: "n1", Term: 1})
	s, c := started(t, b)
	views, ended := make(chan RouteView, 100), make(chan error, 1)
	go func() { ended <- c.WatchRoute(t.Context(), func(v RouteView) { views <- v }) }()
	next := func() RouteView {
		t.Helper()
		select {
		case v := <-views:
			return v
		case err := <-ended:
			t.Fatal(err)
		case <-time.After(10 * time.Second):
			t.Fatal("no view")
		}
		panic("unreachable")
	}
	if v := next(); v.Term != 1 || v.Node != "n1" {
		t.Fatalf("first view: %+v", v)
	}
	if v := next(); v.Term != 1 {
		t.Fatalf("no sign of life, but %+v", v)
	}
	b.move(RouteView{Node: "n1", Term: 2, RW: &RouteTarget{Name: "n2", Addr: "a:1", Epoch: "5/2"}})
	for v := next(); v.Term != 2; v = next() {
	}
	if err := s.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	select {
	case err := <-ended:
		if err == nil {
			t.Fatal("the stream ended without an error")
		}
	case <-time.After(10 * time.Second):
		t.Fatal("the stream goes on without its server")
	}
}

// TestRouteLeavesRoom: routers that follow a node leave connections to everybody else, and who goes makes room for the
// next one.
func TestRouteLeavesRoom(t *testing.T) {
	const most = 6 // of 8 connections
	s := NewServer(Options{Name: "n1", Listen: "127.0.0.1:0", Backend: &backend{}, MaxConns: 8})
	if err := s.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = s.Close(context.Background()) }()
	follow := func(ctx context.Context, heard chan<- struct{}) error {
		c := NewClient("http://"+s.Addr(), "", nil)
		defer c.Close()
		var once sync.Once
		return c.WatchRoute(ctx, func(RouteView) { once.Do(func() { heard <- struct{}{} }) })
	}
	ctx, cancel := context.WithCancel(t.Context())
	var following sync.WaitGroup
	heard := make(chan struct{}, most)
	for range most {
		following.Go(func() { _ = follow(ctx, heard) })
	}
	for range most {
		select {
		case <-heard:
		case <-time.After(10 * time.Second):
			t.Fatal("no view")
		}
	}
	if err := follow(t.Context(), heard); KindOf(err) != KindConflict {
		t.Errorf("one more hears %v", err)
	}
	cancel()
	following.Wait()
	ctx, cancel = context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	c := NewClient("http://"+s.Addr(), "", nil)
	defer c.Close()
	for room := false; !room; { // the server learns of the end a moment later
		err := c.WatchRoute(ctx, func(RouteView) { room = true; cancel() })
		if !room && KindOf(err) != KindConflict {
			t.Fatalf("no room was made: %v", err)
		}
	}
}

// TestServes: only the epoch that is open passes.
func TestServes(t *testing.T) {
	b := &backend{}
	b.move(RouteView{RW: &RouteTarget{Name: "n1", Epoch: "5/2 &"}})
	_, c := started(t, b)
	if index, err := c.Serves(t.Context(), "5/2 &"); err != nil || index != 42 {
		t.Error(index, err)
	}
	if _, err := c.Serves(t.Context(), "5/1"); KindOf(err) != KindNoLeader {
		t.Errorf("an epoch that is over: %v", err)
	}
}

// TestSilentNode: a node that takes the request and says nothing is given up.
func TestSilentNode(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	hang := make(chan struct{})
	srv := &http.Server{Handler: http.HandlerFunc(func(http.ResponseWriter, *http.Request) { <-hang })}
	go func() { _ = srv.Serve(l) }()
	t.Cleanup(func() {
		close(hang)
		_ = srv.Close()
	})
	c := NewClient("http://"+l.Addr().String(), "", nil)
	defer c.Close()
	if err := c.WatchRoute(t.Context(), func(RouteView) {}); KindOf(err) != KindUnreachable {
		t.Fatalf("got %v", err)
	}
}
