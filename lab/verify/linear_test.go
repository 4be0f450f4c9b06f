package verify

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"
	"pgregory.net/rapid"
)

// Short forms: times are milliseconds.

func regOp(kind RegisterDo, begin, end, value int64) RegisterOp {
	ms := int64(time.Millisecond)
	return RegisterOp{Span: Span{Begin: begin * ms, End: end * ms, Outcome: Acked}, Key: 1, Kind: kind, Value: value}
}
func readAt(begin, end, value int64) RegisterOp  { return regOp(ReadRegister, begin, end, value) }
func writeAt(begin, end, value int64) RegisterOp { return regOp(WriteRegister, begin, end, value) }
func casAt(begin, end, old, value int64, swapped bool) RegisterOp {
	op := regOp(SwapRegister, begin, end, value)
	op.Old, op.Swapped = old, swapped
	return op
}

// by says which server was asked.
func by(server string, op RegisterOp) RegisterOp {
	op.Server = server
	return op
}

// heldAtEnd is what a node holds at the end.
func heldAtEnd(node string, value int64) RegisterOp {
	op := readAt(9000, 9001, value)
	op.Node = node
	return op
}
func as(o Outcome, op RegisterOp) RegisterOp {
	op.Outcome = o
	return op
}

func TestJudgeRegisters(t *testing.T) {
	for _, c := range []struct {
		name  string
		ops   []RegisterOp
		stale []time.Duration // ages
		want  []Kind          // with a margin of 100 ms
	}{
		{"empty", nil, nil, nil},
		{"reads what was written", []RegisterOp{readAt(0, 1, 0), writeAt(2, 3, 1), readAt(4, 5, 1)}, nil, nil},
		{"reads a write under way", []RegisterOp{writeAt(0, 9, 1), readAt(1, 2, 0), readAt(3, 4, 1), readAt(5, 6, 1)}, nil,
			nil},
		{"compare-and-set", []RegisterOp{writeAt(0, 1, 1), casAt(2, 3, 1, 2, true), casAt(4, 5, 1, 3, false),
			readAt(6, 7, 2)}, nil, nil},
		{"a write without an answer, seen late", []RegisterOp{as(Unknown, writeAt(0, 1, 1)), readAt(2, 3, 0),
			readAt(500, 501, 1)}, nil, nil},
		{"a write without an answer, never seen", []RegisterOp{as(Pending, writeAt(0, 1, 1)), writeAt(2, 3, 2),
			readAt(500, 501, 2)}, nil, nil},
		{"a compare-and-set without an answer", []RegisterOp{writeAt(0, 1, 1), as(Unknown, casAt(2, 3, 1, 2, false)),
			readAt(4, 5, 2)}, nil, nil},
		{"a read that failed says nothing", []RegisterOp{writeAt(0, 1, 1), as(Unknown, readAt(2, 3, 0)),
			as(Failed, readAt(2, 3, 0))}, nil, nil},
		{"a refused write, not seen", []RegisterOp{as(Failed, writeAt(0, 1, 1)), readAt(2, 3, 0)}, nil, nil},

		{"old within the margin", []RegisterOp{by("a", writeAt(0, 1, 1)), by("b", writeAt(2, 3, 2)),
			by("a", readAt(50, 51, 1))}, []time.Duration{47 * time.Millisecond}, nil},
		{"old within the margin, by the only leader", []RegisterOp{writeAt(0, 1, 1), writeAt(2, 3, 2), readAt(50, 51, 1)},
			[]time.Duration{47 * time.Millisecond}, []Kind{Stale}},
		{"old within the margin, by the new leader's first read", []RegisterOp{by("a", writeAt(0, 1, 1)),
			by("a", writeAt(2, 3, 2)), by("b", readAt(50, 51, 1))},
			[]time.Duration{47 * time.Millisecond}, []Kind{Stale}},
		{"old within the margin, by the new leader, while the old one still answers", []RegisterOp{by("a", writeAt(0, 1, 1)),
			by("a", writeAt(2, 3, 2)), by("b", readAt(4, 5, 2)), by("a", readAt(6, 7, 2)), by("b", readAt(50, 51, 1))},
			[]time.Duration{47 * time.Millisecond}, []Kind{Stale}},
		{"old within the margin, by the new leader once it has written", []RegisterOp{by("a", writeAt(0, 1, 1)),
			by("b", writeAt(2, 3, 2)), by("b", readAt(50, 51, 1))},
			[]time.Duration{47 * time.Millisecond}, []Kind{Stale}},
		{"old within the margin, and the other server answered too late to have followed",
			[]RegisterOp{by("a", writeAt(0, 1, 1)), by("a", writeAt(2, 3, 2)),
				by("a", readAt(50, 51, 1)), by("b", writeAt(60, 61, 3))}, []time.Duration{47 * time.Millisecond}, []Kind{Stale}},
		{"old by the next leader's read", []RegisterOp{by("a", writeAt(0, 1, 1)), as(Unknown, by("a", writeAt(2, 3, 2))),
			by("b", readAt(4, 5, 2)), by("a", readAt(50, 51, 1))},
			[]time.Duration{45 * time.Millisecond}, nil},
		{"old within the margin, leadership went there and back", []RegisterOp{by("a", writeAt(0, 1, 1)),
			by("b", writeAt(2, 3, 2)), by("a", writeAt(4, 5, 3)), by("b", readAt(50, 51, 2))},
			[]time.Duration{45 * time.Millisecond}, nil},
		{"there and back, only read as yet", []RegisterOp{by("a", writeAt(0, 1, 1)), by("b", writeAt(2, 3, 2)),
			as(Unknown, by("b", writeAt(4, 5, 3))), by("a", readAt(6, 7, 3)), by("b", readAt(50, 51, 2))},
			[]time.Duration{43 * time.Millisecond}, nil},
		{"there and back, old by the one that leads again", []RegisterOp{by("a", writeAt(0, 1, 1)), by("b", writeAt(2, 3, 2)),
			by("a", writeAt(4, 5, 3)), by("a", readAt(50, 51, 2))},
			[]time.Duration{45 * time.Millisecond}, []Kind{Stale}},
		{"old within the margin, and a write at an unknown server since", []RegisterOp{by("a", writeAt(0, 1, 1)),
			by("b", writeAt(2, 3, 2)), by(someServer, writeAt(4, 5, 3)), by("a", readAt(50, 51, 2))},
			[]time.Duration{45 * time.Millisecond}, nil},
		{"old within the margin, and but for one at an unknown server no other one wrote",
			[]RegisterOp{by("a", writeAt(0, 1, 1)), by(someServer, writeAt(2, 3, 2)), by("a", readAt(50, 51, 1))},
			[]time.Duration{47 * time.Millisecond}, []Kind{Stale}},
		{"a compare-and-set at an unknown server that saw an old value", []RegisterOp{by("a", writeAt(0, 1, 1)),
			by("b", writeAt(2, 3, 2)), by(someServer, casAt(50, 51, 2, 3, false)), by("b", readAt(52, 53, 2))}, nil,
			[]Kind{NotLinear}},
		{"all nodes hold the last write", []RegisterOp{writeAt(0, 1, 1), writeAt(2, 3, 2), heldAtEnd("n1", 2),
			heldAtEnd("n2", 2)}, nil, nil},
		{"the last write had no answer, and is there", []RegisterOp{writeAt(0, 1, 1), as(Unknown, writeAt(2, 3, 2)),
			heldAtEnd("n1", 2), heldAtEnd("n2", 2)}, nil, nil},
		{"the last write had no answer, and is not there", []RegisterOp{writeAt(0, 1, 1), as(Unknown, writeAt(2, 3, 2)),
			heldAtEnd("n1", 1), heldAtEnd("n2", 1)}, nil, nil},
		{"the last write is lost everywhere", []RegisterOp{writeAt(0, 1, 1), writeAt(2, 3, 2), heldAtEnd("n1", 1)}, nil,
			[]Kind{Lost}},
		{"the last write is lost on one node", []RegisterOp{writeAt(0, 1, 1), writeAt(2, 3, 2), heldAtEnd("n1", 2),
			heldAtEnd("n2", 1)}, nil, []Kind{Lost}},
		{"the last compare-and-set is lost", []RegisterOp{writeAt(0, 1, 1), casAt(2, 3, 1, 2, true), heldAtEnd("n1", 1)}, nil,
			[]Kind{Lost}},
		{"the only write is lost", []RegisterOp{writeAt(0, 1, 1), heldAtEnd("n1", 0)}, nil, []Kind{Lost}},
		{"lost within the margin of the end", []RegisterOp{by("a", writeAt(0, 1, 1)), by("b", writeAt(8990, 8991, 2)),
			by("a", heldAtEnd("n1", 1))}, nil, []Kind{Lost}},
		{"a refused write is there at the end", []RegisterOp{writeAt(0, 1, 1), as(Failed, writeAt(2, 3, 2)),
			heldAtEnd("n1", 2)}, nil, []Kind{NotLinear}},
		{"old beyond the margin", []RegisterOp{writeAt(0, 1, 1), writeAt(2, 3, 2), readAt(200, 201, 1)},
			[]time.Duration{197 * time.Millisecond}, []Kind{Stale}},
		{"old by what another client saw", []RegisterOp{writeAt(0, 1, 1), as(Unknown, writeAt(2, 3, 2)), readAt(4, 5, 2),
			readAt(200, 201, 1)}, []time.Duration{195 * time.Millisecond}, []Kind{Stale}},
		{"old by a compare-and-set", []RegisterOp{writeAt(0, 9, 1), casAt(0, 9, 1, 2, true), readAt(200, 201, 1)},
			[]time.Duration{191 * time.Millisecond}, []Kind{Stale}},
		{"nothing, after a write", []RegisterOp{writeAt(0, 1, 1), readAt(200, 201, 0)},
			[]time.Duration{199 * time.Millisecond}, []Kind{Stale}},
		{"a compare-and-set that saw an old value, within the margin", []RegisterOp{by("a", writeAt(0, 1, 1)),
			by("b", writeAt(2, 3, 2)), by("a", casAt(50, 51, 2, 3, false)), by("b", readAt(52, 53, 2))}, nil, nil},
		{"a compare-and-set of the new leader that saw an old value, within the margin",
			[]RegisterOp{by("a", writeAt(0, 1, 1)), by("a", writeAt(2, 3, 2)), by("b", casAt(50, 51, 2, 3, false)),
				by("b", readAt(52, 53, 2))}, nil, []Kind{NotLinear}},
		{"a compare-and-set that saw an old value", []RegisterOp{writeAt(0, 1, 1), writeAt(2, 3, 2),
			casAt(200, 201, 2, 3, false), readAt(202, 203, 2)}, nil, []Kind{NotLinear}},

		{"an old value among new ones, for a millisecond", []RegisterOp{writeAt(0, 1, 1), writeAt(2, 3, 2), readAt(4, 5, 2),
			by("b", writeAt(300, 301, 3)), readAt(302, 303, 2), by("b", readAt(304, 305, 3))}, []time.Duration{time.Millisecond},
			nil},
		{"a write lost by compare-and-set", []RegisterOp{writeAt(0, 1, 1), casAt(2, 3, 1, 2, true), casAt(4, 5, 1, 3, true)},
			nil, []Kind{NotLinear}},
		{"a value that was not written", []RegisterOp{writeAt(0, 1, 1), readAt(2, 3, 7)}, nil, []Kind{NotLinear}},
		{"a refused write seen", []RegisterOp{as(Failed, writeAt(0, 1, 1)), readAt(2, 3, 1)}, nil, []Kind{NotLinear}},
		{"a value from the future", []RegisterOp{readAt(0, 1, 1), writeAt(2, 3, 1)}, nil, []Kind{NotLinear}},
		{"two orders of two writes", []RegisterOp{writeAt(0, 20, 1), writeAt(0, 20, 2), readAt(1, 2, 1), readAt(3, 4, 2),
			readAt(5, 6, 1)}, nil, []Kind{NotLinear}},
		{"swapped what was not there", []RegisterOp{writeAt(0, 1, 1), writeAt(2, 3, 2), casAt(4, 5, 1, 3, true)}, nil,
			[]Kind{NotLinear}},
		{"a compare-and-set that missed what was there", []RegisterOp{writeAt(0, 1, 1), casAt(200, 201, 1, 2, false)}, nil,
			[]Kind{NotLinear}},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := JudgeRegisters(c.ops, 100*time.Millisecond)
			var ages []time.Duration
			for _, s := range p.Stale {
				ages = append(ages, s.Age)
			}
			if got := kinds(p.Problems); !slices.Equal(got, c.want) || !slices.Equal(ages, c.stale) || len(p.Undecided) > 0 {
				t.Fatalf("found %q, stale by %v, want %q and %v; undecided %q", got, ages, c.want, c.stale, p.Undecided)
			}
		})
	}
}

