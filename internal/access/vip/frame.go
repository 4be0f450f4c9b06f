package vip

import (
	"bytes"
	"encoding/binary"
	"errors"
	"net"
	"net/netip"
)

// Ethernet (IEEE 802.3), ARP (RFC 826, RFC 5227), IPv6 (RFC 8200) and neighbour discovery (RFC 4861) as far as
// addresses need them.
const (
	etherARP  = 0x0806
	etherIPv6 = 0x86dd

	etherBytes = 14
	arpBytes   = 28
	ipv6Bytes  = 40
	ndpBytes   = 24 // of a solicitation or advertisement without options
	macBytes   = 6
	leastFrame = 60 // of Ethernet, without the checksum

	arpRequest = 1
	arpReply   = 2

	icmpv6        = 58
	solicitation  = 135
	advertisement = 136
	flagOverride  = 0x20
	optionTarget  = 2 // target link-layer address
)

var (
	broadcast = net.HardwareAddr{0xff, 0xff, 0xff, 0xff, 0xff, 0xff}
	allNodes  = netip.MustParseAddr("ff02::1")

	errFrame = errors.New("not a message about an address")
)

// arp makes a frame. sender is the zero address in a probe.
//
//	destination 6, source 6, type 0806 | hardware 0001, protocol 0800, lengths 06 04, operation 2 | sender MAC 6, IP 4 | target MAC 6, IP 4
func arp(to, mac net.HardwareAddr, operation uint16, sender, target netip.Addr) []byte {
	b := make([]byte, 0, leastFrame)
	b = append(append(b, to...), mac...)
	b = binary.BigEndian.AppendUint16(b, etherARP)
	b = append(b, 0, 1, 0x08, 0, macBytes, 4)
	b = binary.BigEndian.AppendUint16(b, operation)
	b = append(append(b, mac...), sender.AsSlice()...)
	b = append(append(b, make([]byte, macBytes)...), target.AsSlice()...)
	return append(b, make([]byte, leastFrame-len(b))...)
}

// probe asks whether anybody has an address, without changing what anybody knows of it (RFC 5227 §1.1; RFC 4862
// §5.4.2).
func probe(mac net.HardwareAddr, a netip.Addr) []byte {
	if a.Is4() {
		return arp(broadcast, mac, arpRequest, netip.IPv4Unspecified(), a)
	}
	b := a.As16()
	group := netip.AddrFrom16([16]byte{0: 0xff, 1: 0x02, 11: 0x01, 12: 0xff, 13: b[13], 14: b[14], 15: b[15]})
	return ndp(multicastMAC(group), mac, netip.IPv6Unspecified(), group, solicitation, 0, a, nil)
}

// announcements tell that an address is at mac now: an ARP announcement (RFC 5227 §2.3) and, for what only listens to
// replies, the same as a reply; an unsolicited neighbour advertisement with the override flag (RFC 4861 §7.2.6). to is
// one host, or nil: all.
func announcements(to, mac net.HardwareAddr, a netip.Addr) [][]byte {
	if a.Is4() {
		if to == nil {
			to = broadcast
		}
		return [][]byte{arp(to, mac, arpRequest, a, a), arp(to, mac, arpReply, a, a)}
	}
	if to == nil {
		to = multicastMAC(allNodes)
	}
	return [][]byte{ndp(to, mac, a, allNodes, advertisement, flagOverride, a, mac)}
}

// multicastMAC is where Ethernet carries an IPv6 group (RFC 2464 §7).
func multicastMAC(group netip.Addr) net.HardwareAddr {
	b := group.As16()
	return net.HardwareAddr{0x33, 0x33, b[12], b[13], b[14], b[15]}
}

