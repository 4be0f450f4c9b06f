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

	"golang.org/x/sys/unix"

	"trireme/internal/base/nbio"
)

// isLocal reports whether a client came through a unix socket. Such a client believes that the way to its server cannot
// be overheard, and sends its password in clear when asked. So the router connects its session to the server over TLS,
// and always follows it.
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

// listenUnix makes a socket that every account of the host may connect to, as mysqld's. One that a dead process has
// left is replaced.
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
			return nil, fmt.Errorf("router: a socket without a listener: %w", err)
		}
	}
	l, err := net.Listen("unix", path)
	if err != nil {
		return nil, fmt.Errorf("router: %w", err)
	}
	if err := openToAll(path); err != nil {
		return nil, errors.Join(fmt.Errorf("router: %w", err), l.Close())
	}
	return l, nil
}

// openToAll lets every account connect to a socket that we have just made. Its folder may be another user's than ours,
// who may be root: what lies there by now need not be the socket.
func openToAll(path string) error {
	fd, err := unix.Open(path, unix.O_PATH|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return &os.PathError{Op: "open", Path: path, Err: err}
	}
	defer func() { _ = unix.Close(fd) }()
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return &os.PathError{Op: "stat", Path: path, Err: err}
	}
	if st.Mode&unix.S_IFMT != unix.S_IFSOCK || int(st.Uid) != os.Geteuid() {
		return fmt.Errorf("somebody has replaced the socket %s", path)
	}
	return os.Chmod(fmt.Sprintf("/proc/self/fd/%d", fd), 0o777)
}
