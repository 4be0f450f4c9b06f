package wan

import (
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"
)

// Hosts are emulated hosts for the nodes of a cluster (demo.Hosts): with links between them, with limits of CPU time,
// or with both.
type Hosts struct {
	Cluster  string    // in the names of CPU budgets
	Topology *Topology // nil: all nodes are on the loopback address
	Spare    []string  // hosts on top of the nodes' own, for nodes that are added later
	CPUs     float64   // that each node may use, daemon and mysqld together; 0: no limit

	net *Net

	mu      sync.Mutex
	budgets map[string]*Budget
}

// Network between the nodes, for faults; nil without a topology. A node's host has its name.
func (h *Hosts) Network() *Net {
	if h == nil {
		return nil
	}
	return h.net
}

// Budget of a node's host; nil without a limit, and before the node's first start.
func (h *Hosts) Budget(node string) *Budget {
	if h == nil {
		return nil
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.budgets[node]
}

// Open makes a host for each node.
func (h *Hosts) Open(nodes []string) (what string, err error) {
	if h.Topology == nil {
		return "", nil
	}
	if h.net, err = New(*h.Topology, append(slices.Clone(nodes), h.Spare...)); err != nil {
		return "", err
	}
	return fmt.Sprintf("Network %s: %s", h.Topology.Name, h.net.Describe()), nil
}

// Addr of a node's host, empty if the network has none of this name; false without a topology.
func (h *Hosts) Addr(node string) (string, bool) {
	if h.net == nil {
		return "", false
	}
	i := slices.IndexFunc(h.net.Hosts(), func(host *Host) bool { return host.Name == node })
	if i < 0 {
		return "", true
	}
	return h.net.Hosts()[i].Addr.String(), true
}

// Enter moves the calling thread to a node's host.
func (h *Hosts) Enter(node string) error {
	if h.net == nil {
		return nil
	}
	return h.net.Host(node).Enter()
}

// Do calls f on a thread of a node's host.
func (h *Hosts) Do(node string, f func() error) error {
	if h.net == nil {
		return f()
	}
	return h.net.Host(node).Do(f)
}

// Limit puts a process, and what it starts from now on, under the CPU budget of a node.
func (h *Hosts) Limit(node string, pid int) error {
	if h.CPUs == 0 {
		return nil
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	b := h.budgets[node]
	if b == nil {
		var err error
		if b, err = NewBudget(h.Cluster+"-"+node, h.CPUs); err != nil {
			return err
		}
		if h.budgets == nil {
			h.budgets = map[string]*Budget{}
		}
		h.budgets[node] = b
	}
	return b.Add(pid)
}

// Close removes the budgets, ends the emulation, and says what they did.
func (h *Hosts) Close() (said []string) {
	say := func(format string, args ...any) { said = append(said, fmt.Sprintf(format, args...)) }
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, node := range slices.Sorted(maps.Keys(h.budgets)) {
		b := h.budgets[node]
		if s, err := b.Stats(); err == nil {
			say("%s had to wait for its CPU budget in %d of %d periods, %v in all", node, s.Throttled, s.Periods,
				s.Wait.Round(time.Millisecond))
		}
		if err := b.Close(); err != nil {
			say("%s: %v", node, err)
		}
	}
	h.budgets = nil
	if h.net == nil {
		return said
	}
	if err := h.net.Close(); err != nil {
		say("Network: %v", err)
	}
	say("Network: %v", h.net.Stats())
	return said
}
