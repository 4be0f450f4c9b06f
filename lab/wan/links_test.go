package wan_test

import (
	"flag"
	"fmt"
	"os"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"trireme/lab/needs"
	"trireme/lab/wan"
)

var linksTable = flag.String("links.table", "", "page that TestLinks writes again")

// TestLinks measures the emulation itself: the median round trip over each link of the presets is the one that was
// asked for, or no more than 5 % or 0.3 ms off. It takes a second for each link and rate, to have enough of them.
func TestLinks(t *testing.T) {
	needs.Quiet(t)
	n, err := wan.New(wan.Topology{Name: "links", Sites: []string{"a"}}, []string{"a", "b"})
	needs.Netns(t, err)
	defer n.Close()
	var page strings.Builder
	fmt.Fprintf(&page, "# Network emulation\n\n"+
		"Made by `go test ./lab/wan -run TestLinks -links.table ../../docs/benchmarks/wan.md` on %s with %d CPUs.\n"+
		"Round trips of 64-byte echo requests between two emulated hosts, evenly spaced, answered and time-stamped\n"+
		"by the kernel: what exceeds the requested link is the emulation's own delay. A request and its answer are\n"+
		"two packets. CPU is the forwarding process's, in percent of one core, the kernel's receiving half of both\n"+
		"hosts included.\n\n"+
		"| link | requests/s | asked ms | median ms | p99 | longest | lost %% | CPU %% |\n|-|-|-|-|-|-|-|-|\n",
		time.Now().UTC().Format("2006-01-02 15:04 MST"), runtime.NumCPU())
	for _, l := range presetLinks(t) {
		if err := n.SetLink("a", "b", l); err != nil {
			t.Fatal(err)
		}
		for _, rate := range []int{1000, 20000} {
			p, err := n.Ping(t.Context(), "a", "b", rate, time.Second)
			if err != nil {
				t.Fatal(err)
			}
			asked := l.RTT + l.Jitter // two directions, each with half of it on average
			row := fmt.Sprintf("| %v | %.0f | %.3f | %.3f | %.3f | %.1f | %.2f | %.1f |", l, p.Rate(), ms(asked), ms(p.Median),
				ms(p.P99), ms(p.Max), 100*float64(p.Sent-p.Received)/float64(max(1, p.Sent)),
				100*p.EmulatorCPU.Seconds()/p.Elapsed.Seconds())
			t.Log(row)
			fmt.Fprintln(&page, row)
			if p.Received == 0 || (p.Median-asked).Abs() > max(asked/20, 300*time.Microsecond) {
				t.Errorf("%v at %d requests/s: median round trip %v", l, rate, p.Median)
			}
		}
	}
	fmt.Fprintf(&page, "\nIn all: %v.\n", n.Stats())
	if *linksTable != "" {
		if err := os.WriteFile(*linksTable, []byte(page.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

func ms(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

// presetLinks are the different links of all presets, the shortest first.
func presetLinks(t *testing.T) []wan.Link {
	var links []wan.Link
	for _, name := range wan.Presets() {
		topology, err := wan.Load(name)
		if err != nil {
			t.Fatal(err)
		}
		for _, l := range topology.Links() {
			if !slices.Contains(links, l) {
				links = append(links, l)
			}
		}
	}
	slices.SortStableFunc(links, func(a, b wan.Link) int { return int(a.RTT - b.RTT) })
	return links
}
