// Package addresses decides which virtual addresses a member holds and when; internal/access/vip gets them. The
// read-write ones belong to who takes writes; who gets which read address is said by that node's status.
package addresses

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"trireme/internal/access/vip"
	"trireme/internal/api"
	"trireme/internal/base/config"
	"trireme/internal/core/consensus"
	"trireme/internal/core/ha"
	"trireme/internal/node/gossip"
	"trireme/internal/node/lifecycle"
)

// readLoan is how long a follower keeps a read address that no leader confirms: through a change of leaders, but not
// cut off permanently.
const readLoan = 5 * time.Second

// releasePatience is how long a fence waits for its addresses to go: the kernel's network configuration has one lock,
// which others hold too.
const releasePatience = 200 * time.Millisecond

// Host is the rest of the member.
type Host interface {
	Settings() *config.Cluster
	Peers() gossip.Peers
	// Term is the newest one that is known.
	Term() uint64
	HoldsLease() bool
	// Ready says whether this node's mysqld serves.
	Ready() bool
	Record(kind, by, text string)
	Publish()
	// Go runs f on a goroutine that the node waits for when it stops.
	Go(f func(ctx context.Context))
}

// Addresses are of one member. Once Start has returned, methods may be called from any goroutine.
type Addresses struct {
	cfg   config.VIP
	id    config.Identity
	lives *lifecycle.Lives
	host  Host
	log   *slog.Logger

	manager *vip.Manager // nil: no virtual addresses
	rw, ro  []netip.Addr
	due     chan struct{} // update has to be called
	shown   atomic.Pointer[Shown]

	mu     sync.Mutex    // held over calls of the host, and never over one of the manager, which asks mayHold
	lent   []netip.Addr  // read addresses of this node
	lentAt time.Duration // when a leader last said so
}

// Shown is what the status says. It is never changed.
type Shown struct {
	Views    []api.VIPView
	Warnings []string
	Reads    map[netip.Addr]uint64 // read addresses, as this node gives them as the leader; nil: it is not
}

// New makes those of a member, which holds none yet.
func New(cfg config.VIP, id config.Identity, lives *lifecycle.Lives, host Host, log *slog.Logger) *Addresses {
	a := &Addresses{cfg: cfg, id: id, lives: lives, host: host, log: log, due: make(chan struct{}, 1)}
	a.shown.Store(&Shown{})
	return a
}

// Start begins with removing what an earlier daemon may have left.
func (a *Addresses) Start() error {
	rw, ro, err := a.cfg.Addresses()
	if err != nil || len(rw)+len(ro) == 0 {
		return err
	}
	a.rw, a.ro = bare(rw), bare(ro)
	a.manager = vip.New(vip.Config{Addresses: slices.Concat(rw, ro), Interface: a.cfg.Interface, May: a.mayHold,
		Member: a.memberByMAC, Moved: a.noteMove, Logger: a.log})
	a.host.Go(a.keep)
	return nil
}

// Close releases everything.
func (a *Addresses) Close() {
	if a.manager != nil {
		a.manager.Close()
	}
}

// Shown takes no lock: the host may hold its own.
func (a *Addresses) Shown() *Shown { return a.shown.Load() }

// keep calls update whenever it is due.
func (a *Addresses) keep(ctx context.Context) {
	for {
		select {
		case <-a.due:
			a.update()
		case <-ctx.Done():
			return
		}
	}
}