// ndp makes a frame with a solicitation or an advertisement about an address. The target's MAC is an option, nil: it is
// left out.
func ndp(to, mac net.HardwareAddr, from, group netip.Addr, kind, flags byte, about netip.Addr,
	target net.HardwareAddr) []byte {
	m := make([]byte, 0, ndpBytes+8)
	m = append(m, kind, 0, 0, 0, flags, 0, 0, 0)
	m = append(m, about.AsSlice()...)
	if target != nil {
		m = append(append(m, optionTarget, 1), target...)
	}
	binary.BigEndian.PutUint16(m[2:], checksum(from, group, m))

	b := make([]byte, 0, etherBytes+ipv6Bytes+len(m))
	b = append(append(b, to...), mac...)
	b = binary.BigEndian.AppendUint16(b, etherIPv6)
	b = append(b, 0x60, 0, 0, 0)
	b = binary.BigEndian.AppendUint16(b, uint16(len(m)))
	b = append(b, icmpv6, 255) // RFC 4861 §7.1: with less it came over a router, and is dropped
	b = append(append(b, from.AsSlice()...), group.AsSlice()...)
	return append(b, m...)
}

// checksum of an ICMPv6 message whose own field is zero, or 0 if it is right (RFC 8200 §8.1).
func checksum(from, to netip.Addr, m []byte) uint16 {
	var pseudo []byte
	pseudo = append(append(pseudo, from.AsSlice()...), to.AsSlice()...)
	pseudo = binary.BigEndian.AppendUint32(pseudo, uint32(len(m)))
	pseudo = append(append(pseudo, 0, 0, 0, icmpv6), m...)
	if len(pseudo)%2 == 1 {
		pseudo = append(pseudo, 0)
	}
	var sum uint32
	for i := 0; i < len(pseudo); i += 2 {
		sum += uint32(binary.BigEndian.Uint16(pseudo[i:]))
	}
	for sum > 0xffff {
		sum = sum>>16 + sum&0xffff
	}
	return ^uint16(sum)
}

// claim reads who says in a frame that an address is his: the sender of an ARP message, the target of an advertisement.
// Others are errFrame.
func claim(b []byte) (netip.Addr, net.HardwareAddr, error) {
	if len(b) < etherBytes {
		return netip.Addr{}, nil, errFrame
	}
	source := net.HardwareAddr(bytes.Clone(b[6:12]))
	switch body := b[etherBytes:]; binary.BigEndian.Uint16(b[12:]) {
	case etherARP:
		if len(body) < arpBytes || !bytes.Equal(body[:6], []byte{0, 1, 0x08, 0, macBytes, 4}) {
			return netip.Addr{}, nil, errFrame
		}
		sender := netip.AddrFrom4([4]byte(body[14:18]))
		if sender.IsUnspecified() {
			return netip.Addr{}, nil, errFrame // a probe
		}
		return sender, bytes.Clone(body[8:14]), nil
	case etherIPv6:
		return claimNDP(source, body)
	}
	return netip.Addr{}, nil, errFrame
}

// claimNDP is claim for an IPv6 packet.
func claimNDP(source net.HardwareAddr, p []byte) (netip.Addr, net.HardwareAddr, error) {
	if len(p) < ipv6Bytes+ndpBytes || p[0]>>4 != 6 || p[6] != icmpv6 || p[7] != 255 {
		return netip.Addr{}, nil, errFrame
	}
	from, to := netip.AddrFrom16([16]byte(p[8:24])), netip.AddrFrom16([16]byte(p[24:40]))
	end := ipv6Bytes + int(binary.BigEndian.Uint16(p[4:]))
	if end < ipv6Bytes+ndpBytes || end > len(p) {
		return netip.Addr{}, nil, errFrame
	}
	m := p[ipv6Bytes:end]
	if m[0] != advertisement || m[1] != 0 || checksum(from, to, m) != 0 {
		return netip.Addr{}, nil, errFrame
	}
	for o := m[ndpBytes:]; len(o) >= 8 && o[1] > 0 && len(o) >= 8*int(o[1]); o = o[8*int(o[1]):] {
		if o[0] == optionTarget {
			source = bytes.Clone(o[2:8])
		}
	}
	return netip.AddrFrom16([16]byte(m[8:24])), source, nil
}
