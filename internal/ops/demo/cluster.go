package demo

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"trireme/internal/api"
	"trireme/internal/base/config"
	"trireme/internal/base/pki"
	"trireme/internal/base/poll"
)

// Limits of waits.
const (
	apiLimit     = 3 * time.Second  // one question to one node
	healthyLimit = 90 * time.Second // a new or recovering cluster
	stopLimit    = 30 * time.Second // a daemon after SIGTERM
)

// Options of a new cluster.
type Options struct {
	Name     string // of the cluster; empty: demo
	Nodes    int    // data nodes with a vote
	Loggers  int    // on top
	Learners int    // data nodes without a vote, on top
	Dir      string // absolute, made if missing; must hold no cluster yet
	PortBase int    // see the package comment
	MySQL    string // mysqld to use; empty: found as `trireme node` finds it
	Binary   string // trireme's own program; empty: this one
	// MySQLOptions are lines for every node's my.cnf. Tune may change a node's settings before they are written.
	MySQLOptions map[string]string
	Tune         func(*config.Node)
	// Template is what the data directories of all nodes begin with; nil: each mysqld makes its own. Filled is told of
	// each copy before the node starts: a FUSE file system hears nothing of syncfs, and who made it has to make the
	// copy durable.
	Template *Template
	Filled   func(*Node) error
	// CredentialDir is where the operator's credential goes; empty: where the command line looks for it.
	CredentialDir string
	// Hosts that the nodes stand on, closed with the cluster; nil: all are on the loopback address.
	Hosts Hosts
	// Survive lets daemons outlive this process.
	Survive bool
	// Say is told what happens, one line each; nil: not reported.
	Say func(format string, args ...any)
}

// Node is one member of the cluster.
type Node struct {
	Name  string
	Role  string // config.RoleVoter, RoleLogger or RoleLearner
	Dir   string
	Host  string // address of its ports
	Ports Ports

	mu   sync.Mutex
	proc *Process      // nil before the first start
	held chan struct{} // not nil: it is not to be started until this is closed

	gone chan struct{} // closed by Forget
}

// DaemonPID is the running daemon's, 0 if it is not running.
func (n *Node) DaemonPID() int {
	if p := n.process(); p != nil && p.Alive() {
		return p.PID
	}
	return 0
}

// MySQLPID is the running mysqld's, 0 if it is not running.
func (n *Node) MySQLPID() int { return n.child(isMySQL) }

// GuardPID is the process of the guard, 0 if it has no guard.
func (n *Node) GuardPID() int { return n.child(isGuard) }

func (n *Node) child(is func(args []string) bool) int {
	if pid := n.DaemonPID(); pid != 0 {
		return childOf(pid, is)
	}
	return 0
}

func (n *Node) process() *Process {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.proc
}

// Cluster is a set of nodes on this machine, started and ended by this process.
type Cluster struct {
	opts Options

	mu      sync.Mutex
	nodes   []*Node // changed as a whole, by the one goroutine that makes and forgets nodes; others read it under mu
	state   State
	closing bool
	keepers sync.WaitGroup
	stop    chan struct{} // closed by Close: keepers end
}

// Nodes of the cluster: data voters, loggers, learners.
func (c *Cluster) Nodes() []*Node { return c.nodes }

// DataNodes are those with a mysqld.
func (c *Cluster) DataNodes() []*Node {
	return slices.DeleteFunc(slices.Clone(c.nodes), func(n *Node) bool { return n.Role == config.RoleLogger })
}

// Node by name. It panics for a name that the cluster does not have.
func (c *Cluster) Node(name string) *Node {
	for _, n := range c.nodes {
		if n.Name == name {
			return n
		}
	}
	panic("demo: no node " + name)
}

// State is what demo.json says.
func (c *Cluster) State() State {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := c.state
	s.Nodes = slices.Clone(s.Nodes)
	return s
}

func (c *Cluster) say(format string, args ...any) {
	if c.opts.Say != nil {
		c.opts.Say(format, args...)
	}
}

