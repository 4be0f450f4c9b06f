package wan

import (
	"container/heap"
	"errors"
	"math/rand/v2"
	"net/netip"
	"os"
	"runtime"
	"runtime/debug"
	"strconv"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"trireme/lab/child"
)

const (
	readBatch   = 64 // packets from one device before the others and the deadlines get their turn
	memoryLimit = 4 << 30

	// Descriptors of the forwarding process.
	readyFD  = 1 // written once it runs
	endFD    = 3 // closed when it is to end: also by the death of the process that holds the other end
	sharedFD = 4
	firstTUN = 5 // of the observer; the others follow
)

// Forwarder is the process that carries the packets of a Net. Its arguments are the network and the number of hosts.
var Forwarder = child.Role{Name: "trireme-wan", Run: func(args []string) error {
	if len(args) != 2 {
		return errors.New("want NETWORK HOSTS")
	}
	return forward(args[0], args[1])
}}

func forward(network, hosts string) error {
	runtime.LockOSThread() // it is not to change threads: each change is a wait
	debug.SetGCPercent(-1) // nothing is allocated but queues, which are used again
	debug.SetMemoryLimit(memoryLimit)
	prefix, err := netip.ParsePrefix(network)
	if err != nil {
		return err
	}
	n, err := strconv.Atoi(hosts)
	if err != nil {
		return err
	}
	f, err := newForwarder(prefix, n)
	if err != nil {
		return err
	}
	return f.run()
}

// forwarder is the loop that carries packets.
type forwarder struct {
	network [3]byte // the first bytes of every host's address
	hosts   int
	paths   [][]*path // from, to; nil to itself
	shared  *shared

	polled []unix.PollFd // devices of the hosts, endFD
	due    deadlines
	pool   chunkPool
	chance *rand.Rand
	buf    [largestPacket]byte
}

func newForwarder(network netip.Prefix, hosts int) (*forwarder, error) {
	mem, err := mapShared(os.NewFile(sharedFD, "shared"), hosts)
	if err != nil {
		return nil, err
	}
	f := &forwarder{hosts: hosts, shared: mem, chance: rand.New(rand.NewPCG(rand.Uint64(), rand.Uint64()))}
	a := network.Addr().As4()
	f.network = [3]byte(a[:3])
	for from := range hosts {
		if err := unix.SetNonblock(firstTUN+from, true); err != nil {
			return nil, err
		}
		f.polled = append(f.polled, unix.PollFd{Fd: int32(firstTUN + from), Events: unix.POLLIN})
		row := make([]*path, hosts)
		for to := range hosts {
			if to != from {
				row[to] = &path{from: uint8(from), host: uint8(to), to: firstTUN + to, state: mem.link(from, to)}
			}
		}
		f.paths = append(f.paths, row)
	}
	f.polled = append(f.polled, unix.PollFd{Fd: endFD, Events: unix.POLLIN})
	attr, err := unix.SchedGetAttr(0, 0)
	mem.count.realTime.Store(err == nil && attr.Policy == unix.SCHED_FIFO)
	return f, nil
}

// run carries packets until endFD is closed.
func (f *forwarder) run() error {
	if _, err := unix.Write(readyFD, []byte{'\n'}); err != nil {
		return err
	}
	for {
		f.deliverDue(monotonic())
		if err := f.wait(); err != nil {
			return err
		}
		for from := range f.hosts {
			if f.polled[from].Revents != 0 {
				f.drain(from)
			}
		}
		if f.polled[f.hosts].Revents != 0 {
			return nil
		}
	}
}

// monotonic is the clock of deadlines, ns.
func monotonic() int64 { return int64(time.Since(epoch)) }

var epoch = time.Now()

