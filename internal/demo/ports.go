package demo

import (
	"fmt"
	"net"
	"os"
	"slices"
	"strconv"
)

const (
	portsPerNode    = 10
	defaultPortBase = 21000
	spareBase       = 29000 // from here on nodes that are added to a running cluster
	portsEnd        = 32000 // below the ephemeral range
)

// Ports of one node.
type Ports struct {
	MySQL, Peer, API, RW, RO, Split, Stream int
}

// portsOf lays out the ports of node i.
func portsOf(base, i int) Ports {
	p := base + portsPerNode*i
	return Ports{MySQL: p, Peer: p + 1, API: p + 2, RW: p + 3, RO: p + 4, Split: p + 5, Stream: p + 6}
}

func (p Ports) all() []int { return []int{p.MySQL, p.Peer, p.API, p.RW, p.RO, p.Split, p.Stream} }

// checkPorts fails, naming the first port in use, unless all ports of n nodes are free on the loopback address.
func checkPorts(base, n int) error {
	if base < 1024 || base+n*portsPerNode > 65535 {
		return fmt.Errorf("port base %d: ports %d to %d must lie between 1024 and 65535", base, base, base+n*portsPerNode)
	}
	for i := range n {
		for _, port := range portsOf(base, i).all() {
			l, err := listen(port)
			if err != nil {
				return fmt.Errorf("port %d is in use; give another --port-base (ports %d to %d are needed): %w",
					port, base, base+n*portsPerNode-1, err)
			}
			l.Close()
		}
	}
	return nil
}

func listen(port int) (net.Listener, error) { return net.Listen("tcp", addr(port)) }

// FreePortBase finds a base whose ports for n nodes are free now. Below the ephemeral range, so that no outgoing
// connection takes one between the check and the use. Each process begins to look at a place of its own: of two that look at the
// same time one would find its ports taken, and the other's nodes answering there.
func FreePortBase(n int) (int, error) {
	slots := (spareBase - defaultPortBase) / (n * portsPerNode)
	for i := range slots {
		base := defaultPortBase + (os.Getpid()+i)%slots*n*portsPerNode
		if checkPorts(base, n) == nil {
			return base, nil
		}
	}
	return 0, fmt.Errorf("no %d free ports between %d and %d", n*portsPerNode, defaultPortBase, spareBase)
}

// sparePorts finds free ones for one more node, where no cluster is made and each process looks at a place of its own: what is not in use yet
// may belong to a node that is just being added, and makes its data directory before it listens.
func (c *Cluster) sparePorts() (Ports, error) {
	const slots, perProcess = (portsEnd - spareBase) / portsPerNode, 16
	for i := range slots {
		base := spareBase + (os.Getpid()*perProcess+i)%slots*portsPerNode
		ours := slices.ContainsFunc(c.nodes, func(n *Node) bool { return n.Ports == portsOf(base, 0) })
		if !ours && checkPorts(base, 1) == nil {
			return portsOf(base, 0), nil
		}
	}
	return Ports{}, fmt.Errorf("no %d free ports between %d and %d", portsPerNode, spareBase, portsEnd)
}

const host = "127.0.0.1"

func addr(port int) string { return net.JoinHostPort(host, strconv.Itoa(port)) }
