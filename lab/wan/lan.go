package wan

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// LAN is an Ethernet switch. Unlike the links of a Net it carries frames, so that hosts on it find each other by ARP
// and neighbour discovery, and it has no delay.
type LAN struct {
	ns    *os.File // of the switch
	ports int
}

const bridge = "br0"

// NewLAN makes a switch with nothing plugged in. ErrUnavailable says that it cannot be done here, and why.
func NewLAN() (*LAN, error) {
	ns, err := inNewNamespace(func() error {
		b := &netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: bridge}}
		if err := netlink.LinkAdd(b); err != nil {
			return fmt.Errorf("%w: making a bridge: %w", ErrUnavailable, err)
		}
		return netlink.LinkSetUp(b)
	})
	if err != nil {
		return nil, err
	}
	return &LAN{ns: ns}, nil
}

// Close removes the switch and all that is plugged in.
func (l *LAN) Close() error {
	// The namespace goes only with the last reference, which the sockets of a process may be.
	err := (&Host{Name: "switch", ns: l.ns}).Do(func() error {
		links, err := netlink.LinkList()
		for tries := 0; errors.Is(err, netlink.ErrDumpInterrupted) && tries < 10; tries++ {
			links, err = netlink.LinkList() // hosts that end take their devices with them
		}
		for _, k := range links {
			if k.Type() != "veth" {
				continue
			}
			if e := netlink.LinkDel(k); !errors.Is(e, unix.ENODEV) { // it goes with the host at its other end
				err = errors.Join(err, e)
			}
		}
		return err
	})
	return errors.Join(err, l.ns.Close())
}

// NewHost makes a host that has nothing but this LAN. It ends with CloseHost.
func (l *LAN) NewHost(name string, addrs ...netip.Prefix) (*Host, error) {
	h := &Host{Name: name}
	var err error
	if h.ns, err = inNewNamespace(loopbackUp); err != nil {
		return nil, err
	}
	if err := l.Plug(h, "eth0", addrs...); err != nil {
		return nil, errors.Join(err, h.ns.Close())
	}
	return h, nil
}

// CloseHost gives up a host that NewHost made. Its namespace goes when nothing runs in it any more.
func (l *LAN) CloseHost(h *Host) error { return h.ns.Close() }

// Plug gives a host an interface on the LAN with these addresses. A host of a Net may have one besides its link to the
// others.
func (l *LAN) Plug(h *Host, device string, addrs ...netip.Prefix) error {
	l.ports++
	port := fmt.Sprintf("port%d", l.ports)
	err := (&Host{Name: "switch", ns: l.ns}).Do(func() error {
		v := &netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: port}, PeerName: device, PeerNamespace: netlink.NsFd(h.ns.Fd())}
		if err := netlink.LinkAdd(v); err != nil {
			return fmt.Errorf("%w: making a pair of devices: %w", ErrUnavailable, err)
		}
		b, err := netlink.LinkByName(bridge)
		if err != nil {
			return err
		}
		return errors.Join(netlink.LinkSetMaster(v, b), netlink.LinkSetUp(v))
	})
	if err != nil {
		return fmt.Errorf("host %s: %w", h.Name, err)
	}
	return h.Do(func() error {
		d, err := netlink.LinkByName(device)
		if err != nil {
			return fmt.Errorf("host %s: %w", h.Name, err)
		}
		for _, a := range addrs {
			n := &netlink.Addr{IPNet: &net.IPNet{IP: a.Addr().AsSlice(), Mask: net.CIDRMask(a.Bits(), a.Addr().BitLen())}}
			if a.Addr().Is6() {
				n.Flags = unix.IFA_F_NODAD // usable at once
			}
			if err := netlink.AddrAdd(d, n); err != nil {
				return fmt.Errorf("host %s: address %s: %w", h.Name, a, err)
			}
		}
		return netlink.LinkSetUp(d)
	})
}
