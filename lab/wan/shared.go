package wan

import (
	"fmt"
	"math"
	"os"
	"sync/atomic"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// shared is the memory that this process and the forwarding process have in common: this one writes the links, that one
// the counters and the trace.
type shared struct {
	count *counters
	links []linkState // of the ordered pair from, to: at from*hosts+to
	trace *trace
	hosts int
	raw   []byte
}

// counters since the start.
type counters struct {
	packets, bytes, lost, cut, overflow, strange atomic.Uint64
	late, maxLate                                atomic.Int64 // ns
	realTime                                     atomic.Bool  // the thread has real-time priority
}

// linkState is one direction between two hosts, as it is now.
type linkState struct {
	rtt, jitter, rate atomic.Int64  // ns, ns, bit/s
	loss              atomic.Uint64 // math.Float64bits
	cut               atomic.Bool
}

func (s *linkState) load() (Link, bool) {
	return Link{
		RTT: time.Duration(s.rtt.Load()), Jitter: time.Duration(s.jitter.Load()),
		Rate: Rate(s.rate.Load()), Loss: math.Float64frombits(s.loss.Load()),
	}, s.cut.Load()
}

func (s *linkState) store(l Link, cut bool) {
	s.rtt.Store(int64(l.RTT))
	s.jitter.Store(int64(l.Jitter))
	s.rate.Store(int64(l.Rate))
	s.loss.Store(math.Float64bits(l.Loss))
	s.cut.Store(cut)
}

func sharedSize(hosts int) int {
	return traceOffset(hosts) + int(unsafe.Sizeof(trace{}))
}

func traceOffset(hosts int) int {
	return int(unsafe.Sizeof(counters{})) + hosts*hosts*int(unsafe.Sizeof(linkState{}))
}

// newShared makes the memory as a file without a name.
func newShared(hosts int) (*os.File, error) {
	fd, err := unix.MemfdCreate("trireme-wan", unix.MFD_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("shared memory: %w", err)
	}
	f := os.NewFile(uintptr(fd), "trireme-wan")
	if err := f.Truncate(int64(sharedSize(hosts))); err != nil {
		f.Close()
		return nil, fmt.Errorf("shared memory: %w", err)
	}
	return f, nil
}

func mapShared(f *os.File, hosts int) (*shared, error) {
	raw, err := unix.Mmap(int(f.Fd()), 0, sharedSize(hosts), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return nil, fmt.Errorf("shared memory: %w", err)
	}
	c := (*counters)(unsafe.Pointer(&raw[0]))
	links := unsafe.Slice((*linkState)(unsafe.Pointer(&raw[unsafe.Sizeof(*c)])), hosts*hosts)
	return &shared{count: c, links: links, trace: (*trace)(unsafe.Pointer(&raw[traceOffset(hosts)])), hosts: hosts,
		raw: raw}, nil
}

func (s *shared) link(from, to int) *linkState { return &s.links[from*s.hosts+to] }

func (s *shared) unmap() { _ = unix.Munmap(s.raw) }
