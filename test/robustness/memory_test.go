package robustness

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"trireme/internal/base/config"
	"trireme/internal/base/durable"
	"trireme/lab/needs"
	"trireme/lab/verify"
)

// peakMemory is VmHWM of a process in bytes.
func peakMemory(t *testing.T, pid int) int64 {
	t.Helper()
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	must(t, err)
	_, rest, ok := strings.Cut(string(b), "VmHWM:")
	if !ok {
		t.Fatal("no VmHWM")
	}
	n, err := strconv.ParseInt(strings.Fields(rest)[0], 10, 64)
	must(t, err)
	return n << 10
}

// TestLoggerIsSmall: a logger under 64 writers takes at most 64 MiB beyond its log's cache. Its settings hold nothing
// of mysqld's, and its program needs none.
func TestLoggerIsSmall(t *testing.T) {
	needs.Long(t)
	const cache = 8 << 20
	c := createShape(t, shape{nodes: 1, loggers: 2, tune: func(n *config.Node) {
		n.Raft.LogCache = cache
		n.Raft.LogSegment, n.Raft.LogMax = 8*config.MiB, 16*config.MiB
	}})
	c.healthy()
	logger := c.loggers()[0]
	c.KillDaemon(logger)
	path := filepath.Join(logger.Dir, config.NodeFileName)
	b, err := os.ReadFile(path)
	must(t, err)
	before, rest, ok := strings.Cut(string(b), "[mysql]\n")
	_, after, next := strings.Cut(rest, "\n[peer]")
	if !ok || !next {
		t.Fatalf("no [mysql] before [peer] in %s", b)
	}
	must(t, durable.WriteFile(path, []byte(before+"\n[peer]"+after), 0o600))
	c.start(logger)
	c.healthy()
	w := c.load(verify.Config{Writers: 64, PayloadBytes: 4096})
	c.writesMore(w, 10_000) // 40 MiB, five times the cache
	for _, n := range c.loggers() {
		beyond := peakMemory(t, n.DaemonPID()) - cache
		t.Logf("%s took %d MiB beyond its cache", n.Name, beyond>>20)
		if beyond > 64<<20 {
			t.Errorf("%s took %d MiB beyond its cache of %d MiB", n.Name, beyond>>20, cache>>20)
		}
	}
	t.Logf("%s", c.check(w))
}
