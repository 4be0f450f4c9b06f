package wan

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"os"
	"slices"
	"time"

	"golang.org/x/sys/unix"
)

const (
	pingSize   = 64 // bytes of ICMP
	pingBuffer = 8 << 20
	pingLinger = 200 * time.Millisecond // beyond the round trip, for the last answers
	icmpEcho   = 8
	icmpReply  = 0
	icmpHeader = 8
	stamps     = unix.SO_TIMESTAMPNS
)

// PingResult are the round trips of echo requests, answered by the other host's kernel and timed by this one's.
type PingResult struct {
	Sent, Received        int
	Elapsed               time.Duration // of sending
	Min, Median, P99, Max time.Duration
	Reordered             int           // answers that overtook one that was asked for earlier
	EmulatorCPU           time.Duration // of the forwarding thread meanwhile
}

// Rate at which requests were really sent, per second.
func (r PingResult) Rate() float64 { return float64(r.Sent) / r.Elapsed.Seconds() }

// Ping sends echo requests from one host to another, evenly spaced. A sender that is late catches up.
func (n *Net) Ping(ctx context.Context, from, to string, perSecond int, length time.Duration) (PingResult, error) {
	a, b, l, err := n.pair(from, to)
	if err != nil {
		return PingResult{}, err
	}
	fd := -1
	err = a.Do(func() (err error) {
		fd, err = openPing()
		return err
	})
	if err != nil {
		return PingResult{}, fmt.Errorf("ping from %s: %w", from, err)
	}
	defer unix.Close(fd)
	total := int(float64(perSecond) * length.Seconds())
	done := make(chan struct{})
	var samples []sample
	received := make(chan error, 1)
	go func() {
		received <- OnThread(func() (err error) {
			samples, err = receivePings(fd, total, done)
			return err
		})
	}()
	var r PingResult
	before, begin := n.Stats().CPU, time.Now()
	err = OnThread(func() (err error) {
		r.Sent, err = sendPings(ctx, fd, b.Addr.As4(), perSecond, total)
		return err
	})
	r.Elapsed, r.EmulatorCPU = time.Since(begin), n.Stats().CPU-before
	linger := time.AfterFunc(l.RTT+2*l.Jitter+pingLinger, func() { close(done) })
	err = errors.Join(err, <-received)
	linger.Stop()
	r.summarise(samples)
	return r, err
}

// pair is two hosts and the link from one to the other, as it is now.
func (n *Net) pair(from, to string) (a, b *Host, l Link, err error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	i, j, err := n.numbers(from, to)
	if err != nil {
		return nil, nil, l, err
	}
	l, _ = n.shared.link(i, j).load()
	return n.hosts[i], n.hosts[j], l, nil
}

// sample is one answer.
type sample struct {
	number uint32
	rtt    time.Duration
}

func (r *PingResult) summarise(samples []sample) {
	if r.Received = len(samples); r.Received == 0 {
		return
	}
	for i := 1; i < len(samples); i++ {
		if samples[i].number < samples[i-1].number {
			r.Reordered++
		}
	}
	slices.SortFunc(samples, func(a, b sample) int { return int(a.rtt - b.rtt) })
	at := func(q float64) time.Duration { return samples[max(0, int(math.Ceil(q*float64(len(samples))))-1)].rtt }
	r.Min, r.Median, r.P99, r.Max = at(0), at(0.5), at(0.99), at(1)
}

func openPing() (int, error) {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.IPPROTO_ICMP)
	if err != nil {
		return -1, err
	}
	for _, o := range [][2]int{{stamps, 1}, {unix.SO_RCVBUFFORCE, pingBuffer}, {unix.SO_SNDBUFFORCE, pingBuffer}} {
		if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, o[0], o[1]); err != nil {
			unix.Close(fd)
			return -1, fmt.Errorf("socket option %d: %w", o[0], err)
		}
	}
	limit := unix.NsecToTimeval(int64(20 * time.Millisecond)) // so that receivePings sees its end
	if err := unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &limit); err != nil {
		unix.Close(fd)
		return -1, err
	}
	return fd, nil
}

