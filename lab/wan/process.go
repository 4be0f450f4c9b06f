package wan

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"strconv"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

const (
	priority = 1 // the lowest of SCHED_FIFO: above every ordinary process
	slack    = 1 // ns, PR_SET_TIMERSLACK; 50 µs by default
)

// process is the forwarding process as its parent sees it.
type process struct {
	pid    int
	end    *os.File // closed: it ends
	ended  chan struct{}
	err    error         // of its end; read after ended
	before time.Duration // CPU time for its start
	stderr bytes.Buffer
}

// startForwarder starts this program once more, as the forwarding process.
//
// A process of its own, because the thread that carries packets must never wait: not for another goroutine's turn, and
// not for a thread of ordinary priority on a busy machine, which Go's scheduler needs at every change of turns. Here
// all threads have real-time priority.
func startForwarder(network netip.Prefix, mem *os.File, tuns []*os.File) (*process, error) {
	cmd, err := Forwarder.Command(context.Background(), network.String(), strconv.Itoa(len(tuns)))
	if err != nil {
		return nil, err
	}
	endRead, endWrite, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	readyRead, readyWrite, err := os.Pipe()
	if err != nil {
		return nil, errors.Join(err, endRead.Close(), endWrite.Close())
	}
	p := &process{end: endWrite, ended: make(chan struct{})}
	cmd.Env = []string{}
	cmd.Dir, cmd.Stdout, cmd.Stderr = "/", readyWrite, &p.stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}       // a Ctrl-C in the terminal is for its parent
	cmd.ExtraFiles = append([]*os.File{endRead, mem}, tuns...) // in the order of the descriptors that forward.go names
	err = OnThread(func() error {
		// Both are inherited. Not being allowed the priority is no failure: Stats tells.
		_ = unix.Prctl(unix.PR_SET_TIMERSLACK, slack, 0, 0, 0)
		attr := unix.SchedAttr{Size: unix.SizeofSchedAttr, Policy: unix.SCHED_FIFO, Priority: priority}
		_ = unix.SchedSetAttr(0, &attr, 0)
		return cmd.Start()
	})
	endRead.Close()
	readyWrite.Close()
	defer readyRead.Close()
	if err != nil {
		endWrite.Close()
		return nil, fmt.Errorf("starting the forwarding process: %w", err)
	}
	p.pid = cmd.Process.Pid
	go func() {
		defer close(p.ended)
		if err := cmd.Wait(); err != nil {
			p.err = fmt.Errorf("the forwarding process has ended: %w %s", err, bytes.TrimSpace(p.stderr.Bytes()))
		}
	}()
	if n, _ := readyRead.Read(make([]byte, 1)); n == 0 {
		endWrite.Close()
		<-p.ended
		return nil, p.err
	}
	p.before = p.used()
	return p, nil
}

// stop ends the process.
func (p *process) stop() error {
	p.end.Close()
	<-p.ended
	return p.err
}

// alive is nil while it runs.
func (p *process) alive() error {
	select {
	case <-p.ended:
		return errors.Join(errEnded, p.err)
	default:
		return nil
	}
}

// cpu is the time that the process has used since it carries packets.
func (p *process) cpu() time.Duration { return p.used() - p.before }

// used is all of it (clock_gettime(2): the clock of a process is made from its number).
func (p *process) used() time.Duration {
	const sched = 2
	var t unix.Timespec
	if err := unix.ClockGettime(int32(^p.pid<<3|sched), &t); err != nil {
		return p.before // it has ended
	}
	return time.Duration(t.Nano())
}
