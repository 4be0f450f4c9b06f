package nbio

import (
	"errors"
	"log/slog"
	"net"
	"time"
)

// Listener is one whose Accept fails only when it is closed. Where the kernel gives it no connection, out of
// descriptors mostly, it waits a moment, in which some may be closed, and tells Log, once in a while. One goroutine
// calls Accept.
type Listener struct {
	net.Listener
	Log  *slog.Logger
	told time.Time
}

const (
	acceptPause = 100 * time.Millisecond
	tellPause   = 10 * time.Second
)

// Accept returns the next connection, or net.ErrClosed.
func (l *Listener) Accept() (net.Conn, error) {
	for {
		nc, err := l.Listener.Accept()
		if err == nil || errors.Is(err, net.ErrClosed) {
			return nc, err
		}
		if time.Since(l.told) > tellPause {
			l.told = time.Now()
			l.Log.Warn("no connection can be accepted; it is tried again", "listen", l.Addr().String(), "err", err)
		}
		time.Sleep(acceptPause)
	}
}
