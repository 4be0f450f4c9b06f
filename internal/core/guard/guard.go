package guard

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"runtime"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// silence is how long the guard may not have looked before it counts as stopped itself and is replaced.
	silence = 5 * time.Second
	// restartPause separates the starts of guards.
	restartPause = 200 * time.Millisecond
	// closePatience is for the guard to end by itself.
	closePatience = time.Second
)

// Guard is the daemon's side. Methods may be called from any goroutine.
type Guard struct {
	command []string
	outlive bool // it may go on for a moment after the daemon
	log     *slog.Logger
	memory  *os.File
	page    *page
	stop    chan struct{}
	stopped chan struct{}

	mu     sync.Mutex // guards what is below
	mysqld *os.File   // pidfd, nil: none yet
	socket int        // of the running guard, -1: none
	proc   *os.Process
	closed bool
}

// Start starts the guard by command (program and arguments), and again whenever it ends, until Close. With outlive the
// guard is not killed together with its daemon, but ends by itself when it has withdrawn what it should.
func Start(command []string, outlive bool, log *slog.Logger) (*Guard, error) {
	g := &Guard{command: command, outlive: outlive, log: log, socket: -1, stop: make(chan struct{}),
		stopped: make(chan struct{})}
	var err error
	if g.memory, g.page, err = newPage(); err != nil {
		return nil, err
	}
	first := make(chan error, 1)
	go g.keep(first)
	if err := <-first; err != nil {
		g.Close()
		return nil, err
	}
	return g, nil
}

// Watch hands mysqld to the guard, in place of the one before it. The guard owns pidfd from now on. Call it before
// Until.
func (g *Guard) Watch(pidfd *os.File) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed {
		_ = pidfd.Close()
		return
	}
	if g.mysqld != nil {
		_ = g.mysqld.Close()
	}
	g.mysqld = pidfd
	g.page.killed.Store(0)
	g.send(int(pidfd.Fd()))
}

// Until sets when mysqld is killed (CLOCK_BOOTTIME) unless Until is called again; 0: it serves nothing and may live. It
// never blocks.
func (g *Guard) Until(t time.Duration) {
	before := time.Duration(g.page.until.Swap(int64(t)))
	hung := now() > time.Duration(g.page.seen.Load())+silence
	if t == 0 && !hung || before != 0 && t >= before && !hung {
		return
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if hung && g.proc != nil {
		g.log.Warn("the guard process does not run; replacing it", "pid", g.proc.Pid)
		_ = g.proc.Kill() // keep starts another
		g.page.seen.Store(int64(now()))
		return
	}
	g.send(-1) // it sleeps longer than that
}

// Killed reports whether the guard has killed the mysqld that it was last given.
func (g *Guard) Killed() bool { return g.page.killed.Load() != 0 }

// Pid of the guard process, 0 while none runs.
func (g *Guard) Pid() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.proc == nil {
		return 0
	}
	return g.proc.Pid
}

// Close ends the guard process. It kills mysqld if that still runs: end mysqld first.
func (g *Guard) Close() {
	g.mu.Lock()
	if !g.closed {
		g.closed = true
		close(g.stop)
		g.hangUp()
	}
	proc := g.proc
	g.mu.Unlock()
	select {
	case <-g.stopped:
		return
	case <-time.After(closePatience):
	}
	if proc != nil {
		_ = proc.Kill() // it is stopped
	}
	select {
	case <-g.stopped:
	case <-time.After(closePatience): // it hangs in the kernel
	}
}

// hangUp closes the socket; the guard takes it for our death. mu is held.
func (g *Guard) hangUp() {
	if g.socket >= 0 {
		_ = unix.Close(g.socket)
		g.socket = -1
	}
}

// send wakes the guard, and passes a descriptor unless that is negative. mu is held. A guard that cannot be reached is
// about to be replaced, and its successor gets everything again.
func (g *Guard) send(fd int) {
	if g.socket < 0 {
		return
	}
	var rights []byte
	if fd >= 0 {
		rights = unix.UnixRights(fd)
	}
	if err := unix.Sendmsg(g.socket, []byte{1}, rights, nil, unix.MSG_DONTWAIT|unix.MSG_NOSIGNAL); err != nil &&
		!errors.Is(err, unix.EAGAIN) {
		g.log.Debug("the guard cannot be reached", "err", err)
	}
}

// keep runs one guard after the other. first gets the outcome of the first start.
//
// The goroutine stays on its thread, since the parent-death signal fires when the thread ends that forked (prctl(2)).
func (g *Guard) keep(first chan<- error) {
	runtime.LockOSThread()
	defer close(g.stopped)
	for started := false; ; started = true {
		cmd, err := g.launch()
		if !started {
			first <- err
		}
		if err != nil {
			g.log.Error("no guard process: a daemon that is stopped cannot be fenced", "err", err)
		} else {
			_ = cmd.Wait() // how it ended is in cmd
			g.mu.Lock()
			g.hangUp()
			g.proc = nil
			closed := g.closed
			g.mu.Unlock()
			if closed {
				return
			}
			g.log.Warn("the guard process ended; starting another", "pid", cmd.Process.Pid, "how", cmd.ProcessState.String())
		}
		select {
		case <-g.stop:
			return
		case <-time.After(restartPause):
		}
	}
}

// launch starts a guard process and tells it all it has to know.
func (g *Guard) launch() (*exec.Cmd, error) {
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("start the guard process: %w", err)
	}
	theirs := os.NewFile(uintptr(pair[1]), "guard")
	defer func() { _ = theirs.Close() }()
	cmd := exec.Command(g.command[0], g.command[1:]...)
	cmd.Stderr = os.Stderr
	cmd.ExtraFiles = []*os.File{theirs, g.memory} // socketFD, pageFD
	cmd.Env = append(os.Environ(), "GOMAXPROCS=1")
	// A session of its own: what stops or ends the daemon's process group must not reach it.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if !g.outlive {
		cmd.SysProcAttr.Pdeathsig = syscall.SIGKILL
	}
	g.page.seen.Store(int64(now()))
	if err := cmd.Start(); err != nil {
		_ = unix.Close(pair[0])
		return nil, fmt.Errorf("start the guard process: %w", err)
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed { // Close came before there was a socket to close
		_ = unix.Close(pair[0])
		return cmd, nil
	}
	g.socket, g.proc = pair[0], cmd.Process
	if g.mysqld != nil {
		g.send(int(g.mysqld.Fd()))
	}
	return cmd, nil
}
