package demo

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"trireme/internal/base/config"
	"trireme/internal/mysql/mysqld"
)

// appUser is the account of demo.json.
const appUser = "app"

// Create makes a cluster and starts it: `init` on the first node, an invitation and `join` for each other, voters
// before learners. It returns when writes are accepted and every member is healthy. On an error nothing is left
// running.
func Create(ctx context.Context, o Options) (_ *Cluster, err error) {
	if o.Name == "" {
		o.Name = "demo"
	}
	if o.Binary == "" {
		if o.Binary, err = os.Executable(); err != nil {
			return nil, err
		}
	}
	bin, err := mysqld.Find(ctx, o.MySQL)
	if err != nil {
		return nil, err
	}
	o.MySQL = bin.Path
	if err := checkDir(o.Dir); err != nil {
		return nil, err
	}
	if err := checkPorts(o.PortBase, o.members()); err != nil {
		return nil, err
	}
	c := &Cluster{opts: o, stop: make(chan struct{})}
	c.layOut()
	defer func() {
		if err != nil {
			c.Kill()
		}
	}()
	c.say("Using MySQL %s (%s); %d data nodes, %d loggers and %d learners in %s", bin.Version, bin.Path, o.Nodes,
		o.Loggers, o.Learners, o.Dir)
	if err := c.openHosts(); err != nil {
		return nil, err
	}
	begin := time.Now()
	ctx, cancel := context.WithTimeout(ctx, healthyLimit+time.Duration(len(c.nodes))*30*time.Second)
	defer cancel()
	if err := c.first(ctx); err != nil {
		return nil, c.explain(err)
	}
	for _, n := range c.nodes[1:] { // all side by side: making a data directory takes several seconds
		if err := c.join(ctx, n); err != nil {
			return nil, c.explain(err)
		}
	}
	for _, n := range c.nodes[1:] {
		if err := c.WaitMember(ctx, n); err != nil {
			return nil, c.explain(err)
		}
	}
	v, err := c.WaitHealthy(ctx)
	if err != nil {
		return nil, c.explain(err)
	}
	c.say("%s leads, all %d nodes are healthy after %.0f s", v.Leader, len(c.nodes), time.Since(begin).Seconds())
	return c, nil
}

// checkDir makes the directory, or refuses one that holds a cluster already.
func checkDir(dir string) error {
	if s, err := ReadState(dir); err == nil {
		for _, n := range s.Nodes {
			if (ProcessID{n.DaemonPID, n.DaemonStart}).alive() {
				return fmt.Errorf("a demo is running in %s; end it with: trireme demo stop --dir %s", dir, dir)
			}
		}
		return fmt.Errorf("%s holds an earlier demo; remove it, or give another --dir", dir)
	}
	return os.MkdirAll(dir, 0o755)
}

// layOut names the nodes and gives them directories and ports.
func (c *Cluster) layOut() {
	c.state = State{Cluster: c.opts.Name, User: appUser, Password: config.NewToken()}
	for _, k := range []struct {
		prefix, role string
		count        int
	}{{"n", config.RoleVoter, c.opts.Nodes}, {"l", config.RoleLogger, c.opts.Loggers},
		{"r", config.RoleLearner, c.opts.Learners}} {
		for i := range k.count {
			c.layOutNode(fmt.Sprintf("%s%d", k.prefix, i+1), k.role, portsOf(c.opts.PortBase, len(c.nodes)))
		}
	}
}

// members is how many nodes the options ask for.
func (o Options) members() int { return o.Nodes + o.Loggers + o.Learners }

// layOutNode is one more node.
func (c *Cluster) layOutNode(name, role string, ports Ports) *Node {
	n := &Node{Name: name, Role: role, Host: host, Ports: ports, Dir: filepath.Join(c.opts.Dir, name),
		gone: make(chan struct{})}
	s := NodeState{Name: n.Name, Role: n.Role, Dir: n.Dir, Host: n.Host, PeerPort: n.Ports.Peer, APIPort: n.Ports.API,
		RWPort: n.Ports.RW, ROPort: n.Ports.RO, SplitPort: &n.Ports.Split, StreamPort: &n.Ports.Stream}
	if n.Role != config.RoleLogger {
		socket := mysqld.Config{Dir: c.settings(n).MySQLDir()}.Socket()
		s.MySQLPort, s.MySQLSocket = &n.Ports.MySQL, &socket
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.nodes = append(slices.Clip(c.nodes), n)
	c.state.Nodes = append(c.state.Nodes, s)
	return n
}

// settings of a node, as its trireme.toml will hold them.
func (c *Cluster) settings(n *Node) config.Node {
	s := config.Default()
	s.Cluster, s.Name, s.Dir = c.opts.Name, n.Name, n.Dir
	s.MySQL.Binary, s.MySQL.Bind, s.MySQL.Port, s.MySQL.Options = c.opts.MySQL, n.Host, n.Ports.MySQL, c.opts.MySQLOptions
	s.Peer.Listen, s.Peer.Advertise = n.addr(n.Ports.Peer), n.addr(n.Ports.Peer)
	s.API = config.API{Listen: n.addr(n.Ports.API), Advertise: n.addr(n.Ports.API)}
	s.Router.Bind, s.Router.RWPort, s.Router.ROPort, s.Router.SplitPort, s.Router.StreamPort = n.Host, n.Ports.RW,
		n.Ports.RO, n.Ports.Split, n.Ports.Stream
	if c.opts.Tune != nil {
		c.opts.Tune(&s)
	}
	return s
}

// explain adds the last lines of the daemons that have ended to an error.
func (c *Cluster) explain(err error) error {
	for _, n := range c.nodes {
		if p := n.process(); p != nil && !p.Alive() {
			log, _ := os.ReadFile(c.LogFile(n))
			err = fmt.Errorf("%w\n%s has ended (%v):\n%s", err, n.Name, p.Err(), lastLines(string(log), 8))
		}
	}
	return err
}

func lastLines(s string, n int) string {
	lines := strings.Split(strings.TrimRight(s, "\n"), "\n")
	return "  " + strings.Join(lines[max(0, len(lines)-n):], "\n  ")
}

// whileRunning polls f, and gives up at once when the node's daemon has ended.
func (c *Cluster) whileRunning(ctx context.Context, n *Node, what string, f func() error) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	return pollUntil(ctx, 50*time.Millisecond, what, func() error {
		if n.DaemonPID() == 0 {
			cancel()
			return errors.New(n.Name + " has ended")
		}
		return f()
	})
}
