package robustness

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"trireme/internal/base/config"
	"trireme/internal/ops/demo"
	"trireme/lab/needs"
	"trireme/lab/report"
	"trireme/lab/verify"
)

// usage is what a daemon holds at one moment, and its node's directory.
type usage map[string]float64

// Of the metrics of every daemon, and of its directory.
const (
	goroutines  = "go_goroutines"
	descriptors = "process_open_fds"
	threads     = "go_threads"
	heapTarget  = "go_memstats_next_gc_bytes" // twice what the last collection found in use
	resident    = "process_resident_memory_bytes"
	files       = "files"
	logBytes    = "trireme_raft_log_bytes"
)

// mayGrow is by how much the least of each may be higher late in a run than early in it. A leak lifts the least; a busy
// moment does not.
var mayGrow = usage{goroutines: 8, descriptors: 8, threads: 6, heapTarget: 24 << 20, resident: 48 << 20, files: 12,
	logBytes: 3 << 20}

// soakMayGrow is the same for as many rounds as make a megabyte of each change of leadership be seen.
func soakMayGrow() usage {
	limits := maps.Clone(mayGrow)
	limits[heapTarget], limits[resident] = 6<<20, 16<<20
	return limits
}

// leaks compares the least of the first half of samples with the least of the second.
func leaks(samples []usage, limits usage) (found []string) {
	early, late := halves(samples)
	for what, room := range limits {
		if late[what] > early[what]+room {
			found = append(found, fmt.Sprintf("%s: at least %.0f early, at least %.0f late", what, early[what], late[what]))
		}
	}
	slices.Sort(found)
	return found
}

// halves are the least of the first half of samples and of the second.
func halves(samples []usage) (early, late usage) {
	early, late = usage{}, usage{}
	for what := range mayGrow {
		least := func(part []usage) float64 {
			return slices.MinFunc(part, func(a, b usage) int { return int(a[what] - b[what]) })[what]
		}
		early[what], late[what] = least(samples[:len(samples)/2]), least(samples[len(samples)/2:])
	}
	return early, late
}

// The judge of leaks sees each of them, and takes noise for none.
func TestLeaksAreSeen(t *testing.T) {
	flat := make([]usage, 12)
	for i := range flat {
		flat[i] = usage{}
		for what, room := range mayGrow {
			flat[i][what] = 1000 + 20*room*float64(i%3) // a busy moment is far above the least
		}
	}
	if got := leaks(flat, mayGrow); got != nil {
		t.Errorf("noise: %v", got)
	}
	for what, room := range mayGrow {
		leaking := make([]usage, len(flat))
		for i := range flat {
			leaking[i] = maps.Clone(flat[i])
			leaking[i][what] += room * float64(i) / 4
		}
		if got := leaks(leaking, mayGrow); len(got) != 1 || !strings.HasPrefix(got[0], what+":") {
			t.Errorf("%s: %v", what, got)
		}
	}
}

// TestNoLeaks is a long time in short: leaders lost, switchovers, peers that come and go, members that change, logs
// that are purged, clients that connect and vanish, round after round. No daemon that lives through it may hold more
// and more.
func TestNoLeaks(t *testing.T) {
	needs.Long(t)
	// A cluster of its own, with a log's cache that is full soon: filling it is no leak.
	c := createShape(t, shape{nodes: 3, tune: func(n *config.Node) { n.Raft.LogCache = 4 * config.MiB }})
	limits := mayGrow
	if soak() {
		limits = soakMayGrow()
	}
	w := c.load(verify.Config{Writers: 2, PayloadBytes: 4096})
	began := time.Now()
	n := rounds(t, 6, 200)
	restarted := c.others(c.healthy())[0] // its daemon is killed too, so that links break: it is not sampled
	samples := map[string][]usage{}
	clients := 0
	for i := range n {
		clients += c.clients(20)
		c.disturb(w, restarted, i)
		c.healthy()
		c.writesMore(w, 100)
		for _, node := range c.DataNodes() {
			if node != restarted {
				u := c.usage(node)
				samples[node.Name] = append(samples[node.Name], u)
				t.Logf("round %d, %s: %v", i+1, node.Name, u)
			}
		}
	}
	for name, seen := range samples {
		samples[name] = seen[len(seen)/4:] // before it they warm up
		for _, what := range leaks(samples[name], limits) {
			t.Errorf("%s leaks: %s", name, what)
		}
	}
	done := fmt.Sprintf("%d rounds, %d clients; %s", n, clients, c.check(w))
	t.Log(done)
	if page := os.Getenv("TRIREME_LEAKS_PAGE"); page != "" && !t.Failed() {
		var b bytes.Buffer
		must(t, leaksPage(done, time.Since(began), samples, limits).Markdown(&b, ""))
		must(t, os.WriteFile(page, b.Bytes(), 0o644))
	}
}

