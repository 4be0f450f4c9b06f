package consensus

import (
	"testing"

	"golang.org/x/sys/unix"
)

func TestBoottime(t *testing.T) {
	kernel := func() int64 {
		var ts unix.Timespec
		if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &ts); err != nil {
			t.Fatal(err)
		}
		return ts.Nano()
	}
	before, got, after := kernel(), Boottime(), kernel()
	if got < before || got > after {
		t.Errorf("Boottime is %d, the kernel's clock was at %d before and at %d after", got, before, after)
	}
}
