package robustness

import (
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"
	"time"

	"trireme/internal/base/config"
	"trireme/internal/base/durable"
	"trireme/internal/ops/demo"
	"trireme/lab/faultfs"
	"trireme/lab/verify"
)

// disks of data nodes, and the settings that mysqld needs on them.
type disks struct {
	options faultfs.Options
	mysql   map[string]string
	of      map[string]*faultfs.FS // by node; filled by insert
}

// A disk with a volatile cache, as POSIX has it, and one without. InnoDB with O_DIRECT, its default, needs the second
// kind: it does not fsync its doublewrite files, so a power loss may tear a page and its copy.
var (
	cachedDisk = disks{options: faultfs.Options{Names: faultfs.Journaled},
		mysql: map[string]string{"innodb_flush_method": "fsync"}}
	directDisk = disks{options: faultfs.Options{Names: faultfs.Journaled, NoCache: true}}
)

// insert them where demo.Create will put the directories.
func (d *disks) insert(t *testing.T, dir string, nodes int) {
	t.Helper()
	d.of = map[string]*faultfs.FS{}
	seed := diskSeed(t)
	for i := range nodes {
		name, o := "n"+strconv.Itoa(i+1), d.options
		o.Seed = seed + uint64(i)
		f, err := faultfs.New(t.Context(), filepath.Join(dir, name), o)
		if errors.Is(err, faultfs.ErrUnavailable) {
			cannot(t, err)
		}
		must(t, err)
		t.Cleanup(func() { _ = f.Close() })
		d.of[name] = f
	}
}

// diskSeed is TRIREME_SEED, or by default another one each time.
func diskSeed(t *testing.T) uint64 {
	t.Helper()
	seed := uint64(time.Now().UnixNano()) >> 8 << 8
	if s := os.Getenv("TRIREME_SEED"); s != "" {
		n, err := strconv.ParseUint(s, 10, 64)
		must(t, err)
		seed = n
	}
	t.Logf("TRIREME_SEED=%d gives the disks' choices again", seed)
	return seed
}

// powered is a cluster whose nodes' disks can lose power and fail.
type powered struct {
	*cluster
	disks map[string]*faultfs.FS
	lost  faultfs.Loss
	cuts  int
}

func createPowered(t *testing.T, d disks) *powered {
	t.Helper()
	p := &powered{cluster: createShape(t, shape{nodes: 3, disks: &d})}
	p.disks = d.of
	p.settle()
	return p
}

// settle makes durable what there is: how a cluster is made is not what is tested.
func (p *powered) settle() {
	p.t.Helper()
	for _, d := range p.disks {
		must(p.t, d.Sync())
	}
}

// cut the power of nodes: first their disks', so that no node may acknowledge what is lost, at once followed by their
// processes'.
func (p *powered) cut(nodes ...*demo.Node) {
	p.t.Helper()
	for _, n := range nodes {
		must(p.t, p.disks[n.Name].PowerOff())
		if err := p.SignalHost(n, syscall.SIGKILL); err != nil && n.DaemonPID() != 0 {
			p.t.Fatal(err)
		}
	}
	for _, n := range nodes {
		p.KillDaemon(n) // reaped
		l := p.disks[n.Name].Loss()
		p.cuts++
		p.lost.Writes += l.Writes
		p.lost.Torn += l.Torn
		p.lost.Names += l.Names
		p.lost.Cuts += l.Cuts
		p.lost.Sectors += l.Sectors
		p.lost.Files += l.Files
	}
}

// back gives nodes their power, and starts them.
func (p *powered) back(nodes ...*demo.Node) {
	p.t.Helper()
	for _, n := range nodes {
		must(p.t, p.disks[n.Name].PowerOn())
	}
	p.start(nodes...)
}

// losses of power, one after the other.
var losses = []struct {
	who   string
	nodes func(*powered) []*demo.Node
}{
	{"all", func(p *powered) []*demo.Node { p.healthy(); return p.Nodes() }},
	{"the leader", func(p *powered) []*demo.Node { return []*demo.Node{p.healthy()} }},
	{"a follower", func(p *powered) []*demo.Node { return p.others(p.healthy())[:1] }},
}

// TestPowerLoss is the proof of both durability modes: disks that lose and tear what was not fsynced, power losses of
// all nodes at once, of the leader and of a follower under load. Every node must come back by itself, and nothing
// acknowledged may be lost.
func TestPowerLoss(t *testing.T) {
	t.Parallel()
	proveModes(t, directDisk)
}

// TestPowerLossCached is the same on disks with a volatile cache.
func TestPowerLossCached(t *testing.T) {
	if !soak() && os.Getenv("TRIREME_ROUNDS") == "" {
		t.Skip("another cluster, for long runs: TRIREME_SOAK=1")
	}
	proveModes(t, cachedDisk)
}

func proveModes(t *testing.T, d disks) {
	p := createPowered(t, d)
	for _, mode := range []string{config.DurabilityLog, config.DurabilityDouble} {
		p.setDurability(mode)
		p.losePower(mode, rounds(t, 2, 60))
	}
	t.Logf("%d times a node lost its power; the disks lost %+v", p.cuts, p.lost)
	if p.lost.Torn == 0 {
		t.Error("no write was torn: this proved little")
	}
}

// losePower n times in a durability mode, and judge the writes.
func (p *powered) losePower(mode string, n int) {
	p.t.Helper()
	w := p.load(verify.Config{Writers: 16, Mixed: true, Rate: steady(), Database: "power_" + mode})
	var seen gaps
	for i := range n {
		how := losses[i%len(losses)]
		nodes := how.nodes(p)
		p.writesMore(w, loadBeforeKill)
		at := time.Now()
		p.cut(nodes...)
		p.back(nodes...)
		p.writesMore(w, 10)
		p.healthy()
		gap := w.Meter().LongestGap(at).Length()
		seen = append(seen, gap)
		p.t.Logf("%s, loss %d: power of %s lost, write gap %v, all healthy after %v; lost so far: %+v", mode, i+1, how.who,
			gap.Round(time.Millisecond), time.Since(at).Round(100*time.Millisecond), p.lost)
	}
	p.t.Logf("durability %s, %d power losses: write gap %v; %s", mode, n, seen, p.check(w))
}

// setDurability of all nodes, by their settings files.
func (p *powered) setDurability(mode string) {
	p.t.Helper()
	if mode == config.DurabilityLog { // they were made so
		return
	}
	p.StopAll()
	for _, n := range p.Nodes() {
		path := filepath.Join(n.Dir, config.NodeFileName)
		s, err := config.Load(path)
		must(p.t, err)
		s.MySQL.Durability = mode
		must(p.t, durable.WriteFile(path, config.Render(s), 0o600))
	}
	must(p.t, p.StartAll())
	p.healthy()
	p.settle()
}