// leaksPage is docs/safety/leaks.md.
func leaksPage(done string, took time.Duration, samples map[string][]usage, limits usage) report.Document {
	table := report.Table{Columns: []report.Column{{Title: "daemon"}, {Title: "of"}, {Title: "first half", Number: true},
		{Title: "second half", Number: true}, {Title: "may grow by", Number: true}}}
	for _, name := range slices.Sorted(maps.Keys(samples)) {
		early, late := halves(samples[name])
		for _, what := range slices.Sorted(maps.Keys(limits)) {
			row := []report.Cell{{Text: name}, {Text: what}}
			for _, v := range []float64{early[what], late[what], limits[what]} {
				row = append(row, report.Cell{Text: fmt.Sprintf("%.0f", v)})
			}
			table.Rows = append(table.Rows, row)
		}
	}
	return report.Document{Title: "A long time in short", Blocks: []report.Block{
		report.Text("Written by `SOAK_WRITE=1 make soak SOAK=leaks` (`TestNoLeaks` of `test/robustness`), nothing here is typed manually. In each round a leader is lost or moves, " +
			"or a follower's daemon is killed; clients connect and vanish in five ways; members come and go; the log is purged continuously, under load."),
		report.Text(fmt.Sprintf("On %s, in %.0f minutes: %s.", time.Now().UTC().Format("2006-01-02"), took.Minutes(), done)),
		report.Text("Daemons that ran to the end. The first quarter of the rounds is left out as warm-up. For each figure: its minimum in the first half and in the second, " +
			"and by how much it may grow."),
		table,
	}}
}

// disturb does what a round is for.
func (c *cluster) disturb(w *verify.Workload, restarted *demo.Node, round int) {
	c.t.Helper()
	leader := c.healthy()
	switch round % 3 {
	case 0:
		term := c.view().Term
		c.crash(leader)
		c.writesAfter(w, term)
	case 1:
		to := c.others(leader)[round/3%2]
		eventually(c.t, healLimit, to.Name+" takes over", func() error {
			_, err := c.Switchover(c.t.Context(), to.Name)
			return err
		})
	case 2:
		c.KillDaemon(restarted)
		c.writesMore(w, 50)
		c.start(restarted)
	}
	if soak() && round%20 == 19 {
		extra, err := c.Add(c.t.Context(), fmt.Sprintf("log%d", round/20+1), config.RoleLogger)
		must(c.t, err)
		c.joined(extra)
		c.says(c.leader(), 0, "remove "+extra.Name, extra.Name)
		eventually(c.t, healLimit, "the daemon of the removed node ends", func() error {
			if extra.DaemonPID() != 0 {
				return errors.New("it runs")
			}
			return nil
		})
		c.Forget(extra)
	}
}

// clients connect to both ports of every router, five in different ways for each of n: with a statement, silently, with
// garbage, gone at once, and gone in the middle. It returns how many there were, when all have ended.
func (c *cluster) clients(n int) int {
	c.t.Helper()
	var wg sync.WaitGroup
	tried := 0
	for _, node := range c.DataNodes() {
		for _, port := range []int{node.Ports.RW, node.Ports.RO} {
			addr := fmt.Sprintf("127.0.0.1:%d", port)
			tried += n
			wg.Go(func() {
				for i := range n {
					c.client(node, addr, i%5)
				}
			})
		}
	}
	wg.Wait()
	return tried
}

func (c *cluster) client(node *demo.Node, addr string, how int) {
	if how == 0 {
		l := c.Direct(node)
		l.Addr, l.StatementTimeout = verify.Fixed(addr), sqlLimit
		if db, err := l.Open(""); err == nil {
			ctx, cancel := context.WithTimeout(c.t.Context(), sqlLimit)
			defer cancel()
			_ = db.PingContext(ctx) // refused while no node leads
			_ = db.Close()
		}
		return
	}
	conn, err := net.DialTimeout("tcp", addr, time.Second)
	if err != nil {
		return
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(time.Second))
	switch how {
	case 1:
		_, _ = conn.Read(make([]byte, 1)) // the greeting begins
	case 2:
		_, _ = conn.Write([]byte("GET / HTTP/1.1\r\n\r\n"))
		_, _ = conn.Read(make([]byte, 256))
	case 3:
		_ = conn.(*net.TCPConn).SetLinger(0)
	case 4:
		_, _ = conn.Write([]byte{0xFF, 0xFF, 0xFF, 1, 2, 3})
		_ = conn.(*net.TCPConn).CloseWrite()
	}
}

// usage asks a daemon for its metrics and counts its files.
func (c *cluster) usage(n *demo.Node) usage {
	c.t.Helper()
	u := usage{}
	ctx, cancel := context.WithTimeout(c.t.Context(), 10*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, fmt.Sprintf("http://127.0.0.1:%d/metrics", n.Ports.API),
		nil)
	must(c.t, err)
	res, err := http.DefaultClient.Do(req)
	must(c.t, err)
	defer res.Body.Close()
	for lines := bufio.NewScanner(res.Body); lines.Scan(); {
		name, value, _ := strings.Cut(lines.Text(), " ")
		if _, wanted := mayGrow[name]; wanted {
			u[name], err = strconv.ParseFloat(value, 64)
			must(c.t, err)
		}
	}
	must(c.t, filepath.WalkDir(n.Dir, func(_ string, d fs.DirEntry, err error) error {
		if errors.Is(err, os.ErrNotExist) { // deleted meanwhile
			return nil
		}
		if err == nil && !d.IsDir() {
			u[files]++
		}
		return err
	}))
	if len(u) != len(mayGrow) {
		c.t.Fatalf("%s shows only %v", n.Name, u)
	}
	return u
}
