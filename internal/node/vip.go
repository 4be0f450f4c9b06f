package node

import (
	"context"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"slices"
	"time"

	"trireme/internal/access/vip"
	"trireme/internal/api"
	"trireme/internal/base/config"
	"trireme/internal/core/ha"
)

// readLoan is how long a follower keeps a read address that no leader confirms: through a change of leaders, but not
// cut off permanently.
const readLoan = 5 * time.Second

// releasePatience is how long a fence waits for its addresses to go: the kernel's network configuration has one lock,
// which others hold too.
const releasePatience = 200 * time.Millisecond

// addresses are the virtual ones, as far as this node has to do with them. The read-write ones belong to who takes
// writes; who gets which read address is said by that node's status.
type addresses struct {
	manager *vip.Manager // nil: no virtual addresses
	rw, ro  []netip.Addr
	due     chan struct{} // updateVIP has to be called

	// Guarded by Node.mu.
	given    map[netip.Addr]uint64 // read addresses, by this node as leader; nil: it is not
	lent     []netip.Addr          // read addresses of this node
	lentAt   time.Duration         // when a leader last said so
	views    []api.VIPView
	warnings []string
}

// startVIP begins with removing what an earlier daemon may have left.
func (n *Node) startVIP() error {
	rw, ro, err := n.cfg.VIP.Addresses()
	if err != nil {
		return err
	}
	if len(rw)+len(ro) == 0 || n.id.Role == config.RoleLogger {
		return nil
	}
	n.vip = addresses{rw: bare(rw), ro: bare(ro), due: make(chan struct{}, 1)}
	n.vip.manager = vip.New(vip.Config{Addresses: slices.Concat(rw, ro), Interface: n.cfg.VIP.Interface, May: n.mayHold,
		Member: n.memberByMAC,
		Moved:  n.noteMove, Logger: n.log})
	n.tasks.Add(1)
	go func() { defer n.tasks.Done(); n.keepVIP(n.ctx) }()
	return nil
}

// keepVIP calls updateVIP whenever it is due.
func (n *Node) keepVIP(ctx context.Context) {
	for {
		select {
		case <-n.vip.due:
			n.updateVIP()
		case <-ctx.Done():
			return
		}
	}
}

// updateVIPSoon is for the loop and for a promotion: the kernel may let a change of its addresses wait for seconds, and
// a loop that waits counts as dead.
func (n *Node) updateVIPSoon() {
	select {
	case n.vip.due <- struct{}{}:
	default:
	}
}

func bare(list []netip.Prefix) []netip.Addr {
	var out []netip.Addr
	for _, p := range list {
		out = append(out, p.Addr())
	}
	return out
}

// guardCommand is how the guard process is started. It removes virtual addresses with mysqld, so it has to outlive this
// daemon then.
func (n *Node) guardCommand() (command []string, outlive bool) {
	command = []string{"/proc/self/exe", "guard", "--node", n.id.Name}
	for _, a := range slices.Concat(n.vip.rw, n.vip.ro) {
		command = append(command, "--vip", a.String())
	}
	return command, n.vip.manager != nil
}

// mayHold says whether an address may be here at this moment: it is asked by the manager right before it binds or
// renews one (S10).
func (n *Node) mayHold(a netip.Addr) bool {
	lease := n.cons.HoldsLease()
	n.mu.Lock()
	defer n.mu.Unlock()
	if slices.Contains(n.vip.rw, a) {
		s := n.lives.Status()
		return s.TakesWrites() && lease
	}
	return slices.Contains(n.vip.lent, a) && (n.vip.given == nil || lease)
}

// updateVIP wants what this node should have. The read-write addresses are wanted from the beginning of a promotion, so
// that nothing but the binding is left to do when writes are open; they go by dropVIP.
func (n *Node) updateVIP() {
	if n.vip.manager == nil {
		return
	}
	n.mu.Lock()
	var want []netip.Addr
	s := n.lives.Status()
	switch {
	case s.Phase() == ha.PhasePromoting, s.Phase() == ha.PhaseOpen, s.Phase() == ha.PhaseHandover && !s.Drained():
		want = append(want, n.vip.rw...)
	}
	n.giveReadsLocked()
	n.borrowReadsLocked()
	want = append(want, n.vip.lent...)
	n.mu.Unlock()
	n.vip.manager.Want(want)
	n.showVIP()
}

// dropVIP releases everything at once: clients are reset, so that none waits for an answer that cannot come. It comes
// back by updateVIP. A kernel that takes longer than releasePatience is not waited for: mysqld has to be fenced
// whatever becomes of its addresses, which are not renewed any more.
func (n *Node) dropVIP() {
	if n.vip.manager == nil {
		return
	}
	n.mu.Lock()
	n.vip.lent = nil
	n.mu.Unlock()
	released := make(chan struct{})
	go func() {
		defer close(released)
		n.vip.manager.Release(slices.Concat(n.vip.rw, n.vip.ro))
		n.showVIP()
	}()
	select {
	case <-released:
	case <-time.After(releasePatience):
		n.log.Error("the kernel does not remove virtual addresses in time; going on without", "addresses",
			slices.Concat(n.vip.rw, n.vip.ro))
	}
}

