package wan

import (
	"fmt"
	"strings"
	"time"
)

// Stats of an emulation since its start.
type Stats struct {
	Elapsed  time.Duration
	CPU      time.Duration // of the forwarding process, the kernel's receiving half of every host included
	RealTime bool          // it has real-time priority

	Packets  uint64 // delivered
	Bytes    uint64
	Lost     uint64 // by chance, as asked
	Cut      uint64 // by a cut
	Overflow uint64 // a queue was full
	Strange  uint64 // no IPv4, no such host, or refused by the receiving device

	MeanLate time.Duration // between the deadline of a packet and its delivery
	MaxLate  time.Duration
}

// Stats of the emulation, the final ones once it is closed.
func (n *Net) Stats() Stats {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.closed {
		return n.final
	}
	return n.stats()
}

func (n *Net) stats() Stats {
	c := n.shared.count
	s := Stats{
		Elapsed: time.Since(n.started), RealTime: c.realTime.Load(), Packets: c.packets.Load(), Bytes: c.bytes.Load(),
		Lost: c.lost.Load(), Cut: c.cut.Load(), Overflow: c.overflow.Load(), Strange: c.strange.Load(),
		MaxLate: time.Duration(c.maxLate.Load()),
	}
	s.CPU = n.forward.cpu()
	if s.Packets > 0 {
		s.MeanLate = time.Duration(uint64(c.late.Load()) / s.Packets)
	}
	return s
}

// String tells what an emulation did and what it cost.
func (s Stats) String() string {
	out :=
		fmt.Sprintf("%d packets, %.1f MB in %.1f s, late by %v on average and %v at most; emulation used %.1f %% of a CPU",
			s.Packets, float64(s.Bytes)/1e6, s.Elapsed.Seconds(), s.MeanLate.Round(time.Microsecond),
			s.MaxLate.Round(time.Microsecond), 100*s.CPU.Seconds()/s.Elapsed.Seconds())
	for _, drop := range []struct {
		n    uint64
		what string
	}{{s.Lost, "lost by chance"}, {s.Cut, "lost to cuts"}, {s.Overflow, "dropped by full queues"}} {
		if drop.n > 0 {
			out += fmt.Sprintf(", %d %s", drop.n, drop.what)
		}
	}
	if !s.RealTime {
		out += "; no real-time priority"
	}
	return out
}

// Describe tells which host stands where and what the links are.
func (n *Net) Describe() string {
	var hosts, links []string
	for i, h := range n.Hosts() {
		hosts = append(hosts, fmt.Sprintf("%s %v (site %s)", h.Name, h.Addr, h.Site))
		for j, other := range n.Hosts()[:i] {
			links = append(links, fmt.Sprintf("%s-%s %v", other.Name, h.Name, n.Topology.Link(i, j)))
		}
	}
	return strings.Join(hosts, ", ") + "; round trips " + strings.Join(links, ", ")
}
