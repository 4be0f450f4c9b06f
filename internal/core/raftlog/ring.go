package raftlog

import (
	"errors"
	"fmt"
	"os"
	"sync/atomic"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// ring writes and syncs a file through io_uring (io_uring(7)): one system call, which does not block, hands a write and
// a linked fdatasync to the kernel, and the runtime's poller learns of their end.
//
// A thread that blocks in fdatasync keeps its share of the scheduler. The runtime's monitor thread then naps and looks
// around until the disk has answered, and takes the share away for another thread to poll the network. That was a third
// of all context switches of a leader per commit.
//
// Only one call may run at a time. Both requests belong to the thread that made the system call: if it ends meanwhile,
// they are cancelled (ECANCELED), like a sync whose write was cut short.
type ring struct {
	ring, event *os.File
	wait        syscall.RawConn
	maps        [2][]byte

	// Shared with the kernel, which moves cqTail.
	sqTail, sqMask, cqHead, cqTail, cqMask *uint32
	slots                                  []uint32
	sqes                                   []sqe
	cqes                                   []cqe

	// The request under way: the kernel reads from what these refer to.
	bufs  [][]byte
	iovs  []unix.Iovec
	calls uint64

	count [8]byte // of the event descriptor
	ready func(fd uintptr) bool
}

// sqe, cqe and ringParams are the kernel's struct io_uring_sqe, io_uring_cqe and io_uring_params
// (include/uapi/linux/io_uring.h).
type sqe struct {
	opcode, flags uint8
	_             uint16
	fd            int32
	off, addr     uint64
	len, opFlags  uint32
	userData      uint64
	_             [3]uint64
}

type cqe struct {
	userData uint64
	res      int32
	_        uint32
}

type ringParams struct {
	sqEntries, cqEntries, _, _, _, features, _ uint32
	_                                          [3]uint32
	sq                                         struct {
		head, tail, mask, _, _, _, array, _ uint32
		_                                   uint64
	}
	cq struct {
		head, tail, mask, _, _, cqes, _, _ uint32
		_                                  uint64
	}
}

const (
	opWritev = 2
	opFsync  = 3

	fsyncData = 1 // IORING_FSYNC_DATASYNC
	// IOSQE_IO_LINK: the next request begins when this one has succeeded in full, else it is cancelled
	linkNext       = 1 << 2
	silentSuccess  = 1 << 6 // IOSQE_CQE_SKIP_SUCCESS
	registerEvent  = 4      // IORING_REGISTER_EVENTFD
	offsetSQEs     = 0x10000000
	needFeatures   = 1<<0 | 1<<11 // IORING_FEAT_SINGLE_MMAP, IORING_FEAT_CQE_SKIP: Linux 5.17
	ringEntries    = 2
	tagWrite       = 0 // in the lowest bit of userData; above it is the number of the call
	tagSync        = 1
	mostRingBytes  = 2 * flushBytes // above it a wake-up costs nothing noticeable
	protectionRW   = unix.PROT_READ | unix.PROT_WRITE
	mappingOptions = unix.MAP_SHARED | unix.MAP_POPULATE
)

// openRing fails where io_uring is switched off (kernel.io_uring_disabled), forbidden (seccomp, as in containers), or
// too old.
func openRing() (*ring, error) {
	var p ringParams
	fd, _, errno := unix.Syscall(unix.SYS_IO_URING_SETUP, ringEntries, uintptr(unsafe.Pointer(&p)), 0)
	if errno != 0 {
		return nil, os.NewSyscallError("io_uring_setup", errno)
	}
	r := &ring{ring: os.NewFile(fd, "io_uring")}
	if err := r.open(int(fd), &p); err != nil {
		r.close()
		return nil, err
	}
	return r, nil
}

func (r *ring) open(fd int, p *ringParams) (err error) {
	if p.features&needFeatures != needFeatures {
		return fmt.Errorf("io_uring of this kernel has features %#x, %#x are needed", p.features, needFeatures)
	}
	size := max(p.sq.array+p.sqEntries*4, p.cq.cqes+p.cqEntries*uint32(unsafe.Sizeof(cqe{})))
	if r.maps[0], err = unix.Mmap(fd, 0, int(size), protectionRW, mappingOptions); err != nil {
		return os.NewSyscallError("mmap of an io_uring", err)
	}
	if r.maps[1], err = unix.Mmap(fd, offsetSQEs, int(p.sqEntries)*int(unsafe.Sizeof(sqe{})), protectionRW,
		mappingOptions); err != nil {
		return os.NewSyscallError("mmap of an io_uring", err)
	}
	at := func(off uint32) unsafe.Pointer { return unsafe.Pointer(&r.maps[0][off]) }
	r.sqTail, r.sqMask = (*uint32)(at(p.sq.tail)), (*uint32)(at(p.sq.mask))
	r.cqHead, r.cqTail, r.cqMask = (*uint32)(at(p.cq.head)), (*uint32)(at(p.cq.tail)), (*uint32)(at(p.cq.mask))
	r.slots = unsafe.Slice((*uint32)(at(p.sq.array)), p.sqEntries)
	r.cqes = unsafe.Slice((*cqe)(at(p.cq.cqes)), p.cqEntries)
	r.sqes = unsafe.Slice((*sqe)(unsafe.Pointer(&r.maps[1][0])), p.sqEntries)

	event, err := unix.Eventfd(0, unix.EFD_NONBLOCK|unix.EFD_CLOEXEC)
	if err != nil {
		return os.NewSyscallError("eventfd", err)
	}
	r.event = os.NewFile(uintptr(event), "eventfd")
	number := int32(event)
	if _, _, errno := unix.Syscall6(unix.SYS_IO_URING_REGISTER, uintptr(fd), registerEvent,
		uintptr(unsafe.Pointer(&number)), 1, 0, 0); errno != 0 {
		return os.NewSyscallError("io_uring_register", errno)
	}
	r.ready = func(fd uintptr) bool {
		n, _, errno := syscall.RawSyscall(unix.SYS_READ, fd, uintptr(unsafe.Pointer(&r.count)), uintptr(len(r.count)))
		return errno != unix.EAGAIN || int(n) == len(r.count)
	}
	r.wait, err = r.event.SyscallConn()
	return err
}

// close must not be called while a request is under way.
func (r *ring) close() {
	for _, m := range r.maps {
		if m != nil {
			_ = unix.Munmap(m)
		}
	}
	if r.event != nil {
		r.event.Close()
	}
	r.ring.Close()
}

// errAgain: the ring has not done it, or only in part; the caller must do all of it in the ordinary way.
var errAgain = errors.New("io_uring did not do it")

// writeSync writes bufs at off and makes the file durable. Other errors than errAgain are those of pwritev and
// fdatasync. A failed sync is never errAgain: the next one would succeed, without the data.
func (r *ring) writeSync(f osFile, bufs [][]byte, off int64) error {
	total := 0
	r.bufs, r.iovs = append(r.bufs[:0], bufs...), r.iovs[:0]
	for _, b := range r.bufs {
		if len(b) > 0 {
			r.iovs = append(r.iovs, unix.Iovec{Base: unsafe.SliceData(b)})
			r.iovs[len(r.iovs)-1].SetLen(len(b))
		}
		total += len(b)
	}
	if len(r.iovs) == 0 || len(r.iovs) > maxIovecs || total > mostRingBytes {
		return errAgain
	}
	fd := int32(f.Fd())
	end, err := r.carryOut(
		sqe{opcode: opWritev, flags: linkNext | silentSuccess, fd: fd, off: uint64(off),
			addr: uint64(uintptr(unsafe.Pointer(&r.iovs[0]))),
			len:  uint32(len(r.iovs))},
		sqe{opcode: opFsync, fd: fd, opFlags: fsyncData})
	if err != nil {
		return err
	}
	clear(r.bufs)
	clear(r.iovs)
	return verdict(f.Name(), end)
}

// verdict makes an error of the result of the request that ended the chain: 0 or more is success, below 0 is an errno.
func verdict(name string, end cqe) error {
	e, sync := unix.Errno(-end.res), end.userData&1 == tagSync
	switch {
	case sync && end.res >= 0:
		return nil // the sync begins only after a complete write
	case sync && (e == unix.ECANCELED || e == unix.EINTR):
		return errAgain
	case sync:
		return &os.PathError{Op: "fdatasync", Path: name, Err: e}
	case end.res >= 0, e == unix.ECANCELED, e == unix.EINTR, e == unix.EAGAIN, e == unix.EINVAL, e == unix.EOPNOTSUPP:
		return errAgain // cut short, cancelled, or not possible in this way
	}
	return &os.PathError{Op: "pwritev", Path: name, Err: e}
}

// carryOut submits both requests and waits for their end: the kernel reports the sync, or only the write if that was
// incomplete. If a kernel reports both, the second report is recognised by its number and skipped: it must not be taken
// for that of a later sync.
func (r *ring) carryOut(write, sync sqe) (end cqe, err error) {
	r.calls++
	write.userData, sync.userData = r.calls<<1|tagWrite, r.calls<<1|tagSync
	tail := *r.sqTail
	for i, q := range [...]sqe{write, sync} {
		slot := (tail + uint32(i)) & *r.sqMask
		r.sqes[slot], r.slots[slot] = q, slot
	}
	atomic.StoreUint32(r.sqTail, tail+2)
	for {
		taken, _, errno := syscall.RawSyscall6(unix.SYS_IO_URING_ENTER, r.ring.Fd(), 2, 0, 0, 0, 0)
		if errno == 0 && taken == 2 {
			break
		}
		if errno == 0 && taken > 0 {
			// Never seen. What the kernel has taken is under way and cannot be told from what it has not.
			return cqe{}, fmt.Errorf("io_uring_enter took %d of 2 requests", taken)
		}
		if errno != unix.EINTR {
			atomic.StoreUint32(r.sqTail, tail) // the kernel has taken nothing
			return cqe{}, errAgain
		}
	}
	for {
		if err := r.wait.Read(r.ready); err != nil {
			return cqe{}, fmt.Errorf("wait for io_uring: %w", err)
		}
		for head := *r.cqHead; head != atomic.LoadUint32(r.cqTail); head++ {
			end = r.cqes[head&*r.cqMask]
			atomic.StoreUint32(r.cqHead, head+1)
			if end.userData>>1 == r.calls {
				return end, nil
			}
		}
	}
}
