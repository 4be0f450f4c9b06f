package nbio

import (
	"os"
	"syscall"
)

// Poller is an epoll instance that the runtime's poller watches.
type Poller struct {
	*os.File
	Raw syscall.RawConn
	FD  int
}

// NewPoller makes one.
func NewPoller() (p Poller, err error) {
	if p.FD, err = syscall.EpollCreate1(syscall.EPOLL_CLOEXEC); err != nil {
		return p, os.NewSyscallError("epoll_create1", err)
	}
	if err := syscall.SetNonblock(p.FD, true); err != nil { // so that the runtime's poller takes it
		_ = syscall.Close(p.FD)
		return p, os.NewSyscallError("fcntl", err)
	}
	p.File = os.NewFile(uintptr(p.FD), "epoll")
	p.Raw, err = p.SyscallConn()
	return p, err
}
