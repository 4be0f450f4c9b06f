package vip

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"os"
	"strconv"
	"strings"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// Finding is the outcome of one check.
type Finding struct {
	What    string `json:"what"`
	OK      bool   `json:"ok"`
	Outcome string `json:"outcome"`
}

// Check says what would keep this host from holding the addresses, without binding any.
func Check(ctx context.Context, addrs []netip.Prefix, iface string) []Finding {
	out := []Finding{checkRights()}
	for _, p := range addrs {
		f := Finding{What: p.String()}
		f.Outcome, f.OK = checkAddress(ctx, p, iface, addrs)
		out = append(out, f)
	}
	return out
}

func checkAddress(ctx context.Context, p netip.Prefix, iface string, all []netip.Prefix) (string, bool) {
	a := p.Addr()
	l, err := find(p, iface, all)
	if err != nil {
		return err.Error(), false
	}
	if err := checkOwn(a); err != nil {
		return err.Error(), false
	}
	if here, err := boundOn(a); err != nil {
		return err.Error(), false
	} else if here != "" {
		return fmt.Sprintf("held by this host, on %s", here), true
	}
	if l.mac == nil {
		return fmt.Sprintf("interface %s has no ARP: other hosts cannot be asked about the address or told of it", l.name),
			true
	}
	w, err := openWire(l, a)
	if err != nil {
		return err.Error(), false
	}
	defer w.close()
	owner, err := ask(ctx, w, l, a)
	switch {
	case err != nil:
		return err.Error(), false
	case owner != nil:
		return fmt.Sprintf(
				"in use by the host with the MAC %s (seen on %s); right only if that is the node that holds it now", owner, l.name),
			false
	}
	return fmt.Sprintf("free, on interface %s", l.name), true
}

// checkOwn says that an address belongs to this host itself: bound with its subnet, as a host's own addresses are, it
// does not go when it should.
func checkOwn(a netip.Addr) error {
	list, err := listed(func() ([]netlink.Addr, error) { return netlink.AddrList(nil, family(a)) })
	if err != nil {
		return fmt.Errorf("listing addresses: %w", err)
	}
	for _, x := range list {
		own, _ := netip.AddrFromSlice(x.IP)
		if ones, bits := x.Mask.Size(); own.Unmap() == a && ones != bits {
			return fmt.Errorf("this host has %s as an address of its own (%s/%d), so clients reach it here no matter which node leads; remove it, or configure another one", a, a, ones)
		}
	}
	return nil
}

// boundOn is the interface of this host that has an address, empty: none.
func boundOn(a netip.Addr) (string, error) {
	links, err := net.Interfaces()
	if err != nil {
		return "", fmt.Errorf("listing interfaces: %w", err)
	}
	for _, l := range links {
		list, err := l.Addrs()
		if err != nil {
			return "", fmt.Errorf("listing the addresses of %s: %w", l.Name, err)
		}
		for _, x := range list {
			if n, ok := x.(*net.IPNet); ok && n.IP.Equal(a.AsSlice()) {
				return l.Name, nil
			}
		}
	}
	return "", nil
}

// effective are the effective capabilities of this process, bit by bit (proc(5), CapEff).
func effective() (uint64, error) {
	b, err := os.ReadFile("/proc/thread-self/status")
	if err != nil {
		return 0, err
	}
	_, text, _ := strings.Cut(string(b), "\nCapEff:")
	text, _, _ = strings.Cut(text, "\n")
	return strconv.ParseUint(strings.TrimSpace(text), 16, 64)
}

// checkRights looks at what this process may do.
func checkRights() Finding {
	f := Finding{What: "rights"}
	set, err := effective()
	if err != nil {
		f.Outcome = "the rights of this process cannot be read: " + err.Error()
		return f
	}
	var missing []string
	for _, c := range []struct {
		bit  int
		name string
	}{{unix.CAP_NET_ADMIN, "CAP_NET_ADMIN"}, {unix.CAP_NET_RAW, "CAP_NET_RAW"}} {
		if set&(1<<c.bit) == 0 {
			missing = append(missing, c.name)
		}
	}
	if len(missing) > 0 {
		f.Outcome = fmt.Sprintf("this process lacks %s; give them to the daemon, and run this check with them",
			strings.Join(missing, " and "))
		return f
	}
	f.OK, f.Outcome = true, "CAP_NET_ADMIN and CAP_NET_RAW are there"
	return f
}
