package demo

import (
	"fmt"
	"net"
	"os"
	"strconv"
	"sync"
)

const (
	claimFloor      = 20000 // a port for each block of those below: see claims
	portsPerNode    = 10
	defaultPortBase = 21000
	spareBase       = 26000 // from here on nodes that are added to a running cluster
	portsEnd        = 28000 // from here on lab/rivals takes ports, up to the ephemeral range
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

// claims are the blocks of ports, one for each node, that this process has given out. A listener on a port that stands
// for the block keeps every process on this machine from giving it out again: a node that makes its data directory does
// not listen yet.
var claims = struct {
	sync.Mutex
	held map[int]net.Listener
}{held: map[int]net.Listener{}}

func claimPort(block int) int { return claimFloor + (block-defaultPortBase)/portsPerNode }

// claim takes the blocks of n nodes, all or none, if all their ports are free.
func claim(base, n int) bool {
	claims.Lock()
	defer claims.Unlock()
	var taken []net.Listener
	for i := range n {
		l, err := listen(claimPort(base + portsPerNode*i))
		if err != nil {
			break
		}
		taken = append(taken, l)
	}
	if len(taken) < n || checkPorts(base, n) != nil {
		for _, l := range taken {
			l.Close()
		}
		return false
	}
	for i, l := range taken {
		claims.held[base+portsPerNode*i] = l
	}
	return true
}

// release gives a node's block back, if it was claimed.
func release(p Ports) {
	claims.Lock()
	defer claims.Unlock()
	if l := claims.held[p.MySQL]; l != nil {
		l.Close()
		delete(claims.held, p.MySQL)
	}
}

// FreePortBase finds a base whose ports for n nodes are free, and claims them until a cluster that uses them ends, or
// this process. Below the ephemeral range, so that no outgoing connection takes one between the check and the use. Each
// process begins to look at a place of its own, so that it seldom gets what another one has just left.
func FreePortBase(n int) (int, error) {
	slots := (spareBase - defaultPortBase) / (n * portsPerNode)
	for i := range slots {
		base := defaultPortBase + (os.Getpid()+i)%slots*n*portsPerNode
		if claim(base, n) {
			return base, nil
		}
	}
	return 0, fmt.Errorf("no %d free ports between %d and %d", n*portsPerNode, defaultPortBase, spareBase)
}

// sparePorts finds and claims free ones for one more node, where no cluster is made.
func sparePorts() (Ports, error) {
	const slots, perProcess = (portsEnd - spareBase) / portsPerNode, 16
	for i := range slots {
		base := spareBase + (os.Getpid()*perProcess+i)%slots*portsPerNode
		if claim(base, 1) {
			return portsOf(base, 0), nil
		}
	}
	return Ports{}, fmt.Errorf("no %d free ports between %d and %d", portsPerNode, spareBase, portsEnd)
}

const host = "127.0.0.1"

func addr(port int) string { return net.JoinHostPort(host, strconv.Itoa(port)) }
