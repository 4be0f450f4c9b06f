package wan

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"runtime"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// ErrUnavailable: this machine, or this process on it, cannot emulate hosts. The message says why.
var ErrUnavailable = errors.New("network emulation is not available")

const (
	virtioHeader = 10 // struct virtio_net_hdr, in front of every packet
	mtu          = 1500
	txQueue      = 10000 // packets that wait in a device for the thread

	tunSetIff     = 0x400454ca // linux/if_tun.h
	tunSetOffload = 0x400454d0
	offloadCsum   = 0x01
	offloadTSO    = 0x02 | 0x04 // IPv4 and IPv6, which go together in practice

	networks = 512 // /24s in 198.18.0.0/15, which RFC 2544 sets aside for benchmarks
)

// inNewNamespace runs f on a thread in a new network namespace, and returns a descriptor that keeps the namespace.
func inNewNamespace(f func() error) (*os.File, error) {
	var ns *os.File
	err := OnThread(func() (err error) {
		if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
			if errors.Is(err, unix.EPERM) {
				return fmt.Errorf("%w: a network namespace needs root (CAP_SYS_ADMIN): %w", ErrUnavailable, err)
			}
			return fmt.Errorf("%w: making a network namespace: %w", ErrUnavailable, err)
		}
		if ns, err = os.Open("/proc/thread-self/ns/net"); err != nil {
			return err
		}
		return f()
	})
	if err != nil && ns != nil {
		ns.Close()
	}
	return ns, err
}

// OnThread runs f on a thread of its own, which ends with f: what f does to the thread is gone afterwards.
func OnThread(f func() error) error {
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // never unlocked
		done <- f()
	}()
	return <-done
}

// openTUN makes a TUN device in the namespace of this thread. It is gone when its descriptor is closed.
func openTUN(name string) (*os.File, error) {
	fd, err := unix.Open("/dev/net/tun", unix.O_RDWR|unix.O_CLOEXEC, 0)
	switch {
	case errors.Is(err, unix.ENOENT), errors.Is(err, unix.ENODEV), errors.Is(err, unix.ENXIO):
		return nil, fmt.Errorf("%w: no /dev/net/tun (kernel module tun; in a container: --device /dev/net/tun): %w",
			ErrUnavailable, err)
	case errors.Is(err, unix.EACCES), errors.Is(err, unix.EPERM):
		return nil, fmt.Errorf("%w: TUN devices and network namespaces need root: /dev/net/tun: %w", ErrUnavailable, err)
	case err != nil:
		return nil, fmt.Errorf("%w: /dev/net/tun: %w", ErrUnavailable, err)
	}
	if err := configureTUN(fd, name); err != nil {
		unix.Close(fd)
		return nil, err
	}
	return os.NewFile(uintptr(fd), name), nil
}

func configureTUN(fd int, name string) error {
	ifr, err := unix.NewIfreq(name)
	if err != nil {
		return fmt.Errorf("device name %q: %w", name, err)
	}
	ifr.SetUint16(unix.IFF_TUN | unix.IFF_NO_PI | unix.IFF_VNET_HDR | unix.IFF_TUN_EXCL)
	if err := unix.IoctlIfreq(fd, tunSetIff, ifr); err != nil {
		if errors.Is(err, unix.EPERM) {
			return fmt.Errorf("%w: a TUN device needs root (CAP_NET_ADMIN): %w", ErrUnavailable, err)
		}
		return fmt.Errorf("TUN device %s: %w", name, err)
	}
	return offload(fd, true)
}

// offload lets segments of up to 64 KiB pass whole, or not.
func offload(fd int, segments bool) error {
	flags := offloadCsum
	if segments {
		flags |= offloadTSO
	}
	if err := unix.IoctlSetInt(fd, tunSetOffload, flags); err != nil {
		return fmt.Errorf("TUN offload: %w", err)
	}
	return nil
}

