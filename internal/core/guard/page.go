package guard

import (
	"fmt"
	"os"
	"sync/atomic"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"trireme/internal/base/failpoint"
)

// page is what daemon and guard share. Times are nanoseconds of CLOCK_BOOTTIME.
type page struct {
	until  atomic.Int64 // daemon: when to kill mysqld unless this has moved; 0: nothing is served
	seen   atomic.Int64 // guard: when it last looked
	killed atomic.Int64 // guard: when it last killed mysqld; 0: never
}

const pageBytes = 4096

// newPage makes the memory as a file without a name.
func newPage() (*os.File, *page, error) {
	fd, err := unix.MemfdCreate("trireme-guard", unix.MFD_CLOEXEC)
	if err != nil {
		return nil, nil, fmt.Errorf("memory shared with the guard: %w", err)
	}
	f := os.NewFile(uintptr(fd), "trireme-guard")
	if err := f.Truncate(pageBytes); err != nil {
		_ = f.Close()
		return nil, nil, fmt.Errorf("memory shared with the guard: %w", err)
	}
	p, err := mapPage(fd)
	if err != nil {
		_ = f.Close()
	}
	return f, p, err
}

// mapPage is never undone: there is one for the life of the process.
func mapPage(fd int) (*page, error) {
	b, err := unix.Mmap(fd, 0, pageBytes, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return nil, fmt.Errorf("memory shared with the guard: %w", err)
	}
	return (*page)(unsafe.Pointer(&b[0])), nil
}

// now is CLOCK_BOOTTIME.
func now() time.Duration {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &ts); err != nil {
		panic(fmt.Sprintf("guard: CLOCK_BOOTTIME: %v", err)) // Linux has had it since 2.6.39
	}
	return time.Duration(failpoint.Clock(ts.Nano()))
}
