package verify

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"time"

	"github.com/anishathalye/porcupine"
)

// RegisterOp is one statement on one register. Every value is written by one operation at most, and 0 is what each
// register begins with: so a value names the write that it comes from.
type RegisterOp struct {
	Span
	Key  int64      `json:"k"`
	Kind RegisterDo `json:"do"`
	// Value that was read, or that the operation writes.
	Value int64 `json:"v"`
	// Old is what a compare-and-set expects; Swapped, if it was acknowledged, whether it found that.
	Old     int64 `json:"old,omitempty"`
	Swapped bool  `json:"swapped,omitempty"`
	// Server is the server_uuid of the server that was asked: one life of a mysqld. someServer: the server is not
	// known.
	Server string `json:"s,omitempty"`
	// Node that was read at the end, with all nodes at rest; empty for what clients did.
	Node string `json:"node,omitempty"`
}

// someServer is one of two, between which a router led the connection on.
const someServer = "?"

// changed reports whether a write took place for certain.
func (op RegisterOp) changed() bool {
	return op.Outcome == Acked && (op.Kind == WriteRegister || op.Swapped)
}

// RegisterDo is what an operation on a register does.
type RegisterDo string

const (
	ReadRegister  RegisterDo = "read"
	WriteRegister RegisterDo = "write"
	SwapRegister  RegisterDo = "cas"
)

const (
	// NotLinear: no order of the operations explains what clients saw.
	NotLinear Kind = "not linearizable"
	// Stale: a read that was older than the margin allows.
	Stale Kind = "stale read"
)

// Limits of the check of one set: what takes longer is not decided.
const (
	keyLimit     = 10 * time.Second
	linearLimit  = 2 * time.Minute
	maxKeyInPart = 100_000 // operations on one key
)

// JudgeRegisters checks histories of registers, each key by itself (linearizability is local).
//
// Old reads are found first and by themselves, because a leader that was cut off may give them for a moment: a read is
// stale when its value had surely been overwritten before the read began, and its age is the time between. All stale
// reads are returned. They are problems but for those within the margin of a server that had been deposed (see reigns).
// A node that is read at the end, when all are at rest, and holds what had been overwritten has lost a write. What is
// left must be linearizable.
func JudgeRegisters(ops []RegisterOp, margin time.Duration) Part {
	return judgeRegisters(ops, margin, checkLinear)
}

// linearChecker decides on operations of one key within a time.
type linearChecker func([]RegisterOp, time.Duration) porcupine.CheckResult

func judgeRegisters(ops []RegisterOp, margin time.Duration, check linearChecker) Part {
	p, found := Part{Figures: map[string]int64{}}, findings{}
	byKey := map[int64][]RegisterOp{}
	for _, op := range ops {
		if op.Outcome == Failed || op.Kind == ReadRegister && op.Outcome != Acked {
			continue // not executed, or told nothing
		}
		byKey[op.Key] = append(byKey[op.Key], op)
	}
	terms := reignsOf(ops)
	deadline := time.Now().Add(linearLimit)
	for _, key := range slices.Sorted(maps.Keys(byKey)) {
		p.Figures["keys"]++
		stale, rest := splitStale(byKey[key])
		for _, s := range stale {
			switch {
			case s.op.Node != "":
				found.report(Lost, s.op.Node, Attempt{}, "key %d holds %d at the end, overwritten at least %v before", key,
					s.op.Value, s.Age)
				continue
			case !terms.deposed(s.op):
				found.report(Stale, "", Attempt{},
					"key %d at %v: overwritten at least %v before the read began, and %s had not been deposed", key, s.At, s.Age,
					s.op.Server)
			case s.Age > margin:
				found.report(Stale, "", Attempt{}, "key %d at %v: overwritten at least %v before the read began", key, s.At, s.Age)
			}
			p.addStale(s.StaleRead)
		}
		limit := min(keyLimit, time.Until(deadline))
		if limit <= 0 || len(rest) > maxKeyInPart {
			p.Undecided = append(p.Undecided, fmt.Sprintf("key %d: %d operations, out of time", key, len(rest)))
			continue
		}
		verdict := check(rest, limit)
		if verdict == porcupine.Illegal && margin > 0 && check(withMargin(rest, margin, terms), limit) == porcupine.Ok {
			p.Figures["compare-and-sets that found an old value, within the margin"]++
			verdict = porcupine.Ok
		}
		switch verdict {
		case porcupine.Illegal:
			found.report(NotLinear, "", Attempt{}, "key %d: %d operations, %d stale reads set aside", key, len(rest), len(stale))
		case porcupine.Unknown:
			p.Undecided = append(p.Undecided, fmt.Sprintf("key %d: %d operations, not within %v", key, len(rest), limit))
		}
	}
	p.Problems = found.all()
	return p
}