// configure gives a device of this thread's namespace an address in a /24 and brings it up; with it comes the route.
func configure(name string, address netip.Addr) error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	for _, step := range []struct {
		what    string
		request uint
		set     func(*unix.Ifreq) error
	}{
		{"address", unix.SIOCSIFADDR, func(r *unix.Ifreq) error { return r.SetInet4Addr(address.AsSlice()) }},
		{"netmask", unix.SIOCSIFNETMASK, func(r *unix.Ifreq) error { return r.SetInet4Addr([]byte{255, 255, 255, 0}) }},
		{"MTU", unix.SIOCSIFMTU, func(r *unix.Ifreq) error { r.SetUint32(mtu); return nil }},
		{"queue length", unix.SIOCSIFTXQLEN, func(r *unix.Ifreq) error { r.SetUint32(txQueue); return nil }},
		{"up", unix.SIOCSIFFLAGS, func(r *unix.Ifreq) error { r.SetUint16(unix.IFF_UP | unix.IFF_RUNNING); return nil }},
	} {
		ifr, err := unix.NewIfreq(name)
		if err == nil {
			err = step.set(ifr)
		}
		if err == nil {
			err = unix.IoctlIfreq(fd, step.request, ifr)
		}
		if err != nil {
			return fmt.Errorf("device %s: %s: %w", name, step.what, err)
		}
	}
	return nil
}

// loopbackUp brings up lo of a new namespace.
func loopbackUp() error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	ifr, err := unix.NewIfreq("lo")
	if err != nil {
		return err
	}
	ifr.SetUint16(unix.IFF_UP | unix.IFF_RUNNING)
	if err := unix.IoctlIfreq(fd, unix.SIOCSIFFLAGS, ifr); err != nil {
		return fmt.Errorf("loopback up: %w", err)
	}
	return nil
}

// subnet is network k of 198.18.0.0/15.
func subnet(k int) netip.Prefix {
	return netip.PrefixFrom(netip.AddrFrom4([4]byte{198, byte(18 + k/256), byte(k % 256), 0}), 24)
}

// openObserver makes this machine's own device on the first network that neither another emulation nor a route uses.
// The device's name is what keeps two emulations apart: it can be made once.
func openObserver() (tun *os.File, net netip.Prefix, err error) {
	taken, err := routes()
	if err != nil {
		return nil, net, err
	}
	for k := range networks {
		net = subnet(k)
		if overlaps(taken, net) {
			continue
		}
		name := "trwan" + strconv.Itoa(k)
		tun, err = openTUN(name)
		if errors.Is(err, unix.EBUSY) || errors.Is(err, unix.EINVAL) && nameTaken(name) {
			continue
		}
		if err != nil {
			return nil, net, err
		}
		if err = configure(name, hostAddress(net, 0)); err != nil {
			tun.Close()
			return nil, net, err
		}
		return tun, net, nil
	}
	return nil, net, fmt.Errorf("%w: all networks of 198.18.0.0/15 are in use on this machine", ErrUnavailable)
}

func nameTaken(name string) bool {
	_, err := os.Stat("/sys/class/net/" + name)
	return err == nil
}

func overlaps(taken []netip.Prefix, net netip.Prefix) bool {
	for _, t := range taken {
		if t.Overlaps(net) {
			return true
		}
	}
	return false
}

// hostAddress of host i in a network: the observer is .1 and number 0, the others begin at .11.
func hostAddress(net netip.Prefix, i int) netip.Addr {
	a := net.Addr().As4()
	a[3] = 1
	if i > 0 {
		a[3] = byte(10 + i)
	}
	return netip.AddrFrom4(a)
}

// routes of this machine, the default one left out (proc(5), /proc/net/route).
func routes() ([]netip.Prefix, error) {
	f, err := os.Open("/proc/thread-self/net/route")
	if err != nil {
		return nil, err
	}
	defer f.Close()
	var out []netip.Prefix
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		fields := strings.Fields(lines.Text())
		if len(fields) < 8 || fields[1] == "Destination" {
			continue
		}
		destination, err1 := strconv.ParseUint(fields[1], 16, 32)
		mask, err2 := strconv.ParseUint(fields[7], 16, 32)
		if err1 != nil || err2 != nil {
			return nil, fmt.Errorf("/proc/net/route: %q", lines.Text())
		}
		if mask == 0 {
			continue
		}
		var a [4]byte
		binary.LittleEndian.PutUint32(a[:], uint32(destination))
		bits := 0
		for m := uint32(mask); m != 0; m &= m - 1 {
			bits++
		}
		out = append(out, netip.PrefixFrom(netip.AddrFrom4(a), bits))
	}
	return out, lines.Err()
}
