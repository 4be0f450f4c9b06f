package demo

import (
	"fmt"
	"net"
	"strconv"
)

// Hosts are what nodes stand on instead of this machine's loopback address: emulated ones with links between them, and
// limits of CPU time (lab/wan).
type Hosts interface {
	// Open makes a host for each node, and says what for people; empty: nothing was made.
	Open(nodes []string) (string, error)
	// Addr of a node's host; false: the nodes have no hosts of their own, and all are on the loopback address.
	Addr(node string) (string, bool)
	// Enter moves the calling thread to a node's host.
	Enter(node string) error
	// Do calls f on a thread of a node's host.
	Do(node string, f func() error) error
	// Limit puts a process, and what it starts from now on, under the node's limit of CPU time.
	Limit(node string, pid int) error
	// Close removes the hosts, and says what they did.
	Close() []string
}

// addr of one of the node's ports.
func (n *Node) addr(port int) string { return net.JoinHostPort(n.Host, strconv.Itoa(port)) }

// openHosts makes a host for every node, if the options have some.
func (c *Cluster) openHosts() error {
	if c.opts.Hosts == nil {
		return nil
	}
	var names []string
	for _, n := range c.nodes {
		names = append(names, n.Name)
	}
	what, err := c.opts.Hosts.Open(names)
	if err != nil {
		return err
	}
	for _, n := range c.nodes {
		if err := c.settle(n); err != nil {
			return err
		}
	}
	if what != "" {
		c.say("%s", what)
	}
	return nil
}

// settle puts a node on its host.
func (c *Cluster) settle(n *Node) error {
	if c.opts.Hosts == nil {
		return nil
	}
	addr, emulated := c.opts.Hosts.Addr(n.Name)
	if !emulated {
		return nil
	}
	if addr == "" {
		return fmt.Errorf("%s: the emulated network has no host of this name", n.Name)
	}
	n.Host = addr
	for i := range c.state.Nodes {
		if c.state.Nodes[i].Name == n.Name {
			c.state.Nodes[i].Host = n.Host
		}
	}
	return nil
}

// listen opens ports on the node's host; nil: on this one.
func (c *Cluster) listen(n *Node) func(network, addr string) (net.Listener, error) {
	if c.opts.Hosts == nil {
		return nil
	}
	return func(network, addr string) (l net.Listener, err error) {
		err = c.opts.Hosts.Do(n.Name, func() (err error) { l, err = net.Listen(network, addr); return err })
		return l, err
	}
}

// enter moves a thread to a node's host; nil if the cluster has no hosts of its own.
func (c *Cluster) enter(n *Node) func() error {
	if c.opts.Hosts == nil {
		return nil
	}
	return func() error { return c.opts.Hosts.Enter(n.Name) }
}

// closeHosts ends the emulation, and tells what it did.
func (c *Cluster) closeHosts() {
	if c.opts.Hosts == nil {
		return
	}
	for _, line := range c.opts.Hosts.Close() {
		c.say("%s", line)
	}
}
