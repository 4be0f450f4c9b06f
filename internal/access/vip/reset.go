package vip

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// Messages of sock_diag(7), in the layout of linux/inet_diag.h.
//
//	request:  family 1, protocol 1, extensions 1, 0, states 4 | socket id 48
//	answer:   family 1, state 1, timer 1, retransmits 1       | socket id 48 | expires 4, queues 8, uid 4, inode 4
//	id:       source port 2, destination port 2, source 16, destination 16, interface 4, cookie 8
const (
	diagRequestBytes = 56
	diagHeadBytes    = 8
	answerHeadBytes  = 4
	socketIDBytes    = 48

	sockDiagByFamily = 20
	sockDestroy      = 21

	// All states of a connection but TIME_WAIT and LISTEN.
	tcpConnected = 1<<1 | 1<<2 | 1<<3 | 1<<4 | 1<<5 | 1<<8 | 1<<9 | 1<<11
)

type diagRequest []byte

func (r diagRequest) Len() int          { return len(r) }
func (r diagRequest) Serialize() []byte { return r }

func newDiagRequest(family byte, id []byte) diagRequest {
	r := make(diagRequest, diagRequestBytes)
	r[0], r[1] = family, unix.IPPROTO_TCP
	binary.NativeEndian.PutUint32(r[4:], tcpConnected)
	copy(r[diagHeadBytes:], id)
	return r
}

// resetConnections sends a reset to the other end of every TCP connection to one of addrs and ends it here.
func resetConnections(addrs []netip.Addr) error {
	s, err := nl.Subscribe(unix.NETLINK_SOCK_DIAG)
	if err != nil {
		return fmt.Errorf("resetting connections: %w", err)
	}
	defer s.Close()
	sockets := map[int]*nl.SocketHandle{unix.NETLINK_SOCK_DIAG: {Socket: s}}
	var errs []error
	// A server that listens on :: has its IPv4 connections in sockets of IPv6.
	for _, family := range []byte{unix.AF_INET, unix.AF_INET6} {
		ids, err := connections(sockets, family, addrs)
		if err != nil {
			errs = append(errs, fmt.Errorf("listing connections: %w", err))
		}
		for _, id := range ids {
			req := nl.NewNetlinkRequest(sockDestroy, unix.NLM_F_ACK)
			req.Sockets = sockets
			req.AddData(newDiagRequest(family, id))
			_, err := req.Execute(unix.NETLINK_SOCK_DIAG, 0)
			if errors.Is(err, unix.ENOENT) {
				continue // it has ended by itself
			}
			if err != nil {
				// it would be the same for all
				return errors.Join(append(errs, fmt.Errorf("resetting connections: %w", advise(err)))...)
			}
		}
	}
	return errors.Join(errs...)
}

// connections are the socket ids of those whose own address is one of addrs.
func connections(sockets map[int]*nl.SocketHandle, family byte, addrs []netip.Addr) (ids [][]byte, err error) {
	req := nl.NewNetlinkRequest(sockDiagByFamily, unix.NLM_F_DUMP)
	req.Sockets = sockets
	req.AddData(newDiagRequest(family, nil))
	answers, err := req.Execute(unix.NETLINK_SOCK_DIAG, 0)
	switch {
	case errors.Is(err, unix.ENOENT):
		return nil, nil // the kernel has no IPv6
	case errors.Is(err, nl.ErrDumpInterrupted):
		err = nil // connections come and go
	}
	for _, b := range answers {
		if len(b) < answerHeadBytes+socketIDBytes {
			continue
		}
		id := b[answerHeadBytes : answerHeadBytes+socketIDBytes]
		own := netip.AddrFrom4([4]byte(id[4:8]))
		if family == unix.AF_INET6 {
			own = netip.AddrFrom16([16]byte(id[4:20])).Unmap()
		}
		if slices.Contains(addrs, own) {
			ids = append(ids, slices.Clone(id))
		}
	}
	return ids, err
}