func TestRegisterKeysAreApart(t *testing.T) {
	other := writeAt(2, 3, 2)
	other.Key = 2
	if p := JudgeRegisters([]RegisterOp{writeAt(0, 1, 1), other, readAt(4, 5, 1)}, 0); len(p.Problems) > 0 ||
		p.Figures["keys"] != 2 {
		t.Fatalf("%v", p)
	}
}

// TestOutOfTimeIsNotOK: a check that does not end is no verdict.
func TestOutOfTimeIsNotOK(t *testing.T) {
	p := judgeRegisters([]RegisterOp{writeAt(0, 1, 1)}, 0, func([]RegisterOp, time.Duration) porcupine.CheckResult {
		return porcupine.Unknown
	})
	r := Report{Parts: []Part{p}, Undecided: p.Undecided}
	if len(p.Undecided) != 1 || r.OK() || !strings.Contains(r.String(), "NOT DECIDED") ||
		!strings.Contains(p.String(), "NOT DECIDED") {
		t.Fatalf("%s", r)
	}
	var hard []RegisterOp // many writes at once, and a read that none explains
	for i := range int64(40) {
		hard = append(hard, as(Unknown, writeAt(0, 1, i+1)), readAt(2+2*i, 3+2*i, i+1))
	}
	hard = append(hard, readAt(200, 201, 99))
	begin := time.Now()
	// without its limit it would take days
	if v := checkLinear(hard, 50*time.Millisecond); v == porcupine.Ok || time.Since(begin) > time.Minute {
		t.Fatalf("%v after %v", v, time.Since(begin))
	}
}

