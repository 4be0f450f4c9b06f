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
	"syscall"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"

	"trireme/internal/api"
	"trireme/internal/config"
	"trireme/internal/demo"
	"trireme/internal/wan"
)

const (
	vipRW = "10.77.0.100"
	vipRO = "10.77.0.101"
)

// vipCluster is three data nodes that are on an Ethernet too, and a client that has nothing else.
type vipCluster struct {
	*cluster
	client *wan.Host
}

func createVIP(t *testing.T) *vipCluster {
	t.Helper()
	lan, err := wan.NewLAN()
	if errors.Is(err, wan.ErrUnavailable) {
		cannot(t, err)
	}
	must(t, err)
	t.Cleanup(func() { _ = lan.Close() })
	topo, err := wan.Load("lan")
	must(t, err)
	v := &vipCluster{cluster: createShape(t, shape{nodes: 3, wan: &topo, tune: func(n *config.Node) {
		n.MySQL.Bind = "0.0.0.0"
		n.VIP = config.VIP{RW: []string{vipRW + "/24"}, RO: []string{vipRO + "/24"}}
	}})}
	for i, n := range v.Nodes() {
		must(t, lan.Plug(v.Network().Host(n.Name), "eth0", netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 77, 0, byte(11 + i)}), 24)))
	}
	v.client, err = lan.NewHost("client", netip.MustParsePrefix("10.77.0.1/24"))
	must(t, err)
	t.Cleanup(func() { _ = lan.CloseHost(v.client) })
	return v
}

// dial connects the client to a virtual address. Every node's mysqld has a port of its own here, so the one that is open there is looked for.
func (v *vipCluster) dial(ctx context.Context, addr string) (c net.Conn, err error) {
	err = v.client.Do(func() error {
		var d net.Dialer
		d.Timeout = 200 * time.Millisecond
		var err error
		for _, n := range v.Nodes() {
			if c, err = d.DialContext(ctx, "tcp", net.JoinHostPort(addr, strconv.Itoa(n.Ports.MySQL))); err == nil || !errors.Is(err, syscall.ECONNREFUSED) {
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

// settled waits until the leader, and it alone, has the read-write address, and one other node the read-only one; all members show it.
func (v *vipCluster) settled(leader *demo.Node) (reader string) {
	v.t.Helper()
	eventually(v.t, healLimit, "the addresses are where they should be", func() error {
		rw, ro := v.holders(vipRW), v.holders(vipRO)
		if len(rw) != 1 || rw[0] != leader.Name || len(ro) != 1 || ro[0] == leader.Name {
			return fmt.Errorf("%s leads; read-write is on %v, read-only on %v", leader.Name, rw, ro)
		}
		reader = ro[0]
		for _, m := range v.view().Members {
			for _, x := range m.VIPs {
				if want := x.Address == vipRW && m.Name == leader.Name || x.Address == vipRO && m.Name == reader; x.Held != want || x.Problem != "" {
					return fmt.Errorf("%s shows %+v", m.Name, x)
				}
			}
		}
		return nil
	})
	return reader
}

// write goes on until a row is acknowledged at the virtual address.
func (v *vipCluster) write(db *sql.DB) {
	v.t.Helper()
	eventually(v.t, healLimit, "a write at the virtual address", func() error {
		ctx, cancel := context.WithTimeout(v.t.Context(), 2*time.Second)
		defer cancel()
		_, err := db.ExecContext(ctx, "INSERT INTO vip.t VALUES (NULL)")
		return err
	})
}

// waiting is a client whose connection says nothing: it has to be told when its address goes.
func (v *vipCluster) waiting() net.Conn {
	v.t.Helper()
	c, err := v.dial(v.t.Context(), vipRW)
	must(v.t, err)
	v.t.Cleanup(func() { _ = c.Close() })
	_, err = bufio.NewReader(c).ReadByte() // the server's greeting
	must(v.t, err)
	return c
}

// TestVIP: a client that knows nothing but the virtual address goes on at the new leader, whatever the old one died of, and nobody is left
// waiting at the old one.
func TestVIP(t *testing.T) {
	if !soak() {
		t.Skip("four faults take two minutes; part of `make soak`")
	}
	v := createVIP(t)
	leader := v.healthy()
	v.settled(leader)
	db := v.open(vipRW)
	_, err := db.ExecContext(t.Context(), "CREATE DATABASE vip")
	must(t, err)
	_, err = db.ExecContext(t.Context(), "CREATE TABLE vip.t (id BIGINT AUTO_INCREMENT PRIMARY KEY)")
	must(t, err)
	for _, fault := range []struct {
		name string
		hit  func(*demo.Node)
		heal func(*demo.Node)
	}{
		{"switchover", func(n *demo.Node) {
			_, err := v.Switchover(t.Context(), v.others(n)[0].Name)
			must(t, err)
		}, nil},
		{"mysqld killed", func(n *demo.Node) { v.KillMySQL(n) }, nil},
		{"daemon killed", v.KillDaemon, func(n *demo.Node) { must(t, v.Start(n)) }},
		{"daemon stopped", func(n *demo.Node) { must(t, v.Signal(n, syscall.SIGSTOP)) }, func(n *demo.Node) { must(t, v.Signal(n, syscall.SIGCONT)) }},
	} {
		leader, term := v.healthy(), v.view().Term
		v.settled(leader)
		v.write(db)
		idle := v.waiting()
		at := time.Now()
		fault.hit(leader)
		next := v.failedOver(term)
		v.write(db)
		gap := time.Since(at)
		_ = idle.SetReadDeadline(time.Now().Add(10 * time.Second))
		var timeout net.Error
		if _, err := bufio.NewReader(idle).ReadString(0xff); errors.As(err, &timeout) && timeout.Timeout() {
			t.Errorf("%s: a client of %s still waits %v later", fault.name, leader.Name, time.Since(at))
		}
		eventually(t, healLimit, fault.name+": the old leader's host gives the address up", func() error {
			if got := v.holders(vipRW); len(got) != 1 || got[0] != next.Name {
				return fmt.Errorf("%v have it", got)
			}
			return nil
		})
		if fault.heal != nil {
			fault.heal(leader)
		}
		t.Logf("%s: written at the virtual address again after %v", fault.name, gap.Round(time.Millisecond))
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