// Start starts a node's daemon. A running one is an error.
func (c *Cluster) Start(n *Node) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.proc != nil && n.proc.Alive() {
		return fmt.Errorf("%s already runs as process %d", n.Name, n.proc.PID)
	}
	if n.held != nil {
		return fmt.Errorf("%s: %w", n.Name, errHeld)
	}
	p, err := StartProcess(Command{
		Path: c.opts.Binary, Args: []string{"node", "--config", filepath.Join(n.Dir, config.NodeFileName)},
		Dir: n.Dir, LogFile: c.LogFile(n), Survive: c.opts.Survive, Enter: c.enter(n),
	})
	if err != nil {
		return err
	}
	n.proc = p
	if c.opts.Hosts != nil {
		if err := c.opts.Hosts.Limit(n.Name, p.PID); err != nil { // before it starts a mysqld, which follows
			return err
		}
	}
	return c.recordPID(n, p.PID)
}

// LogFile is where a daemon's output goes.
func (c *Cluster) LogFile(n *Node) string { return filepath.Join(c.opts.Dir, n.Name+".log") }

func (c *Cluster) recordPID(n *Node, pid int) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	for i := range c.state.Nodes {
		if c.state.Nodes[i].Name == n.Name {
			c.state.Nodes[i].DaemonPID, c.state.Nodes[i].DaemonStart = pid, startTime(pid)
		}
	}
	return c.state.write(c.opts.Dir)
}

// KillDaemon sends SIGKILL to a node's daemon and waits until it and its mysqld are gone.
func (c *Cluster) KillDaemon(n *Node) {
	mysqld := processID(n.MySQLPID())
	if p := n.process(); p != nil {
		p.Kill()
	}
	// It dies with its daemon; wait, so that what is measured next does not meet it.
	for deadline := time.Now().Add(5 * time.Second); mysqld.alive() && time.Now().Before(deadline); {
		time.Sleep(time.Millisecond)
	}
}

// KillMySQL sends SIGKILL to a node's mysqld and returns its pid, 0 if none was running.
func (c *Cluster) KillMySQL(n *Node) int {
	pid := n.MySQLPID()
	if pid != 0 {
		_ = syscall.Kill(pid, syscall.SIGKILL)
	}
	return pid
}

// Signal a node's daemon, for instance with SIGSTOP.
func (c *Cluster) Signal(n *Node, s syscall.Signal) error {
	if p := n.process(); p != nil {
		return p.Signal(s)
	}
	return nil
}

// SignalHost signals all processes of a node: daemon, guard and mysqld.
func (c *Cluster) SignalHost(n *Node, s syscall.Signal) error {
	pid := n.DaemonPID()
	if pid == 0 {
		return fmt.Errorf("%s has no daemon", n.Name)
	}
	for _, p := range family(pid) {
		if err := syscall.Kill(p, s); err != nil && !errors.Is(err, syscall.ESRCH) {
			return fmt.Errorf("%s: signal %v to process %d: %w", n.Name, s, p, err)
		}
	}
	return nil
}

// HaltHost is SignalHost with SIGSTOP that returns when all stands still.
func (c *Cluster) HaltHost(n *Node) error {
	pid := n.DaemonPID()
	if pid == 0 {
		return fmt.Errorf("%s has no daemon", n.Name)
	}
	if err := Halt(family(pid)...); err != nil {
		return fmt.Errorf("%s: %w", n.Name, err)
	}
	return nil
}

// family of a daemon: itself, guard and mysqld. They are listed before anything is done to them: children move when
// their parent dies.
func family(pid int) []int { return append([]int{pid}, children(pid)...) }

// StopDaemon ends a node's daemon by SIGTERM. It says whether that was enough.
func (c *Cluster) StopDaemon(n *Node) bool {
	if p := n.process(); p != nil {
		return p.Stop(stopLimit)
	}
	return true
}

// errHeld: a daemon is not started while its node is held.
var errHeld = errors.New("the node is held down")

// Hold keeps a node's daemon from being started until Release. One that runs is the caller's to end.
func (c *Cluster) Hold(n *Node) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.held == nil {
		n.held = make(chan struct{})
	}
}

