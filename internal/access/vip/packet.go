package vip

import (
	"bytes"
	"fmt"
	"net"
	"net/netip"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// wire sends and receives frames about addresses of one family on one interface.
type wire struct {
	f *os.File
}

// ndpFilter lets neighbour advertisements through: all other IPv6 traffic of the host must not be copied for us.
var ndpFilter = []unix.SockFilter{
	{Code: unix.BPF_LD | unix.BPF_B | unix.BPF_ABS, K: etherBytes + 6},
	{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, K: icmpv6, Jf: 3},
	{Code: unix.BPF_LD | unix.BPF_B | unix.BPF_ABS, K: etherBytes + ipv6Bytes},
	{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, K: advertisement, Jf: 1},
	{Code: unix.BPF_RET | unix.BPF_K, K: 0xffff},
	{Code: unix.BPF_RET | unix.BPF_K, K: 0},
}

// openWire needs CAP_NET_RAW.
func openWire(l link, a netip.Addr) (*wire, error) {
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return nil, fmt.Errorf("a socket for ARP and neighbour discovery: %w", advise(err))
	}
	protocol := uint16(etherARP)
	if a.Is6() {
		protocol = etherIPv6
		prog := unix.SockFprog{Len: uint16(len(ndpFilter)), Filter: &ndpFilter[0]}
		err = unix.SetsockoptSockFprog(fd, unix.SOL_SOCKET, unix.SO_ATTACH_FILTER, &prog)
	}
	if err == nil { // it receives nothing before, so nothing that the filter has not seen
		err = unix.Bind(fd, &unix.SockaddrLinklayer{Protocol: protocol<<8 | protocol>>8, Ifindex: l.index})
	}
	if err != nil {
		_ = unix.Close(fd)
		return nil, fmt.Errorf("interface %s: a socket for ARP and neighbour discovery: %w", l.name, err)
	}
	return &wire{os.NewFile(uintptr(fd), "vip-"+l.name)}, nil
}

func (w *wire) close() { _ = w.f.Close() }

func (w *wire) send(frames ...[]byte) error {
	for _, b := range frames {
		if _, err := w.f.Write(b); err != nil {
			return err
		}
	}
	return nil
}

// claimed waits until somebody other than own says that a is his, at most for d, which is os.ErrDeadlineExceeded.
func (w *wire) claimed(a netip.Addr, own net.HardwareAddr, d time.Duration) (net.HardwareAddr, error) {
	if err := w.f.SetReadDeadline(time.Now().Add(d)); err != nil {
		return nil, err
	}
	b := make([]byte, 2048)
	for {
		n, err := w.f.Read(b)
		if err != nil {
			return nil, err
		}
		if whose, mac, err := claim(b[:n]); err == nil && whose == a && !bytes.Equal(mac, own) {
			return mac, nil
		}
	}
}
