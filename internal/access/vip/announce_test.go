package vip

import (
	"bytes"
	"net"
	"net/netip"
	"testing"
	"time"

	"trireme/lab/wan"
)

// TestAnnounced: the network is told six times where an address is (docs/vip.md), with IPv4 in both ways that hosts
// listen to.
func TestAnnounced(t *testing.T) {
	t.Parallel()
	l := newLAN(t)
	n1 := l.node("n1")
	ears := map[netip.Addr]*wire{}
	for _, a := range bothAddrs {
		ears[a] = l.ear(l.client, a)
	}
	n1.tell("want")
	for _, a := range bothAddrs {
		l.hears(ears[a], a, 6, announcements(nil, parseMAC(t, n1.mac()), a))
	}
}

func parseMAC(t *testing.T, text string) net.HardwareAddr {
	t.Helper()
	mac, err := net.ParseMAC(text)
	if err != nil {
		t.Fatal(err)
	}
	return mac
}

// ear is a socket that gets what comes to a host about an address, and keeps it until it is read.
func (l *lan) ear(h *wan.Host, a netip.Addr) *wire {
	l.t.Helper()
	var w *wire
	if err := h.Do(func() error {
		i, err := net.InterfaceByName("eth0")
		if err != nil {
			return err
		}
		w, err = openWire(link{"eth0", i.Index, i.HardwareAddr}, a)
		return err
	}); err != nil {
		l.t.Fatal(err)
	}
	l.t.Cleanup(w.close)
	return w
}

// hears reads until these frames have come so many times, in their order. What else comes is left out: an owner's
// kernel names its address when it asks for others.
func (l *lan) hears(w *wire, a netip.Addr, times int, frames [][]byte) {
	l.t.Helper()
	b := make([]byte, 2048)
	for round := range times {
		for i := 0; i < len(frames); {
			if err := w.f.SetReadDeadline(time.Now().Add(limit)); err != nil {
				l.t.Fatal(err)
			}
			n, err := w.f.Read(b)
			if err != nil {
				l.t.Fatalf("announcement %d of %s, frame %d does not come: %v", round+1, a, i, err)
			}
			if bytes.Equal(b[:n], frames[i]) {
				i++
			}
		}
	}
}

// TestDefend: a host that claims the address deceives the others for a moment only.
func TestDefend(t *testing.T) {
	t.Parallel()
	l := newLAN(t)
	n1 := l.node("n1")
	n1.tell("want")
	for _, a := range bothAddrs {
		l.reaches(a, "n1")
		liar := &host{Host: l.host("liar-" + a.String()), t: t}
		own := parseMAC(t, liar.mac())
		w := l.ear(liar.Host, a)
		if err := w.send(announcements(nil, own, a)...); err != nil {
			t.Fatal(err)
		}
		if mac, err := w.claimed(a, own, limit); err != nil || mac.String() != n1.mac() {
			t.Fatalf("%v answers to a false claim of %s: %v", mac, a, err)
		}
		l.reaches(a, "n1")
	}
}