// Release ends a Hold. What KeepRunning looks after starts now.
func (c *Cluster) Release(n *Node) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.held != nil {
		close(n.held)
		n.held = nil
	}
}

// released is closed once the node may be started.
func (n *Node) released() <-chan struct{} {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.held != nil {
		return n.held
	}
	free := make(chan struct{})
	close(free)
	return free
}

// KeepRunning starts every daemon again that ends, some time after it did, until the cluster is closed. Ended is called
// with each one that did; nil: not reported.
func (c *Cluster) KeepRunning(pause time.Duration, ended func(*Node, error)) {
	for _, n := range c.nodes {
		c.Keep(n, pause, ended)
	}
}

// Keep is KeepRunning of one node, for those that are added later. It ends with Forget, too.
func (c *Cluster) Keep(n *Node, pause time.Duration, ended func(*Node, error)) {
	c.keepers.Go(func() { c.keep(n, pause, ended) })
}

func (c *Cluster) keep(n *Node, pause time.Duration, ended func(*Node, error)) {
	for {
		p := n.process()
		select {
		case <-c.stop:
			return
		case <-n.gone:
			return
		case <-p.Done():
		}
		select { // a daemon ended by Close is not started again
		case <-c.stop:
			return
		case <-n.gone:
			return
		case <-time.After(pause):
		}
		if ended != nil {
			ended(n, p.Err())
		}
		if err := c.restart(n); err != nil {
			c.say("%s cannot be started again: %v", n.Name, err)
			return
		}
	}
}

// restart starts a daemon as soon as its node is not held; nothing happens when the cluster or the node is given up
// first.
func (c *Cluster) restart(n *Node) error {
	for {
		select {
		case <-c.stop:
			return nil
		case <-n.gone:
			return nil
		case <-n.released():
		}
		if err := c.Start(n); !errors.Is(err, errHeld) {
			return err
		}
	}
}

// Close ends all daemons: SIGTERM to all at once, SIGKILL to those still there after a limit. No process is left.
func (c *Cluster) Close() { c.end((*Process).stopWithin) }

// Kill ends all daemons by SIGKILL.
func (c *Cluster) Kill() { c.end((*Process).Kill) }

func (c *Cluster) end(how func(*Process)) {
	c.mu.Lock()
	if !c.closing {
		c.closing = true
		close(c.stop)
	}
	c.mu.Unlock()
	c.keepers.Wait()
	c.each(c.nodes, how)
	for _, n := range c.nodes {
		release(n.Ports)
	}
	c.closeHosts()
}

// KillAll sends SIGKILL to all daemons at nearly the same moment; the cluster can be started again with Start.
func (c *Cluster) KillAll() {
	for _, n := range c.nodes {
		_ = c.Signal(n, syscall.SIGKILL)
	}
	c.each(c.nodes, (*Process).Kill)
}

// StopAll ends all daemons cleanly, all at once; the cluster can be started again with Start.
func (c *Cluster) StopAll() { c.each(c.nodes, (*Process).stopWithin) }

// StartAll starts every node that is not running.
func (c *Cluster) StartAll() error {
	for _, n := range c.nodes {
		if n.DaemonPID() == 0 {
			if err := c.Start(n); err != nil {
				return err
			}
		}
	}
	return nil
}

func (p *Process) stopWithin() { p.Stop(stopLimit) }

func (c *Cluster) each(nodes []*Node, f func(*Process)) {
	var wg sync.WaitGroup
	for _, n := range nodes {
		if p := n.process(); p != nil {
			wg.Add(1)
			go func() {
				defer wg.Done()
				f(p)
			}()
		}
	}
	wg.Wait()
}

// Client asks a node's API, with the operator's credential.
func (c *Cluster) Client(n *Node) *api.Client {
	return c.ClientWith(n, c.State().Token)
}

// ClientWith asks a node's API with another token.
func (c *Cluster) ClientWith(n *Node, token string) *api.Client {
	return api.NewClient(n.addr(n.Ports.API), token, pki.CAFileTLS(filepath.Join(n.Dir, "tls")))
}

