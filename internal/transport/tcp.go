package transport

import (
	"context"
	"net"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// keepAlive finds a dead host on an idle connection in about three seconds.
var keepAlive = net.KeepAliveConfig{Enable: true, Idle: time.Second, Interval: time.Second, Count: 2}

// userTimeout is how long sent bytes may stay unacknowledged by the peer's kernel.
const userTimeout = 5 * time.Second

func dialTCP(ctx context.Context, addr string) (net.Conn, error) {
	d := net.Dialer{KeepAliveConfig: keepAlive, Control: func(_, _ string, c syscall.RawConn) error { return setUserTimeout(c) }}
	return d.DialContext(ctx, "tcp", addr)
}

// tuneAccepted sets on an accepted connection what dialTCP sets on a dialed one; Go sets TCP_NODELAY by itself on both.
func tuneAccepted(c net.Conn) {
	tc, ok := c.(*net.TCPConn)
	if !ok {
		return
	}
	if raw, err := tc.SyscallConn(); err == nil {
		_ = setUserTimeout(raw) // a kernel without it still has keep-alive and our own deadlines
	}
}

func setUserTimeout(c syscall.RawConn) error {
	var serr error
	err := c.Control(func(fd uintptr) {
		serr = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT, int(userTimeout/time.Millisecond))
	})
	if err != nil {
		return err
	}
	return serr
}
