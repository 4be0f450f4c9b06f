package nbio

import (
	"bytes"
	"errors"
	"log/slog"
	"net"
	"strings"
	"syscall"
	"testing"
)

// broken fails some times, as a listener of a process without descriptors does.
type broken struct {
	net.Listener
	fails int
}

func (b *broken) Accept() (net.Conn, error) {
	if b.fails--; b.fails >= 0 {
		return nil, &net.OpError{Op: "accept", Net: "tcp", Err: syscall.EMFILE}
	}
	return b.Listener.Accept()
}

// TestListener: what lasts is told once, and not with each attempt; the listener works again by itself, and ends when
// it is closed.
func TestListener(t *testing.T) {
	inner, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var log bytes.Buffer
	l := &Listener{Listener: &broken{Listener: inner, fails: 4}, Log: slog.New(slog.NewTextHandler(&log, nil))}
	nc, err := net.Dial("tcp", inner.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	accepted, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	_ = accepted.Close()
	if n := strings.Count(log.String(), "too many open files"); n != 1 {
		t.Errorf("%d lines: %s", n, log.String())
	}
	_ = l.Close()
	if _, err := l.Accept(); !errors.Is(err, net.ErrClosed) {
		t.Errorf("a closed listener: %v", err)
	}
}
