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
	// Value that was read, or is to be written.
	Value int64 `json:"v"`
	// Old is what a compare-and-set expects; Swapped, if it was acknowledged, whether it found that.
	Old     int64 `json:"old,omitempty"`
	Swapped bool  `json:"swapped,omitempty"`
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
// Old reads are found first and by themselves, because a leader that was cut off may give them for a moment: a read is stale when its
// value had surely been overwritten before the read began, and its age is the time between. All stale reads are returned; those older
// than the margin are problems. What is left must be linearizable.
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
	deadline := time.Now().Add(linearLimit)
	for _, key := range slices.Sorted(maps.Keys(byKey)) {
		p.Figures["keys"]++
		stale, rest := splitStale(byKey[key])
		p.addStale(stale...)
		for _, s := range stale {
			if s.Age > margin {
				found.report(Stale, "", Attempt{}, "key %d at %v: overwritten at least %v before the read began", key, s.At, s.Age)
			}
		}
		limit := min(keyLimit, time.Until(deadline))
		if limit <= 0 || len(rest) > maxKeyInPart {
			p.Undecided = append(p.Undecided, fmt.Sprintf("key %d: %d operations, out of time", key, len(rest)))
			continue
		}
		verdict := check(rest, limit)
		if verdict == porcupine.Illegal && margin > 0 && check(withMargin(rest, margin), limit) == porcupine.Ok {
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
// A value is in force at the latest when its write was acknowledged, or when somebody had seen it (from). A later value is one whose write
// began after that, or the one that a compare-and-set put in its place. So a read that began after a later value was in force is stale.
func splitStale(ops []RegisterOp) (stale []StaleRead, rest []RegisterOp) {
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
				stale = append(stale, StaleRead{Key: op.Key, At: time.Duration(op.Begin), Age: time.Duration(op.Begin - over)})
				continue
			}
		}
		rest = append(rest, op)
	}
	return stale, rest
}

// withMargin lets a compare-and-set that did not find what it expected, which wrote nothing and so is a read, look back by the margin.
func withMargin(ops []RegisterOp, margin time.Duration) []RegisterOp {
	out := slices.Clone(ops)
	for i, op := range out {
		if op.Kind == SwapRegister && op.Outcome == Acked && !op.Swapped {
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

// checkLinear asks Porcupine about the operations of one key. One without an answer may take effect at any time after it began.
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
