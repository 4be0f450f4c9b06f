package wan

import (
	"encoding/binary"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// traceLimit is how many records a trace may have: two for each segment.
const traceLimit = 1 << 18

// ErrTraceFull: more segments crossed than a trace holds.
var ErrTraceFull = errors.New("the trace is full")

// Segment is a TCP segment as it leaves a host, or as it arrives. In a trace each one is there twice, unless it was
// lost.
type Segment struct {
	At               time.Duration // of a monotonic clock of the emulation
	From, To         string        // hosts
	FromPort, ToPort uint16
	Sequence         uint32 // of its first byte: one that is sent again has the same
	Bytes            int    // of payload; 0: it acknowledges, opens or closes
	Arrived          bool   // it is given to its receiver now; false: it was taken from its sender
}

// trace is the shared memory of a trace: a ring that the forwarding process writes.
type trace struct {
	on      atomic.Bool
	count   atomic.Uint64 // records since the emulation's start; the newest at (count-1) % traceLimit
	records [traceLimit]record
}

// record is a Segment in shared memory.
type record struct {
	at               int64
	sequence, bytes  uint32
	fromPort, toPort uint16
	from, to         uint8
	arrived          bool
}

// note records a packet, if it is a TCP segment and a trace is wanted.
func (t *trace) note(now int64, p *path, packet []byte, arrived bool) {
	if !t.on.Load() {
		return
	}
	r, ok := parseSegment(packet[virtioHeader:])
	if !ok {
		return
	}
	r.at, r.from, r.to, r.arrived = now, p.from, p.host, arrived
	n := t.count.Load()
	t.records[n%traceLimit] = r
	t.count.Store(n + 1) // what is counted is complete
}

// parseSegment reads an IPv4 packet that holds a TCP segment (RFC 791, RFC 9293).
func parseSegment(ip []byte) (r record, ok bool) {
	const ipHeader, tcpHeader = 20, 20
	if len(ip) < ipHeader || ip[9] != unix.IPPROTO_TCP || binary.BigEndian.Uint16(ip[6:])&0x1fff != 0 {
		return r, false // another protocol, or a fragment after the first
	}
	begin := int(ip[0]&0xf) * 4
	if begin < ipHeader || len(ip) < begin+tcpHeader {
		return r, false
	}
	tcp := ip[begin:]
	payload := len(tcp) - int(tcp[12]>>4)*4
	if payload < 0 {
		return r, false
	}
	r.fromPort, r.toPort = binary.BigEndian.Uint16(tcp), binary.BigEndian.Uint16(tcp[2:])
	r.sequence, r.bytes = binary.BigEndian.Uint32(tcp[4:]), uint32(payload)
	return r, true
}

// StartTrace records the TCP segments that cross from now on, until StopTrace.
func (n *Net) StartTrace() error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.closed {
		return errEnded
	}
	n.traced = n.shared.trace.count.Load()
	n.shared.trace.on.Store(true)
	return nil
}

// StopTrace returns what has crossed since StartTrace, in the order in which one thread carried it. A segment that a
// host sends because of another one comes after that one's arrival: the order of a trace is cause and effect, whatever
// the load of the machine.
func (n *Net) StopTrace() ([]Segment, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.closed {
		return nil, errEnded
	}
	t := n.shared.trace
	t.on.Store(false)
	end := t.count.Load()
	var out []Segment
	for i := n.traced; i < end && end-n.traced <= traceLimit; i++ {
		r := t.records[i%traceLimit]
		out = append(out, Segment{At: time.Duration(r.at), From: n.hosts[r.from].Name, To: n.hosts[r.to].Name,
			FromPort: r.fromPort, ToPort: r.toPort, Sequence: r.sequence, Bytes: int(r.bytes), Arrived: r.arrived})
	}
	if records := t.count.Load() - n.traced; records > traceLimit {
		return nil, fmt.Errorf("%w: %d records, it holds %d; trace a shorter time", ErrTraceFull, records, traceLimit)
	}
	return out, nil
}
