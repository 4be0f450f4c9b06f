package robustness

import (
	"bufio"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"trireme/internal/api"
	"trireme/internal/base/config"
	"trireme/internal/ops/demo"
	"trireme/lab/needs"
	"trireme/lab/wan"
)

const (
	vipRW  = "10.77.0.100"
	vipRW6 = "fd77::100"
	vipRO  = "10.77.0.101"
)

// holderPause separates two looks at who has an address, and greetPatience is for a server to say its first byte.
const (
	holderPause   = 5 * time.Millisecond
	greetPatience = 200 * time.Millisecond
)

// vipCluster is three data nodes that are on an Ethernet too, and a client that has nothing else.
type vipCluster struct {
	*cluster
	client *wan.Host
}

func createVIP(t *testing.T) *vipCluster {
	t.Helper()
	topo := emulated(t, "lan")
	lan := needs.LAN(t)
	v := &vipCluster{cluster: createShape(t, shape{nodes: 3, wan: &topo, tune: func(n *config.Node) {
		n.MySQL.Bind = "*"
		n.VIP = config.VIP{RW: []string{vipRW + "/24", vipRW6 + "/64"}, RO: []string{vipRO + "/24"}}
	}})}
	for i, n := range v.Nodes() {
		must(t, lan.Plug(v.Network().Host(n.Name), "eth0", netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 77, 0, byte(11 + i)}),
			24),
			netip.MustParsePrefix(fmt.Sprintf("fd77::%d/64", 11+i))))
	}
	v.client = needs.Host(t, lan, "client", netip.MustParsePrefix("10.77.0.1/24"), netip.MustParsePrefix("fd77::1/64"))
	return v
}

// dial connects the client to a virtual address. Every node's mysqld has a port of its own here, so the one that is
// open there is looked for.
func (v *vipCluster) dial(ctx context.Context, addr string) (c net.Conn, err error) {
	err = v.client.Do(func() error {
		var d net.Dialer
		d.Timeout = 200 * time.Millisecond
		var err error
		for _, n := range v.Nodes() {
			if c, err = d.DialContext(ctx, "tcp", net.JoinHostPort(addr, strconv.Itoa(n.Ports.MySQL))); err == nil ||
				!errors.Is(err, syscall.ECONNREFUSED) {
				return err
			}
		}
		return err
	})
	return c, err
}

func (v *vipCluster) open(addr string) *sql.DB {
	v.t.Helper()
	cfg := mysql.NewConfig()
	cfg.User, cfg.Passwd, cfg.Net, cfg.Addr = v.State().User, v.State().Password, "tcp", addr
	cfg.DialFunc = func(ctx context.Context, _, _ string) (net.Conn, error) { return v.dial(ctx, addr) }
	connector, err := mysql.NewConnector(cfg)
	must(v.t, err)
	db := sql.OpenDB(connector)
	v.t.Cleanup(func() { _ = db.Close() })
	return db
}

// holders of an address, as the kernels of the hosts have it.
func (v *vipCluster) holders(addr string) []string {
	v.t.Helper()
	var out []string
	for _, n := range v.Nodes() {
		must(v.t, v.Network().Host(n.Name).Do(func() error {
			list, err := net.InterfaceAddrs()
			if slices.ContainsFunc(list, func(a net.Addr) bool { return strings.HasPrefix(a.String(), addr+"/") }) {
				out = append(out, n.Name)
			}
			return err
		}))
	}
	return out
}

