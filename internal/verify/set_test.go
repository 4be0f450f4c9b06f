package verify

import (
	"slices"
	"strings"
	"testing"
)

// keepSet makes a set that keeps its files in dir.
func keepSet(t *testing.T, dir string, workloads ...string) *Set {
	t.Helper()
	s, err := NewSet(SetConfig{Login: Login{Addr: Fixed("127.0.0.1:1")}, Workloads: workloads, Seed: 7, Dir: dir})
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

func TestRecheckRows(t *testing.T) {
	for _, c := range []struct {
		name string
		rows []int64
		want []Kind
	}{
		{"complete", []int64{1, 2, 3}, nil},
		{"one lost", []int64{1, 3}, []Kind{Lost}},
		{"one doubled", []int64{1, 2, 2, 3}, []Kind{Doubled}},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := t.TempDir()
			s := keepSet(t, dir, "rows")
			p := s.parts[0].(*rowsPart)
			p.cfg.Tables, p.cfg.PairEvery = shape.Tables, shape.PairEvery
			for range 3 {
				p.log.Settle(0, p.log.Begin(0), Acked)
			}
			if err := s.save(); err != nil {
				t.Fatal(err)
			}
			if _, err := Recheck(dir); err == nil {
				t.Error("judged without what the nodes held")
			}
			p.nodes, s.nodes = map[string]Rows{"n1": rowsOf(c.rows...)}, []string{"n1"}
			if err := s.save(); err != nil {
				t.Fatal(err)
			}
			r, err := Recheck(dir)
			if err != nil {
				t.Fatal(err)
			}
			if got := kinds(r.Problems); !slices.Equal(got, c.want) || r.OK() != (c.want == nil) || r.Counts.Acked != 3 {
				t.Fatalf("found %q in %s, want %q", got, r, c.want)
			}
		})
	}
}
