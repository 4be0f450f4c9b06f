// Package process sets up the process that a daemon runs in: its share of Go's scheduler, its collector and its
// priority. What is refused, because a right is missing, is logged, and the daemon runs without.
package process

import (
	"log/slog"
	"os"
	"runtime"
	"runtime/debug"

	"trireme/internal/base/loop"
	"trireme/internal/mysql/mysqld"
)

// gcPercent is low because what lives is the log's cache, in buffers that the collector does not look into: collecting
// often costs next to nothing, and the daemon stays close to the cache's size.
const gcPercent = 10

// Tune is called once, early in main. GOMAXPROCS and GOGC in the environment come first.
func Tune(log *slog.Logger) {
	if os.Getenv("GOMAXPROCS") == "" || runtime.GOMAXPROCS(0) < 2 {
		runtime.GOMAXPROCS(maxProcs())
	}
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(gcPercent)
	}
	if err := mysqld.RaisePriority(); err != nil {
		log.Info("priority", "err", err)
	}
	if err := loop.CalmMonitor(); err != nil {
		log.Info("wake-ups", "err", err)
	}
}

// maxProcs is how many threads run Go code at once. The daemon shares its host with mysqld and spends little. The engine
// keeps one of them while it waits; where others wait for the disk, one has to be left.
func maxProcs() int { return 2 + max(1, min(4, runtime.NumCPU()/2)) }
