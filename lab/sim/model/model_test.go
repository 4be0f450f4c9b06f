package model

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"trireme/lab/needs"
)

var update = flag.Bool("update", false, "write testdata, and the tables of docs/safety/model.md, again")

const page = "../../../docs/safety/model.md"

// bounds is a bounded cluster, and what it is for.
type bounds struct {
	name string
	Config
}

// short is what every run of the tests goes through.
var short = []bounds{
	{"rows", Config{Nodes: 3, Script: "RR", Crashes: 1, Elections: 1}},
	{"a leader that comes again", Config{Nodes: 3, Script: "R", Crashes: 1, Elections: 2}},
	{"a statement without a trace", Config{Nodes: 2, Script: "RQR", Crashes: 1, Elections: 1}},
	{"XA", Config{Nodes: 3, Script: "PC", Crashes: 1, Elections: 1}},
	{"XA among others", Config{Nodes: 2, Script: "RPCQ", Crashes: 1, Elections: 1}},
	{"received, and on disk later", Config{Nodes: 2, Script: "R", Crashes: 2, Elections: 1, Fsync: true}},
	{"flush and purge", Config{Nodes: 2, Script: "RQ", Crashes: 1, Flush: true}},
	{"flush and purge with XA", Config{Nodes: 2, Script: "PC", Crashes: 1, Flush: true}},
	{"an applier out of order", Config{Nodes: 2, Script: "RRR", Crashes: 1, Elections: 1, Disorder: true}},
	{"a disk lost for good", Config{Nodes: 3, Script: "R", Disks: 1, Flush: true}},
}

// deep takes minutes and some GiB.
var deep = []bounds{
	{"rows", Config{Nodes: 3, Script: "RR", Crashes: 2, Elections: 1}},
	{"a leader that comes again", Config{Nodes: 3, Script: "RR", Crashes: 0, Elections: 3}},
	{"a statement without a trace", Config{Nodes: 3, Script: "RQR", Crashes: 1, Elections: 1}},
	{"XA", Config{Nodes: 3, Script: "PC", Crashes: 2, Elections: 1}},
	{"XA among others", Config{Nodes: 3, Script: "RPC", Crashes: 1, Elections: 1}},
	{"received, and on disk later", Config{Nodes: 3, Script: "R", Crashes: 2, Elections: 1, Fsync: true}},
	{"flush and purge", Config{Nodes: 2, Script: "RQ", Crashes: 1, Elections: 1, Flush: true}},
	{"flush and purge with XA", Config{Nodes: 2, Script: "PC", Crashes: 1, Elections: 1, Flush: true}},
	{"flush and purge, a disk lost for good", Config{Nodes: 3, Script: "R", Crashes: 0, Elections: 1, Disks: 1,
		Flush: true}},
}

const (
	shortLimit = 1_000_000
	deepLimit  = 12_000_000
)

// TestNoPromiseIsBroken goes through all states of the small clusters, and from each of them back to health.
func TestNoPromiseIsBroken(t *testing.T) {
	done := searchAll(t, "short", short, shortLimit)
	for v := range verbs {
		if done[v] == 0 && verb(v) != doLose {
			t.Errorf("move %d was never made", v)
		}
	}
}

// TestNoPromiseIsBrokenDeep is the same with larger bounds.
func TestNoPromiseIsBrokenDeep(t *testing.T) {
	needs.Long(t) // and it takes some GiB
	searchAll(t, "deep", deep, deepLimit)
}

// searchAll searches, and compares roughly what it counts with the table of the page.
func searchAll(t *testing.T, table string, all []bounds, limit int) (moves [verbs]int) {
	var b strings.Builder
	b.WriteString("| what | nodes | clients send | crashes | elections | states | longest way | questions to the judge |\n|-|-|-|-|-|-|-|-|\n")
	for _, c := range all {
		c.Heal = true
		r := c.Search(limit)
		t.Logf("%s: %d states, the longest way to one takes %d moves", c.name, r.States, r.Depth)
		if r.Bad != "" {
			t.Errorf("%s:\n%s", c.name, r)
		} else if !r.Complete {
			t.Errorf("%s: more than %d states", c.name, limit)
		}
		for v, n := range r.moves {
			moves[v] += n
		}
		fmt.Fprintf(&b, "| %s | %d | %s | %d | %d | %d | %d | %d |\n", c.name, c.Nodes, c.Script, c.Crashes, c.Elections,
			r.States, r.Depth, r.Judged)
	}
	if !t.Failed() {
		inPage(t, table, b.String())
	}
	return moves
}

// inPage compares a table with the one between two marks of the page, or puts it there. A search that has become much
// smaller, or larger, is not what the page speaks of; a few states more or less are of no account.
func inPage(t *testing.T, name, table string) {
	t.Helper()
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	begin, end := "<!-- "+name+": written by go test ./lab/sim/model -update -->\n", "<!-- end -->"
	head, rest, ok := strings.Cut(string(text), begin)
	old, tail, ends := strings.Cut(rest, end)
	if !ok || !ends {
		t.Fatalf("%s has no table %q", page, name)
	}
	if !*update {
		if !sameRows(old, table) {
			t.Errorf("%s shows other figures (renew it with -update):\n%s", page, table)
		}
		return
	}
	if err := os.WriteFile(page, []byte(head+begin+table+end+tail), 0o644); err != nil {
		t.Fatal(err)
	}
}

