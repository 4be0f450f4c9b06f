// Package systemd tells the service manager how the daemon fares: the protocol of sd_notify(3), which is a datagram of
// lines to a unix socket that the manager names in the environment.
package systemd

import (
	"net"
	"os"
	"strconv"
	"strings"
	"time"
)

// Manager is the service manager that started this process. A nil Manager accepts every call and does
// nothing: no service manager started the process.
type Manager struct {
	conn     *net.UnixConn
	watchdog time.Duration
}

// FromEnvironment finds the manager, and takes what names it out of the environment: mysqld speaks the same protocol,
// and a word from it or from the guard would be taken for the daemon's. nil if this is no service that is to notify, or
// the socket cannot be reached: a manager that hears nothing says so itself.
func FromEnvironment() *Manager {
	socket, usec, pid := os.Getenv("NOTIFY_SOCKET"), os.Getenv("WATCHDOG_USEC"), os.Getenv("WATCHDOG_PID")
	for _, name := range []string{"NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID"} {
		_ = os.Unsetenv(name)
	}
	if socket == "" {
		return nil
	}
	conn, err := net.DialUnix("unixgram", nil, &net.UnixAddr{Name: socket, Net: "unixgram"}) // "@name" is an abstract one
	if err != nil {
		return nil
	}
	m := &Manager{conn: conn}
	if n, err := strconv.ParseInt(usec, 10, 64); err == nil && n > 0 && (pid == "" || pid == strconv.Itoa(os.Getpid())) {
		m.watchdog = time.Duration(n) * time.Microsecond
	}
	return m
}

// Ready says that the service is up, and why the operator may believe it.
func (m *Manager) Ready(status string) { m.send("READY=1", "STATUS="+line(status)) }

// Status is what `systemctl status` shows.
func (m *Manager) Status(text string) { m.send("STATUS=" + line(text)) }

// Stopping says that the service ends by itself, or as it was asked to.
func (m *Manager) Stopping(why string) { m.send("STOPPING=1", "STATUS="+line(why)) }

// Watchdog is how long the manager waits for the next Feed until it aborts this process; 0: forever.
func (m *Manager) Watchdog() time.Duration {
	if m == nil {
		return 0
	}
	return m.watchdog
}

// Feed says that the service works.
func (m *Manager) Feed() { m.send("WATCHDOG=1") }

// Unwatch switches the watchdog off permanently, for a program that takes this process over and does not know of it.
func (m *Manager) Unwatch() { m.send("WATCHDOG_USEC=0") }

// send never waits: a manager that does not read misses a status.
func (m *Manager) send(lines ...string) {
	if m == nil {
		return
	}
	_ = m.conn.SetWriteDeadline(time.Now().Add(sendPatience))
	_, _ = m.conn.Write([]byte(strings.Join(lines, "\n")))
}

// sendPatience is for a manager that is busy.
const sendPatience = 20 * time.Millisecond

// line keeps a text from being read as several assignments.
func line(text string) string { return strings.Join(strings.Fields(text), " ") }