// UpdateSoon is for the loop and for a promotion: the kernel may let a change of its addresses wait for seconds, and a
// loop that waits counts as dead.
func (a *Addresses) UpdateSoon() {
	select {
	case a.due <- struct{}{}:
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

// GuardCommand is how the guard process is started. It removes virtual addresses with mysqld, so it has to outlive this
// daemon then.
func (a *Addresses) GuardCommand() (command []string, outlive bool) {
	command = []string{"/proc/self/exe", "guard", "--node", a.id.Name}
	for _, addr := range slices.Concat(a.rw, a.ro) {
		command = append(command, "--vip", addr.String())
	}
	return command, a.manager != nil
}

// mayHold says whether an address may be here at this moment: it is asked by the manager right before it binds or
// renews one (S10).
func (a *Addresses) mayHold(addr netip.Addr) bool {
	lease := a.host.HoldsLease()
	a.mu.Lock()
	defer a.mu.Unlock()
	if slices.Contains(a.rw, addr) {
		s := a.lives.Status()
		return s.TakesWrites() && lease
	}
	return slices.Contains(a.lent, addr) && (a.Shown().Reads == nil || lease)
}

// update wants what this node should have. The read-write addresses are wanted from the beginning of a promotion, so
// that nothing but the binding is left to do when writes are open; they go by Drop.
func (a *Addresses) update() {
	a.mu.Lock()
	var want []netip.Addr
	s := a.lives.Status()
	if p := s.Phase(); p == ha.PhasePromoting || p == ha.PhaseOpen || p == ha.PhaseHandover && !s.Drained() {
		want = append(want, a.rw...)
	}
	a.giveReadsLocked()
	a.borrowReadsLocked()
	want = append(want, a.lent...)
	a.mu.Unlock()
	a.manager.Want(want)
	a.show()
}

// Drop releases everything at once: clients are reset, so that none waits for an answer that cannot come. It comes back
// by update. A kernel that takes longer than releasePatience is not waited for: mysqld has to be fenced whatever
// becomes of its addresses, which are not renewed any more.
func (a *Addresses) Drop() {
	if a.manager == nil {
		return
	}
	a.mu.Lock()
	a.lent = nil
	a.mu.Unlock()
	all := slices.Concat(a.rw, a.ro)
	released := make(chan struct{})
	go func() {
		defer close(released)
		a.manager.Release(all)
		a.show()
	}()
	select {
	case <-released:
	case <-time.After(releasePatience):
		a.log.Error("the kernel does not remove virtual addresses in time; going on without", "addresses", all)
	}
}

// giveReadsLocked spreads the read addresses over the followers that serve reads, as the leader; this node has them
// without one.
func (a *Addresses) giveReadsLocked() {
	next := *a.Shown()
	if s := a.lives.Status(); len(a.ro) == 0 || !s.TakesWrites() {
		next.Reads = nil
		a.shown.Store(&next)
		return
	}
	holders := next.Reads
	if holders == nil {
		holders = map[netip.Addr]uint64{}
		for id, p := range a.host.Peers() {
			for _, v := range p.Member.VIPs {
				if addr, err := netip.ParseAddr(v.Address); err == nil && v.Held {
					holders[addr] = id
				}
			}
		}
	}
	var candidates []uint64
	for _, m := range a.host.Settings().Members {
		if p := a.host.Peers()[m.ID]; p.Fresh() && p.Ready && p.Member.State == api.StateHealthy && len(p.Member.VIPs) > 0 {
			candidates = append(candidates, m.ID)
		}
	}
	if len(candidates) == 0 {
		candidates = []uint64{a.id.ID}
	}
	if given := vip.Spread(a.ro, holders, candidates); !maps.Equal(given, next.Reads) {
		next.Reads = given
		a.shown.Store(&next)
		a.host.Publish()
	}
}

// borrowReadsLocked takes what the leader gives this node, and keeps it for a while when the leader does not say so any
// more.
func (a *Addresses) borrowReadsLocked() {
	ready := a.host.Ready()
	if s := a.lives.Status(); s.Stopping() || !ready && s.Phase() == ha.PhaseNone || s.Phase() == ha.PhaseFencing {
		a.lent = nil
		return
	}
	given := a.Shown().Reads
	for _, p := range a.host.Peers() {
		if p.Fresh() && p.OpenTerm != 0 && p.OpenTerm == a.host.Term() && p.Reads != nil {
			given = p.Reads
		}
	}
	if given == nil {
		if now() > a.lentAt+readLoan {
			a.lent = nil
		}
		return
	}
	a.lent, a.lentAt = nil, now()
	for _, addr := range a.ro {
		if given[addr] == a.id.ID {
			a.lent = append(a.lent, addr)
		}
	}
}

// memberByMAC is who has said of itself that it has an interface with this address.
func (a *Addresses) memberByMAC(mac net.HardwareAddr) string {
	for _, p := range a.host.Peers() {
		for _, v := range p.Member.VIPs {
			if v.MAC == mac.String() {
				return p.Member.Name
			}
		}
	}
	return ""
}

// noteMove writes down what came or went.
func (a *Addresses) noteMove(m vip.Move) {
	text := fmt.Sprintf("released %s %s", a.access(m.Addr), m.Addr)
	if m.Held {
		text = fmt.Sprintf("holds %s %s on %s", a.access(m.Addr), m.Addr, m.Interface)
	}
	if m.From != "" {
		text += fmt.Sprintf(", for which %s still answered", m.From)
	}
	a.host.Record("vip", "", text)
	a.show()
	a.host.Publish()
}

func (a *Addresses) access(addr netip.Addr) string {
	if slices.Contains(a.rw, addr) {
		return "read-write"
	}
	return "read-only"
}

// show takes over what the status says of this node's addresses.
func (a *Addresses) show() {
	var views []api.VIPView
	var warnings []string
	for _, s := range a.manager.States() {
		addr := s.Prefix.Addr()
		views = append(views, api.VIPView{Address: addr.String(), Access: a.access(addr), Held: s.Held,
			Interface: s.Interface, MAC: s.MAC, Problem: s.Problem})
		if s.Problem != "" {
			warnings = append(warnings, fmt.Sprintf("virtual address %s is not held: %s", addr, s.Problem))
		}
	}
	for _, p := range a.host.Peers() {
		if m := p.Member; p.Fresh() && m.MySQL != nil && !sameVIPs(views, m.VIPs) {
			warnings = append(warnings,
				fmt.Sprintf(
					"the virtual addresses in the settings file of %s are others than here; [vip] should be the same on all nodes",
					m.Name))
		}
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	s := *a.Shown()
	if !slices.Equal(views, s.Views) || !slices.Equal(warnings, s.Warnings) {
		s.Views, s.Warnings = views, warnings
		a.shown.Store(&s)
		a.host.Publish()
	}
}

// sameVIPs says whether two nodes are configured alike.
func sameVIPs(a, b []api.VIPView) bool {
	return slices.EqualFunc(a, b, func(x, y api.VIPView) bool { return x.Address == y.Address && x.Access == y.Access })
}

// now is CLOCK_BOOTTIME.
func now() time.Duration { return time.Duration(consensus.Boottime()) }