// splitStale takes the stale reads out of the operations of one key.
//
// A value is in force at the latest when its write was acknowledged, or when somebody had seen it (from). A later value
// is one whose write began after that, or the one that a compare-and-set put in its place. So a read that began after a
// later value was in force is stale.
func splitStale(ops []RegisterOp) (stale []staleOp, rest []RegisterOp) {
	from := inForce(ops)
	replaced := map[int64]int64{} // by value: since when a compare-and-set had surely replaced it
	type write struct{ begin, from int64 }
	var writes []write
	for _, op := range ops {
		f, ok := from[op.Value]
		if op.Kind == ReadRegister || !ok {
			continue
		}
		writes = append(writes, write{op.Begin, f})
		if op.Kind == SwapRegister {
			replaced[op.Old] = min(f, since(replaced, op.Old))
		}
	}
	slices.SortFunc(writes, func(a, b write) int { return cmp.Compare(a.begin, b.begin) })
	for i := len(writes) - 2; i >= 0; i-- { // from: of this or any that began later
		writes[i].from = min(writes[i].from, writes[i+1].from)
	}
	for _, op := range ops {
		if op.Kind == ReadRegister {
			over := since(replaced, op.Value)
			if f := since(from, op.Value); f != math.MaxInt64 {
				i, _ := slices.BinarySearchFunc(writes, f, func(w write, f int64) int {
					if w.begin <= f {
						return -1
					}
					return 1
				})
				if i < len(writes) {
					over = min(over, writes[i].from)
				}
			}
			if over < op.Begin {
				stale = append(stale,
					staleOp{StaleRead{Key: op.Key, At: time.Duration(op.Begin), Age: time.Duration(op.Begin - over)}, op})
				continue
			}
		}
		rest = append(rest, op)
	}
	return stale, rest
}

// staleOp is a stale read, and the operation that it was.
type staleOp struct {
	StaleRead
	op RegisterOp
}

// reigns is what the answers tell of who led when.
type reigns struct {
	answers []RegisterOp       // of clients, by beginning
	first   map[string]int64   // by server: the beginning of what it answered first
	writes  map[string][]int64 // by server: the beginnings of the writes that it acknowledged
}

func reignsOf(ops []RegisterOp) reigns {
	r := reigns{first: map[string]int64{}, writes: map[string][]int64{}}
	for _, op := range ops {
		if op.Outcome == Acked && op.Node == "" && op.Server != someServer {
			r.answers = append(r.answers, op)
		}
	}
	slices.SortFunc(r.answers, func(a, b RegisterOp) int { return cmp.Compare(a.Begin, b.Begin) })
	for _, op := range r.answers {
		if _, known := r.first[op.Server]; !known {
			r.first[op.Server] = op.Begin
		}
		if op.changed() {
			r.writes[op.Server] = append(r.writes[op.Server], op.Begin)
		}
	}
	return r
}

// deposed reports whether another server had followed the one that was asked before the operation began: since that
// one's first answer, and its last acknowledged write, another one has acknowledged a write or answered for the first
// time. It may then be a leader that was cut off and whose fence is not complete. A new leader is not, and has no
// excuse for what is old. One that has written may be followed by one that led before it (a switchover leaves the life
// of a mysqld as it is) and has only been read as yet, so then a read counts too.
func (r reigns) deposed(op RegisterOp) bool {
	if op.Server == someServer {
		return false
	}
	own, wrote := r.first[op.Server], false
	if n, _ := slices.BinarySearch(r.writes[op.Server], op.Begin); n > 0 {
		own, wrote = r.writes[op.Server][n-1], true
	}
	from, _ := slices.BinarySearchFunc(r.answers, own+1,
		func(o RegisterOp, begin int64) int { return cmp.Compare(o.Begin, begin) })
	for _, o := range r.answers[from:] {
		if o.Begin >= op.Begin {
			break
		}
		if o.Server != op.Server && o.End < op.Begin && (wrote || o.changed() || o.Begin == r.first[o.Server]) {
			return true
		}
	}
	return false
}

// withMargin lets a compare-and-set that did not find what it expected, which wrote nothing and so is a read, look back
// by the margin if a deposed server answered it.
func withMargin(ops []RegisterOp, margin time.Duration, terms reigns) []RegisterOp {
	out := slices.Clone(ops)
	for i, op := range out {
		if op.Kind == SwapRegister && op.Outcome == Acked && !op.Swapped && terms.deposed(op) {
			out[i].Begin -= int64(margin)
		}
	}
	return out
}

// inForce says of each value when it had surely been written, as far as is known.
func inForce(ops []RegisterOp) map[int64]int64 {
	from := map[int64]int64{0: math.MinInt64}
	note := func(value, at int64) { from[value] = min(at, since(from, value)) }
	for _, op := range ops {
		switch {
		case op.Outcome != Acked:
		case op.Kind == SwapRegister && !op.Swapped:
		case op.Kind == SwapRegister:
			note(op.Old, op.End)
			note(op.Value, op.End)
		default:
			note(op.Value, op.End)
		}
	}
	return from
}

// since returns a time, the end of all times for a value that has none.
func since(m map[int64]int64, value int64) int64 {
	if at, ok := m[value]; ok {
		return at
	}
	return math.MaxInt64
}

// register is a key's state as Porcupine sees it.
var register = porcupine.Model{
	Init: func() any { return int64(0) },
	Step: func(state, input, _ any) (bool, any) {
		op, now := input.(RegisterOp), state.(int64)
		switch op.Kind {
		case ReadRegister:
			return now == op.Value, now
		case WriteRegister:
			return true, op.Value
		}
		switch {
		case op.Outcome == Acked && op.Swapped != (now == op.Old):
			return false, now
		case now == op.Old:
			return true, op.Value
		}
		return true, now
	},
}

// checkLinear asks Porcupine about the operations of one key. One without an answer may take effect at any time after
// it began.
func checkLinear(ops []RegisterOp, limit time.Duration) porcupine.CheckResult {
	history := make([]porcupine.Operation, len(ops))
	for i, op := range ops {
		history[i] = porcupine.Operation{ClientId: op.Client, Input: op, Call: op.Begin, Return: op.End}
		if op.Outcome != Acked {
			history[i].Return = math.MaxInt64
		}
	}
	return porcupine.CheckOperationsTimeout(register, history, limit)
}
