package vip

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// link is an interface of this host.
type link struct {
	name  string
	index int
	mac   net.HardwareAddr // nil: there is neither ARP nor neighbour discovery on it
}

// find is the interface for an address: the one that is named, else the one that has an address of its subnet. reserved
// are virtual addresses themselves, which do not count.
func find(p netip.Prefix, name string, reserved []netip.Prefix) (link, error) {
	links, err := listed(netlink.LinkList)
	if err != nil {
		return link{}, fmt.Errorf("listing interfaces: %w", err)
	}
	var found []link
	for _, l := range links {
		a := l.Attrs()
		if name != "" && a.Name != name {
			continue
		}
		if name == "" {
			in, err := inSubnet(l, p, reserved)
			if err != nil {
				return link{}, err
			}
			if !in {
				continue
			}
		}
		if a.Flags&net.FlagUp == 0 {
			return link{}, fmt.Errorf("interface %s, for %s, is down", a.Name, p.Addr())
		}
		f := link{name: a.Name, index: a.Index}
		if a.RawFlags&unix.IFF_NOARP == 0 && a.Flags&net.FlagLoopback == 0 && len(a.HardwareAddr) == macBytes {
			f.mac = a.HardwareAddr
		}
		found = append(found, f)
	}
	switch {
	case len(found) == 1:
		return found[0], nil
	case name != "":
		return link{}, fmt.Errorf("this host has no interface %s (vip.interface)", name)
	case len(found) == 0:
		return link{},
			fmt.Errorf("no interface of this host has an address in %s, the subnet of %s; name one as vip.interface", p.Masked(),
				p.Addr())
	}
	var names []string
	for _, f := range found {
		names = append(names, f.name)
	}
	return link{}, fmt.Errorf("several interfaces have an address in %s: %s; name one as vip.interface", p.Masked(),
		strings.Join(names, ", "))
}

// inSubnet reports whether an interface has an address of its own in the subnet of p.
func inSubnet(l netlink.Link, p netip.Prefix, reserved []netip.Prefix) (bool, error) {
	list, err := listed(func() ([]netlink.Addr, error) { return netlink.AddrList(l, family(p.Addr())) })
	if errors.Is(err, unix.ENODEV) {
		return false, nil // it has gone meanwhile
	}
	if err != nil {
		return false, fmt.Errorf("listing the addresses of %s: %w", l.Attrs().Name, err)
	}
	return slices.ContainsFunc(list, func(x netlink.Addr) bool {
		a, ok := netip.AddrFromSlice(x.IP)
		a = a.Unmap()
		return ok && p.Masked().Contains(a) &&
			!slices.ContainsFunc(reserved, func(r netip.Prefix) bool { return r.Addr() == a })
	}), nil
}

// listed asks the kernel for a list again if that changed meanwhile, and takes what there is if it goes on changing.
func listed[T any](ask func() ([]T, error)) ([]T, error) {
	for range 10 {
		if list, err := ask(); !errors.Is(err, netlink.ErrDumpInterrupted) {
			return list, err
		}
	}
	list, err := ask()
	if errors.Is(err, netlink.ErrDumpInterrupted) {
		err = nil
	}
	return list, err
}

func family(a netip.Addr) int {
	if a.Is4() {
		return netlink.FAMILY_V4
	}
	return netlink.FAMILY_V6
}

// bind gives the interface the address for lifetime, or for that much longer.
func bind(l link, a netip.Addr) error {
	addr := &netlink.Addr{IPNet: single(a), LinkIndex: l.index, ValidLft: int(lifetime.Seconds()),
		PreferedLft: int(lifetime.Seconds())}
	if a.Is6() {
		addr.Flags, addr.PreferedLft = unix.IFA_F_NODAD, 0 // we have asked ourselves; deprecated: no source address
	}
	if err := netlink.AddrReplace(nil, addr); err != nil {
		return fmt.Errorf("adding %s to %s: %w", a, l.name, advise(err))
	}
	return nil
}

// single is an address without a subnet.
func single(a netip.Addr) *net.IPNet {
	return &net.IPNet{IP: a.AsSlice(), Mask: net.CIDRMask(a.BitLen(), a.BitLen())}
}

// Remove takes addresses away from whichever interface has them, having reset the connections to them. None of them
// being there is no error. Any process of this host may call it at any time.
func Remove(addrs []netip.Addr) error {
	_, err := remove(addrs)
	return err
}

// remove returns those that were there.
func remove(addrs []netip.Addr) (removed []netip.Addr, err error) {
	list, err := listed(func() ([]netlink.Addr, error) { return netlink.AddrList(nil, netlink.FAMILY_ALL) })
	if err != nil {
		return nil, fmt.Errorf("listing addresses: %w", err)
	}
	var bound []netlink.Addr
	for _, x := range list {
		a, _ := netip.AddrFromSlice(x.IP)
		if ones, bits := x.Mask.Size(); ones == bits && slices.Contains(addrs, a.Unmap()) {
			bound = append(bound, x)
			removed = append(removed, a.Unmap())
		}
	}
	if len(bound) == 0 {
		return nil, nil
	}
	// What cannot be reset is lost to its client, which is no reason to keep the address.
	errs := []error{resetConnections(removed)}
	for _, x := range bound {
		a, _ := netip.AddrFromSlice(x.IP)
		err := netlink.AddrDel(nil, &netlink.Addr{IPNet: single(a.Unmap()), LinkIndex: x.LinkIndex})
		if err != nil && !errors.Is(err, unix.EADDRNOTAVAIL) && !errors.Is(err, unix.ENODEV) {
			errs = append(errs, fmt.Errorf("removing %s: %w", a.Unmap(), advise(err)))
		}
	}
	return removed, errors.Join(errs...)
}

// advise says what the kernel's refusal means.
func advise(err error) error {
	if errors.Is(err, unix.EPERM) || errors.Is(err, unix.EACCES) {
		return fmt.Errorf("%w; the daemon needs CAP_NET_ADMIN and CAP_NET_RAW (docs/vip.md)", err)
	}
	return err
}
