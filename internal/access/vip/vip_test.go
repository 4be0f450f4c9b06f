package vip

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"trireme/lab/needs"
	"trireme/lab/wan"
)

const (
	limit  = 15 * time.Second
	nobody = 65534
)

// TestMain makes this program a daemon on an emulated host when it is started as such.
func TestMain(m *testing.M) {
	if os.Getenv("VIP_TEST_NODE") != "" {
		node(os.Stdin, os.Stdout)
		os.Exit(0)
	}
	goleak.VerifyTestMain(m)
}

// Both families in one subnet each, as a configuration has them.
var (
	rw4, rw6  = netip.MustParsePrefix("10.77.0.100/24"), netip.MustParsePrefix("fd77::100/64")
	client    = []netip.Prefix{netip.MustParsePrefix("10.77.0.1/24"), netip.MustParsePrefix("fd77::1/64")}
	bothAddrs = []netip.Addr{rw4.Addr(), rw6.Addr()}
)

// node carries out commands, one a line, and tells what happens. It answers connections to port 3306 with its name.
func node(in io.Reader, out io.Writer) {
	var mu sync.Mutex
	may, members := true, map[string]string{}
	say := func(format string, args ...any) {
		mu.Lock()
		defer mu.Unlock()
		fmt.Fprintf(out, format+"\n", args...)
	}
	l, err := net.Listen("tcp", "[::]:3306")
	if err != nil {
		say("error %v", err)
		return
	}
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			fmt.Fprintln(c, os.Getenv("VIP_TEST_NODE")) // and keeps it
		}
	}()
	m := New(Config{Addresses: []netip.Prefix{rw4, rw6}, Logger: slog.New(slog.NewTextHandler(os.Stderr, nil)),
		May:    func(netip.Addr) bool { mu.Lock(); defer mu.Unlock(); return may },
		Member: func(mac net.HardwareAddr) string { mu.Lock(); defer mu.Unlock(); return members[mac.String()] },
		Moved:  func(v Move) { say("moved %v held=%v from=%q", v.Addr, v.Held, v.From) }})
	say("ready")
	for lines := bufio.NewScanner(in); lines.Scan(); {
		words := strings.Fields(lines.Text())
		switch words[0] {
		case "want":
			m.Want(bothAddrs)
		case "release":
			m.Release(bothAddrs)
			say("released")
		case "fail": // as a renewal that fails leaves it
			m.mu.Lock()
			for _, h := range m.holders {
				h.state.Held = false
			}
			m.mu.Unlock()
		case "may":
			mu.Lock()
			may = words[1] == "yes"
			mu.Unlock()
		case "member":
			mu.Lock()
			members[words[1]] = words[2]
			mu.Unlock()
		case "state":
			for _, s := range m.States() {
				say("state %v held=%v %s", s.Prefix, s.Held, s.Problem)
			}
		case "rights":
			set, err := effective()
			say("rights %x %v", set, err)
			f := checkRights()
			say("check ok=%v %s", f.OK, f.Outcome)
		}
	}
	m.Close()
}

// host is one of the cluster with its daemon.
type host struct {
	*wan.Host
	t      *testing.T
	rights []uintptr // capabilities of its daemon, which is not root then; nil: it is root with all
	cmd    *exec.Cmd
	in     io.Writer
	lines  chan string
	kill   func() // and waits for the end
}

func (h *host) tell(command string) {
	h.t.Helper()
	if _, err := fmt.Fprintln(h.in, command); err != nil {
		h.t.Fatal(err)
	}
}

// await reads what the daemon says until a line has all parts.
func (h *host) await(parts ...string) string {
	h.t.Helper()
	for deadline := time.After(limit); ; {
		select {
		case line, ok := <-h.lines:
			if !ok {
				h.t.Fatalf("%s ended; waiting for %q", h.Name, parts)
			}
			all := true
			for _, p := range parts {
				all = all && strings.Contains(line, p)
			}
			if all {
				return line
			}
		case <-deadline:
			h.t.Fatalf("%s: no %q within %v", h.Name, parts, limit)
		}
	}
}

func (h *host) mac() string {
	var mac string
	if err := h.Do(func() error {
		l, err := net.InterfaceByName("eth0")
		if err == nil {
			mac = l.HardwareAddr.String()
		}
		return err
	}); err != nil {
		h.t.Fatal(err)
	}
	return mac
}

// bound reports whether the host has the address.
func (h *host) bound(a netip.Addr) bool {
	var on string
	if err := h.Do(func() (err error) { on, err = boundOn(a); return err }); err != nil {
		h.t.Fatal(err)
	}
	return on != ""
}

type lan struct {
	*wan.LAN
	t      *testing.T
	client *wan.Host
	next   int
}

