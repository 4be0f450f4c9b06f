package drivers

import (
	"fmt"
	"math"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

const (
	routeChanges = 10                    // of each kind are measured
	routeWanted  = 50 * time.Millisecond // at most, of each router; what takes longer is shown
)

// TestRouteTimes measures how long after the opening of writes each router leads to the new leader: those of the three
// nodes, and two without a node, one with a token, through switchovers and kills of the leader's mysqld, while sessions
// write. The moments are those of the daemons' logs, to the millisecond, of one machine's clock: "mysqld takes writes"
// is written as soon as it does, "router: new view" once a router has the view and has cut what it does not allow. Some
// 2 minutes, in the soak; docs/router.md has figures.
func TestRouteTimes(t *testing.T) {
	if !soak() {
		t.Skip("it measures, with TRIREME_SOAK=1")
	}
	c := lease(t)
	c.sql("CREATE DATABASE IF NOT EXISTS alone", "DROP TABLE IF EXISTS alone.w",
		"CREATE TABLE alone.w (id INT PRIMARY KEY AUTO_INCREMENT, writer INT, v INT)")
	leader := c.healthy()
	waited, plain := startRouterAs(c, leader, c.token("measured"), ""), startRouter(c, leader, "")
	w := c.writeThrough(waited.write, 8)
	w.goOn(t)                    // the first login without TLS makes a key, and a view that cuts it waits for that
	kinds := map[uint64]string{} // by term
	for range routeChanges {
		for _, kind := range []string{"switchover", "mysqld killed"} {
			before := c.view(t.Context()).Term
			if kind == "switchover" {
				c.switchover()
			} else {
				c.failover()
			}
			c.healthy()
			for term := c.view(t.Context()).Term; term > before; term-- {
				kinds[term] = kind
			}
			w.goOn(t)
		}
	}
	acked, failed := w.end()
	t.Logf("%d transactions acknowledged, %d errors", acked, len(failed))

	opened, routers := map[uint64]time.Time{}, map[string][]map[uint64]time.Time{}
	for _, n := range c.Nodes() {
		open, routed := routeLog(t, c.LogFile(n))
		routers["nodes"] = append(routers["nodes"], routed)
		for term, at := range open {
			opened[term] = at
		}
	}
	for _, r := range []standalone{waited, plain} {
		_, routed := routeLog(t, r.log)
		routers["alone"] = append(routers["alone"], routed)
	}
	for _, kind := range []string{"switchover", "mysqld killed"} {
		for _, of := range []string{"nodes", "alone"} {
			var ms []float64
			for term, at := range opened {
				for i, routed := range routers[of] {
					switch seen, ok := routed[term]; {
					case kinds[term] != kind:
					case !ok:
						t.Errorf("%s %d has never led to the leader of term %d", of, i, term)
					default:
						if seen.Sub(at) > routeWanted {
							t.Logf("%s %d, term %d: %v, at %v", of, i, term, seen.Sub(at), seen)
						}
						ms = append(ms, max(0, float64(seen.Sub(at))/float64(time.Millisecond)))
					}
				}
			}
			if len(ms) < routeChanges*len(routers[of]) {
				t.Fatalf("%s, %s: %d times only", kind, of, len(ms))
			}
			slices.Sort(ms)
			rank := func(q float64) float64 { return ms[int(math.Ceil(q*float64(len(ms))))-1] }
			t.Logf("%s, routers of %s: %d times, p50 %.0f ms, p99 %.0f ms, longest %.0f ms", kind, of, len(ms), rank(0.5),
				rank(0.99), ms[len(ms)-1])
			if longest := ms[len(ms)-1]; longest > 10_000 { // so far from what is meant that something is broken
				t.Errorf("%s: a router of %s took %.0f ms", kind, of, longest)
			}
		}
	}
}

var (
	openLine  = regexp.MustCompile(`msg="mysqld takes writes".* term=(\d+)`)
	routeLine = regexp.MustCompile(` leader=\S+ epoch=\d+/(\d+)`)
)

// routeLog is when a daemon's log says that writes were opened here in a term, and that its router led to the leader of
// one, the first time each.
func routeLog(t *testing.T, file string) (opened, routed map[uint64]time.Time) {
	t.Helper()
	data, err := os.ReadFile(file)
	must(t, err)
	opened, routed = map[uint64]time.Time{}, map[uint64]time.Time{}
	for line := range strings.Lines(string(data)) {
		for re, into := range map[*regexp.Regexp]map[uint64]time.Time{openLine: opened, routeLine: routed} {
			m := re.FindStringSubmatch(line)
			if m == nil {
				continue
			}
			at, err := timeOf(line)
			must(t, err)
			term, err := strconv.ParseUint(m[1], 10, 64)
			must(t, err)
			if _, again := into[term]; !again {
				into[term] = at
			}
		}
	}
	return opened, routed
}

// timeOf is when a line was written.
func timeOf(line string) (time.Time, error) {
	text, ok := strings.CutPrefix(line, "time=")
	if !ok {
		return time.Time{}, fmt.Errorf("no time in %q", line)
	}
	text, _, _ = strings.Cut(text, " ")
	return time.Parse(time.RFC3339Nano, text)
}
