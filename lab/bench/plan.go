package bench

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"trireme/lab/report"
	"trireme/lab/rivals"
	"trireme/lab/wan"
)

// Settings are what a run is made of, the same for all of its cells. They are kept with the results. Zero fields of a
// caller mean the suite's own choice.
type Settings struct {
	Suite       string   `json:"suite"`
	Quick       bool     `json:"quick"` // indicative only
	Systems     []string `json:"systems"`
	AllVariants bool     `json:"all_variants"` // of rivals; otherwise the one that suits most cells
	Topologies  []string `json:"topologies"`   // presets or files of lab/wan; "none": all on the loopback address
	Workloads   []string `json:"workloads"`
	// what the suite varies besides: numbers of nodes, sizes, ways of access, faults
	Cases         []string `json:"cases,omitempty"`
	Threads       []int    `json:"threads"`
	Rounds        int      `json:"rounds"`
	Repeats       int      `json:"repeats,omitempty"` // of each cell on one start; 0: the suite has none
	WarmupSeconds int      `json:"warmup_seconds"`
	Seconds       int      `json:"seconds"`               // of one measurement
	CPUs          float64  `json:"cpus"`                  // budget of each host; 0: none
	ServerCPUs    float64  `json:"server_cpus,omitempty"` // budget of each mysqld by itself; 0: none
	Tables        int      `json:"tables"`
	Rows          int      `json:"rows"`                   // of each table
	Workers       []int    `json:"workers,omitempty"`      // that a rival's replicas apply with
	Transactions  int      `json:"transactions,omitempty"` // of a backlog
}

// Suite is a comparison that answers one question.
type Suite struct {
	Name  string
	Title string
	About string // what is done and how to read it
	// Defaults for a full and for a quick run. CPUs are filled in by the runner where they are negative.
	Defaults func(quick bool) Settings
	// Check says what is wrong with settings that only this suite understands; nil: nothing can be.
	Check func(Settings) error
	// Plan lists what to measure, in the order of one round.
	Plan func(Settings) ([]Group, error)
	// Blocks and Sections of the report.
	Blocks   func(*Results) []report.Block
	Sections func(*Results) []report.Section
	// Compare lists what Trireme is compared in, for "where Trireme is slower".
	Compare []Comparison
}

// Key names one measurement. Fields that a suite does not vary are empty.
type Key struct {
	Topology string `json:"topology,omitempty"`
	System   string `json:"system"`
	Variant  string `json:"variant,omitempty"`
	Case     string `json:"case,omitempty"`
	Workload string `json:"workload,omitempty"`
	Threads  int    `json:"threads,omitempty"`
	Round    int    `json:"round"`
	Repeat   int    `json:"repeat,omitempty"`
}

// cell is what all rounds and repeats of a measurement have in common.
func (k Key) cell() Key {
	k.Round, k.Repeat = 0, 0
	return k
}

func (k Key) String() string {
	var out []string
	for _, s := range []string{k.Topology, k.System, k.Variant, k.Case, k.Workload} {
		if s != "" {
			out = append(out, s)
		}
	}
	switch k.Threads {
	case 0:
	case 1:
		out = append(out, "1 thread")
	default:
		out = append(out, strconv.Itoa(k.Threads)+" threads")
	}
	if k.Repeat != 0 {
		out = append(out, "number "+strconv.Itoa(k.Repeat))
	}
	return strings.Join(out, ", ")
}

// Group is one fresh start of a system and what is measured on it.
type Group struct {
	System rivals.System
	Shape  rivals.Shape // Dir is filled in by the runner
	// Prepare fills the system with data; nil: nothing to do.
	Prepare func(context.Context, *Bed) error
	// Via is how the load reaches the system.
	Via   rivals.Via
	Cells []Cell
}

// Cell is one measurement.
type Cell struct {
	Key   Key
	Takes time.Duration // about
	// Measure returns the record to keep; the runner fills in key and time. An error means that the cell was not run.
	Measure func(context.Context, *Bed) (Record, error)
}

// Bed is what a cell is measured on.
type Bed struct {
	rivals.Running
	Lab      *rivals.Lab
	System   rivals.System
	Shape    rivals.Shape
	Settings Settings
}

// errBroken: after this error of a cell the system is not measured any further.
var errBroken = errors.New("the system is not usable any more")

// groups makes one group for each topology, case, system and variant, in this order. build fills in the cells and may
// change the shape; a group without cells is left out.
func (s Settings) groups(build func(g *Group, base Key) error) ([]Group, error) {
	var out []Group
	for _, topology := range orOne(s.Topologies) {
		shape := rivals.Shape{CPUs: s.CPUs, ServerCPUs: s.ServerCPUs}
		if topology != "" && topology != noTopology {
			t, err := wan.Load(topology)
			if err != nil {
				return nil, err
			}
			shape.Topology = &t
		}
		for _, c := range orOne(s.Cases) {
			for _, name := range s.Systems {
				system, err := rivals.Find(name)
				if err != nil {
					return nil, err
				}
				for _, v := range s.variants(system) {
					g := Group{System: system, Shape: shape}
					g.Shape.Variant = v
					if err := build(&g, Key{Topology: topology, Case: c, System: name, Variant: v.Name}); err != nil {
						return nil, err
					}
					if len(g.Cells) > 0 {
						out = append(out, g)
					}
				}
			}
		}
	}
	return out, nil
}