// registerWorld makes a history as a correct register would give it: each operation takes effect at one moment between
// its beginning and its end, and some are never answered, refused, or lost.
func registerWorld(rng *rand.Rand, n int) []RegisterOp {
	const clients = 4
	type pending struct {
		op     RegisterOp
		effect int64
	}
	var now, value int64
	free := [clients]int64{}
	var all []pending
	for range n {
		c := rng.IntN(clients)
		begin := free[c] + 1 + rng.Int64N(20)
		effect := begin + 1 + rng.Int64N(20)
		end := effect + 1 + rng.Int64N(20)
		free[c] = end
		value++
		op := []RegisterOp{readAt(begin, end, 0), writeAt(begin, end, value), casAt(begin, end, rng.Int64N(value), value,
			false)}[rng.IntN(3)]
		op.Client = c
		switch rng.IntN(12) {
		case 0: // unknown: takes effect later, or never
			op.Outcome = Unknown
			effect += rng.Int64N(100)
			if rng.IntN(2) == 0 {
				effect = -1
			}
		case 1:
			op.Outcome, effect = Failed, -1
		}
		all = append(all, pending{op, effect})
	}
	slices.SortStableFunc(all, func(a, b pending) int { return int(a.effect - b.effect) })
	var out []RegisterOp
	for _, p := range all {
		op := p.op
		if p.effect >= 0 {
			switch {
			case op.Kind == ReadRegister:
				op.Value = now
			case op.Kind == WriteRegister:
				now = op.Value
			case op.Old == now:
				op.Swapped, now = op.Outcome == Acked, op.Value
			}
		}
		out = append(out, op)
	}
	return out
}

