package verify

import (
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// resolveRegisters uses the journal that a node holds to settle the writes that were not answered: each committed write
// put its value there, in the same transaction. A write in the journal took effect before end; one that is not there
// never will. The journal is also compared with what was answered. journals: node -> value -> how often the value is
// there; empty: no journal was read, and nothing is settled.
func resolveRegisters(ops []RegisterOp, journals map[string]map[int64]int64, end int64) (settled []RegisterOp,
	unanswered int64, problems []Problem) {
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
				found.report(Broken, node, key,
					"key %d: the compare-and-set to %d said that it had changed nothing, and is in the journal", op.Key, op.Value)
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

// numbers of a table's rows in the log: of two columns that hold one each.
func (c *Committed) numbers(table string) map[int64]map[int64]bool {
	out := map[int64]map[int64]bool{}
	for _, r := range c.Rows[table] {
		k, err := strconv.ParseInt(r.Values[0], 10, 64)
		v, err2 := strconv.ParseInt(r.Values[1], 10, 64)
		if err != nil || err2 != nil {
			continue // judged where it is read
		}
		if out[k] == nil {
			out[k] = map[int64]bool{}
		}
		out[k][v] = true
	}
	return out
}

// counted is one operation on a counter, and what the log makes of it.
type counted struct {
	*Span
	key, value int64
}

// resolveCounters settles the writes of counters that were not answered by the log, holds the log to what was answered,
// and what nodes hold to the log: of each counter the last value there.
func (c *Committed) resolveCounters(table string, writes []counted, nodes map[string]map[int64]int64) (unanswered int64,
	problems []Problem) {
	var found findings
	logged, tried := c.numbers(table), map[int64]map[int64]bool{}
	for _, w := range writes {
		if tried[w.key] == nil {
			tried[w.key] = map[int64]bool{}
		}
		tried[w.key][w.value] = true
		there := logged[w.key][w.value]
		switch {
		case w.Outcome == Acked && !there:
			found.report(Lost, "", Attempt{}, "client %d was answered that it had written %d, which is not in the log", w.key,
				w.value)
		case w.Outcome == Failed && there:
			found.report(Resurrected, "", Attempt{}, "client %d was refused to write %d, which is in the log", w.key, w.value)
		case w.Outcome == Unknown || w.Outcome == Pending:
			unanswered++
			if w.Outcome = Failed; there {
				w.Outcome, w.End = Acked, c.End
			}
		}
	}
	last := map[int64]int64{}
	for _, k := range slices.Sorted(maps.Keys(logged)) {
		for _, v := range slices.Sorted(maps.Keys(logged[k])) {
			if !tried[k][v] {
				found.report(Resurrected, "", Attempt{}, "the log has %d of client %d, which never wrote that", v, k)
			}
			last[k] = max(last[k], v)
		}
	}
	for _, node := range slices.Sorted(maps.Keys(nodes)) {
		for _, k := range slices.Sorted(maps.Keys(last)) {
			if v := nodes[node][k]; v < last[k] {
				found.report(Lost, node, Attempt{}, "the counter of client %d is %d, the log has committed %d", k, v, last[k])
			}
		}
		for _, k := range slices.Sorted(maps.Keys(nodes[node])) {
			if v := nodes[node][k]; v > last[k] {
				found.report(Resurrected, node, Attempt{}, "the counter of client %d is %d, the log has committed no more than %d",
					k, v, last[k])
			}
		}
	}
	return unanswered, found.all()
}

// resolveReads is resolveCounters for operations of a workload that reads its counters too: of tells what one read, or
// wrote. A read that shows a value that was never committed is found.
func resolveReads[T any](c *Committed, table string, ops []T, nodes map[string]map[int64]int64,
	of func(*T) (_ counted, wrote bool)) ([]T, int64, []Problem) {
	if !c.known() {
		return ops, 0, nil
	}
	ops = slices.Clone(ops)
	var writes, reads []counted
	for i := range ops {
		if op, wrote := of(&ops[i]); wrote {
			writes = append(writes, op)
		} else {
			reads = append(reads, op)
		}
	}
	n, problems := c.resolveCounters(table, writes, nodes)
	var found findings
	logged := c.numbers(table)
	for _, r := range reads {
		if r.Outcome == Acked && r.value != 0 && !logged[r.key][r.value] {
			found.report(Resurrected, "", Attempt{}, "client %d reads %d of client %d, which is not in the log", r.Client,
				r.value, r.key)
		}
	}
	return ops, n, append(problems, found.all()...)
}

func (c *Committed) resolveCausal(ops []CausalOp, nodes map[string]map[int64]int64) ([]CausalOp, int64, []Problem) {
	return resolveReads(c, "counters", ops, nodes, func(op *CausalOp) (counted, bool) {
		return counted{&op.Span, op.Key, op.Value}, op.Write
	})
}

func (c *Committed) resolveLevels(ops []LevelOp, nodes map[string]map[int64]int64) ([]LevelOp, int64, []Problem) {
	return resolveReads(c, "leveled", ops, nodes, func(op *LevelOp) (counted, bool) {
		return counted{&op.Span, op.Key, op.Value}, op.Write
	})
}

// resolveAppends settles transactions that were not answered: their elements stand in the log, in one transaction, or
// none does. What was answered is held to the same.
func (c *Committed) resolveAppends(table string, txns []Txn) ([]Txn, int64, []Problem) {
	if !c.known() {
		return txns, 0, nil
	}
	var found findings
	in, tried := map[int64]int64{}, map[int64]bool{} // transaction of the log, by element
	for _, r := range c.Rows[table] {
		if list := strings.Fields(r.Values[1]); len(list) > 0 {
			if e, err := strconv.ParseInt(list[len(list)-1], 10, 64); err == nil {
				in[e] = r.Trx
			}
		}
	}
	var unanswered int64
	txns = slices.Clone(txns)
	for i := range txns {
		t := &txns[i]
		trx, there, elements := int64(0), 0, 0
		for _, op := range t.Ops {
			if op.Append == 0 {
				continue
			}
			elements++
			tried[op.Append] = true
			if n := in[op.Append]; n != 0 && (trx == 0 || n == trx) {
				trx, there = n, there+1
			}
		}
		switch {
		case elements == 0:
		case there > 0 && there < elements && t.Outcome != Failed:
			found.report(Broken, "", Attempt{},
				"client %d appended %d elements in one transaction, of which %d are in the log together", t.Client, elements, there)
		case t.Outcome == Acked && there == 0:
			found.report(Lost, "", Attempt{}, "client %d was answered that it had appended %v, which is not in the log",
				t.Client, t.Ops)
		case t.Outcome == Failed && there > 0:
			found.report(Resurrected, "", Attempt{}, "client %d was refused to append %v, of which something is in the log",
				t.Client, t.Ops)
		}
		if t.Outcome == Unknown || t.Outcome == Pending {
			unanswered++
			if t.Outcome = Failed; there > 0 {
				t.Outcome, t.End = Acked, c.End
			}
		}
	}
	for _, e := range slices.Sorted(maps.Keys(in)) {
		if !tried[e] {
			found.report(Resurrected, "", Attempt{}, "the log has element %d, which was never appended", e)
		}
	}
	return txns, unanswered, found.all()
}

// openStatement is one that was not answered, and what it makes of an object.
type openStatement struct {
	Before presence `json:"before"`
	After  presence `json:"after"`
	Text   string   `json:"text"` // as it was sent
}

// resolveObjects settles what is known of objects by the statements and rows in the log, in the order in which they
// were sent.
func (c *Committed) resolveObjects(objects map[string]presence,
	open map[string][]openStatement) (settled map[string]presence, unanswered int64) {
	if !c.known() {
		return objects, 0
	}
	settled = maps.Clone(objects)
	for o, list := range open {
		if settled[o] != maybe || list[0].Before == maybe {
			continue
		}
		settled[o] = list[0].Before
		for _, s := range list {
			unanswered++
			if c.ran(o, s.Text) {
				settled[o] = s.After
			}
		}
	}
	return settled, unanswered
}

// word is a name in a statement.
var word = regexp.MustCompile(`[A-Za-z0-9_]+`)

// ran reports whether the log has what a statement does to an object: a row, or a statement of the same kind that names
// it. mysqld writes account statements and definitions in its own words.
func (c *Committed) ran(object, text string) bool {
	f, sent := strings.Fields(object), word.FindAllString(text, -1)
	verb := strings.ToUpper(sent[0])
	if verb == "INSERT" || verb == "CALL" {
		if len(f) == 2 { // of a table of its own
			return len(c.Rows[f[1]]) > 0
		}
		return slices.ContainsFunc(c.Rows["object_rows"],
			func(r LoggedRow) bool { return r.Values[0] == f[2] && r.Values[1] == f[1] })
	}
	name, _, _ := strings.Cut(f[1], ".")
	return slices.ContainsFunc(c.Statements, func(s string) bool {
		s, _, _ = strings.Cut(s, " IDENTIFIED ") // what follows is a random salt, in which any word can stand
		words := word.FindAllString(s, -1)
		return len(words) > 0 && strings.ToUpper(words[0]) == verb && slices.Contains(words, name) &&
			slices.Contains(words, "IF") == slices.Contains(sent, "IF") && // DROP … IF EXISTS comes before the object is made
			(verb != "GRANT" && verb != "REVOKE" || len(missing(sent, words)) == 0) // there are several for one account
	})
}

// missing are the words of one list that another one lacks.
func missing(words, in []string) []string {
	return slices.DeleteFunc(slices.Clone(words), func(w string) bool { return slices.Contains(in, w) })
}

// resolveXA settles what was not answered of XA transactions, and finds those that the log has prepared and not decided
// although no node holds them.
func (c *Committed) resolveXA(xa map[string]*xaState, nodes map[string]mixedView) (settled map[string]*xaState,
	unanswered int64, problems []Problem) {
	if !c.known() {
		return xa, 0, nil
	}
	var found findings
	settled = map[string]*xaState{}
	for _, xid := range slices.Sorted(maps.Keys(xa)) {
		x := *xa[xid]
		says := c.XA[xid]
		prepared, decided := slices.Contains(says, XAPrepared), slices.Contains(says, XACommitted) ||
			slices.Contains(says, XARolledBack)
		switch x.Prepared {
		case Acked:
			if !prepared {
				found.report(Lost, "", Attempt{}, "XA %s: its acknowledged XA PREPARE is not in the log", xid)
			}
		case Failed:
			if prepared {
				found.report(Resurrected, "", Attempt{}, "XA %s: never prepared, and prepared in the log", xid)
			}
		default:
			unanswered++
			if x.Prepared = Failed; prepared {
				x.Prepared = Acked
			}
		}
		switch verb := map[bool]string{true: XACommitted, false: XARolledBack}[x.Commit]; {
		case x.Resolved && !decided:
			found.report(Lost, "", Attempt{}, "XA %s: its acknowledged decision is not in the log", xid)
		case decided && !slices.Contains(says, verb):
			found.report(Broken, "", Attempt{}, "XA %s: the log has it %v, it was to be %s", xid, says, verb)
		case x.Tried && !x.Resolved:
			unanswered++
			x.Resolved = decided
		}
		for _, node := range slices.Sorted(maps.Keys(nodes)) {
			if prepared && !decided && !slices.Contains(nodes[node].Prepared, xid) {
				found.report(Lost, node, Attempt{},
					"XA %s: prepared in the log, never decided there, and the node does not hold it", xid)
			}
		}
		settled[xid] = &x
	}
	return settled, unanswered, found.all()
}
