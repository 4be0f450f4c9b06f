package transport

import (
	"net"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// TestConnectionsGiveUp: both ends of a connection have what makes the kernel give it up when its peer's host is lost.
func TestConnectionsGiveUp(t *testing.T) {
	l, err := ListenTCP("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	dialed, err := DialTCP(t.Context(), l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer dialed.Close()
	accepted, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer accepted.Close()
	for end, c := range map[string]net.Conn{"dialed": dialed, "accepted": accepted} {
		raw, err := c.(*net.TCPConn).SyscallConn()
		if err != nil {
			t.Fatal(err)
		}
		for _, o := range []struct {
			name               string
			level, option, set int
		}{
			{"TCP_USER_TIMEOUT", unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT, int(userTimeout / time.Millisecond)},
			{"SO_KEEPALIVE", unix.SOL_SOCKET, unix.SO_KEEPALIVE, 1},
			{"TCP_KEEPIDLE", unix.IPPROTO_TCP, unix.TCP_KEEPIDLE, 1},
			{"TCP_NODELAY", unix.IPPROTO_TCP, unix.TCP_NODELAY, 1},
		} {
			if err := raw.Control(func(fd uintptr) {
				if v, err := unix.GetsockoptInt(int(fd), o.level, o.option); err != nil || v != o.set {
					t.Errorf("%s, %s: %d, %v; want %d", end, o.name, v, err, o.set)
				}
			}); err != nil {
				t.Fatal(err)
			}
		}
	}
}