func TestCorrectRegistersAreNeverFlagged(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		rng := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 1))
		p := JudgeRegisters(registerWorld(rng, rapid.IntRange(1, 60).Draw(t, "operations")), 0)
		if len(p.Problems) > 0 || len(p.Stale) > 0 || len(p.Undecided) > 0 {
			t.Fatalf("%v %v %v", p.Problems, p.Stale, p.Undecided)
		}
	})
}

// TestBrokenRegistersAreFlagged breaks a correct history in ways that no order explains.
func TestBrokenRegistersAreFlagged(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		rng := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 2))
		ops := registerWorld(rng, 30)
		last := int64(10_000)
		switch how := rapid.SampledFrom([]string{"lost write", "invented", "stale", "refused but seen"}).Draw(t, "how"); how {
		case "lost write":
			ops = append(ops, writeAt(last, last+1, 1001), casAt(last+2, last+3, 1001, 1002, true),
				casAt(last+4, last+5, 1001, 1007, true))
		case "invented":
			ops = append(ops, readAt(last, last+1, 1003))
		case "stale":
			ops = append(ops, writeAt(last, last+1, 1004), writeAt(last+2, last+3, 1005), readAt(last+4, last+5, 1004))
		case "refused but seen":
			ops = append(ops, as(Failed, writeAt(last, last+1, 1006)), readAt(last+2, last+3, 1006))
		}
		if p := JudgeRegisters(ops, 0); len(p.Problems) == 0 {
			t.Fatal(fmt.Sprint("not found in ", len(ops), " operations"))
		}
	})
}

