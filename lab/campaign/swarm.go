package campaign

import (
	"cmp"
	"fmt"
	"maps"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"

	"trireme/internal/base/config"
	"trireme/internal/base/durable"
	"trireme/internal/core/raftlog"
)

// swarm is what a seed chooses of a system's shape and faults, so that campaigns meet combinations that no person would
// have listed. The seed does not choose what the options name.
type swarm struct {
	settings map[string]string // all of it, by what it is, for reports
	tune     func(*config.Node)
	encrypts bool
	pairs    int      // of a hundred steps are of two faults
	rate     float64  // operations per second of each client
	given    []string // options that were named
}

// weighted is a choice with how likely it is.
type weighted struct {
	name   string
	weight int
}

// dice are the choices of one seed.
type dice struct{ *rand.Rand }

func (d dice) of(choices ...weighted) string {
	sum := 0
	for _, c := range choices {
		sum += c.weight
	}
	n := d.IntN(sum)
	for _, c := range choices {
		if n -= c.weight; n < 0 {
			return c.name
		}
	}
	panic("campaign: no choice")
}

// swarmKinds are the kinds of faults of a seed. Of four seeds in a row that begin with a multiple of four the first two
// have all kinds, and of the other two each has what the other one leaves out: so each kind comes as often as the
// others in seeds that run one after the other, and some campaigns do without what hides something.
func swarmKinds(seed uint64) []Kind {
	all, _ := Kinds(nil)
	if seed%4 < 2 {
		return all
	}
	d := rand.New(rand.NewPCG(seed/2, 0x5377_6172_6d32))
	order := d.Perm(len(all))
	half := order[:len(order)/2]
	if seed%2 == 1 {
		half = order[len(order)/2:]
	}
	slices.Sort(half)
	var out []Kind
	for _, i := range half {
		out = append(out, all[i])
	}
	return out
}

// drawSwarm chooses all that options do not name. The dice are thrown for what they name too, so that the rest
// stays the same.
func (o *Options) drawSwarm() {
	d := dice{rand.New(rand.NewPCG(o.Seed, 0x5377_6172_6d31))}
	s := &swarm{given: o.shapeArgs()}
	nodes := d.of(weighted{"3", 6}, weighted{"5", 4})
	loggers := map[string]string{
		"3": d.of(weighted{"0", 6}, weighted{"1", 4}),
		"5": d.of(weighted{"0", 4}, weighted{"1", 2}, weighted{"2", 3}, weighted{"3", 1}),
	}
	learners := d.of(weighted{"0", 3}, weighted{"1", 1})
	durability := d.of(weighted{config.DurabilityLog, 7}, weighted{config.DurabilityDouble, 3})
	topology := d.of(weighted{"lan", 6}, weighted{"city", 2}, weighted{"10ms", 1}, weighted{"two-regions", 1})
	if o.Nodes == 0 {
		o.Nodes = int(nodes[0] - '0')
	}
	if o.Loggers == 0 {
		o.Loggers = min(int(loggers[nodes][0]-'0'), o.Nodes-2)
	}
	if o.Learners == 0 {
		o.Learners = int(learners[0] - '0')
	}
	o.Durability, o.Topology = cmp.Or(o.Durability, durability), cmp.Or(o.Topology, topology)

	sessions := d.of(weighted{config.SessionsPass, 1}, weighted{config.SessionsCarry, 1})
	level := d.of(weighted{"EVENTUAL", 3}, weighted{"BEFORE_ON_PRIMARY_FAILOVER", 1}, weighted{"BEFORE", 1},
		weighted{"AFTER", 1}, weighted{"BEFORE_AND_AFTER", 1})
	if sessions == config.SessionsPass {
		level = "EVENTUAL"
	}
	compression := d.of(weighted{config.CompressOff, 1}, weighted{config.CompressAuto, 1},
		weighted{config.CompressAlways, 1})
	encryption := d.of(weighted{"off", 2}, weighted{"on", 1})
	sizes := map[string]config.Bytes{"4KiB": 4 * config.KiB, "64KiB": 64 * config.KiB, "1MiB": config.MiB,
		"4MiB": 4 * config.MiB, "16MiB": 16 * config.MiB, "64MiB": 64 * config.MiB}
	cache := d.of(weighted{"1MiB", 1}, weighted{"4MiB", 1}, weighted{"64MiB", 1})
	chunk := d.of(weighted{"4KiB", 1}, weighted{"64KiB", 1}, weighted{"1MiB", 2}, weighted{"16MiB", 1})
	s.pairs = 5 + d.IntN(46)
	rate := d.of(weighted{"2", 2}, weighted{"5", 2}, weighted{"20", 1})
	s.rate = map[string]float64{"2": 2, "5": 5, "20": 20}[rate]
	instrumented := d.of(weighted{"ON", 3}, weighted{"OFF", 1})
	s.encrypts = encryption == "on"
	s.tune = func(n *config.Node) {
		n.Router.Sessions, n.Router.Consistency = sessions, level
		n.Peer.Compression = compression
		n.Raft.LogCache, n.Raft.ChunkSize = sizes[cache], sizes[chunk]
		n.Raft.MaxInflight = max(n.Raft.MaxInflight, n.Raft.ChunkSize)
		if s.encrypts {
			n.Raft.LogKeyFile = filepath.Join(filepath.Dir(n.Dir), keysName)
		}
	}
	if len(o.Kinds) == 0 {
		o.Kinds = swarmKinds(o.Seed)
	}
	s.settings = map[string]string{
		"nodes": fmt.Sprint(o.Nodes), "loggers": fmt.Sprint(o.Loggers), "learners": fmt.Sprint(o.Learners),
		"durability": o.Durability, "topology": o.Topology, "sessions": sessions, "level": level,
		"compression": compression, "encryption": encryption, "cache": cache, "chunk": chunk,
		"rate": rate, "instrumented": instrumented, "pairs": fmt.Sprintf("%d %%", s.pairs/10*10),
		"kinds": fmt.Sprint(len(o.Kinds)),
	}
	o.drawn = s
}

func (s *swarm) String() string {
	var out []string
	for _, k := range slices.Sorted(maps.Keys(s.settings)) {
		out = append(out, k+" "+s.settings[k])
	}
	return strings.Join(out, ", ")
}

// keysName is the file with the keys of the log. It is next to the nodes' directories, so that it survives the loss of
// a disk.
const keysName = "log-keys"

// writeKeys makes it.
func writeKeys(dir string) error {
	text, err := raftlog.AddKey(nil, "k1")
	if err != nil {
		return err
	}
	return durable.WriteFile(filepath.Join(dir, keysName), text, 0o600)
}
