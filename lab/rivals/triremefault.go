package rivals

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"syscall"
	"time"

	"trireme/internal/base/config"
	"trireme/internal/base/poll"
	"trireme/internal/ops/demo"
	"trireme/lab/verify"
)

// viewLimit is for one question to one node: those that are lost never answer.
const viewLimit = time.Second

// Break lets daemons be started again as a service manager does.
func (t *trireme) Break(context.Context) (Breakable, error) {
	if !t.kept {
		t.kept = true
		for _, n := range t.Nodes() {
			t.keep(n)
		}
	}
	return t, nil
}

func (t *trireme) Login() verify.Login { return t.Routed() }

func (t *trireme) Names() []string {
	var out []string
	for _, n := range t.DataNodes() {
		out = append(out, n.Name)
	}
	return out
}

// Learners are the members without a vote.
func (t *trireme) Learners() (out []string) {
	for _, n := range t.Nodes() {
		if n.Role == config.RoleLearner {
			out = append(out, n.Name)
		}
	}
	return out
}

// Can: Trireme knows every fault.
func (t *trireme) Can(f Fault) error {
	if f == AddNode && len(t.spare) == 0 {
		return fmt.Errorf("%w: there is no spare host", ErrNotHere)
	}
	return f.needsNetwork(t.Network())
}

// Leader by the view with the highest term, and whether that node says itself that it takes writes. All nodes are asked
// at once.
func (t *trireme) Leader(ctx context.Context) (Lead, error) {
	ctx, cancel := context.WithTimeout(ctx, viewLimit)
	defer cancel()
	var mu sync.Mutex
	var best Lead
	var errs []error
	found := make(chan struct{}, len(t.Nodes()))
	for _, n := range t.Nodes() {
		go func() {
			defer func() { found <- struct{}{} }()
			cl := t.Client(n)
			defer cl.Close()
			v, err := cl.Cluster(ctx)
			mu.Lock()
			defer mu.Unlock()
			switch {
			case err != nil:
				errs = append(errs, fmt.Errorf("%s: %w", n.Name, err))
			case v.Leader != "" && v.Term > best.Term:
				best = Lead{Name: v.Leader, Term: v.Term}
			}
		}()
	}
	for range t.Nodes()[1:] { // a majority of three, at least: what does not answer is not waited for
		<-found
	}
	mu.Lock()
	lead, err := best, errors.Join(errs...)
	answered := len(errs) < len(t.Nodes())
	mu.Unlock()
	if !answered {
		return lead, err
	}
	lead.Open = t.takesWrites(ctx, lead.Name)
	return lead, nil
}

// takesWrites asks a node's own health check, as a load balancer does: what others say of it may be old, and a leader
// is elected before it opens writes.
func (t *trireme) takesWrites(ctx context.Context, name string) bool {
	n, err := t.present(name)
	if err != nil {
		return false
	}
	cl := t.Client(n)
	defer cl.Close()
	ok, _, err := cl.Check(ctx, "/primary")
	return ok && err == nil
}

func (t *trireme) Settled(ctx context.Context) (Lead, error) {
	ctx, cancel := context.WithTimeout(ctx, recoverLimit)
	defer cancel()
	v, err := t.WaitHealthy(ctx)
	for err == nil && slices.ContainsFunc(t.Nodes(), func(n *demo.Node) bool { return n.Joined(v) != nil }) {
		if err = poll.Pause(ctx, 100*time.Millisecond); err == nil {
			v, err = t.WaitHealthy(ctx)
		}
	}
	if err == nil {
		t.lead = v.Leader
	}
	return Lead{Name: v.Leader, Term: v.Term, Open: err == nil && t.takesWrites(ctx, v.Leader)}, err
}

func (t *trireme) Healthy(ctx context.Context, name string) (bool, error) {
	n, err := t.present(name)
	if err != nil {
		return false, err
	}
	v, err := t.View(ctx)
	return err == nil && n.Joined(v) == nil, err
}

func (t *trireme) Do(ctx context.Context, f Fault, name string) error {
	n, err := t.present(name)
	if err != nil && f != Switchover && f != AddNode {
		return err
	}
	switch f {
	case KillDaemon, EndNode, StopDaemon, KillHost, StopHost:
		if err := killable(n.DaemonPID()); err != nil {
			return fmt.Errorf("%s has no daemon: %w", name, err)
		}
	}
	switch f {
	case KillMySQL, StopMySQL:
		pid := n.MySQLPID()
		if pid == 0 {
			return fmt.Errorf("%s has no mysqld", name)
		}
		if f == StopMySQL {
			return syscall.Kill(pid, syscall.SIGSTOP)
		}
		return kill(pid)
	case KillDaemon:
		t.watch.strike(name)
		return t.Signal(n, syscall.SIGKILL)
	case EndNode:
		t.watch.strike(name)
		return t.Signal(n, syscall.SIGTERM)
	case StopDaemon:
		return t.Signal(n, syscall.SIGSTOP)
	case KillHost:
		t.watch.strike(name)
		return t.SignalHost(n, syscall.SIGKILL)
	case StopHost:
		return t.SignalHost(n, syscall.SIGSTOP)
	case LoseHost, Partition:
		return f.cutOff(t.Network(), name)
	case Switchover:
		_, err := t.Switchover(ctx, "")
		return err
	case AddNode:
		return t.addNode(ctx)
	case Replace:
		t.replaced[name] = n.Role
		return t.removeNode(ctx, name)
	case Reseed:
		return t.reseed(ctx, name)
	}
	return fmt.Errorf("no fault %q", f)
}

// addNode makes a member on the spare host.
func (t *trireme) addNode(ctx context.Context) error {
	name := t.spare[0]
	t.spare = t.spare[1:]
	n, err := t.Add(ctx, name, config.RoleVoter)
	if err != nil {
		return err
	}
	t.dbs[name], err = t.Direct(n).Open("")
	return err
}

func (t *trireme) Undo(ctx context.Context, f Fault, name string) error {
	switch f {
	case LoseHost, Partition:
		return t.Network().RestoreAll()
	case Replace:
		return t.bringBack(ctx, name, t.replaced[name])
	}
	n, err := t.present(name)
	if err != nil || n.DaemonPID() == 0 {
		return nil // what was frozen is gone: killed by its guard, or removed
	}
	return t.SignalHost(n, syscall.SIGCONT)
}

func (t *trireme) Processes(name string) []int {
	n := t.Node(name)
	return []int{n.DaemonPID(), n.MySQLPID()}
}
