package mysqld

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// restartCode is mysqld's exit code after RESTART, and after a CLONE that replaced its data: start it again.
const restartCode = 16

// Exit is how a life of mysqld ended.
type Exit struct {
	Pid    int
	Code   int            // exit code when Signal is 0
	Signal syscall.Signal // what killed it, 0 when it exited by itself
	At     time.Time
	Asked  bool // by Kill or StopPolitely
}

// RestartAsked: mysqld ended in order to be started again (RESTART, CLONE).
func (e Exit) RestartAsked() bool { return e.Signal == 0 && e.Code == restartCode }

func (e Exit) String() string {
	switch {
	case e.Signal != 0:
		return fmt.Sprintf("killed by signal %d (%s)", int(e.Signal), e.Signal)
	case e.RestartAsked():
		return "ended for a restart (exit code 16)"
	default:
		return fmt.Sprintf("exit code %d", e.Code)
	}
}

// child is a mysqld that this process has forked. exit may be read once done is closed.
type child struct {
	cmd      *exec.Cmd
	pid      int
	pidfd    *os.File      // names the process uniquely; closed once it is reaped. nil: the kernel has none (before 5.4)
	logStart int64         // size of the error log when it was started
	dying    chan struct{} // closed when it is being ended by the kernel, at the latest with done
	done     chan struct{}
	exit     Exit
	asked    atomic.Bool // somebody here asked for the end
}

// launchSpec is how to run the program; everything else comes from Config.
type launchSpec struct {
	args []string // without the program; --no-defaults or --defaults-file first
}

// launch forks mysqld so that it cannot outlive us.
//
// PR_SET_PDEATHSIG fires when the forking *thread* ends (prctl(2)), and the Go runtime ends threads as it likes: so the
// goroutine that forks is locked to its thread, and holds it until the child is reaped. The signal is cleared by a
// change of user, so mysqld is started as its user instead of with --user. It has a process group of its own: a Ctrl-C
// at the daemon's terminal must not reach it (S4).
func (c Config) launch(spec launchSpec) (*child, error) {
	uid, gid, other, err := c.runsAs()
	if err != nil {
		return nil, err
	}
	args := spec.args
	if os.Getuid() == 0 && !other {
		args = append(args, "--user=root") // mysqld refuses to run as root unless told so
	}
	p := &child{cmd: exec.Command(c.Binary.Path, args...), dying: make(chan struct{}), done: make(chan struct{})}
	p.cmd.Dir = "/"
	// RESTART works only under a parent that says it will start mysqld again.
	p.cmd.Env = append(environment(), "MYSQLD_PARENT_PID="+strconv.Itoa(os.Getpid()))
	pidfd := -1
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true, PidFD: &pidfd}
	if other {
		p.cmd.SysProcAttr.Credential = &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}
	}
	errlog := logArgument(args, c.ErrorLog())
	out, err := c.appendOwned(errlog)
	if err != nil {
		return nil, fmt.Errorf("mysqld's error log: %w", err)
	}
	defer func() { _ = out.Close() }()
	// What the loader or a script says before mysqld has opened its log goes there too.
	p.cmd.Stdout, p.cmd.Stderr = out, out
	if st, err := out.Stat(); err == nil {
		p.logStart = st.Size()
	}
	started := make(chan error)
	go p.run(started)
	if err := <-started; err != nil {
		return nil, fmt.Errorf("start %s: %w", c.Binary.Path, err)
	}
	if err := c.noteStarted(p.pid); err != nil {
		return nil, errors.Join(fmt.Errorf("start %s: %w", c.Binary.Path, err), p.kill())
	}
	return p, nil
}

// environment is ours without what concerns only the daemon: its credentials, and systemd's sockets, on which mysqld
// would otherwise announce its own state as the service's.
func environment() []string {
	return slices.DeleteFunc(os.Environ(), func(kv string) bool {
		for _, p := range []string{"TRIREME_", "NOTIFY_SOCKET=", "WATCHDOG_", "LISTEN_", "MYSQLD_PARENT_PID="} {
			if strings.HasPrefix(kv, p) {
				return true
			}
		}
		return false
	})
}

