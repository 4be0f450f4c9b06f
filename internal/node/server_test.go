package node

import (
	"context"
	"log/slog"
	"net"
	"testing"
	"time"

	"trireme/internal/dump"
	"trireme/internal/mysqld"
)

// A mysqld that was killed and does not end, with its disk, does not keep the daemon from ending.
func TestWatchEndsWithTheDaemon(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	n := newTestNode(t)
	n.ctx = ctx
	src := dump.NewSource(dump.SourceConfig{Dial: func(ctx context.Context) (net.Conn, error) { return nil, ctx.Err() }, Logger: slog.New(slog.DiscardHandler)})
	ended := make(chan struct{})
	go func() {
		n.watch(&life{proc: &mysqld.Server{}, source: src}) // a process that does not end: Done is never ready
		n.tasks.Wait()
		close(ended)
	}()
	cancel()
	select {
	case <-ended:
	case <-time.After(10 * time.Second):
		t.Fatal("it waits for the end of mysqld")
	}
}