// watchHolders looks every few milliseconds which hosts have the read-write addresses, until end is called. Two of them
// never have one while the server at either would answer; in a planned switchover, where both servers live, two never
// have one.
func (v *vipCluster) watchHolders(fault string, planned bool) (end func()) {
	v.t.Helper()
	kernels := map[*demo.Node]*netlink.Handle{}
	for _, n := range v.Nodes() {
		must(v.t, v.Network().Host(n.Name).Do(func() (err error) {
			kernels[n], err = netlink.NewHandle(unix.NETLINK_ROUTE)
			return err
		}))
	}
	ctx, cancel := context.WithCancel(v.t.Context())
	done, looks := make(chan struct{}), 0
	go func() {
		defer close(done)
		for told := false; ctx.Err() == nil; looks++ {
			for _, addr := range []string{vipRW, vipRW6} {
				several, err := v.several(kernels, netip.MustParseAddr(addr))
				if err != nil {
					v.t.Errorf("%s: who has %s: %v", fault, addr, err)
					return
				}
				if len(several) == 0 {
					continue
				}
				var names, answer []string
				for _, n := range several {
					names = append(names, n.Name)
					if v.answers(n, addr) {
						answer = append(answer, n.Name)
					}
				}
				if planned || len(answer) > 1 {
					v.t.Errorf("%s: %v have %s at the same time; %v answer at it", fault, names, addr, answer)
					return
				}
				if !told {
					told = true
					v.t.Logf("%s: %v have %s for a moment; %v answer at it", fault, names, addr, answer)
				}
			}
			select {
			case <-ctx.Done():
			case <-time.After(holderPause):
			}
		}
	}()
	end = sync.OnceFunc(func() {
		cancel()
		<-done
		for _, k := range kernels {
			k.Close()
		}
		if looks < 10 && !v.t.Failed() {
			v.t.Errorf("%s: looked only %d times who has the addresses", fault, looks)
		}
	})
	v.t.Cleanup(end)
	return end
}

// several are the nodes whose hosts have an address at the same time, if there is more than one. One is looked at
// after the other, so what moves meanwhile seems to be at two; but not twice.
func (v *vipCluster) several(kernels map[*demo.Node]*netlink.Handle, a netip.Addr) (have []*demo.Node, err error) {
	family := netlink.FAMILY_V4
	if a.Is6() {
		family = netlink.FAMILY_V6
	}
	have = v.Nodes()
	for round := 0; round < 2 && len(have) > 1; round++ {
		var still []*demo.Node
		for _, n := range have {
			list, err := kernels[n].AddrList(nil, family)
			if err != nil && !errors.Is(err, netlink.ErrDumpInterrupted) {
				return nil, err
			}
			if slices.ContainsFunc(list, func(x netlink.Addr) bool { return x.IP.Equal(a.AsSlice()) }) {
				still = append(still, n)
			}
		}
		have = still
	}
	if len(have) < 2 {
		return nil, nil
	}
	return have, nil
}

// answers says whether a node's server greets clients that connect to an address on the node's host. Its port is open
// on no other one.
func (v *vipCluster) answers(n *demo.Node, addr string) bool {
	return v.Network().Host(n.Name).Do(func() error {
		c, err := net.DialTimeout("tcp", net.JoinHostPort(addr, strconv.Itoa(n.Ports.MySQL)), greetPatience)
		if err != nil {
			return err
		}
		defer c.Close()
		_ = c.SetReadDeadline(time.Now().Add(greetPatience))
		_, err = c.Read(make([]byte, 1))
		return err
	}) == nil
}

// settled waits until the leader, and it alone, has the read-write addresses, and one other node the read-only one; all
// members show it.
func (v *vipCluster) settled(leader *demo.Node) (reader string) {
	v.t.Helper()
	eventually(v.t, healLimit, "the addresses are where they should be", func() error {
		rw, rw6, ro := v.holders(vipRW), v.holders(vipRW6), v.holders(vipRO)
		if !slices.Equal(rw, []string{leader.Name}) || !slices.Equal(rw6, rw) || len(ro) != 1 || ro[0] == leader.Name {
			return fmt.Errorf("%s leads; read-write is on %v and %v, read-only on %v", leader.Name, rw, rw6, ro)
		}
		reader = ro[0]
		for _, m := range v.view().Members {
			for _, x := range m.VIPs {
				if want := x.Address != vipRO && m.Name == leader.Name || x.Address == vipRO && m.Name == reader; x.Held != want ||
					x.Problem != "" {
					return fmt.Errorf("%s shows %+v", m.Name, x)
				}
			}
		}
		return nil
	})
	return reader
}

// write goes on until a row is acknowledged at each virtual address.
func (v *vipCluster) write(dbs []*sql.DB) {
	v.t.Helper()
	for _, db := range dbs {
		eventually(v.t, healLimit, "a write at the virtual address", func() error {
			ctx, cancel := context.WithTimeout(v.t.Context(), 2*time.Second)
			defer cancel()
			_, err := db.ExecContext(ctx, "INSERT INTO vip.t VALUES (NULL)")
			return err
		})
	}
}

// waiting is a client whose connection says nothing: it has to be told when its address goes.
func (v *vipCluster) waiting(addr string) net.Conn {
	v.t.Helper()
	c, err := v.dial(v.t.Context(), addr)
	must(v.t, err)
	v.t.Cleanup(func() { _ = c.Close() })
	_, err = bufio.NewReader(c).ReadByte() // the server's greeting
	must(v.t, err)
	return c
}

