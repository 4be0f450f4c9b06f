package rivals

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"

	"trireme/lab/verify"
	"trireme/lab/wan"
)

// Fault is what may happen to a node. Its text names it on the command line and in reports.
type Fault string

// The faults. Those of a host need emulated hosts where they concern the network.
const (
	KillMySQL  Fault = "mysqld killed"
	KillDaemon Fault = "daemon killed"
	KillHost   Fault = "host dies"          // all processes killed
	EndNode    Fault = "stopped gracefully" // SIGTERM to what a service manager would send it to
	StopMySQL  Fault = "mysqld frozen"      // SIGSTOP
	StopDaemon Fault = "daemon frozen"      // SIGSTOP
	StopHost   Fault = "host frozen"        // SIGSTOP of all processes
	LoseHost   Fault = "host lost"          // cut off from everybody
	Partition  Fault = "partition"          // cut off from the other members, not from clients
	Switchover Fault = "switchover"         // planned
	AddNode    Fault = "node added"         // one more member, on a spare host
	Replace    Fault = "node replaced"      // removed; Undo adds it again, with nothing
	Reseed     Fault = "node re-seeded"     // its data is thrown away and copied from another one
)

// restart is what a service manager waits before it starts something again.
const restart = 500 * time.Millisecond

// Breaker is a Running whose nodes can be hit.
type Breaker interface {
	// Break prepares the system for faults: what ends is started again from now on, as by a service manager, until
	// Stop. Later calls return the same.
	Break(context.Context) (Breakable, error)
}

// Operated is a Running without a failover of its own, to which a script of its operator's can be added.
type Operated interface {
	// Operate starts the script, which lasts until Stop. The rest is as with Breaker.
	Operate(context.Context) (Breakable, error)
}

// Breakable is a system under faults. Its clients come by Login.
type Breakable interface {
	Running
	// Login is through the system's router, which follows the leader.
	Login() verify.Login
	// Names of the members with data.
	Names() []string
	// Can says, as ErrNotHere, why the system does not know such a fault; nil: it does.
	Can(Fault) error
	// Leader is who takes writes as far as is known now.
	Leader(context.Context) (Lead, error)
	// Settled waits until there is a leader and every member is healthy.
	Settled(context.Context) (Lead, error)
	// Healthy reports whether a member is one in the eyes of the others.
	Healthy(ctx context.Context, name string) (bool, error)
	// Do hits a node; Undo ends what lasts (frozen, lost, partition).
	Do(ctx context.Context, f Fault, name string) error
	Undo(ctx context.Context, f Fault, name string) error
	// Processes of a node that run now.
	Processes(name string) []int
	// Endpoints opens a connection to every server, to be closed by verify.CloseEndpoints.
	Endpoints() ([]verify.Endpoint, error)
}

// Lead is one time of leadership.
type Lead struct {
	Name string
	Term uint64 // grows with each change
	Open bool   // it takes writes
	pid  int    // of its mysqld, where that is what tells terms apart
}

// killable says why a process cannot be killed: it does not exist, or it already has its SIGKILL and is exiting.
func killable(pid int) error {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if pid == 0 || err != nil {
		return errors.New("it is dead already")
	}
	const sigkill = 1 << (syscall.SIGKILL - 1)
	for line := range strings.Lines(string(b)) {
		name, value, _ := strings.Cut(line, ":")
		value = strings.TrimSpace(value)
		switch name {
		case "State":
			if value[0] == 'Z' || value[0] == 'X' {
				return errors.New("it is dead already")
			}
		case "SigPnd", "ShdPnd":
			if pending, err := strconv.ParseUint(value, 16, 64); err == nil && pending&sigkill != 0 {
				return errors.New("it is being killed already")
			}
		}
	}
	return nil
}

// kill a process, unless it is dead already.
func kill(pid int) error {
	if err := killable(pid); err != nil {
		return err
	}
	return syscall.Kill(pid, syscall.SIGKILL)
}

// Lasts reports whether a fault goes on until Undo.
func (f Fault) Lasts() bool {
	switch f {
	case StopMySQL, StopDaemon, StopHost, LoseHost, Partition, Replace:
		return true
	}
	return false
}

// needsNetwork says why a fault of the network cannot be made without emulated hosts.
func (f Fault) needsNetwork(net *wan.Net) error {
	if (f == LoseHost || f == Partition) && net == nil {
		return fmt.Errorf("%w: all nodes are on the loopback address, which cannot be cut; name a topology", ErrNotHere)
	}
	return nil
}

// cutOff carries out a fault of the network.
func (f Fault) cutOff(net *wan.Net, name string) error {
	if err := net.Isolate(name, wan.Both); err != nil || f == Partition {
		return err
	}
	return net.Cut(name, wan.Observer)
}
