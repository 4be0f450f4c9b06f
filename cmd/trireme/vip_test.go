package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"trireme/internal/access/vip"
	"trireme/internal/core/guard"
	"trireme/lab/needs"
	"trireme/lab/wan"
)

var (
	vip4, vip6 = netip.MustParsePrefix("10.77.0.100/24"), netip.MustParsePrefix("fd77::100/64")
	vipRights  = []uintptr{unix.CAP_NET_ADMIN, unix.CAP_NET_RAW}
)

// vipLimit is for what takes a second or two.
const vipLimit = 20 * time.Second

func lanHost(t *testing.T, l *wan.LAN, name string, addrs ...string) *wan.Host {
	t.Helper()
	var list []netip.Prefix
	for _, a := range addrs {
		list = append(list, netip.MustParsePrefix(a))
	}
	return needs.Host(t, l, name, list...)
}

// addresses of a host's eth0, those of the link left out, and its MAC.
func addresses(t *testing.T, h *wan.Host) (addrs, mac string) {
	t.Helper()
	if err := h.Do(func() error {
		eth, err := net.InterfaceByName("eth0")
		if err != nil {
			return err
		}
		list, err := eth.Addrs()
		// comes when the kernel likes
		list = slices.DeleteFunc(list, func(a net.Addr) bool { return strings.HasPrefix(a.String(), "fe80:") })
		addrs, mac = fmt.Sprint(list), eth.HardwareAddr.String()
		return err
	}); err != nil {
		t.Fatal(err)
	}
	return addrs, mac
}

// bindForEver gives a host the virtual addresses without a lifetime: the kernel does not remove them.
func bindForEver(t *testing.T, h *wan.Host) {
	t.Helper()
	if err := h.Do(func() error {
		eth, err := netlink.LinkByName("eth0")
		if err != nil {
			return err
		}
		for _, p := range []netip.Prefix{vip4, vip6} {
			bits := p.Addr().BitLen()
			a := &netlink.Addr{IPNet: &net.IPNet{IP: p.Addr().AsSlice(), Mask: net.CIDRMask(bits, bits)}}
			if p.Addr().Is6() {
				a.Flags = unix.IFA_F_NODAD
			}
			if err := netlink.AddrAdd(eth, a); err != nil {
				return err
			}
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
}

// runAs runs the program on a host with settings as a user who has these capabilities and no others, and returns what
// it says on both outputs, in one line.
func runAs(t *testing.T, h *wan.Host, rights []uintptr, settings string, args ...string) (out string, code int) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "trireme.toml")
	err := os.WriteFile(path, []byte(settings), 0o600)
	if err == nil {
		err = os.Chmod(path, 0o644)
	}
	f, err2 := os.Open(path) // that user cannot reach it by its name
	if err := errors.Join(err, err2); err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	cmd := exec.Command("/proc/self/exe", append(args, "--config", "/proc/self/fd/3")...)
	cmd.Args[0] = "trireme"
	cmd.ExtraFiles = []*os.File{f}
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}, AmbientCaps: rights}
	var b bytes.Buffer
	cmd.Stdout, cmd.Stderr = &b, &b
	err = h.Do(cmd.Run)
	if _, ended := errors.AsType[*exec.ExitError](err); err != nil && !ended {
		t.Fatal(err)
	}
	return strings.Join(strings.Fields(b.String()), " "), cmd.ProcessState.ExitCode()
}

// vipSettings are a node's, with these read-write addresses, as TOML has them.
func vipSettings(rw string) string {
	return fmt.Sprintf("cluster = \"c1\"\nname = \"n1\"\ndir = \"/var/lib/trireme\"\n[peer]\nadvertise = \"db1:7306\"\n[api]\nadvertise = \"db1:8008\"\n"+
		"[mysql]\nbind = \"*\"\n[vip]\nrw = %s\n", rw)
}