// View is the cluster as the first node that answers sees it.
func (c *Cluster) View(ctx context.Context) (api.ClusterView, error) {
	var errs []error
	for _, n := range c.nodes {
		if n.DaemonPID() == 0 {
			continue
		}
		v, err := ask(ctx, c.Client(n), (*api.Client).Cluster)
		if err == nil {
			return v, nil
		}
		errs = append(errs, fmt.Errorf("%s: %w", n.Name, err))
	}
	if len(errs) == 0 {
		return api.ClusterView{}, errors.New("no daemon is running")
	}
	return api.ClusterView{}, errors.Join(errs...)
}

func ask[T any](ctx context.Context, cl *api.Client, f func(*api.Client, context.Context) (T, error)) (T, error) {
	defer cl.Close()
	ctx, cancel := context.WithTimeout(ctx, apiLimit)
	defer cancel()
	return f(cl, ctx)
}

// Leader is the node that takes writes, waiting for one until ctx ends. Each node is asked about itself, so that no
// stale view of an ex-leader is believed.
func (c *Cluster) Leader(ctx context.Context) (*Node, error) {
	var found *Node
	err := pollUntil(ctx, 20*time.Millisecond, "a leader that takes writes", func() error {
		for _, n := range c.DataNodes() {
			if n.DaemonPID() == 0 {
				continue
			}
			ok, err := ask(ctx, c.Client(n), func(cl *api.Client, ctx context.Context) (bool, error) {
				ok, _, err := cl.Check(ctx, "/primary")
				return ok, err
			})
			if err == nil && ok {
				found = n
				return nil
			}
		}
		return errors.New("no node answers /primary with 200")
	})
	return found, err
}

// WaitHealthy waits until there is a leader that takes writes and every member is healthy, and returns that view. A
// view from before a fault is not taken for one from after it: it must name the daemons and servers that run now. When
// ctx ends first, the error says what each member was.
func (c *Cluster) WaitHealthy(ctx context.Context) (api.ClusterView, error) {
	var v api.ClusterView
	err := pollUntil(ctx, 100*time.Millisecond, "all nodes healthy", func() (err error) {
		if v, err = c.View(ctx); err != nil {
			return err
		}
		if err = unhealthy(v, len(c.nodes)); err != nil {
			return err
		}
		if err = c.stale(v); err != nil {
			return err
		}
		return c.primary(ctx, c.Node(v.Leader))
	})
	return v, err
}

// stale says which process a view shows that is not the one running now, nil if none.
func (c *Cluster) stale(v api.ClusterView) error {
	for _, m := range v.Members {
		n := c.Node(m.Name)
		if pid := n.DaemonPID(); pid != m.Daemon.PID {
			return fmt.Errorf("%s: its daemon is process %d, shown is %d", m.Name, pid, m.Daemon.PID)
		}
		if m.MySQL == nil {
			continue
		}
		if pid := n.MySQLPID(); pid != m.MySQL.PID {
			return fmt.Errorf("%s: its mysqld is process %d, shown is %d", m.Name, pid, m.MySQL.PID)
		}
	}
	return nil
}

// WaitTerm waits until a node takes writes in a term later than the one given, and returns that view: the end of a
// failover.
func (c *Cluster) WaitTerm(ctx context.Context, after uint64) (api.ClusterView, error) {
	var v api.ClusterView
	err := pollUntil(ctx, 20*time.Millisecond, fmt.Sprintf("a leader in a term after %d", after), func() (err error) {
		if v, err = c.View(ctx); err != nil {
			return err
		}
		if v.Term <= after || v.Leader == "" {
			return fmt.Errorf("leader %q in term %d", v.Leader, v.Term)
		}
		return c.primary(ctx, c.Node(v.Leader))
	})
	return v, err
}

