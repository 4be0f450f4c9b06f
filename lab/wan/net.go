package wan

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// Observer is the name of this machine itself among the hosts.
const Observer = "observer"

// mostHosts is what one network of 254 addresses holds, with room for those that programs claim.
const mostHosts = 200

// Host is an emulated host, or the observer.
type Host struct {
	Name string
	Site string // empty for the observer
	Addr netip.Addr

	ns  *os.File // nil for the observer
	tun *os.File
}

// Net is a set of emulated hosts and their links. Its methods may be called by any goroutine.
type Net struct {
	Topology Topology

	hosts   []*Host // the observer first
	shared  *shared
	forward *process
	started time.Time

	mu     sync.Mutex // guards changes of links, and what follows
	closed bool
	whole  bool   // segments pass whole: no link loses packets
	final  Stats  // once closed
	traced uint64 // how many segments had been recorded when the present trace began
}

// New makes hosts with the links of a topology. ErrUnavailable says that it cannot be done here, and why. The hosts end
// with Close, or with this process.
func New(t Topology, names []string) (_ *Net, err error) {
	if err := checkNames(names); err != nil {
		return nil, err
	}
	n := &Net{Topology: t, whole: true}
	defer func() {
		if err != nil {
			n.release()
		}
	}()
	tun, network, err := openObserver()
	if err != nil {
		return nil, err
	}
	n.hosts = append(n.hosts, &Host{Name: Observer, Addr: hostAddress(network, 0), tun: tun})
	for i, name := range names {
		h := &Host{Name: name, Site: t.Site(i), Addr: hostAddress(network, i+1)}
		n.hosts = append(n.hosts, h)
		if err := h.open(); err != nil {
			return nil, fmt.Errorf("host %s: %w", name, err)
		}
	}
	if err := n.start(network); err != nil {
		return nil, err
	}
	return n, nil
}

func checkNames(names []string) error {
	if len(names) == 0 || len(names) > mostHosts {
		return fmt.Errorf("%d hosts: from 1 to %d can be emulated", len(names), mostHosts)
	}
	for i, name := range names {
		if name == "" || name == Observer || slices.Contains(names[:i], name) {
			return fmt.Errorf("host name %q is empty, given twice or this machine's own", name)
		}
	}
	return nil
}

// open makes the namespace of a host and its device.
func (h *Host) open() (err error) {
	h.ns, err = inNewNamespace(func() (err error) {
		if err := loopbackUp(); err != nil {
			return err
		}
		if h.tun, err = openTUN("wan0"); err != nil {
			return err
		}
		return configure("wan0", h.Addr)
	})
	return err
}

// start makes the links and starts the process that carries packets.
func (n *Net) start(network netip.Prefix) error {
	mem, err := newShared(len(n.hosts))
	if err != nil {
		return err
	}
	defer mem.Close()
	if n.shared, err = mapShared(mem, len(n.hosts)); err != nil {
		return err
	}
	var tuns []*os.File
	for i, h := range n.hosts {
		tuns = append(tuns, h.tun)
		for j := range n.hosts {
			n.shared.link(i, j).store(n.normal(i, j), false)
		}
	}
	if err := n.adjustOffload(); err != nil {
		return err
	}
	n.forward, err = startForwarder(network, mem, tuns)
	n.started = time.Now()
	return err
}

// normal is the link from host i to host j by the topology. The observer's have no delay.
func (n *Net) normal(i, j int) Link {
	if i == 0 || j == 0 || i == j {
		return Link{}
	}
	return n.Topology.Link(i-1, j-1)
}

// Close ends the emulation and removes the hosts, once nothing runs in them any more.
func (n *Net) Close() error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.closed {
		return nil
	}
	n.final, n.closed = n.stats(), true
	err := n.forward.stop()
	n.release()
	return err
}

func (n *Net) release() {
	for _, h := range n.hosts {
		if h.tun != nil {
			h.tun.Close()
		}
		if h.ns != nil {
			h.ns.Close()
		}
	}
	if n.shared != nil {
		n.shared.unmap()
	}
}

// Hosts without the observer, in the order of their names' list.
func (n *Net) Hosts() []*Host { return n.hosts[1:] }

// Host by its name, Observer included. It panics for a name that there is not: names are the program's own, so that is
// a mistake in it.
func (n *Net) Host(name string) *Host {
	i, err := n.number(name)
	if err != nil {
		panic("wan: " + err.Error())
	}
	return n.hosts[i]
}

func (n *Net) number(name string) (int, error) {
	var known []string
	for i, h := range n.hosts {
		if h.Name == name {
			return i, nil
		}
		known = append(known, h.Name)
	}
	return -1, fmt.Errorf("no emulated host %q; there are %s", name, strings.Join(known, ", "))
}

// hostNumber is the inverse of hostAddress's last byte, -1 if there is no such host.
func hostNumber(last byte, hosts int) int {
	i := int(last) - 10
	if last == 1 {
		i = 0
	} else if i <= 0 {
		return -1
	}
	if i >= hosts {
		return -1
	}
	return i
}

// Enter moves the calling thread into the host's network namespace: sockets that it makes and processes that it starts
// are the host's. The goroutine must be locked to its thread, and must end without unlocking it, since Go would use the
// thread for something else.
func (h *Host) Enter() error {
	if h.ns == nil {
		return nil
	}
	if err := unix.Setns(int(h.ns.Fd()), unix.CLONE_NEWNET); err != nil {
		return fmt.Errorf("entering host %s: %w", h.Name, err)
	}
	return nil
}

// Do runs f on a thread of its own inside the host. What f dials or listens to by an IP address is the host's, as is a
// process that it starts. A child with a parent-death signal lives as long as f does.
func (h *Host) Do(f func() error) error {
	return OnThread(func() error {
		if err := h.Enter(); err != nil {
			return err
		}
		return f()
	})
}

// errEnded: a fault or a measurement was asked of an emulation that has ended.
var errEnded = errors.New("the network emulation has ended")
