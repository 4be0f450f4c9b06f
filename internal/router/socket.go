package router

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/netip"
	"os"
	"syscall"
	"time"

	"trireme/internal/nbio"
)

// isLocal says whether a client came through a unix socket. Such a client takes the way to its server for one that nobody can listen to, and gives its
// password in clear when it is asked: so its session goes on to the server over TLS, and is always followed.
func isLocal(c *nbio.Conn) bool {
	_, local := c.Conn.(*net.UnixConn)
	return local
}

// origin is where a client comes from, for people.
func origin(from netip.AddrPort) string {
	if !from.IsValid() {
		return "a unix socket"
	}
	return from.String()
}

// listenUnix makes a socket that every account of the host may connect to, as mysqld's. One that a dead process has left is replaced.
func listenUnix(path string) (net.Listener, error) {
	st, err := os.Lstat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		return nil, fmt.Errorf("router: %w", err)
	case st.Mode().Type() != fs.ModeSocket:
		return nil, fmt.Errorf("router: %s is there and no socket; move it away or set another path under [router]", path)
	default:
		c, err := net.DialTimeout("unix", path, time.Second)
		if err == nil {
			_ = c.Close()
			return nil, fmt.Errorf("router: somebody listens at %s; stop that or set another path under [router]", path)
		}
		if !errors.Is(err, syscall.ECONNREFUSED) {
			return nil, fmt.Errorf("router: looking who listens at the socket: %w", err)
		}
		if err := os.Remove(path); err != nil {
			return nil, fmt.Errorf("router: a socket that nobody listens at: %w", err)
		}
	}
	l, err := net.Listen("unix", path)
	if err != nil {
		return nil, fmt.Errorf("router: %w", err)
	}
	if err := os.Chmod(path, 0o777); err != nil {
		return nil, errors.Join(fmt.Errorf("router: %w", err), l.Close())
	}
	return l, nil
}
