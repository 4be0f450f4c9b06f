package nbio

import (
	"os"
	"runtime"
)

// LimitProcs has at most half of the CPUs, and at most four, run Go code at once, unless GOMAXPROCS is set. A daemon shares its host with a server or an
// application and spends little: with fewer threads its goroutines, which wait for sockets and hand work from one to the next, are woken without
// waking another core that finds nothing to do.
func LimitProcs() {
	if os.Getenv("GOMAXPROCS") == "" {
		runtime.GOMAXPROCS(max(1, min(4, runtime.NumCPU()/2)))
	}
}
