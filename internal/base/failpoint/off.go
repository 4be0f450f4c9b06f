//go:build !failpoints

package failpoint

import "time"

// Enabled reports whether this program was built with the points.
const Enabled = false

// Start reads what is armed for the daemon of the node in dir, and listens there.
func Start(dir string) error { return nil }

// Hit is a point that its caller passes.
func Hit(name string) {}

// Err is a point at which its caller can fail.
func Err(name string) error { return nil }

// Clock is what the injected clock shows at a time of CLOCK_BOOTTIME, both in nanoseconds.
func Clock(boottime int64) int64 { return boottime }

// Real is the time of CLOCK_BOOTTIME at which the injected clock will show t.
func Real(t int64) int64 { return t }

// Paced is how long an interval of the injected clock is.
func Paced(interval time.Duration) time.Duration { return interval }

// Patience is how long a poll without a limit may sleep, in ms: a jump of the injected clock does not wake it.
func Patience() int { return -1 }
