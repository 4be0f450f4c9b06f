package wan

import (
	"fmt"
	"time"
)

// Direction of packets as a host sees it.
type Direction int

// Directions that Isolate cuts.
const (
	Both Direction = iota
	Out            // what the host sends
	In             // what is sent to it
)

func (d Direction) String() string { return [...]string{"both directions", "outgoing", "incoming"}[d] }

// state of one direction.
type state struct {
	Link
	cut bool
}

// Cut loses everything between two hosts from now on, what is under way included.
func (n *Net) Cut(a, b string) error {
	return n.change(a, b, true, func(s *state) { s.cut = true })
}

// CutOneWay loses everything from one host to another; the opposite direction works.
func (n *Net) CutOneWay(from, to string) error {
	return n.change(from, to, false, func(s *state) { s.cut = true })
}

// Slow sets round trip and jitter between two hosts. What is under way keeps its delay, and nothing overtakes it.
func (n *Net) Slow(a, b string, rtt, jitter time.Duration) error {
	return n.change(a, b, true, func(s *state) { s.RTT, s.Jitter = rtt, jitter })
}

// Lossy sets the probability with which each packet between two hosts is lost.
func (n *Net) Lossy(a, b string, loss float64) error {
	return n.change(a, b, true, func(s *state) { s.Loss = loss })
}

// SetLink replaces all properties of the link between two hosts, and ends a cut.
func (n *Net) SetLink(a, b string, l Link) error {
	return n.change(a, b, true, func(s *state) { *s = state{Link: l} })
}

// Isolate cuts one host off from all others but the observer, which goes on seeing both sides.
func (n *Net) Isolate(host string, d Direction) error {
	i, err := n.number(host)
	if err != nil {
		return err
	}
	for _, other := range n.Hosts() {
		if other == n.hosts[i] {
			continue
		}
		if d != In {
			err = n.CutOneWay(host, other.Name)
		}
		if err == nil && d != Out {
			err = n.CutOneWay(other.Name, host)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// Restore makes the link between two hosts what the topology says.
func (n *Net) Restore(a, b string) error {
	return n.change(a, b, true, nil)
}

// RestoreAll ends every fault.
func (n *Net) RestoreAll() error {
	for i, a := range n.hosts {
		for _, b := range n.hosts[:i] {
			if err := n.Restore(a.Name, b.Name); err != nil {
				return err
			}
		}
	}
	return nil
}

// change replaces the state from a to b, and back too if both: by what f makes of it, or by the normal one if f is nil.
func (n *Net) change(a, b string, both bool, f func(*state)) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	i, j, err := n.numbers(a, b)
	if err != nil {
		return err
	}
	if err := n.changeOne(i, j, f); err != nil {
		return err
	}
	if both {
		if err := n.changeOne(j, i, f); err != nil {
			return err
		}
	}
	return n.adjustOffload()
}

// numbers of two hosts of an emulation that runs.
func (n *Net) numbers(a, b string) (i, j int, err error) {
	if n.closed {
		return 0, 0, errEnded
	}
	if err := n.forward.alive(); err != nil {
		return 0, 0, err
	}
	if i, err = n.number(a); err != nil {
		return 0, 0, err
	}
	if j, err = n.number(b); err == nil && i == j {
		err = fmt.Errorf("%s and %s: a link lies between two hosts", a, b)
	}
	return i, j, err
}

func (n *Net) changeOne(i, j int, f func(*state)) error {
	s := state{Link: n.normal(i, j)}
	if f != nil {
		s.Link, s.cut = n.shared.link(i, j).load()
		f(&s)
	}
	if err := s.validate(); err != nil {
		return fmt.Errorf("link from %s to %s: %w", n.hosts[i].Name, n.hosts[j].Name, err)
	}
	n.shared.link(i, j).store(s.Link, s.cut)
	return nil
}

// adjustOffload lets segments pass whole unless some link loses packets.
func (n *Net) adjustOffload() error {
	whole := true
	for i := range n.shared.links {
		l, _ := n.shared.links[i].load()
		whole = whole && l.Loss == 0
	}
	if whole == n.whole {
		return nil
	}
	n.whole = whole
	for _, h := range n.hosts {
		if err := offload(int(h.tun.Fd()), whole); err != nil {
			return err
		}
	}
	return nil
}
