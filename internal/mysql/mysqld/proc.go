package mysqld

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// process is what /proc tells about a running program.
type process struct {
	pid  int
	args []string
}

// processes lists what runs on this host, as far as we may see it.
func processes() ([]process, error) {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil, fmt.Errorf("look for running servers: %w", err)
	}
	var all []process
	for _, e := range entries {
		if pid, err := strconv.Atoi(e.Name()); err == nil {
			if p, ok := readProcess(pid); ok {
				all = append(all, p)
			}
		}
	}
	return all, nil
}

// readProcess reports false for a process that is gone, a zombie or a kernel thread.
func readProcess(pid int) (process, bool) {
	cmdline, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "cmdline"))
	if err != nil || len(cmdline) == 0 {
		return process{}, false
	}
	p := process{pid: pid}
	for _, a := range bytes.Split(bytes.TrimSuffix(cmdline, []byte{0}), []byte{0}) {
		p.args = append(p.args, string(a))
	}
	return p, true
}

// isMysqld: the program may be run through a loader or a script, so every word before the options counts.
func (p process) isMysqld() bool {
	for _, a := range p.args {
		if base := filepath.Base(a); base == "mysqld" || base == "mysqld-debug" {
			return true
		}
	}
	return false
}

// worksIn reports whether the directory is the current folder of the process, as a data directory is of its mysqld.
// False where that cannot be seen.
func (p process) worksIn(dir os.FileInfo) bool {
	at, err := os.Stat(p.proc("cwd"))
	return err == nil && os.SameFile(at, dir)
}

// proc is the path of a file that /proc has about the process.
func (p process) proc(name string) string {
	return filepath.Join("/proc", strconv.Itoa(p.pid), name)
}

// describe names a process for an operator.
func describe(pid int) string {
	p, ok := readProcess(pid)
	if !ok {
		return fmt.Sprintf("process %d", pid)
	}
	line := strings.Join(p.args, " ")
	if len(line) > 120 {
		line = line[:117] + "..."
	}
	return fmt.Sprintf("process %d (%s)", pid, line)
}

// checkPort fails with ErrPortInUse when mysqld could not listen, and says who does if that can be known.
func (c Config) checkPort() error {
	host := c.bind()
	if host == "*" {
		host = ""
	}
	for _, h := range strings.Split(host, ",") {
		l, err := net.Listen("tcp", net.JoinHostPort(strings.TrimSpace(h), strconv.Itoa(c.Port)))
		if err == nil {
			_ = l.Close()
			continue
		}
		if errors.Is(err, unix.EADDRINUSE) {
			who := "another program"
			if pid := listenerOf(c.Port); pid != 0 {
				who = describe(pid)
			}
			return fmt.Errorf("%w: %s listens on mysqld's port %d; stop it, or change mysql.port", ErrPortInUse, who, c.Port)
		}
		return fmt.Errorf("%w: mysqld cannot listen on %s port %d: %w; correct mysql.bind or mysql.port", ErrConfig, h,
			c.Port, err)
	}
	return nil
}

// listenerOf finds the process that listens on a TCP port, 0 when unknown: /proc/net/tcp gives the socket's inode
// (proc(5)), and a process has it among its descriptors.
func listenerOf(port int) int {
	inodes := map[string]bool{}
	for _, f := range []string{"/proc/net/tcp", "/proc/net/tcp6"} {
		b, err := os.ReadFile(f)
		if err != nil {
			continue
		}
		for _, line := range strings.Split(string(b), "\n") {
			w := strings.Fields(line)
			const listen = "0A"
			if len(w) > 9 && w[3] == listen && strings.HasSuffix(w[1], fmt.Sprintf(":%04X", port)) {
				inodes["socket:["+w[9]+"]"] = true
			}
		}
	}
	if len(inodes) == 0 {
		return 0
	}
	fds, err := filepath.Glob("/proc/[0-9]*/fd/*")
	if err != nil {
		return 0
	}
	for _, fd := range fds {
		if to, err := os.Readlink(fd); err == nil && inodes[to] {
			pid, _ := strconv.Atoi(strings.Split(fd, "/")[2])
			return pid
		}
	}
	return 0
}
