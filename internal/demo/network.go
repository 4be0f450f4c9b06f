package demo

import (
	"net"
	"strconv"
	"time"

	"trireme/lab/wan"
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
	if c.net, err = wan.New(*c.opts.WAN, append(names, c.opts.Spare...)); err != nil {
		return err
	}
	for _, n := range c.nodes {
		c.settle(n)
	}
	c.say("Network %s: %s", c.opts.WAN.Name, c.net.Describe())
	return nil
}

// settle puts a node on its host.
func (c *Cluster) settle(n *Node) {
	if c.net == nil {
		return
	}
	n.Host = c.net.Host(n.Name).Addr.String()
	for i := range c.state.Nodes {
		if c.state.Nodes[i].Name == n.Name {
			c.state.Nodes[i].Host = n.Host
		}
	}
}

// listen opens ports on the node's host; nil: on this one.
func (c *Cluster) listen(n *Node) func(network, addr string) (net.Listener, error) {
	if c.net == nil {
		return nil
	}
	return func(network, addr string) (l net.Listener, err error) {
		err = c.net.Host(n.Name).Do(func() (err error) { l, err = net.Listen(network, addr); return err })
		return l, err
	}
}

// openBudget makes a node's CPU budget, if the options want one and it has none yet; called with its mu held.
func (c *Cluster) openBudget(n *Node) (err error) {
	if c.opts.CPUs != 0 && n.budget == nil {
		n.budget, err = wan.NewBudget(c.opts.Name+"-"+n.Name, c.opts.CPUs)
	}
	return err
}

// Budget of the node's host; nil without Options.CPUs, and before the first start.
func (n *Node) Budget() *wan.Budget {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.budget
}

// enter moves a thread into a node's host; nil if there is none.
func (c *Cluster) enter(n *Node) func() error {
	if c.net == nil {
		return nil
	}
	return c.net.Host(n.Name).Enter
}

// closeHosts removes the budgets, ends the emulation, and tells what they did.
func (c *Cluster) closeHosts() {
	for _, n := range c.nodes {
		if n.budget == nil {
			continue
		}
		if s, err := n.budget.Stats(); err == nil {
			c.say("%s had to wait for its CPU budget in %d of %d periods, %v in all", n.Name, s.Throttled, s.Periods, s.Wait.Round(time.Millisecond))
		}
		if err := n.budget.Close(); err != nil {
			c.say("%s: %v", n.Name, err)
		}
		n.budget = nil
	}
	if c.net == nil {
		return
	}
	if err := c.net.Close(); err != nil {
		c.say("Network: %v", err)
	}
	c.say("Network: %v", c.net.Stats())
}
