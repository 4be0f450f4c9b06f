package demo

import (
	"net"
	"strconv"

	"trireme/internal/wan"
)

// addr of one of the node's ports.
func (n *Node) addr(port int) string { return net.JoinHostPort(n.Host, strconv.Itoa(port)) }

// openNetwork makes an emulated host for every node, if the options want it.
func (c *Cluster) openNetwork() (err error) {
	if c.opts.WAN == nil {
		return nil
	}
	var names []string
	for _, n := range c.nodes {
		names = append(names, n.Name)
	}
	if c.net, err = wan.New(*c.opts.WAN, names); err != nil {
		return err
	}
	for i, n := range c.nodes {
		n.Host = c.net.Host(n.Name).Addr.String()
		c.state.Nodes[i].Host = n.Host
	}
	c.say("Network %s: %s", c.opts.WAN.Name, c.net.Describe())
	return nil
}

// enter moves a thread into a node's host; nil if there is none.
func (c *Cluster) enter(n *Node) func() error {
	if c.net == nil {
		return nil
	}
	return c.net.Host(n.Name).Enter
}

// closeNetwork ends the emulation and tells what it did.
func (c *Cluster) closeNetwork() {
	if c.net == nil {
		return
	}
	if err := c.net.Close(); err != nil {
		c.say("Network: %v", err)
	}
	c.say("Network: %v", c.net.Stats())
}