// TestVIPCheck: the verb says what would fail, its exit code that something would, and it changes nothing.
func TestVIPCheck(t *testing.T) {
	l := needs.LAN(t)
	h := lanHost(t, l, "n1", "10.77.0.11/24", "10.77.0.12/24", "fd77::11/64")
	_, other := addresses(t, lanHost(t, l, "other", "10.77.0.13/24", "10.77.0.101/24"))
	before, _ := addresses(t, h)
	const good = "ok rights CAP_NET_ADMIN and CAP_NET_RAW are there "
	for _, c := range []struct {
		name, rw string
		rights   []uintptr
		code     int
		out      string
	}{
		{"all is well", `["10.77.0.100/24", "fd77::100/64"]`, vipRights, 0, good +
			"ok 10.77.0.100/24 free, on interface eth0 ok fd77::100/64 free, on interface eth0"},
		{"conflict", `"10.77.0.101/24"`, vipRights, 1, good + "FAILED 10.77.0.101/24 in use by the host with the MAC " +
			other +
			" (seen on eth0); right only if that is the node that holds it now"},
		{"no interface", `["10.99.0.100/24", "10.77.0.100/24"]`, vipRights, 1,
			good + "FAILED 10.99.0.100/24 no interface of this host has an address in " +
				"10.99.0.0/24, the subnet of 10.99.0.100; name one as vip.interface ok 10.77.0.100/24 free, on interface eth0"},
		{"its own", `"10.77.0.12/24"`, vipRights, 1,
			good + "FAILED 10.77.0.12/24 this host has 10.77.0.12 as an address of its own (10.77.0.12/24), " +
				"so clients reach it here no matter which node leads; remove it, or configure another one"},
		{"no capability", `"10.77.0.100/24"`, nil, 1,
			"FAILED rights this process lacks CAP_NET_ADMIN and CAP_NET_RAW; give them to the daemon, and run this check " +
				"with them FAILED 10.77.0.100/24 a socket for ARP and neighbour discovery: operation not permitted; the daemon needs CAP_NET_ADMIN and CAP_NET_RAW (docs/vip.md)"},
		{"one capability", `"10.77.0.100/24"`, []uintptr{unix.CAP_NET_RAW}, 1,
			"FAILED rights this process lacks CAP_NET_ADMIN; give them to the daemon, and run " +
				"this check with them ok 10.77.0.100/24 free, on interface eth0"},
		{"no address", `[]`, vipRights, 1,
			"trireme: no virtual addresses in /proc/self/fd/3; give vip.rw or vip.ro (docs/vip.md)"},
	} {
		if out, code := runAs(t, h, c.rights, vipSettings(c.rw), "vip", "check"); out != c.out || code != c.code {
			t.Errorf("%s: exit code %d, want %d\n got %s\nwant %s", c.name, code, c.code, out, c.out)
		}
	}
	out, code := runAs(t, h, vipRights, vipSettings(`["10.77.0.100/24", "10.77.0.101/24"]`), "vip", "check", "--json")
	var findings []vip.Finding
	if err := json.Unmarshal([]byte(out), &findings); err != nil || code != 1 || len(findings) != 3 || !findings[0].OK ||
		!findings[1].OK || findings[2].OK ||
		findings[2].What != "10.77.0.101/24" {
		t.Errorf("--json: exit code %d, %v: %s", code, err, out)
	}
	if after, _ := addresses(t, h); after != before {
		t.Errorf("the host had %s before the checks, and has %s", before, after)
	}
}

// TestVIPRelease: the verb takes away what is there, and does not pretend to.
func TestVIPRelease(t *testing.T) {
	h := lanHost(t, needs.LAN(t), "n1", "10.77.0.11/24", "fd77::11/64")
	before, _ := addresses(t, h)
	bindForEver(t, h)
	settings := vipSettings(`["10.77.0.100/24", "fd77::100/64"]`)
	if out, code := runAs(t, h, nil, settings, "vip", "release"); code != 1 ||
		!strings.Contains(out, "removing 10.77.0.100: operation not permitted; the daemon needs CAP_NET_ADMIN") {
		t.Errorf("without rights: exit code %d: %s", code, out)
	}
	for range 2 { // the second time there is nothing to remove
		if out, code := runAs(t, h, vipRights[:1], settings, "vip", "release"); code != 0 || out != "" {
			t.Errorf("exit code %d: %s", code, out)
		}
		if after, _ := addresses(t, h); after != before {
			t.Errorf("the host has %s, and had %s before", after, before)
		}
	}
}

// guardedDaemon is a daemon that gives its guard signs of life for as long as it runs, in a process of its own.
func guardedDaemon() error {
	_ = os.Unsetenv("VIP_TEST_DAEMON") // the guard is no daemon
	g, err := guard.Start([]string{"trireme", "guard", "--node", "n1", "--vip", vip4.Addr().String(), "--vip", vip6.Addr().
		String()}, true,
		slog.New(slog.NewTextHandler(os.Stderr, nil)))
	if err != nil {
		return err
	}
	for said := false; ; <-time.After(50 * time.Millisecond) {
		var now unix.Timespec
		if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &now); err != nil {
			return err
		}
		g.Until(time.Duration(now.Nano()) + 2*time.Second)
		if !said {
			said = true
			fmt.Println("ready")
		}
	}
}

// TestGuardRemovesAddresses: the guard removes the addresses of a daemon that is killed or stopped; nothing else does
// so here.
func TestGuardRemovesAddresses(t *testing.T) {
	l := needs.LAN(t)
	for _, sig := range []syscall.Signal{syscall.SIGKILL, syscall.SIGSTOP} {
		t.Run(sig.String(), func(t *testing.T) {
			h := lanHost(t, l, "n1", "10.77.0.11/24", "fd77::11/64")
			before, _ := addresses(t, h)
			bindForEver(t, h)
			bound, _ := addresses(t, h)
			cmd := exec.Command("/proc/self/exe")
			cmd.Env = append(os.Environ(), "VIP_TEST_DAEMON=1")
			cmd.Stderr = t.Output()
			out, err := cmd.StdoutPipe()
			if err := errors.Join(err, h.Do(cmd.Start)); err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() {
				_ = cmd.Process.Kill()
				_, _ = io.Copy(io.Discard, out)
				_ = cmd.Wait() // killed, it says
			})
			if line, err := bufio.NewReader(out).ReadString('\n'); err != nil || line != "ready\n" {
				t.Fatalf("%q, %v", line, err)
			}
			if now, _ := addresses(t, h); now != bound {
				t.Fatalf("the host of a daemon that runs has %s, and not %s", now, bound)
			}
			if err := cmd.Process.Signal(sig); err != nil {
				t.Fatal(err)
			}
			for deadline := time.Now().Add(vipLimit); ; <-time.After(5 * time.Millisecond) {
				now, _ := addresses(t, h)
				if now == before {
					return
				}
				if time.Now().After(deadline) {
					t.Fatalf("the host still has %s", now)
				}
			}
		})
	}
}
