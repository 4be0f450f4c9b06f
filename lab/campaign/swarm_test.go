package campaign

import (
	"fmt"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"

	"trireme/internal/base/config"
	"trireme/internal/core/raftlog"
)

func draw(t *testing.T, o Options) Options {
	t.Helper()
	o.Swarm = true
	o, err := o.withDefaults()
	if err != nil {
		t.Fatal(err)
	}
	return o
}

// TestSwarm: a seed chooses the same each time; what is named stays as it is named, and the rest with it; each value
// and each kind of fault comes up; and what comes up is a configuration that a node takes.
func TestSwarm(t *testing.T) {
	seen := map[string]int{}
	for seed := uint64(1); seed <= 300; seed++ {
		o := draw(t, Options{Seed: seed})
		if again := draw(t, Options{Seed: seed}); !reflect.DeepEqual(again.drawn.settings, o.drawn.settings) ||
			!slices.Equal(again.Kinds, o.Kinds) {
			t.Fatalf("seed %d chooses %v and %v", seed, o.drawn, again.drawn)
		}
		for what, value := range o.drawn.settings {
			seen[what+" "+value]++
		}
		for _, k := range o.Kinds {
			seen["kind "+string(k)]++
		}
		n := config.Default()
		n.Cluster, n.Name, n.Dir = "c", "n1", "/c/n1"
		smallLog(&n)
		o.drawn.tune(&n)
		if n.Raft.MaxInflight < n.Raft.ChunkSize || (n.Raft.LogKeyFile != "") != (o.drawn.settings["encryption"] == "on") ||
			n.Router.Consistency != "EVENTUAL" && n.Router.Sessions != config.SessionsCarry {
			t.Errorf("seed %d: %+v %+v", seed, n.Raft, n.Router)
		}
		if o.Nodes-o.Loggers < 2 || len(o.Kinds) < 10 {
			t.Errorf("seed %d: %v", seed, o.drawn)
		}
		if want := fmt.Sprintf("trireme-lab verify cluster --seed %d --swarm", seed); o.Command() != want {
			t.Errorf("%s, want %s", o.Command(), want)
		}
	}
	all, _ := Kinds(nil)
	for _, k := range all {
		if n := seen["kind "+string(k)]; n != 225 {
			t.Errorf("%s is in %d of 300 swarms, which is not three in four", k, n)
		}
	}
	for _, want := range []string{"nodes 3", "nodes 5", "loggers 0", "loggers 1", "loggers 2", "loggers 3", "learners 0",
		"learners 1", "durability log", "durability double", "topology lan", "topology two-regions", "sessions pass",
		"sessions carry", "level EVENTUAL", "level BEFORE", "level AFTER", "level BEFORE_AND_AFTER",
		"level BEFORE_ON_PRIMARY_FAILOVER", "compression off", "compression auto", "compression always", "encryption on",
		"encryption off", "cache 1MiB", "cache 64MiB", "chunk 4KiB", "chunk 16MiB", "pairs 0 %", "pairs 40 %"} {
		if seen[want] == 0 {
			t.Errorf("%s never comes up; there are %v", want, seen)
		}
	}
	free, named := draw(t, Options{Seed: 5}),
		draw(t, Options{Seed: 5, Nodes: 5, Topology: "10ms", Kinds: []Kind{Power, Isolate}})
	if named.Nodes != 5 || named.Topology != "10ms" || len(named.Kinds) != 2 ||
		named.drawn.settings["cache"] != free.drawn.settings["cache"] ||
		named.Command() != "trireme-lab verify cluster --seed 5 --swarm --nodes 5 --topology 10ms --faults-of power,isolate" {
		t.Errorf("%v: %s", named.drawn, named.Command())
	}
	if _, err := (Options{System: "semisync", Swarm: true}).withDefaults(); err == nil {
		t.Error("a rival's shape is drawn")
	}
}

