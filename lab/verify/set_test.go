package verify

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
)

// keepSet makes a set that keeps its files in dir.
func keepSet(t *testing.T, dir string, workloads ...string) *Set {
	t.Helper()
	s, err := NewSet(SetConfig{Split: Fixed("127.0.0.1:1"), Login: Login{Addr: Fixed("127.0.0.1:1")}, Workloads: workloads,
		Seed: 7, Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

func TestSetKnowsItsWorkloads(t *testing.T) {
	all := keepSet(t, "")
	if len(all.parts) != len(Workloads) {
		t.Fatalf("%d parts for %d workloads", len(all.parts), len(Workloads))
	}
	for i, p := range all.parts {
		if p.name() != Workloads[i] {
			t.Errorf("part %d is %s, want %s", i, p.name(), Workloads[i])
		}
	}
	_, err := NewSet(SetConfig{Login: Login{Addr: Fixed("")}, Workloads: []string{"rows", "rwos"}})
	if err == nil || !strings.Contains(err.Error(), `"rwos"`) {
		t.Errorf("a misspelt workload: %v", err)
	}
}

func TestSetJudgesRows(t *testing.T) {
	for _, c := range []struct {
		name string
		rows []int64
		bad  map[string][]WrongRow
		want []Kind
	}{
		{"complete", []int64{1, 2, 3}, nil, nil},
		{"one lost", []int64{1, 3}, nil, []Kind{Lost}},
		{"one doubled", []int64{1, 2, 2, 3}, nil, []Kind{Doubled}},
		{"one with other contents", []int64{1, 2, 3}, map[string][]WrongRow{"n1": {{1, Attempt{0, 2}, "x"}}},
			[]Kind{Garbled}},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := keepSet(t, "", "rows")
			p := s.parts[0].(*rowsPart)
			p.cfg.Tables, p.cfg.PairEvery = shape.Tables, shape.PairEvery
			for range 3 {
				p.log.Settle(0, p.log.Begin(0), Acked)
			}
			p.nodes, p.wrong, s.nodes = map[string]Rows{"n1": rowsOf(c.rows...)}, c.bad, []string{"n1"}
			var r Report
			s.judge(&r)
			if got := kinds(r.Problems); !slices.Equal(got, c.want) || r.OK() != (c.want == nil) || r.Counts.Acked != 3 {
				t.Fatalf("found %q in %s, want %q", got, r, c.want)
			}
		})
	}
}

// TestSetFindsEachFault fills every workload with a history that has one fault, judges it, and keeps its files.
func TestSetFindsEachFault(t *testing.T) {
	dir := t.TempDir()
	s := keepSet(t, dir)
	want := map[string]Kind{}
	for _, p := range s.parts {
		switch p := p.(type) {
		case *registerPart:
			p.history.ops = []RegisterOp{writeAt(0, 1, 1), writeAt(2, 3, 2), readAt(500, 501, 1)}
			p.finals = []RegisterOp{heldAtEnd("n1", 1)}
			want["register"] = Stale
		case *appendPart:
			p.levels[0].history.ops = []Txn{txn(0, 1, Acked, "a1:1"), txn(2, 3, Failed, "a1:2"), txn(4, 5, Unknown, "r1[]")}
			p.levels[0].finals = []Txn{final("n1", "r1[1 2]")}
			p.levels[1].history.ops = []Txn{txn(0, 9, Acked, "r1[]; a1:3"), txn(0, 9, Acked, "r1[]; a1:4")}
			p.levels[1].finals = []Txn{final("n1", "r1[3 4]")}
			want["append"] = G1a
		case *bankPart:
			p.transfers.ops = []Transfer{transfer(1, Acked)}
			p.reads.ops = []BankRead{{Accounts: bankAccounts, Sum: 1}}
			p.held = map[string]BankState{"n1": bankAfter()}
			want["bank"] = Lost
		case *rowsPart:
			p.log.Settle(0, p.log.Begin(0), Acked)
			p.nodes = map[string]Rows{"n1": {{}, {}, {}, {}}}
			want["rows"] = Lost
		case *mixedPart:
			p.objects["table d1"], p.objects["table d2"] = present, absent
			p.xa["x"] = &xaState{Prepared: Acked, Commit: true, Resolved: true}
			p.views = map[string]mixedView{"n1": {Objects: map[string]bool{"table d2": true}}}
			want[p.kind] = Resurrected
		case *largePart:
			p.history.ops = []LargeTrx{{Span: Span{Outcome: Acked}, Number: 1, Rows: 5}}
			p.held = map[string]map[int64]LargeRows{"n1": {1: {4, 4, true}}}
			want["large"] = Torn
		case *vanishPart:
			p.writes.ops = []SeenWrite{seen(1, Acked), seen(2, Unknown)}
			p.views.ops = []View{view("n1", "a", 50, 1, 2), view("n1", "a", 60, 1)}
			p.held = holds(1, 2)
			want["vanish"] = Vanished
		case *causalPart:
			p.history.ops = []CausalOp{{Span: Span{Outcome: Acked}, Write: true, Value: 2},
				{Span: Span{Outcome: Acked}, Value: 1, Told: 2}}
			p.held = map[string]map[int64]int64{"n1": {0: 2}}
			want["causal"] = NotCausal
		case *levelsPart:
			p.history.ops = []LevelOp{{Span: Span{Outcome: Acked}, Write: true, Value: 2},
				{Span: Span{Begin: 1, End: 2, Outcome: Acked}, Before: true}}
			p.held = map[string]map[int64]int64{"n1": {0: 2}}
			want["levels"] = NotCurrent
		default:
			t.Fatalf("no fault for %s", p.name())
		}
	}
	s.nodes = []string{"n1"}
	if err := s.save(); err != nil {
		t.Fatal(err)
	}
	if files, err := os.ReadDir(dir); err != nil || len(files) <= len(s.parts) {
		t.Errorf("%d parts have %d files, and there is %s: %v", len(s.parts), len(files), setFile, err)
	}
	var r Report
	s.judge(&r)
	for _, p := range r.Parts {
		if !slices.Contains(kinds(p.Problems), want[p.Workload]) {
			t.Errorf("%s: %v, want %q", p.Workload, p.Problems, want[p.Workload])
		}
	}
	if len(r.Parts) != len(want) || r.OK() || !strings.Contains(r.String(), "PROBLEMS") {
		t.Error("a report with problems says ok")
	}
}

// TestClientsChooseBySeed: the same seed makes the same choices, another client's or another seed's are others.
func TestClientsChooseBySeed(t *testing.T) {
	choices := func(seed uint64, workload string, client int) (out []int) {
		r := (&Set{cfg: SetConfig{Seed: seed}}).random(workload, client)
		for range 20 {
			out = append(out, r.IntN(100))
		}
		return out
	}
	first := choices(1, "register", 0)
	if !slices.Equal(first, choices(1, "register", 0)) {
		t.Error("one seed, two choices")
	}
	for _, other := range [][]int{choices(2, "register", 0), choices(1, "register", 1), choices(1, "append", 0)} {
		if slices.Equal(first, other) {
			t.Error("the same choices everywhere")
		}
	}
}

// TestGarbledRowsAreProblems: what no client can have written is found by a client, and is a violation of the server's,
// not a fault of the workload's.
func TestGarbledRowsAreProblems(t *testing.T) {
	_, garbled := parseList("1 x")
	for _, c := range []struct {
		name string
		err  error
		want []Kind
		stop bool // an error of Stop
	}{
		{"a row that was not written", fmt.Errorf("reader: %w", garbled), []Kind{Garbled}, false},
		{"no room for the history", errors.New("the history is full"), nil, true},
		{"nothing", nil, nil, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := keepSet(t, "", "bank")
			s.parts[0] = failing{s.parts[0], c.err}
			s.Start(t.Context())
			s.wg.Wait()
			if err := s.Stop(); (err != nil) != c.stop {
				t.Fatalf("Stop: %v", err)
			}
			s.nodes = []string{"n1"}
			var r Report
			s.judge(&r)
			if got := kinds(r.Problems); !slices.Equal(got, c.want) {
				t.Errorf("found %q in %s, want %q", got, r, c.want)
			}
		})
	}
}

// failing is a workload whose only client ends at once.
type failing struct {
	part
	err error
}

func (f failing) clients() []client {
	return []client{func(context.Context) error { return f.err }}
}