// run forks, and keeps the thread until the child is reaped.
func (p *child) run(started chan<- error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if err := p.cmd.Start(); err != nil {
		started <- err
		return
	}
	p.pid = p.cmd.Process.Pid
	fallBehind(p.pid)
	if fd := *p.cmd.SysProcAttr.PidFD; fd >= 0 {
		p.pidfd = os.NewFile(uintptr(fd), "mysqld")
		defer func() { _ = p.pidfd.Close() }()
	}
	go func() { defer close(p.dying); p.awaitDeath() }()
	started <- nil
	_ = p.cmd.Wait() // the state below says it all
	p.exit = Exit{Pid: p.pid, At: time.Now(), Asked: p.asked.Load()}
	if ws, ok := p.cmd.ProcessState.Sys().(syscall.WaitStatus); ok {
		if ws.Signaled() {
			p.exit.Signal = ws.Signal()
		} else {
			p.exit.Code = ws.ExitStatus()
		}
	}
	close(p.done)
}

// handle duplicates the process's pidfd.
func (p *child) handle() (*os.File, error) {
	if p.pidfd == nil {
		return nil, errors.New("this kernel has no pidfd: Linux 5.4 or later is needed")
	}
	raw, err := p.pidfd.SyscallConn()
	if err != nil {
		return nil, err
	}
	fd := -1
	cerr := raw.Control(func(own uintptr) { fd, err = unix.FcntlInt(own, unix.F_DUPFD_CLOEXEC, 0) })
	if err = errors.Join(cerr, err); err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(fd), "mysqld"), nil
}

// signal is a no-op on a process that is gone.
func (p *child) signal(s syscall.Signal) error {
	select {
	case <-p.dying: // by itself
	default:
		p.asked.Store(true)
	}
	if err := p.cmd.Process.Signal(s); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("signal %d to mysqld %d: %w", int(s), p.pid, err)
	}
	return nil
}

// kill ends the process for sure and waits until it is reaped: a zombie still holds the socket's lock file.
func (p *child) kill() error {
	if err := p.signal(syscall.SIGKILL); err != nil {
		return err
	}
	t := time.NewTimer(killLimit)
	defer t.Stop()
	select {
	case <-p.done:
		return nil
	case <-t.C:
		return fmt.Errorf("%w: pid %d, SIGKILL sent %s ago; look for a hanging disk", ErrNotReaped, p.pid, killLimit)
	}
}

// waitReady waits until l can log in, or the process has ended, or ctx is over.
func waitReady(ctx context.Context, p *child, l *lane, errlog string) error {
	var last error
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for {
		try, cancel := context.WithTimeout(ctx, loginLimit)
		last = l.open(try)
		cancel()
		if last == nil {
			return nil
		}
		if errors.Is(last, ErrAccess) {
			return last
		}
		select {
		case <-p.done:
			return exitError("mysqld", p.exit, errlog, p.logStart)
		case <-ctx.Done():
			lines := tailLog(errlog, p.logStart)
			return fmt.Errorf("%w: mysqld is not up: %w; last: %w%s", ErrTimeout, ctx.Err(), last, showLog(errlog, lines))
		case <-tick.C:
		}
	}
}

// exitError tells what mysqld said before it ended, and what to do about it.
func exitError(what string, e Exit, errlog string, from int64) error {
	lines := tailLog(errlog, from)
	advice := adviceFor(lines)
	if advice != "" {
		advice = ": " + advice
	}
	return fmt.Errorf("%w: %s: %s%s%s", ErrExited, what, e, advice, showLog(errlog, lines))
}

const (
	tailLines = 8
	tailBytes = 64 << 10
)

// tailLog gives the last lines that were written after offset from, errors first choice.
func tailLog(path string, from int64) []string {
	f, err := OpenOwned(filepath.Dir(path), filepath.Base(path), os.O_RDONLY, -1)
	if err != nil {
		return nil
	}
	defer func() { _ = f.Close() }()
	st, err := f.Stat()
	if err != nil {
		return nil
	}
	from = max(from, st.Size()-tailBytes)
	b, err := io.ReadAll(io.NewSectionReader(f, from, tailBytes))
	if err != nil {
		return nil
	}
	var all, errs []string
	for _, l := range bytes.Split(b, []byte("\n")) {
		s := strings.TrimSpace(string(l))
		if s == "" {
			continue
		}
		all = append(all, s)
		if strings.Contains(s, "[ERROR]") {
			errs = append(errs, s)
		}
	}
	if len(errs) > 0 {
		all = errs
	}
	return all[max(0, len(all)-tailLines):]
}

func showLog(path string, lines []string) string {
	if len(lines) == 0 {
		return "\n  (nothing in " + path + ")"
	}
	return "\n  from " + path + ":\n    " + strings.Join(lines, "\n    ")
}

// logArgument finds where this invocation writes its error log.
func logArgument(args []string, otherwise string) string {
	for _, a := range args {
		if p, ok := strings.CutPrefix(a, "--log-error="); ok {
			return p
		}
	}
	return otherwise
}
