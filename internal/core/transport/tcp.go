package transport

import (
	"context"
	"net"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// keepAlive finds a dead host on an idle connection in a few seconds.
var keepAlive = net.KeepAliveConfig{Enable: true, Idle: time.Second, Interval: time.Second, Count: 2}

// userTimeout is how long sent bytes may stay unacknowledged by the peer's kernel, or wait for one that takes nothing
// (tcp(7), TCP_USER_TIMEOUT).
const userTimeout = 5 * time.Second

// DialTCP connects to host:port. The kernel gives the connection up, with ETIMEDOUT, some seconds after its peer's host
// has fallen silent, whether bytes are under way or not.
func DialTCP(ctx context.Context, addr string) (net.Conn, error) {
	d := net.Dialer{KeepAliveConfig: keepAlive, Control: setUserTimeout}
	return d.DialContext(ctx, "tcp", addr)
}

// ListenTCP listens at host:port. What it accepts ends as DialTCP's connections do.
func ListenTCP(addr string) (net.Listener, error) {
	// accepted sockets inherit what is set on the listening one
	l := net.ListenConfig{KeepAliveConfig: keepAlive, Control: setUserTimeout}
	return l.Listen(context.Background(), "tcp", addr)
}

func setUserTimeout(_, _ string, c syscall.RawConn) error {
	var serr error
	err := c.Control(func(fd uintptr) {
		serr = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT, int(userTimeout/time.Millisecond))
	})
	if err != nil {
		return err
	}
	return serr
}
