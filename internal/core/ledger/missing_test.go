package ledger

import (
	"testing"

	"trireme/internal/core/raftlog"
	"trireme/internal/mysql/gtid"
)

// What is missing up to an index, and what index a set needs, follow what has been seen as executed.
func TestMissing(t *testing.T) {
	l := New(raftlog.Boundary{})
	for _, s := range []step{barrierStep(1, 1, 1, at(4)), trxStep(at(4), at(5), 0, 1, 3), trxStep(at(5), at(6), 0, 4, 4),
		{term: 1}, trxStep(at(6), at(7), 0, 5, 5)} {
		if err := s.add(l); err != nil {
			t.Fatal(err)
		}
	}
	sid := testSID(1, 1)
	set := func(text string) gtid.Set {
		s, err := gtid.ParseSet(text)
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	of := func(numbers string) gtid.Set { return set(sid.String() + ":" + numbers) }
	type needs struct {
		of    string
		index uint64
		known bool
	}
	for _, c := range []struct {
		executed string
		applied  uint64
		missing  map[uint64]string
		needs    []needs
	}{
		{"", 1, map[uint64]string{1: "", 2: "1-3", 3: "1-4", 4: "1-4", 9: "1-5"},
			[]needs{{"1", 2, true}, {"3-4", 3, true}, {"5", 5, true}, {"5-6", 0, false}}},
		{"1-2", 1, map[uint64]string{2: "1-3"}, []needs{{"1", 2, true}}},
		{"1-3", 2, map[uint64]string{2: "", 3: "4"}, []needs{{"1-3", 0, true}, {"2-4", 3, true}}},
		{"1-4", 4, map[uint64]string{4: "", 5: "5"}, []needs{{"4", 0, true}, {"5", 5, true}}},
		{"1-5", 5, map[uint64]string{5: ""}, []needs{{"1-5", 0, true}, {"6", 0, false}}},
	} {
		if c.executed != "" {
			l.Applied(of(c.executed))
		}
		if got := l.AppliedIndex(); got != c.applied {
			t.Errorf("with %q: applied is %d, want %d", c.executed, got, c.applied)
		}
		for upTo, want := range c.missing {
			var w gtid.Set
			if want != "" {
				w = of(want)
			}
			if got := l.Missing(upTo); !got.Equal(w) {
				t.Errorf("with %q: missing up to %d is %q, want %q", c.executed, upTo, got, want)
			}
		}
		for _, n := range c.needs {
			if index, known := l.IndexOf(of(n.of)); index != n.index || known != n.known {
				t.Errorf("with %q: %s needs %d, %t; want %d, %t", c.executed, n.of, index, known, n.index, n.known)
			}
		}
	}
	if index, known := l.IndexOf(gtid.Set{}); index != 0 || !known {
		t.Errorf("nothing needs %d, %t", index, known)
	}
}