func newLAN(t *testing.T) *lan {
	t.Helper()
	n := &lan{LAN: needs.LAN(t), t: t, next: 10}
	n.client = n.host("client", client...)
	return n
}

func (l *lan) host(name string, addrs ...netip.Prefix) *wan.Host {
	l.t.Helper()
	return needs.Host(l.t, l.LAN, name, addrs...)
}

// node starts a host with a daemon, which is root, or has only some rights.
func (l *lan) node(name string, rights ...uintptr) *host {
	l.t.Helper()
	l.next++
	h := &host{Host: l.host(name, netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 77, 0, byte(l.next)}), 24),
		netip.MustParsePrefix(fmt.Sprintf("fd77::%d/64", l.next))),
		t: l.t, rights: rights}
	h.start()
	return h
}

func (h *host) start() {
	h.t.Helper()
	h.cmd = exec.Command("/proc/self/exe")
	h.cmd.Env = append(os.Environ(), "VIP_TEST_NODE="+h.Name)
	h.cmd.Stderr = h.t.Output()
	if h.rights != nil { // as AmbientCapabilities of a service's unit
		h.cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody},
			AmbientCaps: h.rights}
	}
	in, err1 := h.cmd.StdinPipe()
	out, err2 := h.cmd.StdoutPipe()
	if err := errors.Join(err1, err2, h.Do(h.cmd.Start)); err != nil {
		h.t.Fatal(err)
	}
	h.in, h.lines = in, make(chan string, 100)
	cmd, lines, read := h.cmd, h.lines, make(chan struct{})
	go func() {
		defer close(read)
		defer close(lines)
		for s := bufio.NewScanner(out); s.Scan(); {
			lines <- s.Text()
		}
	}()
	h.kill = sync.OnceFunc(func() {
		_ = in.Close()
		_ = cmd.Process.Kill()
		<-read
		_ = cmd.Wait() // killed, it says
	})
	h.t.Cleanup(h.kill)
	h.await("ready")
}

// dial connects from the client, and returns who answered.
func (l *lan) dial(a netip.Addr) (net.Conn, string, error) {
	var c net.Conn
	err := l.client.Do(func() (err error) {
		c, err = net.DialTimeout("tcp", netip.AddrPortFrom(a, 3306).String(), time.Second)
		return err
	})
	if err != nil {
		return nil, "", err
	}
	_ = c.SetReadDeadline(time.Now().Add(time.Second))
	line, err := bufio.NewReader(c).ReadString('\n')
	return c, strings.TrimSpace(line), err
}

// reaches waits until the client's connections to an address are answered by a node.
func (l *lan) reaches(a netip.Addr, name string) net.Conn {
	l.t.Helper()
	for deadline := time.Now().Add(limit); ; <-time.After(5 * time.Millisecond) {
		c, who, err := l.dial(a)
		if err == nil && who == name {
			l.t.Cleanup(func() { _ = c.Close() })
			return c
		}
		if c != nil {
			_ = c.Close()
		}
		if time.Now().After(deadline) {
			l.t.Fatalf("%s is answered by %q (%v), not by %s", a, who, err, name)
		}
	}
}

// TestMove: an address is acquired, and moves; its clients are reset when it goes, and reach the other host at once.
func TestMove(t *testing.T) {
	t.Parallel()
	l := newLAN(t)
	n1, n2 := l.node("n1"), l.node("n2")
	n1.tell("want")
	n1.await("moved", "held=true", `from=""`)
	n1.await("moved", "held=true")
	for _, a := range bothAddrs {
		c := l.reaches(a, "n1")
		if !n1.bound(a) || n2.bound(a) {
			t.Fatalf("%s: n1 %v, n2 %v", a, n1.bound(a), n2.bound(a))
		}
		defer awaitReset(t, c)
	}
	n1.tell("release")
	n1.await("released")
	for _, a := range bothAddrs {
		if n1.bound(a) {
			t.Errorf("%s is still bound", a)
		}
	}
	n2.tell("want")
	for _, a := range bothAddrs {
		l.reaches(a, "n2")
	}
}

// awaitReset: what waits for an answer learns that there will be none.
func awaitReset(t *testing.T, c net.Conn) {
	t.Helper()
	_ = c.SetReadDeadline(time.Now().Add(limit))
	if _, err := c.Read(make([]byte, 1)); !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("a client of %s whose address went: %v, want a reset", c.RemoteAddr(), err)
	}
}