// noTopology runs everything on the loopback address, without emulated hosts.
const noTopology = "none"

func orOne(list []string) []string {
	if len(list) == 0 {
		return []string{""}
	}
	return list
}

func (s Settings) variants(system rivals.System) []rivals.Variant {
	if s.AllVariants || len(system.Variants) < 2 {
		return system.Variants
	}
	if i := slices.IndexFunc(system.Variants, func(v rivals.Variant) bool { return v.Usual }); i >= 0 {
		return system.Variants[i : i+1]
	}
	return system.Variants[:1]
}

// over returns s with the fields of o that are set.
func (s Settings) over(o Settings) Settings {
	setIf(&s.Systems, o.Systems, len(o.Systems) > 0)
	setIf(&s.Topologies, o.Topologies, len(o.Topologies) > 0)
	setIf(&s.Workloads, o.Workloads, len(o.Workloads) > 0)
	setIf(&s.Cases, o.Cases, len(o.Cases) > 0)
	setIf(&s.Threads, o.Threads, len(o.Threads) > 0)
	setIf(&s.Rounds, o.Rounds, o.Rounds != 0)
	setIf(&s.Repeats, o.Repeats, o.Repeats != 0)
	setIf(&s.WarmupSeconds, o.WarmupSeconds, o.WarmupSeconds != 0)
	setIf(&s.Seconds, o.Seconds, o.Seconds != 0)
	setIf(&s.CPUs, o.CPUs, o.CPUs >= 0)
	setIf(&s.Tables, o.Tables, o.Tables != 0)
	setIf(&s.Rows, o.Rows, o.Rows != 0)
	setIf(&s.Workers, o.Workers, len(o.Workers) > 0)
	setIf(&s.Transactions, o.Transactions, o.Transactions != 0)
	s.AllVariants = s.AllVariants || o.AllVariants
	return s
}

func setIf[T any](to *T, value T, set bool) {
	if set {
		*to = value
	}
}

// named finds one by its name.
func named[T any](what, name string, all []T, nameOf func(T) string) (none T, err error) {
	var known []string
	for _, x := range all {
		if nameOf(x) == name {
			return x, nil
		}
		known = append(known, nameOf(x))
	}
	return none, fmt.Errorf("no %s %q; there are: %s", what, name, strings.Join(known, ", "))
}

// knownCases refuses cases that a suite does not have.
func knownCases(cases, known []string) error {
	for _, c := range cases {
		if _, err := named("case", c, known, func(name string) string { return name }); err != nil {
			return err
		}
	}
	return nil
}

// oneLoad refuses several numbers of threads, where a suite has one load.
func (s Settings) oneLoad() error {
	if len(s.Threads) != 1 {
		return errors.New("one number of threads: that of the writers")
	}
	return nil
}

func (s Settings) check(suite Suite) error {
	for _, name := range s.Systems {
		if _, err := rivals.Find(name); err != nil {
			return err
		}
	}
	for _, t := range s.Topologies {
		if t != noTopology {
			if _, err := wan.Load(t); err != nil {
				return err
			}
		}
	}
	for _, w := range s.Workloads {
		if !slices.Contains(workloads, w) {
			return fmt.Errorf("no workload %q; there are: %s", w, strings.Join(workloads, ", "))
		}
	}
	for _, n := range s.Threads {
		if n < 1 {
			return fmt.Errorf("%d threads: at least 1", n)
		}
	}
	if s.Rounds < 1 || s.Seconds < 1 || s.WarmupSeconds < 0 || s.Tables < 0 || s.Rows < 0 {
		return errors.New("a number of rounds, seconds, tables or rows is not positive")
	}
	if len(s.Cases) > 0 && len(suite.Defaults(s.Quick).Cases) == 0 {
		return fmt.Errorf("suite %s has no cases", s.Suite)
	}
	for what, n := range map[string][2]int{"systems": distinct(s.Systems), "topologies": distinct(s.Topologies),
		"workloads": distinct(s.Workloads), "cases": distinct(s.Cases), "threads": distinct(s.Threads),
		"workers": distinct(s.Workers)} {
		if n[0] != n[1] {
			return fmt.Errorf("one of the %s is named twice", what)
		}
	}
	if suite.Check != nil {
		return suite.Check(s)
	}
	return nil
}

// distinct is how many values a list has, and how many different ones.
func distinct[T comparable](list []T) [2]int {
	seen := map[T]bool{}
	for _, v := range list {
		seen[v] = true
	}
	return [2]int{len(list), len(seen)}
}