// WaitLive waits until that many nodes count as live for AFTER, as the leader says: a node that is healthy does so a
// moment later.
func (c *Cluster) WaitLive(ctx context.Context, leader *Node, want int) error {
	client := c.Client(leader)
	defer client.Close()
	return pollUntil(ctx, 20*time.Millisecond, fmt.Sprintf("%d nodes count as live", want), func() error {
		v, err := client.ReadIndex(ctx, api.ReadIndexQuery{Live: true})
		if err == nil && len(v.Live) != want {
			err = fmt.Errorf("%s do", slices.Sorted(slices.Values(v.Live)))
		}
		return err
	})
}

// unhealthy says what is missing in a view, nil if nothing is.
func unhealthy(v api.ClusterView, want int) error {
	var bad []string
	leader := false
	for _, m := range v.Members {
		if m.State != api.StateHealthy {
			bad = append(bad, strings.TrimSpace(fmt.Sprintf("%s (%s) is %s %s", m.Name, m.Role, m.State, m.Reason)))
		}
		leader = leader || m.Name == v.Leader && m.Role == api.RoleLeader
	}
	if !leader {
		bad = append(bad, "there is no leader")
	}
	if len(v.Members) != want {
		bad = append(bad, fmt.Sprintf("%d members of %d", len(v.Members), want))
	}
	if len(bad) > 0 {
		return errors.New(strings.Join(bad, ", "))
	}
	return nil
}

// Switchover moves leadership, to the best node if to is empty.
func (c *Cluster) Switchover(ctx context.Context, to string) (api.SwitchoverResult, error) {
	leader, err := c.Leader(ctx)
	if err != nil {
		return api.SwitchoverResult{}, err
	}
	cl := c.Client(leader)
	defer cl.Close()
	return api.Switchover.Ask(ctx, cl, api.SwitchoverRequest{To: to})
}

// History of the cluster as a node tells it.
func (c *Cluster) History(ctx context.Context, n *Node) ([]api.Event, error) {
	return ask(ctx, c.Client(n), (*api.Client).History)
}

// Direct is a login to a node's own mysqld.
func (c *Cluster) Direct(n *Node) Login {
	return c.login(Fixed(n.addr(n.Ports.MySQL)))
}

// Routed is a login through the read-write router ports of all nodes, taking them in turn, as a driver with several
// hosts does.
func (c *Cluster) Routed() Login {
	return c.login(c.inTurn(func(n *Node) int { return n.Ports.RW }))
}

// Split gives the splitting ports of all nodes' routers, in turn.
func (c *Cluster) Split() func() string {
	return c.inTurn(func(n *Node) int { return n.Ports.Split })
}

// Stream gives the ports of all nodes' change streams, in turn.
func (c *Cluster) Stream() func() string {
	return c.inTurn(func(n *Node) int { return n.Ports.Stream })
}

// inTurn gives the address of a port of another node each time, of those that there are by then.
func (c *Cluster) inTurn(port func(*Node) int) func() string {
	var next atomic.Uint32
	return func() string {
		c.mu.Lock()
		nodes := c.nodes
		c.mu.Unlock()
		n := nodes[int(next.Add(1))%len(nodes)]
		return n.addr(port(n))
	}
}

func (c *Cluster) login(to func() string) Login {
	s := c.State()
	return Login{Addr: to, User: s.User, Password: s.Password}
}

// Inherited reads from a node's own notes which GTIDs came with the copy of another's data.
func (n *Node) Inherited() (string, error) {
	b, err := os.ReadFile(filepath.Join(n.Dir, "node.json"))
	if err != nil {
		return "", err
	}
	var s struct {
		Inherited string `json:"inherited"`
	}
	return s.Inherited, json.Unmarshal(b, &s)
}

// pollUntil calls f until it returns nil, less often when that takes long. When ctx ends first the error is what f said
// last.
func pollUntil(ctx context.Context, pause time.Duration, what string, f func() error) error {
	for began := time.Now(); ; {
		err := f()
		if err == nil {
			return nil
		}
		if poll.Pause(ctx, max(pause, min(time.Since(began)/10, 100*time.Millisecond))) != nil {
			return fmt.Errorf("waiting for %s: %w (last: %w)", what, ctx.Err(), err)
		}
	}
}