// TestTakeOver: a member that still answers, since its daemon is stopped, loses the address; it is told so, besides all
// others, and its own kernel removes the address.
func TestTakeOver(t *testing.T) {
	t.Parallel()
	l := newLAN(t)
	n1, n2 := l.node("n1"), l.node("n2")
	n1.tell("want")
	for _, a := range bothAddrs {
		l.reaches(a, "n1")
	}
	if err := n1.cmd.Process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	ears := map[netip.Addr]*wire{}
	for _, a := range bothAddrs {
		ears[a] = l.ear(n1.Host, a)
	}
	n2.tell("member " + n1.mac() + " n1")
	n2.tell("want")
	n2.await("held=true", `from="n1"`)
	n2.await("held=true", `from="n1"`)
	for _, a := range bothAddrs {
		l.reaches(a, "n2")
	}
	stale, mac := parseMAC(t, n1.mac()), parseMAC(t, n2.mac())
	for _, a := range bothAddrs {
		l.hears(ears[a], a, 3, slices.Concat(announcements(nil, mac, a), announcements(stale, mac, a)))
	}
	for deadline := time.Now().Add(limit); n1.bound(rw4.Addr()) || n1.bound(rw6.Addr()); <-time.After(50 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("the stopped host still has the address")
		}
	}
}

// TestRights: two capabilities are enough, without any other and without root. Where one is missing it is said which,
// and what for.
func TestRights(t *testing.T) {
	t.Parallel()
	l := newLAN(t)
	n1 := l.node("n1", unix.CAP_NET_ADMIN, unix.CAP_NET_RAW)
	n1.tell("rights")
	n1.await(fmt.Sprintf("rights %x <nil>", 1<<unix.CAP_NET_ADMIN|1<<unix.CAP_NET_RAW))
	n1.await("check ok=true CAP_NET_ADMIN and CAP_NET_RAW are there")
	n1.tell("want")
	for _, a := range bothAddrs {
		defer awaitReset(t, l.reaches(a, "n1"))
	}
	n1.tell("release")
	n1.await("released")
	for _, a := range bothAddrs {
		if n1.bound(a) {
			t.Errorf("%s is still bound", a)
		}
	}
	for _, c := range []struct {
		name, missing, problem string
		right                  uintptr
	}{
		{"unheard", "CAP_NET_RAW", "a socket for ARP and neighbour discovery", unix.CAP_NET_ADMIN},
		{"bound", "CAP_NET_ADMIN", "adding 10.77.0.100 to eth0", unix.CAP_NET_RAW},
	} {
		n := l.node(c.name, c.right)
		n.tell("rights")
		n.await("check ok=false", "lacks "+c.missing+";")
		n.tell("want")
		for deadline := time.Now().Add(limit); ; <-time.After(10 * time.Millisecond) {
			n.tell("state")
			line := n.await("state " + rw4.String())
			if strings.Contains(line, c.problem) && strings.Contains(line, "needs CAP_NET_ADMIN and CAP_NET_RAW") {
				break
			}
			if time.Now().After(deadline) {
				t.Fatalf("without %s: %s", c.missing, line)
			}
		}
		if n.bound(rw4.Addr()) {
			t.Errorf("bound without %s", c.missing)
		}
	}
}

// TestKilled: a killed daemon leaves the address for its lifetime at most, and the next daemon removes it at its start.
func TestKilled(t *testing.T) {
	t.Parallel()
	l := newLAN(t)
	n1 := l.node("n1")
	n1.tell("want")
	for _, a := range bothAddrs {
		l.reaches(a, "n1")
	}
	n1.kill()
	n1.start() // says ready when it has removed what was left
	for _, a := range bothAddrs {
		if n1.bound(a) {
			t.Errorf("%s is still bound", a)
		}
	}
	n1.tell("want")
	for _, a := range bothAddrs {
		l.reaches(a, "n1")
	}
	n1.kill()
	for deadline := time.Now().Add(limit); n1.bound(rw4.Addr()) || n1.bound(rw6.Addr()); <-time.After(50 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("the address is not removed")
		}
	}
}

