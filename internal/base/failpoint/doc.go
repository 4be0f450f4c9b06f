// Package failpoint holds labelled points in the daemon at which a test makes it die, stop, wait or fail, and a clock
// that a test can make jump.
//
// Without the build tag "failpoints" every function here is empty and inlined away: a released program has no points,
// no names of them and no clock but the kernel's. A program built with the tag does as they say until a point is armed:
//
//	by the environment     TRIREME_FAILPOINTS="raft.before-append=kill@3;promote.before-open=pause"
//	by a file              DIR/failpoints, the same text, a point on each line; read when the daemon starts, and removed then
//	while it runs          DIR/failpoints.sock, one command on each line, one line as answer:
//	                       arm POINT=ACTION[@N] | disarm | release POINT | hits POINT | clock jump DURATION | clock rate X
//
// The action takes place at the N-th hit from then on, the first by default, and once:
//
//	kill            SIGKILL of this process
//	kill-mysqld     SIGKILL of the mysqld that this process has started
//	stop            SIGSTOP of this process
//	delay:DURATION  the goroutine that reaches the point waits
//	pause           the goroutine that reaches the point waits for "release"
//	error           the point returns an error, where its caller can take one (Err); elsewhere it is nothing
//
// What took place is a line in DIR/failpoints.fired, written before it does.
//
// Points is the list of all points; a test compares it with the code.
package failpoint

import "errors"

// ErrArmed is what an armed point returns for the action "error".
var ErrArmed = errors.New("failpoint")
