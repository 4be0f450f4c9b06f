package vip

import (
	"bytes"
	"encoding/hex"
	"net"
	"net/netip"
	"strings"
	"testing"
)

var (
	testMAC = net.HardwareAddr{0x02, 0, 0, 0, 0, 0x01}
	peerMAC = net.HardwareAddr{0x02, 0, 0, 0, 0, 0x02}
	four    = netip.MustParseAddr("10.0.0.100")
	six     = netip.MustParseAddr("fd00::1:2:3:4")
)

// The layouts as RFC 826, 5227, 4861 and 8200 draw them, in hexadecimal, field by field. The ICMPv6 checksums were
// computed manually (RFC 1071) from the pseudo header and the message.
func TestFrames(t *testing.T) {
	padding := strings.Repeat("00", 18)
	for _, c := range []struct{ name, want string }{
		{"probe4", "ffffffffffff 020000000001 0806 0001 0800 06 04 0001 020000000001 00000000 000000000000 0a000064" +
			padding},
		{"announce4", "ffffffffffff 020000000001 0806 0001 0800 06 04 0001 020000000001 0a000064 000000000000 0a000064" +
			padding},
		{"reply4", "ffffffffffff 020000000001 0806 0001 0800 06 04 0002 020000000001 0a000064 000000000000 0a000064" +
			padding},
		{"told4", "020000000002 020000000001 0806 0001 0800 06 04 0001 020000000001 0a000064 000000000000 0a000064" +
			padding},
		{"probe6", "3333ff030004 020000000001 86dd 60000000 0018 3a ff" + strings.Repeat("00", 16) +
			"ff0200000000000000000001ff030004" +
			"87 00 XXXX 00000000 fd000000000000000001000200030004"},
		{"announce6",
			"333300000001 020000000001 86dd 60000000 0020 3a ff fd000000000000000001000200030004 ff020000000000000000000000000001" +
				"88 00 XXXX 20000000 fd000000000000000001000200030004 02 01 020000000001"},
	} {
		var got []byte
		switch c.name {
		case "probe4":
			got = probe(testMAC, four)
		case "announce4":
			got = announcements(nil, testMAC, four)[0]
		case "reply4":
			got = announcements(nil, testMAC, four)[1]
		case "told4":
			got = announcements(peerMAC, testMAC, four)[0]
		case "probe6":
			got = probe(testMAC, six)
		case "announce6":
			got = announcements(nil, testMAC, six)[0]
		}
		text := strings.ReplaceAll(c.want, " ", "")
		if i := strings.Index(text, "XXXX"); i >= 0 {
			text = text[:i] + hex.EncodeToString(got[i/2:i/2+2]) + text[i+4:]
			if !sumIsRight(got) {
				t.Errorf("%s: the checksum %x is wrong", c.name, got[i/2:i/2+2])
			}
		}
		if want, err := hex.DecodeString(text); err != nil || !bytes.Equal(got, want) {
			t.Errorf("%s:\n got %x\nwant %s (%v)", c.name, got, text, err)
		}
	}
}

// sumIsRight adds up pseudo header and message word by word: with the checksum in place that is all ones (RFC 1071 §1).
func sumIsRight(frame []byte) bool {
	p := frame[14:]
	words := append(bytes.Clone(p[8:40]), 0, 0, p[4], p[5], 0, 0, 0, 58)
	words = append(words, p[40:]...)
	sum := 0
	for i := 0; i < len(words); i += 2 {
		if sum += int(words[i])<<8 | int(words[i+1]); sum > 0xffff {
			sum -= 0xffff
		}
	}
	return sum == 0xffff
}

func TestClaim(t *testing.T) {
	for _, a := range []netip.Addr{four, six} {
		for _, b := range announcements(nil, testMAC, a) {
			who, mac, err := claim(b)
			if err != nil || who != a || !bytes.Equal(mac, testMAC) {
				t.Errorf("%s: claim = %v %v, %v", a, who, mac, err)
			}
			for n := range b { // cut short or with a byte changed: no panic, and never another address by a bad checksum
				_, _, _ = claim(b[:n])
				bad := bytes.Clone(b)
				bad[n] ^= 0x55
				if who, _, err := claim(bad); err == nil && a.Is6() && who != a {
					t.Errorf("byte %d changed: claim of %v", n, who)
				}
			}
		}
		if who, _, err := claim(probe(testMAC, a)); err == nil {
			t.Errorf("a probe claims %v", who)
		}
	}
}

func FuzzClaim(f *testing.F) {
	for _, a := range []netip.Addr{four, six} {
		f.Add(probe(testMAC, a))
		for _, b := range announcements(nil, testMAC, a) {
			f.Add(b)
		}
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		if who, mac, err := claim(b); err == nil && (!who.IsValid() || len(mac) != macBytes) {
			t.Errorf("claim = %v %v", who, mac)
		}
	})
}