// TestConflict: an address that a foreign host has is not bound, until that host gives it up.
func TestConflict(t *testing.T) {
	t.Parallel()
	l := newLAN(t)
	foreign := &host{Host: l.host("foreign", netip.MustParsePrefix("10.77.0.50/24"), rw4,
		netip.MustParsePrefix("fd77::50/64"), rw6), t: t}
	n1 := l.node("n1")
	n1.tell("want")
	want := "in use by a host with the MAC " + foreign.mac()
	for told := map[string]bool{}; len(told) < 2; {
		n1.tell("state")
		line := n1.await("state")
		if strings.Contains(line, "held=true") {
			t.Fatal(line)
		}
		if strings.Contains(line, want) {
			told[strings.Fields(line)[1]] = true
		}
		<-time.After(10 * time.Millisecond)
	}
	if n1.bound(rw4.Addr()) || n1.bound(rw6.Addr()) {
		t.Fatal("bound in spite of the conflict")
	}
	if err := n1.Do(func() error {
		for _, f := range Check(t.Context(), []netip.Prefix{rw4, rw6}, "")[1:] {
			if f.OK || !strings.Contains(f.Outcome, foreign.mac()) {
				t.Errorf("the check says %+v", f)
			}
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	if err := foreign.Do(func() error {
		eth, err := netlink.LinkByName("eth0")
		if err != nil {
			return err
		}
		return errors.Join(netlink.AddrDel(eth, &netlink.Addr{IPNet: prefixNet(rw4)}),
			netlink.AddrDel(eth, &netlink.Addr{IPNet: prefixNet(rw6)}))
	}); err != nil {
		t.Fatal(err)
	}
	for _, a := range bothAddrs {
		l.reaches(a, "n1")
	}
}

func prefixNet(p netip.Prefix) *net.IPNet {
	return &net.IPNet{IP: p.Addr().AsSlice(), Mask: net.CIDRMask(p.Bits(), p.Addr().BitLen())}
}

// TestMayNot: an address waits until it may be here, and one that may not be renewed goes by itself.
func TestMayNot(t *testing.T) {
	t.Parallel()
	l := newLAN(t)
	n1 := l.node("n1")
	n1.tell("may no")
	n1.tell("want")
	n1.tell("state")
	if line := n1.await("state"); !strings.Contains(line, "held=false") {
		t.Fatal(line)
	}
	<-time.After(300 * time.Millisecond) // longer than it asks who has it
	if n1.bound(rw4.Addr()) {
		t.Fatal("bound although it may not be here")
	}
	n1.tell("may yes")
	l.reaches(rw4.Addr(), "n1")
	n1.tell("may no")
	for deadline := time.Now().Add(limit); n1.bound(rw4.Addr()); <-time.After(50 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("it is still here")
		}
	}
}

// TestReleaseAfterFailure: what a failed renewal has left on the interface goes with a release, and does not stay for
// its lifetime.
func TestReleaseAfterFailure(t *testing.T) {
	t.Parallel()
	l := newLAN(t)
	n1 := l.node("n1")
	n1.tell("want")
	for _, a := range bothAddrs {
		defer awaitReset(t, l.reaches(a, "n1"))
	}
	n1.tell("fail")
	n1.tell("release")
	n1.await("released")
	for _, a := range bothAddrs {
		if n1.bound(a) {
			t.Errorf("%s is still bound", a)
		}
	}
}

// TestOwnAddress: a virtual address that is configured as a host's own, which no release takes away, is refused.
func TestOwnAddress(t *testing.T) {
	t.Parallel()
	l := newLAN(t)
	n1 := l.host("n1", netip.MustParsePrefix("10.77.0.60/24"), rw4)
	if err := n1.Do(func() error {
		if f := Check(t.Context(), []netip.Prefix{rw4}, "")[1]; f.OK ||
			!strings.Contains(f.Outcome, "address of its own (10.77.0.100/24)") {
			t.Errorf("the check says %+v", f)
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
}

// TestFind: the interface is found by its subnet, and what keeps it from being found is said.
func TestFind(t *testing.T) {
	t.Parallel()
	l := newLAN(t)
	two := l.host("two", netip.MustParsePrefix("10.77.0.60/24"))
	if err := l.Plug(two, "eth1", netip.MustParsePrefix("10.78.0.60/24"), netip.MustParsePrefix("10.79.0.60/24")); err != nil {
		t.Fatal(err)
	}
	if err := l.Plug(two, "eth2", netip.MustParsePrefix("10.79.0.61/24")); err != nil {
		t.Fatal(err)
	}
	if err := two.Do(func() error {
		for _, c := range []struct{ addr, iface, want string }{
			{"10.77.0.100/24", "", "eth0"},
			{"10.78.0.100/24", "", "eth1"},
			{"10.79.0.100/24", "eth2", "eth2"},
			{"10.79.0.100/24", "", "several interfaces have an address in 10.79.0.0/24: eth1, eth2"},
			{"10.80.0.100/24", "", "no interface of this host has an address in 10.80.0.0/24"},
			{"10.77.0.100/24", "eth7", "no interface eth7"},
			{"10.77.0.60/24", "", "no interface of this host"}, // its only address there is the virtual one
		} {
			p := netip.MustParsePrefix(c.addr)
			got, err := find(p, c.iface, []netip.Prefix{p})
			if got.name != c.want && (err == nil || !strings.Contains(err.Error(), c.want)) {
				t.Errorf("%s on %q: %q, %v; want %s", c.addr, c.iface, got.name, err, c.want)
			}
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
}
