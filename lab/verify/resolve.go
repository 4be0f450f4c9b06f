package verify

import (
	"maps"
	"slices"
)

// resolveRegisters settles the writes that were not answered by the journal that a node holds: each committed write put
// its value there, in the same transaction. What stands there took effect until end, what does not never will. The
// journal is also held to what was answered. journals: node -> value -> how often it stands there; empty: nobody has
// looked, and nothing is settled.
func resolveRegisters(ops []RegisterOp, journals map[string]map[int64]int64, end int64) (settled []RegisterOp, unanswered int64, problems []Problem) {
	if len(journals) == 0 {
		return ops, 0, nil
	}
	var found findings
	nodes := slices.Sorted(maps.Keys(journals))
	tried := map[int64]bool{}
	for _, op := range ops {
		if op.Kind == ReadRegister {
			settled = append(settled, op)
			continue
		}
		tried[op.Value] = true
		for _, node := range nodes {
			n, key := journals[node][op.Value], Attempt{}
			switch {
			case n > 1:
				found.report(Doubled, node, key, "key %d: the write of %d stands %d times in the journal", op.Key, op.Value, n)
			case n == 0 && op.changed():
				found.report(Lost, node, key, "key %d: the acknowledged write of %d is not in the journal", op.Key, op.Value)
			case n == 1 && op.Outcome == Failed:
				found.report(Resurrected, node, key, "key %d: the write of %d was refused, and is in the journal", op.Key, op.Value)
			case n == 1 && op.Outcome == Acked && !op.changed():
				found.report(Broken, node, key, "key %d: the compare-and-set to %d said that it had changed nothing, and is in the journal",
					op.Key, op.Value)
			}
		}
		if op.Outcome == Unknown || op.Outcome == Pending {
			unanswered++
			if journals[nodes[0]][op.Value] > 0 { // that nodes differ is for the comparison of the data to show
				op.Outcome, op.End, op.Server, op.Swapped = Acked, end, someServer, op.Kind == SwapRegister
			} else {
				op.Outcome = Failed
			}
		}
		settled = append(settled, op)
	}
	for _, node := range nodes {
		for _, v := range slices.Sorted(maps.Keys(journals[node])) {
			if !tried[v] {
				found.report(Resurrected, node, Attempt{}, "the journal has %d, which was never written", v)
			}
		}
	}
	return settled, unanswered, found.all()
}
