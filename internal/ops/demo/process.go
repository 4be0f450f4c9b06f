package demo

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// Process is a child that dies with this process.
type Process struct {
	PID  int
	done chan struct{} // closed when it has been reaped
	err  error         // of Wait; read after done
}

// Command describes a child process.
type Command struct {
	Path string
	Args []string // without the program's name
	Dir  string
	Env  []string // nil: this process's own
	// LogFile receives standard output and error, appended.
	LogFile string
	// Survive lets it outlive this process: no parent-death signal.
	Survive bool
	// Enter changes the thread that starts it, into another network namespace for instance; nil: nothing.
	Enter func() error
}

// StartProcess starts a child in a session of its own.
//
// The parent-death signal fires when the *thread* that forked ends (prctl(2)), so the goroutine that forks stays locked
// to its thread until the child is gone.
func StartProcess(c Command) (*Process, error) {
	log, err := os.OpenFile(c.LogFile, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(c.Path, c.Args...)
	cmd.Dir, cmd.Env, cmd.Stdout, cmd.Stderr = c.Dir, c.Env, log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if !c.Survive {
		cmd.SysProcAttr.Pdeathsig = syscall.SIGKILL
	}
	p := &Process{done: make(chan struct{})}
	started := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
		defer close(p.done)
		defer log.Close()
		var err error
		if c.Enter != nil {
			err = c.Enter()
		}
		if err == nil {
			err = cmd.Start()
		}
		if err == nil {
			p.PID = cmd.Process.Pid
		}
		started <- err
		if err == nil {
			p.err = cmd.Wait()
		}
	}()
	if err := <-started; err != nil {
		return nil, fmt.Errorf("starting %s: %w", c.Path, err)
	}
	return p, nil
}

// Done is closed when the process has ended and been reaped.
func (p *Process) Done() <-chan struct{} { return p.done }

// Err is how the process ended, once Done is closed; nil for exit status 0.
func (p *Process) Err() error {
	select {
	case <-p.done:
		return p.err
	default:
		return nil
	}
}

// Alive is false once the process has been reaped.
func (p *Process) Alive() bool {
	select {
	case <-p.done:
		return false
	default:
		return true
	}
}

// Signal sends a signal; an ended process is no error. The pid cannot have been reused: it is reaped by us alone.
func (p *Process) Signal(s syscall.Signal) error {
	if !p.Alive() {
		return nil
	}
	if err := syscall.Kill(p.PID, s); err != nil && !errors.Is(err, syscall.ESRCH) {
		return fmt.Errorf("signal %v to process %d: %w", s, p.PID, err)
	}
	return nil
}

// Kill sends SIGKILL and waits until the process is gone.
func (p *Process) Kill() {
	if p.Signal(syscall.SIGKILL) == nil {
		<-p.done
	}
}

// Stop sends SIGTERM, and SIGKILL if the process is still there after the limit. It says whether SIGTERM was enough.
func (p *Process) Stop(limit time.Duration) bool {
	p.Signal(syscall.SIGTERM)
	p.Signal(syscall.SIGCONT) // a stopped process would not hear it
	select {
	case <-p.done:
		return true
	case <-time.After(limit):
		p.Kill()
		return false
	}
}

// haltLimit is for processes that have their SIGSTOP to stand still; a machine that is short of CPUs takes its time.
const haltLimit = 30 * time.Second

// Halt stops processes with SIGSTOP and returns when none of their threads goes on: kill(2) returns before that, and
// what waits for a CPU just then would still run for a moment. A process that is gone stands still. SIGCONT lets them
// go on.
func Halt(pids ...int) error {
	for _, pid := range pids {
		if pid < 1 { // kill(2) would take 0 for all of the caller's own
			return fmt.Errorf("no process runs that could be stopped (%d)", pid)
		}
		if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil && !errors.Is(err, syscall.ESRCH) {
			return fmt.Errorf("SIGSTOP to process %d: %w", pid, err)
		}
	}
	ctx, cancel := context.WithTimeout(context.Background(), haltLimit)
	defer cancel()
	for _, pid := range pids {
		err := pollUntil(ctx, time.Millisecond, fmt.Sprintf("process %d to stand still", pid), func() error {
			if moving := threadsInMotion(pid); moving != "" {
				return errors.New(moving)
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// threadsInMotion names a thread of a process that does not stand still, empty if all do. One that no signal interrupts
// (state D) counts as one that does, once another one of the process stands: it stops before it is back in its program
// (signal(7), proc_pid_stat(5)).
func threadsInMotion(pid int) string {
	threads, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", pid))
	deaf, stands := "", false
	for _, path := range threads {
		stat, err := os.ReadFile(path)
		if err != nil {
			continue // gone meanwhile
		}
		line := string(stat)
		rest := line[strings.LastIndexByte(line, ')')+1:] // pid (name) state …; a name may hold anything
		switch state, _, _ := strings.Cut(strings.TrimSpace(rest), " "); state {
		case "T":
			stands = true
		case "Z", "X":
		case "D":
			deaf = path + " is in state D"
		default:
			return path + " is in state " + state
		}
	}
	if stands {
		return ""
	}
	return deaf
}

// children returns the direct children of a process.
func children(pid int) []int {
	tasks, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pid))
	var out []int
	for _, t := range tasks {
		b, err := os.ReadFile(t)
		if err != nil {
			continue
		}
		for _, f := range strings.Fields(string(b)) {
			if n, err := strconv.Atoi(f); err == nil {
				out = append(out, n)
			}
		}
	}
	return out
}

// commandLine of a process, empty if it is gone.
func commandLine(pid int) []string {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
	if err != nil || len(b) == 0 {
		return nil
	}
	return strings.Split(strings.TrimSuffix(string(b), "\x00"), "\x00")
}

// startTime is field 22 of /proc/<pid>/stat, which together with the pid names a process uniquely; 0 if it is gone.
func startTime(pid int) uint64 {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0
	}
	f := strings.Fields(string(b[strings.LastIndexByte(string(b), ')')+1:]))
	if len(f) < 20 || f[0] == "Z" {
		return 0
	}
	n, _ := strconv.ParseUint(f[19], 10, 64)
	return n
}

// childOf finds a child of a daemon by its command line; 0 if no child matches.
func childOf(daemon int, is func(args []string) bool) int {
	for _, pid := range children(daemon) {
		if is(commandLine(pid)) {
			return pid
		}
	}
	return 0
}

// isMySQL reports whether it is a server: not one that only tells its version, as a daemon that starts asks it to.
func isMySQL(args []string) bool {
	return !slices.Contains(args, "--version") &&
		slices.ContainsFunc(args, func(arg string) bool { return filepath.Base(arg) == "mysqld" })
}

func isGuard(args []string) bool { return len(args) > 1 && args[1] == "guard" }
