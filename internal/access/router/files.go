package router

import (
	"fmt"
	"math"
	"syscall"
)

// reservedFiles is descriptors that the rest of the process may need at most: its log, its peers, the API's
// connections, who reads the change stream. A process that has fewer than twice as many keeps half of them.
const reservedFiles = 1024

// openFiles is how many descriptors this process may have (RLIMIT_NOFILE; the Go runtime has raised it as far as it
// may).
var openFiles = func() uint64 {
	var l syscall.Rlimit
	if syscall.Getrlimit(syscall.RLIMIT_NOFILE, &l) != nil {
		return math.MaxUint64
	}
	return l.Cur
}

// filesEach is what one connection takes: its two sockets, and on the splitting port one to a follower.
func (r *Router) filesEach() uint64 {
	if r.cfg.SplitListen != "" {
		return 3
	}
	return 2
}

// bound lowers Config.MaxConns to what the process has descriptors for: without any its node could not even say that it
// is ill. It says so, once.
func (r *Router) bound() {
	r.full = "Too many connections through this Trireme router; raise router.max_conns"
	limit, each := openFiles(), r.filesEach()
	reserved := min(reservedFiles, limit/2)
	if fit := (limit - reserved) / each; fit < uint64(r.cfg.MaxConns) {
		enough := uint64(r.cfg.MaxConns)*each + reservedFiles
		r.cfg.Logger.Warn(
			"router: open files suffice for fewer connections than router.max_conns; one more is refused with error 1040",
			"connections", fit, "max_conns", r.cfg.MaxConns, "open_files", limit,
			"do", fmt.Sprintf("raise LimitNOFILE of the unit, or ulimit -n, to %d, or lower router.max_conns", enough))
		r.cfg.MaxConns = int(fit)
		r.full =
			fmt.Sprintf(
				"Too many connections: this Trireme router has open files for %d; raise its LimitNOFILE (ulimit -n) to %d", fit,
				enough)
	}
}