// sameRows reports whether two tables speak of the same clusters, and each count of the one is within a quarter of the
// other's.
func sameRows(a, b string) bool {
	ours, theirs := strings.Split(a, "|"), strings.Split(b, "|")
	for i := range min(len(ours), len(theirs)) {
		x, errx := strconv.ParseFloat(strings.TrimSpace(ours[i]), 64)
		y, erry := strconv.ParseFloat(strings.TrimSpace(theirs[i]), 64)
		if errx != nil || erry != nil || x < 10 { // how many nodes, crashes and elections there are is exact
			if ours[i] != theirs[i] {
				return false
			}
		} else if x > y*1.25 || y > x*1.25 {
			return false
		}
	}
	return len(ours) == len(theirs)
}

func TestSameRows(t *testing.T) {
	const row = "| rows | 3 | RR | 1 | 1 | 157461 | 28 | 103 |\n"
	for other, same := range map[string]bool{
		row: true, row + row: false, "| rows | 3 | RR | 1 | 1 | 140000 | 30 | 120 |\n": true,
		"| rows | 3 | RR | 1 | 1 | 110000 | 28 | 103 |\n": false, "| rows | 2 | RR | 1 | 1 | 157461 | 28 | 103 |\n": false,
		"| rows | 3 | R | 1 | 1 | 157461 | 28 | 103 |\n": false,
	} {
		if sameRows(row, other) != same {
			t.Errorf("%s: the same: %v", other, !same)
		}
	}
}

// breaks shows for each rule that the search finds what goes wrong without it.
var breaks = []bounds{
	{"s1", Config{Nodes: 3, Script: "R", Elections: 1, Broken: S1}},
	{"s2", Config{Nodes: 3, Script: "R", Crashes: 1, Elections: 1, Fsync: true, Broken: S2}},
	{"s3", Config{Nodes: 2, Script: "R", Crashes: 2, Elections: 1, Fsync: true, Broken: S3}},
	{"s4", Config{Nodes: 3, Script: "R", Elections: 1, Broken: S4}},
	{"s5", Config{Nodes: 2, Script: "R", Crashes: 1, Broken: S5}},
	{"s5-judge", Config{Nodes: 2, Script: "QR", Crashes: 1, Broken: S5Judge}},
	{"s5-plug", Config{Nodes: 2, Script: "PC", Crashes: 1, Broken: NoPlug}},
	{"s6", Config{Nodes: 2, Script: "R", Elections: 1, Broken: S6}},
	{"s7", Config{Nodes: 3, Script: "RR", Elections: 2, Broken: S7}},
	{"s8", Config{Nodes: 2, Script: "R", Crashes: 1, Flush: true, Broken: S8}},
	{"s8-disk", Config{Nodes: 3, Script: "R", Elections: 1, Disks: 1, Flush: true, Broken: S8}},
	{"s11", Config{Nodes: 3, Script: "R", Crashes: 1, Elections: 1, Broken: S11}},
	{"s12", Config{Nodes: 2, Script: "RR", Elections: 1, Broken: S12}},
}

// TestBrokenRulesAreFound breaks one rule each; the traces are kept, so that a reader sees what each rule is for. With
// the rule the same cluster is in order.
func TestBrokenRulesAreFound(t *testing.T) {
	var all Rule
	for _, b := range breaks {
		all |= b.Broken
		t.Run(b.name, func(t *testing.T) {
			r := b.Search(shortLimit)
			if r.Bad == "" {
				t.Fatalf("nothing found in %d states", r.States)
			}
			golden(t, filepath.Join("testdata", b.name+".txt"), r.String())
			b.Broken = 0
			if r := b.Search(shortLimit); r.Bad != "" || !r.Complete {
				t.Errorf("with the rule: %d states, complete: %v\n%s", r.States, r.Complete, r)
			}
		})
	}
	if all != ruleEnd-1 {
		t.Errorf("rules %b are never broken", ruleEnd-1&^all)
	}
}

// TestHealingIsNeeded: a cluster whose log was purged too far does not come to rest, whether or not anything is lost
// yet.
func TestHealingIsNeeded(t *testing.T) {
	c := Config{Nodes: 2, Script: "R", Elections: 1, Flush: true, Broken: S8, Heal: true}
	if r := c.Search(shortLimit); !strings.Contains(r.Bad, "does not get well") {
		t.Errorf("%d states:\n%s", r.States, r)
	}
	golden(t, filepath.Join("testdata", "stuck.txt"), c.Search(shortLimit).String())
}

// TestKeys: what the search remembers of a state is all of it, and does not hang on names.
func TestKeys(t *testing.T) {
	m := &model{Config: Config{Nodes: 3, Script: "RQR", Crashes: 1, Elections: 1}, judged: map[question]verdict{},
		label: firstLabels}
	s := m.first()
	for range 40 {
		all := m.successors(&s, nil)
		if len(all) == 0 {
			break
		}
		s = all[len(all)/2].s
		key := string(m.key(&s, nil))
		again := m.decode([]byte(key))
		if string(m.key(&again, nil)) != key {
			t.Fatalf("%s is remembered as %s", m.dump(&s), m.dump(&again))
		}
		s.nodes[0], s.nodes[2] = s.nodes[2], s.nodes[0]
		if string(m.key(&s, nil)) != key {
			t.Fatalf("names matter in %s", m.dump(&s))
		}
	}
}

// golden compares the length of a way with that of the one that is kept: it is a shortest one, in whatever words, and
// whichever of several.
func golden(t *testing.T, path, got string) {
	t.Helper()
	if *update {
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if strings.Count(got, "\n") != strings.Count(string(want), "\n") {
		t.Errorf("%s (renew it with -update):\n%s\ngot:\n%s", path, want, got)
	}
}