// TestVIP: a client that knows nothing but the virtual address, of either family, goes on at the new leader, whatever
// the old one died of; no client is left waiting at the old one, and two hosts never answer at the address. `make test`
// has the first three faults (half a minute).
func TestVIP(t *testing.T) {
	t.Parallel()
	v := createVIP(t)
	leader := v.healthy()
	v.settled(leader)
	dbs := []*sql.DB{v.open(vipRW), v.open(vipRW6)}
	_, err := dbs[0].ExecContext(t.Context(), "CREATE DATABASE vip")
	must(t, err)
	_, err = dbs[1].ExecContext(t.Context(), "CREATE TABLE vip.t (id BIGINT AUTO_INCREMENT PRIMARY KEY)")
	must(t, err)
	faults := []vipFault{
		{name: "switchover", planned: true, hit: func(n *demo.Node) {
			_, err := v.Switchover(t.Context(), v.others(n)[0].Name)
			must(t, err)
		}},
		{name: "mysqld killed", hit: func(n *demo.Node) { v.KillMySQL(n) }},
		{name: "daemon killed", hit: v.KillDaemon, heal: func(n *demo.Node) { must(t, v.Start(n)) }},
		{name: "daemon stopped", hit: func(n *demo.Node) { must(t, v.Signal(n, syscall.SIGSTOP)) },
			heal: func(n *demo.Node) { must(t, v.Signal(n, syscall.SIGCONT)) }},
		{name: "all stopped", mute: true, hit: func(n *demo.Node) { must(t, v.SignalHost(n, syscall.SIGSTOP)) },
			heal: func(n *demo.Node) { must(t, v.SignalHost(n, syscall.SIGCONT)) }},
	}
	if !needs.IsLong() {
		faults = faults[:3] // the others wait for a lease to end
	}
	for _, f := range faults {
		v.suffer(f, dbs)
	}
	leader = v.healthy()
	reader := v.settled(leader)
	var host string
	must(t, v.open(vipRO).QueryRowContext(t.Context(), "SELECT @@report_host").Scan(&host))
	if want := v.Node(reader).Host; host != want {
		t.Errorf("the read-only address is answered by %s, not by %s (%s)", host, reader, want)
	}
	events, err := v.History(t.Context(), leader)
	must(t, err)
	if !slices.ContainsFunc(events, func(e api.Event) bool {
		return e.Kind == "vip" && e.Node == leader.Name && strings.Contains(e.Message, "holds read-write "+vipRW)
	}) {
		t.Error("the history does not tell that the address came to " + leader.Name)
	}
}

// vipFault is what happens to a leader.
type vipFault struct {
	name      string
	planned   bool
	mute      bool // the host can tell its clients nothing
	hit, heal func(*demo.Node)
}

// suffer hits the leader, and sees its clients go on.
func (v *vipCluster) suffer(f vipFault, dbs []*sql.DB) {
	v.t.Helper()
	leader, term := v.healthy(), v.view().Term
	v.settled(leader)
	v.write(dbs)
	idle := []net.Conn{v.waiting(vipRW), v.waiting(vipRW6)}
	end := v.watchHolders(f.name, f.planned)
	at := time.Now()
	f.hit(leader)
	next := v.failedOver(term)
	v.write(dbs)
	gap := time.Since(at)
	for _, c := range idle {
		if f.mute {
			break
		}
		_ = c.SetReadDeadline(time.Now().Add(10 * time.Second))
		var timeout net.Error
		if _, err := bufio.NewReader(c).ReadString(0xff); errors.As(err, &timeout) && timeout.Timeout() {
			v.t.Errorf("%s: a client of %s still waits %v later", f.name, leader.Name, time.Since(at))
		}
	}
	eventually(v.t, healLimit, f.name+": the old leader's host gives the addresses up", func() error {
		for _, addr := range []string{vipRW, vipRW6} {
			if got := v.holders(addr); !slices.Equal(got, []string{next.Name}) {
				return fmt.Errorf("%v have %s", got, addr)
			}
		}
		return nil
	})
	if f.heal != nil {
		f.heal(leader)
	}
	v.healthy()
	end()
	v.t.Logf("%s: written at the virtual addresses again after %v", f.name, gap.Round(time.Millisecond))
}
