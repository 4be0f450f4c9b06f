package campaign

import (
	"cmp"
	"slices"
	"sync"

	"trireme/lab/faultfs"
)

// grips are what faults that last hold: links, the processes and the disks of hosts. What several hold is let go by the
// last of them, so that the end of one fault does not end another before its time.
type grips struct {
	mu    sync.Mutex
	links map[[2]string]int
	stops map[string]int             // frozen, by host
	disks map[string][]faultfs.Fault // by host
}

func newGrips() *grips {
	return &grips{links: map[[2]string]int{}, stops: map[string]int{}, disks: map[string][]faultfs.Fault{}}
}

func link(a, b string) [2]string {
	if cmp.Less(b, a) {
		a, b = b, a
	}
	return [2]string{a, b}
}

// take links.
func (g *grips) take(links [][2]string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, l := range links {
		g.links[l]++
	}
}

// drop links, and return those that no grip holds any more.
func (g *grips) drop(links [][2]string) (free [][2]string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, l := range links {
		if g.links[l]--; g.links[l] == 0 {
			delete(g.links, l)
			free = append(free, l)
		}
	}
	return free
}

// freeze a host's processes, some or all.
func (g *grips) freeze(host string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.stops[host]++
}

// thaw reports whether no grip holds the host any more.
func (g *grips) thaw(host string) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.stops[host]--
	return g.stops[host] == 0
}

// spoil a disk, and return all that is wrong with it now.
func (g *grips) spoil(host string, f faultfs.Fault) []faultfs.Fault {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.disks[host] = append(g.disks[host], f)
	return slices.Clone(g.disks[host])
}

// mend one fault of a disk, and return what is still wrong with it.
func (g *grips) mend(host string, f faultfs.Fault) []faultfs.Fault {
	g.mu.Lock()
	defer g.mu.Unlock()
	if i := slices.Index(g.disks[host], f); i >= 0 {
		g.disks[host] = slices.Delete(g.disks[host], i, i+1)
	}
	return slices.Clone(g.disks[host])
}