// wait sleeps until a packet can be read or the next one is due. Go's scheduler is not told of this either: it would
// wake its monitor thread each time, which doubles the CPU time at 1,000 packets a second.
func (f *forwarder) wait() error {
	var timeout *unix.Timespec
	if len(f.due) > 0 {
		next, _ := f.due[0].queue.head()
		t := unix.NsecToTimespec(max(0, next-monotonic()))
		timeout = &t
	}
	_, _, errno := syscall.RawSyscall6(syscall.SYS_PPOLL, uintptr(unsafe.Pointer(&f.polled[0])), uintptr(len(f.polled)),
		uintptr(unsafe.Pointer(timeout)), 0, 0, 0)
	switch errno {
	case 0:
		return nil
	case syscall.EINTR:
		for i := range f.polled {
			f.polled[i].Revents = 0
		}
		return nil
	}
	return errno
}

// drain reads what a host has sent, up to a batch.
func (f *forwarder) drain(from int) {
	for range readBatch {
		n, errno := call(syscall.SYS_READ, firstTUN+from, f.buf[:])
		if errno != 0 { // EAGAIN: empty
			return
		}
		f.accept(from, f.buf[:n])
	}
}

// accept puts a packet on its path.
func (f *forwarder) accept(from int, packet []byte) {
	count := f.shared.count
	to := f.receiver(packet)
	if to < 0 || to == from {
		count.strange.Add(1)
		return
	}
	p := f.paths[from][to]
	now := monotonic()
	deadline, v := p.admit(now, len(packet)-virtioHeader, f.chance)
	switch v {
	case cut:
		count.cut.Add(1)
	case lost:
		count.lost.Add(1)
	case overflow:
		count.overflow.Add(1)
	case pass:
		f.shared.trace.note(now, p, packet, false)
		idle := p.queue.empty()
		if idle && deadline <= now {
			f.deliver(p, packet, 0)
			return
		}
		p.queue.push(&f.pool, deadline, packet)
		if idle {
			heap.Push(&f.due, p)
		}
	}
}

// receiver is the number of the host that a packet is for, -1 if it is for none.
func (f *forwarder) receiver(packet []byte) int {
	const ipHeader, destination = 20, 16
	if len(packet) < virtioHeader+ipHeader || packet[virtioHeader]>>4 != 4 {
		return -1
	}
	a := [4]byte(packet[virtioHeader+destination:])
	if [3]byte(a[:3]) != f.network {
		return -1
	}
	return hostNumber(a[3], f.hosts)
}

// deliverDue delivers every packet whose deadline has come.
func (f *forwarder) deliverDue(now int64) {
	for len(f.due) > 0 {
		p := f.due[0]
		deadline, packet := p.queue.head()
		if deadline > now {
			if now = monotonic(); deadline > now { // deliveries take time
				return
			}
		}
		f.deliver(p, packet, now-deadline)
		p.queue.pop(&f.pool)
		if p.queue.empty() {
			heap.Pop(&f.due)
		} else {
			heap.Fix(&f.due, 0)
		}
	}
}

// deliver writes a packet to its receiver. What is under way when a path is cut is lost.
func (f *forwarder) deliver(p *path, packet []byte, late int64) {
	c := f.shared.count
	if p.state.cut.Load() {
		c.cut.Add(1)
		return
	}
	f.shared.trace.note(monotonic(), p, packet, true) // before it can be answered
	if _, errno := call(syscall.SYS_WRITE, p.to, packet); errno != 0 {
		c.strange.Add(1)
		return
	}
	c.packets.Add(1)
	c.bytes.Add(uint64(len(packet) - virtioHeader))
	c.late.Add(late)
	if late > c.maxLate.Load() {
		c.maxLate.Store(late)
	}
}

// call reads or writes a descriptor that never blocks, without telling Go's scheduler: that costs more than the call.
func call(trap uintptr, fd int, buf []byte) (int, syscall.Errno) {
	n, _, errno := syscall.RawSyscall(trap, uintptr(fd), uintptr(unsafe.Pointer(unsafe.SliceData(buf))), uintptr(len(buf)))
	return int(n), errno
}
