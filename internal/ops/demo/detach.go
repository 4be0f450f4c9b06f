package demo

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"syscall"
	"time"
)

// SuperviseVerb is the hidden verb by which a detached demo's supervisor is started: `trireme demo supervise …`.
const SuperviseVerb = "supervise"

const (
	detachLimit   = 5 * time.Minute // until the cluster accepts writes
	superviseStop = stopLimit + 15*time.Second
)

// detach starts a supervisor that outlives this process, and returns once the cluster accepts writes.
func detach(ctx context.Context, o RunOptions) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	if err := checkDir(o.Dir); err != nil {
		return err
	}
	p := &printer{out: o.Out}
	logFile := filepath.Join(o.Dir, "supervisor.log")
	args := []string{"demo", SuperviseVerb, "--nodes", strconv.Itoa(o.Nodes), "--loggers", strconv.Itoa(o.Loggers),
		"--learners", strconv.Itoa(o.Learners), "--dir", o.Dir, "--port-base", strconv.Itoa(o.PortBase)}
	args = append(args, o.More...)
	if o.MySQL != "" {
		args = append(args, "--mysqld", o.MySQL)
	}
	proc, err := StartProcess(Command{Path: self, Args: args, LogFile: logFile, Survive: true})
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, detachLimit)
	defer cancel()
	shown := int64(0)
	err = pollUntil(ctx, 100*time.Millisecond, "the cluster to accept writes", func() error {
		shown = copyFrom(o.Out, logFile, shown)
		if !proc.Alive() {
			cancel()
			return fmt.Errorf("the supervisor has ended: %v; see %s", proc.Err(), logFile)
		}
		s, err := ReadState(o.Dir)
		if err != nil {
			return err
		}
		if s.Supervisor.PID != proc.PID || !s.Ready {
			return errors.New("not yet")
		}
		return nil
	})
	if err != nil {
		proc.Stop(superviseStop)
		_, stopErr := Stop(context.WithoutCancel(ctx), o.Dir, io.Discard)
		return errors.Join(err, stopErr)
	}
	copyFrom(o.Out, logFile, shown)
	p.line("The cluster runs in the background. To end it: trireme demo stop --dir %s", o.Dir)
	return nil
}

// copyFrom copies what a growing file has from an offset on, and returns the next offset.
func copyFrom(out io.Writer, path string, offset int64) int64 {
	f, err := os.Open(path)
	if err != nil {
		return offset
	}
	defer f.Close()
	if _, err := f.Seek(offset, io.SeekStart); err != nil {
		return offset
	}
	n, _ := io.Copy(out, f)
	return offset + n
}

// Supervise is the background part of `demo --detach`: it makes the cluster, restarts daemons that end, and ends them
// all at SIGTERM. Its output goes to D/supervisor.log. If it is killed, its daemons live on, and Stop still finds them.
func Supervise(ctx context.Context, o RunOptions) error {
	o, err := o.withDefaults()
	if err != nil {
		return err
	}
	ctx, cancel := signal.NotifyContext(ctx, syscall.SIGINT, syscall.SIGTERM)
	defer cancel()
	p := &printer{out: o.Out}
	c, err := Create(ctx, o.cluster(p.line, true))
	if err != nil {
		return interrupted(ctx, err)
	}
	defer c.Close()
	c.KeepRunning(restartPause,
		func(n *Node, err error) { p.line("%s: its daemon has ended (%v); started again", n.Name, err) })
	p.connections(ctx, c)
	if err := c.ready(processID(os.Getpid())); err != nil {
		return err
	}
	<-ctx.Done()
	return nil
}

// ready notes in demo.json that the cluster accepts writes, and who supervises it.
func (c *Cluster) ready(supervisor ProcessID) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.state.Supervisor, c.state.Ready = supervisor, true
	return c.state.write(c.opts.Dir)
}

// Stop ends the demo in a directory: its supervisor, and any daemon that is left, each named by pid and start time in
// demo.json and checked in /proc, so that no other process is ever hit. Nothing running is no error.
// It returns how many of them it ended.
func Stop(ctx context.Context, dir string, out io.Writer) (ended int, err error) {
	s, err := ReadState(dir)
	if err != nil {
		return 0, err
	}
	if s.Supervisor.alive() {
		if err := terminate(ctx, s.Supervisor, superviseStop, syscall.SIGTERM, syscall.SIGKILL); err != nil {
			return ended, fmt.Errorf("supervisor: %w", err)
		}
		ended++
	}
	s, err = ReadState(dir) // it may have restarted a daemon meanwhile
	if err != nil {
		return ended, err
	}
	var errs []error
	for _, n := range s.Nodes {
		id := ProcessID{n.DaemonPID, n.DaemonStart}
		if !id.alive() {
			continue
		}
		ended++
		mysqld := processID(childOf(id.PID, isMySQL))
		errs = append(errs, terminate(ctx, id, stopLimit, syscall.SIGTERM, syscall.SIGKILL))
		// It dies with its daemon; do not return before it has. Never by SIGTERM, which would release waiting commits.
		errs = append(errs, terminate(ctx, mysqld, stopLimit, syscall.SIGKILL))
	}
	if err := errors.Join(errs...); err != nil {
		return ended, err
	}
	if ended == 0 {
		fmt.Fprintf(out, "Nothing of the demo in %s is running\n", dir)
		return 0, nil
	}
	fmt.Fprintf(out, "The demo has ended; its data is in %s\n", dir)
	return ended, nil
}

// terminate ends a process that is not our child: each signal in turn, the next one when it is still there after the
// limit.
func terminate(ctx context.Context, id ProcessID, limit time.Duration, signals ...syscall.Signal) error {
	for _, sig := range signals {
		if !id.alive() {
			return nil
		}
		if err := syscall.Kill(id.PID, sig); err != nil && !errors.Is(err, syscall.ESRCH) {
			return fmt.Errorf("signal %v to process %d: %w", sig, id.PID, err)
		}
		_ = syscall.Kill(id.PID, syscall.SIGCONT) // a stopped process would not hear SIGTERM
		waitCtx, cancel := context.WithTimeout(ctx, limit)
		err := pollUntil(waitCtx, 50*time.Millisecond, "its end", func() error {
			if id.alive() {
				return fmt.Errorf("process %d is still there", id.PID)
			}
			return nil
		})
		cancel()
		if err == nil {
			return nil
		}
	}
	return fmt.Errorf("process %d does not end", id.PID)
}
