//go:build failpoints

package failpoint

import (
	"errors"
	"os"
	"path/filepath"
	"sync/atomic"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// clockFile is shared by the daemon and its guard, as the kernel's clock is. It outlives both.
const clockFile = "failpoints.clock"

// clockPage is the content of that file: the clock shows base + (boottime-since)·ppm/10⁶. seq is odd while it is
// changed.
type clockPage struct {
	seq, since, base, ppm atomic.Int64
}

const evenPPM = 1_000_000

// ahead of the kernel's is a new clock: one that jumps back must not come near 0, which CLOCK_BOOTTIME shows while a
// machine starts.
const ahead = 1000 * time.Hour

var page atomic.Pointer[clockPage]

// The guard is not told anything: it finds its daemon's directory in its environment.
func init() {
	if dir := os.Getenv(envDir); dir != "" {
		_ = openClock(dir)
	}
}

func openClock(dir string) error {
	f, err := os.OpenFile(filepath.Join(dir, clockFile), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }()
	const size = 4096
	if err := f.Truncate(size); err != nil {
		return err
	}
	b, err := unix.Mmap(int(f.Fd()), 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return err
	}
	p := (*clockPage)(unsafe.Pointer(&b[0])) // never unmapped
	if p.ppm.Load() == 0 {
		p.base.Store(int64(ahead))
		p.ppm.Store(evenPPM)
	}
	page.Store(p)
	return nil
}

// read returns a consistent copy.
func (p *clockPage) read() (since, base, ppm int64) {
	for {
		seq := p.seq.Load()
		since, base, ppm = p.since.Load(), p.base.Load(), p.ppm.Load()
		if seq%2 == 0 && p.seq.Load() == seq {
			return since, base, ppm
		}
	}
}

// Clock is what the injected clock shows at a time of CLOCK_BOOTTIME, both in nanoseconds.
func Clock(boottime int64) int64 {
	p := page.Load()
	if p == nil {
		return boottime
	}
	since, base, ppm := p.read()
	return base + scale(boottime-since, ppm, evenPPM)
}

// Real is the time of CLOCK_BOOTTIME at which the injected clock will show t.
func Real(t int64) int64 {
	p := page.Load()
	if p == nil {
		return t
	}
	since, base, ppm := p.read()
	return since + scale(t-base, evenPPM, ppm)
}

// scale is d·a/b without overflow for years of nanoseconds.
func scale(d, a, b int64) int64 { return d/b*a + d%b*a/b }

// changeClock makes the clock jump, and gives it another rate unless that is 0.
func changeClock(jump time.Duration, rate float64) error {
	p := page.Load()
	if p == nil {
		return errors.New("there is no clock: the daemon has not started")
	}
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &ts); err != nil {
		return err
	}
	shows := Clock(ts.Nano())
	p.seq.Add(1)
	p.since.Store(ts.Nano())
	p.base.Store(shows + int64(jump))
	if rate != 0 {
		p.ppm.Store(int64(rate * evenPPM))
	}
	p.seq.Add(1)
	return nil
}

// Paced is how long an interval of the injected clock is.
func Paced(interval time.Duration) time.Duration {
	p := page.Load()
	if p == nil {
		return interval
	}
	_, _, ppm := p.read()
	return time.Duration(scale(int64(interval), evenPPM, ppm))
}

// Patience is how long a poll without a limit may sleep, in ms: a jump of the injected clock does not wake it.
func Patience() int { return 5 }