// TestSwarmsDecks: each kind is as frequent as the others, and as many steps are of two faults as the seed says.
func TestSwarmsDecks(t *testing.T) {
	c := campaign{Options: draw(t, Options{Seed: 9})}
	s := c.newSchedule(c.Kinds)
	counts, pairs := map[Kind]int{}, 0
	const steps = 2000
	for range steps {
		step := s.Next()
		if len(step.Faults) == 2 {
			pairs++
		}
		for _, f := range step.Faults {
			counts[f.Kind]++
		}
	}
	for _, k := range c.Kinds {
		if want := (steps + pairs) / len(c.Kinds); counts[k] < want*8/10 || counts[k] > want*12/10 {
			t.Errorf("%d of %s, about %d are wanted", counts[k], k, want)
		}
	}
	if want := steps * c.drawn.pairs / 100; pairs < want*7/10-20 || pairs > want*12/10+20 {
		t.Errorf("%d pairs, %d %% of %d are wanted", pairs, c.drawn.pairs, steps)
	}
}

// TestSwarmsAreBalanced: seeds that run one after the other make about as many faults of each kind, although some of
// them leave kinds out, and none of them is long.
func TestSwarmsAreBalanced(t *testing.T) {
	const seeds, each = 24, 52 // four hours of campaigns of ten minutes
	all, _ := Kinds(nil)
	for first := uint64(0); first < 400; first += 4 {
		counts := map[Kind]int{}
		for seed := first; seed < first+seeds; seed++ {
			c := campaign{Options: draw(t, Options{Seed: seed + 4})}
			s := c.newSchedule(c.Kinds)
			for made := 0; made < each; {
				for _, f := range s.Next().Faults {
					counts[f.Kind]++
					made++
				}
			}
		}
		for _, k := range all {
			if want := seeds * each / len(all); counts[k] < want*85/100 || counts[k] > want*12/10 {
				t.Errorf("from seed %d on: %d of %s, about %d are wanted", first+4, counts[k], k, want)
			}
		}
	}
}

// TestKeysOfASwarm: a node can read them.
func TestKeysOfASwarm(t *testing.T) {
	dir := t.TempDir()
	if err := writeKeys(dir); err != nil {
		t.Fatal(err)
	}
	if keys, err := raftlog.LoadKeys(t.Context(), dir+"/"+keysName, nil); err != nil || keys == nil {
		t.Error(err)
	}
}

// TestReportCountsKindsAndShapes: each kind and each value is there with its count, and where it is low the report says
// so.
func TestReportCountsKindsAndShapes(t *testing.T) {
	b := Build{CommitPath: "p"}
	part := func(nodes string, isolated int) Part {
		return Part{System: "trireme", Build: b, Faults: isolated, Checks: 1, Demanded: 3,
			Drawn: map[string]string{"nodes": nodes}, Counts: map[string]int{"isolate leader": isolated}}
	}
	var text strings.Builder
	if err := document([]Part{part("3", 80), part("3", 30), part("5", 40)}, nil, b, "").Markdown(&text, ""); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"| nodes | 3 | 110 |", "| nodes | 5 | 40 | below 100 |", "150 |  |", "| 0 | below 100 |",
		"During 9 of the faults"} {
		if !strings.Contains(text.String(), want) {
			t.Errorf("%q is not in the report:\n%s", want, text.String())
		}
	}
}

// TestLimitsAreWrittenDown: the page of the kit says how long writes may stop for each kind of fault.
func TestLimitsAreWrittenDown(t *testing.T) {
	page, err := os.ReadFile("../../docs/safety/README.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, k := range kinds {
		if row := fmt.Sprintf("| %s | %v | %v |", k.name, k.stall[0], k.stall[1]); !strings.Contains(string(page), row) {
			t.Errorf("%q is not there", row)
		}
	}
	if !strings.Contains(string(page), fmt.Sprintf("| no fault | %v | %v |", quietLimit, quietLimit)) {
		t.Error("the limit without a fault is not there")
	}
}

// TestServerOptions: what a node's daemon looks at is there, as on any node, unless a seed takes it away.
func TestServerOptions(t *testing.T) {
	if got := (&campaign{Options: Options{System: "trireme"}}).serverOptions()["performance_schema"]; got != "ON" {
		t.Errorf("performance_schema is %q", got)
	}
	seen := map[string]bool{}
	for seed := range uint64(100) {
		c := campaign{Options: draw(t, Options{Swarm: true, Seed: seed + 1})}
		seen[c.serverOptions()["performance_schema"]] = true
	}
	if len(seen) != 2 || !seen["ON"] || !seen["OFF"] {
		t.Errorf("seeds have chosen %v", seen)
	}
}
