package rivals

import (
	"context"
	"errors"
	"net/netip"
	"slices"
	"time"

	"trireme/internal/api"
	"trireme/internal/base/config"
	"trireme/internal/base/poll"
	"trireme/lab/wan"
)

// ethernet is a switch that all hosts of a cluster are on, and a client that has nothing else. A virtual address is
// found by ARP, which the links of a topology do not carry.
type ethernet struct {
	lan    *wan.LAN
	client *wan.Host
	addrs  map[string]netip.Addr // of nodes
}

// virtual is the read-write address of a cluster on the switch.
var virtual = netip.MustParseAddr("10.77.0.100")

const (
	etherBits    = 24
	virtualLimit = 30 * time.Second // until a leader has the address
)

func etherAddr(host int) netip.Prefix {
	return netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 77, 0, byte(host)}), etherBits)
}

// onEthernet changes a node's settings before it is made.
func onEthernet(n *config.Node) {
	n.MySQL.Bind = "0.0.0.0"
	n.VIP.RW = []string{netip.PrefixFrom(virtual, etherBits).String()}
}

// newEthernet plugs the hosts of a running cluster in.
func newEthernet(t *trireme) (_ *ethernet, err error) {
	e := &ethernet{addrs: map[string]netip.Addr{}}
	defer func() {
		if err != nil {
			err = errors.Join(err, e.close())
		}
	}()
	if e.lan, err = wan.NewLAN(); err != nil {
		return nil, err
	}
	for i, n := range t.Nodes() {
		addr := etherAddr(11 + i)
		if err := e.lan.Plug(t.Network().Host(n.Name), "eth0", addr); err != nil {
			return nil, err
		}
		e.addrs[n.Name] = addr.Addr()
	}
	e.client, err = e.lan.NewHost("client", etherAddr(1))
	return e, err
}

func (e *ethernet) close() error {
	var errs []error
	if e.client != nil {
		errs = append(errs, e.lan.CloseHost(e.client))
	}
	if e.lan != nil {
		errs = append(errs, e.lan.Close())
	}
	return errors.Join(errs...)
}

// holdsVirtual waits until the leader has the virtual address.
func (t *trireme) holdsVirtual(ctx context.Context) error {
	return poll.Within(ctx, virtualLimit, t.lead+" to have the virtual address", func(ctx context.Context) error {
		v, err := t.View(ctx)
		if err != nil {
			return err
		}
		i := slices.IndexFunc(v.Members, func(m api.MemberView) bool { return m.Name == t.lead })
		if i < 0 ||
			!slices.ContainsFunc(v.Members[i].VIPs,
				func(x api.VIPView) bool { return x.Address == virtual.String() && x.Held }) {
			return errors.New("it has not")
		}
		return nil
	})
}
