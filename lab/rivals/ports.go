package rivals

import (
	"net"
	"os"
	"strconv"
	"sync"
)

const (
	portFloor  = 28000 // free ports are looked for from here, above those that package demo gives out
	portCeil   = 32000
	blockSize  = 200
	blocks     = (portCeil - portFloor) / blockSize
	blockClaim = 20900 // a port for each block: see portPool
)

// portPool gives out ports of a block that is this process's. A listener on a port that stands for the block keeps every
// other process on this machine from it: a server that makes its data directory does not listen yet, so that a port may
// be free and taken.
type portPool struct {
	process int // where it begins to look for a block

	mu         sync.Mutex
	claim      net.Listener // nil: it has no block yet
	base, next int
}

// ports of all labs of this process.
var ports = portPool{process: os.Getpid()}

func listenOn(port int) (net.Listener, error) {
	return net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
}

// take finds n consecutive free ports of the loopback address, which were not given out before if the block has any
// left of these.
func (p *portPool) take(n int) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	for i := 0; p.claim == nil && i < blocks; i++ {
		block := (p.process + i) % blocks
		if l, err := listenOn(blockClaim + block); err == nil {
			p.claim, p.base = l, portFloor+block*blockSize
			p.next = p.base
		}
	}
	if p.next == 0 { // other processes have all blocks: all that is left is to look whether a port is free
		p.base, p.next = portFloor, portFloor
	}
	for range 2 {
		for base := p.next; base+n <= p.base+blockSize; base++ {
			busy := firstBusy(base, n)
			if busy < 0 {
				p.next = base + n
				return base
			}
			base = busy
		}
		p.next = p.base // all were given out: the first ones are free by now
	}
	return p.base // what starts there says that a port is in use
}

// firstBusy is the first of n ports that somebody listens on; -1: none.
func firstBusy(base, n int) int {
	for port := base; port < base+n; port++ {
		l, err := listenOn(port)
		if err != nil {
			return port
		}
		l.Close()
	}
	return -1
}