// TestFinalReadsAreOfEveryKey: a key without a row holds nothing, whether or not another node has one.
func TestFinalReadsAreOfEveryKey(t *testing.T) {
	other := writeAt(2, 3, 2)
	other.Key = 2
	ops := []RegisterOp{writeAt(0, 1, 1), other}
	held := func(n1, n2 map[int64]int64) []Kind {
		finals := finalReads(ops, map[string]map[int64]int64{"n1": n1, "n2": n2}, 1e9, 1e9+1)
		return kinds(JudgeRegisters(slices.Concat(ops, finals), 0).Problems)
	}
	full := map[int64]int64{1: 1, 2: 2}
	if got := held(full, full); got != nil {
		t.Errorf("complete: %q", got)
	}
	if got := held(full, map[int64]int64{1: 1}); !slices.Equal(got, []Kind{Lost}) {
		t.Errorf("one row missing: %q", got)
	}
	if got := held(full, map[int64]int64{1: 1, 2: 2, 3: 5}); !slices.Equal(got, []Kind{NotLinear}) {
		t.Errorf("a row that was not written: %q", got)
	}
}

func TestOldestStaleReadIsOfAll(t *testing.T) {
	p := Part{Figures: map[string]int64{}}
	for age := range 2 * maxStale {
		p.addStale(StaleRead{Age: time.Duration(age + 1)})
	}
	if len(p.Stale) != maxStale || p.Figures["stale reads"] != 2*maxStale || p.OldestStale != 2*maxStale ||
		!strings.Contains(p.String(), "the oldest stale read by") {
		t.Fatalf("%d kept of %d, the oldest by %v: %s", len(p.Stale), p.Figures["stale reads"], p.OldestStale, p)
	}
}