// giveReadsLocked spreads the read addresses over the followers that serve reads, as the leader; this node has them
// without one.
func (n *Node) giveReadsLocked() {
	if s := n.lives.Status(); len(n.vip.ro) == 0 || !s.TakesWrites() {
		n.vip.given = nil
		return
	}
	holders := maps.Clone(n.vip.given)
	if holders == nil {
		holders = map[netip.Addr]uint64{}
		for id, p := range n.gossip.Peers() {
			for _, v := range p.Member.VIPs {
				if a, err := netip.ParseAddr(v.Address); err == nil && v.Held {
					holders[a] = id
				}
			}
		}
	}
	var candidates []uint64
	for _, m := range n.Settings().Members {
		if p := n.gossip.Peers()[m.ID]; p.Fresh() && p.Ready && p.Member.State == api.StateHealthy && len(p.Member.VIPs) > 0 {
			candidates = append(candidates, m.ID)
		}
	}
	if len(candidates) == 0 {
		candidates = []uint64{n.id.ID}
	}
	if given := vip.Spread(n.vip.ro, holders, candidates); n.vip.given == nil || !maps.Equal(given, n.vip.given) {
		n.vip.given = given
		n.Publish()
	}
}

// readsLocked are the read addresses as this node gives them, for its status; nil: it gives none.
func (n *Node) readsLocked() map[string]uint64 {
	if n.vip.given == nil {
		return nil
	}
	out := map[string]uint64{}
	for a, id := range n.vip.given {
		out[a.String()] = id
	}
	return out
}

// borrowReadsLocked takes what the leader gives this node, and keeps it for a while when the leader does not say so any
// more.
func (n *Node) borrowReadsLocked() {
	_, ready := n.control.ReadyLocked()
	if s := n.lives.Status(); s.Stopping() || !ready && s.Phase() == ha.PhaseNone || s.Phase() == ha.PhaseFencing {
		n.vip.lent = nil
		return
	}
	given := n.readsLocked()
	for _, p := range n.gossip.Peers() {
		if p.Fresh() && p.OpenTerm != 0 && p.OpenTerm == n.control.Soft().Term && p.Reads != nil {
			given = p.Reads
		}
	}
	if given == nil {
		if now() > n.vip.lentAt+readLoan {
			n.vip.lent = nil
		}
		return
	}
	n.vip.lent, n.vip.lentAt = nil, now()
	for _, a := range n.vip.ro {
		if given[a.String()] == n.id.ID {
			n.vip.lent = append(n.vip.lent, a)
		}
	}
}

// memberByMAC is who has said of itself that it has an interface with this address.
func (n *Node) memberByMAC(mac net.HardwareAddr) string {
	for _, p := range n.gossip.Peers() {
		for _, v := range p.Member.VIPs {
			if v.MAC == mac.String() {
				return p.Member.Name
			}
		}
	}
	return ""
}

// noteMove writes down what came or went.
func (n *Node) noteMove(m vip.Move) {
	text := fmt.Sprintf("released %s %s", n.access(m.Addr), m.Addr)
	if m.Held {
		text = fmt.Sprintf("holds %s %s on %s", n.access(m.Addr), m.Addr, m.Interface)
	}
	if m.From != "" {
		text += fmt.Sprintf(", for which %s still answered", m.From)
	}
	n.history.add(n.event("vip", 0, text))
	n.showVIP()
	n.Publish()
}

func (n *Node) access(a netip.Addr) string {
	if slices.Contains(n.vip.rw, a) {
		return "read-write"
	}
	return "read-only"
}

// showVIP takes over what the status says of this node's addresses: the manager must not be asked with mu held, as it
// asks mayHold.
func (n *Node) showVIP() {
	var views []api.VIPView
	var warnings []string
	for _, s := range n.vip.manager.States() {
		a := s.Prefix.Addr()
		views = append(views, api.VIPView{Address: a.String(), Access: n.access(a), Held: s.Held, Interface: s.Interface,
			MAC: s.MAC, Problem: s.Problem})
		if s.Problem != "" {
			warnings = append(warnings, fmt.Sprintf("virtual address %s is not held: %s", a, s.Problem))
		}
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, p := range n.gossip.Peers() {
		if m := p.Member; p.Fresh() && m.MySQL != nil && !sameVIPs(views, m.VIPs) {
			warnings = append(warnings,
				fmt.Sprintf(
					"the virtual addresses in the settings file of %s are others than here; [vip] should be the same on all nodes",
					m.Name))
		}
	}
	if !slices.Equal(views, n.vip.views) || !slices.Equal(warnings, n.vip.warnings) {
		n.vip.views, n.vip.warnings = views, warnings
		n.Publish()
	}
}

// sameVIPs says whether two nodes are configured alike.
func sameVIPs(a, b []api.VIPView) bool {
	return slices.EqualFunc(a, b, func(x, y api.VIPView) bool { return x.Address == y.Address && x.Access == y.Access })
}