// sendPings sends numbered requests that carry the time they were sent, ns of CLOCK_REALTIME as the kernel's stamps.
func sendPings(ctx context.Context, fd int, to [4]byte, perSecond, total int) (int, error) {
	_ = unix.Prctl(unix.PR_SET_TIMERSLACK, slack, 0, 0, 0)
	target := &unix.SockaddrInet4{Addr: to}
	begin := time.Now()
	packet := make([]byte, pingSize)
	packet[0] = icmpEcho
	binary.BigEndian.PutUint16(packet[4:], pingID())
	for i := range total {
		due := begin.Add(time.Duration(i) * time.Second / time.Duration(perSecond))
		if d := time.Until(due); d > 0 {
			t := unix.NsecToTimespec(int64(d))
			_ = unix.Nanosleep(&t, nil)
		}
		if ctx.Err() != nil {
			return i, ctx.Err()
		}
		binary.BigEndian.PutUint32(packet[icmpHeader:], uint32(i))
		binary.BigEndian.PutUint64(packet[icmpHeader+4:], uint64(time.Now().UnixNano()))
		binary.BigEndian.PutUint16(packet[2:], 0)
		binary.BigEndian.PutUint16(packet[2:], checksum(packet))
		if err := unix.Sendto(fd, packet, 0, target); err != nil {
			return i, fmt.Errorf("sending echo request %d: %w", i, err)
		}
	}
	return total, nil
}

// receivePings collects as many answers as there can be, or those until done is closed.
func receivePings(fd, total int, done <-chan struct{}) ([]sample, error) {
	samples := make([]sample, 0, total)
	packet, control := make([]byte, 2048), make([]byte, 128)
	for len(samples) < total {
		n, nc, _, _, err := unix.Recvmsg(fd, packet, control, 0)
		switch {
		case errors.Is(err, unix.EAGAIN), errors.Is(err, unix.EINTR):
			select {
			case <-done:
				return samples, nil
			default:
			}
			continue
		case err != nil:
			return samples, fmt.Errorf("receiving echo replies: %w", err)
		}
		if s, ok := parsePing(packet[:n], control[:nc]); ok {
			samples = append(samples, s)
		}
	}
	return samples, nil
}

// parsePing reads an answer, IP header included, and the kernel's stamp of its arrival.
func parsePing(packet, control []byte) (sample, bool) {
	if len(packet) < 20 {
		return sample{}, false
	}
	icmp := packet[min(len(packet), 4*int(packet[0]&15)):]
	if len(icmp) < pingSize || icmp[0] != icmpReply || binary.BigEndian.Uint16(icmp[4:]) != pingID() {
		return sample{}, false
	}
	messages, err := unix.ParseSocketControlMessage(control)
	if err != nil || len(messages) == 0 || len(messages[0].Data) < 16 {
		return sample{}, false
	}
	stamp := messages[0].Data
	arrived := int64(binary.NativeEndian.Uint64(stamp))*1e9 + int64(binary.NativeEndian.Uint64(stamp[8:]))
	sent := int64(binary.BigEndian.Uint64(icmp[icmpHeader+4:]))
	return sample{binary.BigEndian.Uint32(icmp[icmpHeader:]), time.Duration(arrived - sent)}, true
}

func pingID() uint16 { return uint16(os.Getpid()) }

// checksum of RFC 1071.
func checksum(b []byte) uint16 {
	var sum uint32
	for i := 0; i+1 < len(b); i += 2 {
		sum += uint32(binary.BigEndian.Uint16(b[i:]))
	}
	for sum > 0xffff {
		sum = sum>>16 + sum&0xffff
	}
	return ^uint16(sum)
}
