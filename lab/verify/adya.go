package verify

import (
	"fmt"
	"slices"
	"time"
)

// Txn is a transaction of appends to lists and reads of them. Every element is appended once at most, so a list that
// was read tells which transactions it comes from, and in which order (Kingsbury and Alvaro, Elle, VLDB 2020).
type Txn struct {
	Span
	Ops []ListOp `json:"ops"`
	// Node that was read at the end, with all nodes at rest; empty for what clients did.
	Node string `json:"node,omitempty"`
}

func (t Txn) appends() bool {
	return slices.ContainsFunc(t.Ops, func(op ListOp) bool { return op.Append != 0 })
}

// ListOp appends an element to a list, or reads it.
type ListOp struct {
	Key    int64   `json:"k"`
	Append int64   `json:"a,omitempty"` // 0: a read
	List   []int64 `json:"l,omitempty"` // what was read
	// Failed: the statement had an error or no answer, so it told nothing.
	Failed bool `json:"f,omitempty"`
}

// Level of isolation that was promised.
type Level string

const (
	// RepeatableRead is InnoDB's: plain reads see a snapshot made at the first of them, writes and a transaction's
	// reads of what it has written itself see the newest. It forbids G0, G1a, G1b, G1c, and read skew within the
	// snapshot. It permits lost updates and write skew (G-single by way of a write, G2), and a list that grows when the
	// transaction appends to it.
	RepeatableRead Level = "REPEATABLE READ"
	// Serializable forbids all anomalies: InnoDB's plain reads lock.
	Serializable Level = "SERIALIZABLE"
)

// Anomalies after Adya. Those with real time need the order of transactions of which one had ended before the other
// began.
const (
	G0            Kind = "G0 (write cycle)"
	G1a           Kind = "G1a (aborted read)"
	G1b           Kind = "G1b (intermediate read)"
	G1c           Kind = "G1c (circular information flow)"
	GSingle       Kind = "G-single (read skew)"
	G2            Kind = "G2 (write skew)"
	LostUpdate    Kind = "lost update"
	G1cRealtime   Kind = "G1c in real time"
	GSingleReal   Kind = "G-single in real time (stale read)"
	G2Realtime    Kind = "G2 in real time"
	Internal      Kind = "transaction contradicts itself"
	Incompatible  Kind = "incompatible orders"
	NeverAppended Kind = "element that was never appended"
)

// lists is a history of transactions, taken apart.
type lists struct {
	level  Level
	margin int64
	txns   []Txn
	writer map[int64]place   // of each element that anybody tried to append
	order  map[int64][]int64 // the longest list read, by key
	ends   map[int64][]int64 // the longest list that a node holds at the end, by key; nil if that is not known
	// committed by acknowledgement, or because somebody saw an element of it.
	committed []bool
	findings  findings
	part      Part
}

// place of an append: which transaction, its key, and whether it is that transaction's last one to the key.
type place struct {
	txn  int
	key  int64
	last bool
}

// JudgeAppend looks for anomalies in a history of list appends; those that the level forbids are problems, the others
// are counted. A cycle in real time is one only if each "had ended before" holds by more than the margin; a single read
// that was too old is reported as stale whatever its age.
func JudgeAppend(txns []Txn, level Level, margin time.Duration) Part {
	l := &lists{level: level, margin: int64(margin), txns: txns, writer: map[int64]place{}, order: map[int64][]int64{},
		committed: make([]bool, len(txns)), part: Part{Figures: map[string]int64{}}}
	l.index()
	for i := range txns {
		l.judgeReads(i)
	}
	l.judgeOrders()
	l.judgeFinals()
	l.judgeShown()
	l.lostUpdates()
	l.staleReads()
	newGraph(l).judge()
	l.part.Problems = l.findings.all()
	return l.part
}

func (l *lists) report(k Kind, node, format string, args ...any) {
	l.findings.report(k, node, Attempt{}, format, args...)
}

// forbidAt reports an anomaly if the level is one of those, and counts it otherwise. It says which.
func (l *lists) forbidAt(k Kind, levels []Level, format string, args ...any) (reported bool) {
	if slices.Contains(levels, l.level) {
		l.report(k, "", format, args...)
		return true
	}
	l.part.Figures[string(k)+", permitted"]++
	return false
}

var (
	always           = []Level{RepeatableRead, Serializable}
	whenSerializable = []Level{Serializable}
)

// index notes who appended what, which transactions are committed, and the longest list of each key.
func (l *lists) index() {
	for i, t := range l.txns {
		l.committed[i] = t.Outcome == Acked && t.Node == ""
		last := map[int64]int64{}
		for _, op := range t.Ops {
			if op.Append != 0 {
				last[op.Key] = op.Append
			}
		}
		for _, op := range t.Ops {
			if op.Append != 0 {
				l.writer[op.Append] = place{i, op.Key, last[op.Key] == op.Append}
			}
		}
	}
	for _, t := range l.txns {
		if t.Node != "" && l.ends == nil {
			l.ends = map[int64][]int64{}
		}
		if t.Outcome != Acked {
			continue
		}
		for _, op := range t.Ops {
			if op.Append == 0 && len(op.List) > len(l.order[op.Key]) {
				l.order[op.Key] = op.List
			}
			if t.Node != "" && len(op.List) > len(l.ends[op.Key]) {
				l.ends[op.Key] = op.List
			}
		}
	}
	for _, list := range l.order {
		for _, e := range list {
			if w, ok := l.writer[e]; ok {
				l.committed[w.txn] = true
			}
		}
	}
}

// judgeReads looks at each read of a transaction by itself, and at whether they agree with each other. What became of
// the transaction does not matter: its statements were answered, and the level holds for them.
func (l *lists) judgeReads(i int) {
	t := l.txns[i]
	type state struct {
		read     []int64 // before any append of its own
		hasRead  bool
		own      []int64
		locked   []int64 // what others had appended, as read after its own append
		isLocked bool
	}
	keys := map[int64]*state{}
	for _, op := range t.Ops {
		s := keys[op.Key]
		if s == nil {
			s = &state{}
			keys[op.Key] = s
		}
		if op.Failed {
			continue
		}
		if op.Append != 0 {
			s.own = append(s.own, op.Append)
			continue
		}
		theirs := len(op.List) - len(s.own)
		if theirs < 0 || !slices.Equal(op.List[theirs:], s.own) {
			l.report(Internal, t.Node, "%s read %v of key %d after it had appended %v", l.name(i), op.List, op.Key, s.own)
			continue
		}
		before := op.List[:theirs]
		l.judgeList(i, op.Key, before)
		switch {
		case len(s.own) == 0 && s.hasRead && !slices.Equal(before, s.read):
			l.report(Internal, t.Node, "%s read key %d as %v and as %v", l.name(i), op.Key, s.read, before)
		case len(s.own) > 0 && s.isLocked && !slices.Equal(before, s.locked):
			l.report(Internal, t.Node, "%s read key %d as %v and as %v, having appended to it", l.name(i), op.Key, s.locked,
				before)
		case len(s.own) > 0 && s.hasRead && !slices.Equal(before, s.read):
			l.forbidAt(Internal, whenSerializable, "%s read key %d as %v, and as %v once it had appended to it", l.name(i),
				op.Key, s.read, before)
		}
		if len(s.own) == 0 {
			s.read, s.hasRead = before, true
		} else {
			s.locked, s.isLocked = before, true
		}
	}
}

// judgeList looks at the elements of a list that transaction i read, those of its own left out.
func (l *lists) judgeList(i int, key int64, list []int64) {
	node := l.txns[i].Node
	seen := map[int64]bool{}
	for n, e := range list {
		w, ok := l.writer[e]
		switch {
		case seen[e]:
			l.report(Doubled, node, "%s read key %d: element %d twice", l.name(i), key, e)
		case !ok:
			l.report(NeverAppended, node, "%s read key %d: element %d", l.name(i), key, e)
		case w.key != key:
			l.report(NeverAppended, node, "%s read key %d: element %d, which was for key %d", l.name(i), key, e, w.key)
		case l.txns[w.txn].Outcome == Failed:
			l.report(G1a, node, "%s read key %d: element %d of %s, which was refused", l.name(i), key, e, l.name(w.txn))
		case n == len(list)-1 && !w.last && w.txn != i:
			l.report(G1b, node, "%s read key %d up to element %d, in the middle of %s", l.name(i), key, e, l.name(w.txn))
		}
		seen[e] = true
	}
}

// judgeOrders compares every list read with the longest one of its key, and the longest with each transaction's own
// order.
func (l *lists) judgeOrders() {
	for i, t := range l.txns {
		if t.Outcome != Acked {
			continue
		}
		at := map[int64]int{} // by key: place of this transaction's append before
		for _, op := range t.Ops {
			order := l.order[op.Key]
			if op.Append == 0 {
				if !slices.Equal(order[:len(op.List)], op.List) {
					l.report(Incompatible, t.Node, "%s read key %d as %v, somebody else as %v", l.name(i), op.Key, op.List, order)
				}
				continue
			}
			n := slices.Index(order, op.Append)
			if n >= 0 && n < at[op.Key] {
				l.report(G0, "", "%s appended %d to key %d after another element that follows it", l.name(i), op.Append, op.Key)
			}
			at[op.Key] = max(n, at[op.Key])
		}
	}
}

// judgeFinals compares what each node holds at the end with what clients were told. Without that, what was appended and
// acknowledged must be in a list that was read later, if any was.
func (l *lists) judgeFinals() {
	read := map[int64]int64{} // by key: the beginning of the newest read
	for _, t := range l.txns {
		if t.Node != "" {
			l.judgeFinal(t)
		}
		for _, op := range t.Ops {
			if op.Append == 0 && t.Outcome == Acked {
				read[op.Key] = max(read[op.Key], t.Begin)
			}
		}
	}
	if l.ends != nil {
		return
	}
	for i, t := range l.txns {
		for _, op := range t.Ops {
			if op.Append != 0 && t.Outcome == Acked && t.End+l.margin < read[op.Key] &&
				!slices.Contains(l.order[op.Key], op.Append) {
				l.report(Lost, "", "%s appended %d to key %d, which was read later", l.name(i), op.Append, op.Key)
			}
		}
	}
}

// judgeFinal compares what a node holds at the end with what clients were told.
func (l *lists) judgeFinal(final Txn) {
	held := map[int64]bool{}
	for _, op := range final.Ops {
		for _, e := range op.List {
			held[e] = true
		}
	}
	for i, t := range l.txns {
		if t.Node != "" {
			continue
		}
		var there, missing []int64
		for _, op := range t.Ops {
			switch {
			case op.Append == 0:
			case held[op.Append]:
				there = append(there, op.Append)
			default:
				missing = append(missing, op.Append)
			}
		}
		switch {
		case t.Outcome == Acked && len(missing) > 0:
			l.report(Lost, final.Node, "%s appended %v", l.name(i), missing)
		case len(there) > 0 && len(missing) > 0:
			l.report(Torn, final.Node, "%s (%s) appended %v, which are there, and %v, which are not", l.name(i), t.Outcome,
				there, missing)
		}
	}
}

// judgeShown compares every list that a statement showed, whatever became of its transaction, with the order at the
// end: it must be a beginning of that, but for the transaction's own appends. A leader that was cut off and shows what
// it never got acknowledged is found so, although none of its transactions is ever committed.
func (l *lists) judgeShown() {
	for i, t := range l.txns {
		own := map[int64]int{}
		for _, op := range t.Ops {
			switch theirs := len(op.List) - own[op.Key]; {
			case t.Node != "" || op.Failed:
			case op.Append != 0:
				own[op.Key]++
			case theirs > 0: // fewer than its own: judgeReads has said so
				l.judgeBeginning(i, op.Key, op.List[:theirs])
			}
		}
	}
}

// judgeBeginning compares what transaction i was shown of others' appends with the order at the end. Without that the
// longest list that a committed transaction read stands for it, as far as it goes.
func (l *lists) judgeBeginning(i int, key int64, list []int64) {
	order := l.order[key]
	if l.ends != nil {
		order = l.ends[key]
	}
	same := 0
	for same < min(len(list), len(order)) && list[same] == order[same] {
		same++
	}
	if same == len(list) || l.ends == nil && same == len(order) {
		return
	}
	for _, e := range list[same:] {
		if l.ends == nil || slices.Contains(order, e) {
			continue
		}
		// judgeReads has reported an element of a refused transaction, or of no transaction; judgeFinal reports the
		// loss of an acknowledged one.
		if w, ok := l.writer[e]; ok && l.txns[w.txn].Outcome != Acked && l.txns[w.txn].Outcome != Failed {
			l.report(G1a, "", "%s, which is %s, read key %d: element %d of %s, which had no answer and is not there at the end",
				l.name(i), l.txns[i].Outcome, key, e, l.name(w.txn))
		}
		return
	}
	if l.txns[i].Outcome != Acked { // of these, judgeOrders has said so
		l.report(Incompatible, "", "%s, which is %s, read key %d as %v, somebody else as %v", l.name(i), l.txns[i].Outcome,
			key, list, order)
	}
}

// lostUpdates finds transactions that read the same list and then appended to it.
func (l *lists) lostUpdates() {
	type version struct {
		key    int64
		length int
	}
	first := map[version]int{}
	for i, t := range l.txns {
		if !l.committed[i] || t.Outcome != Acked {
			continue
		}
		read := map[int64]int{}
		for _, op := range t.Ops {
			n, ok := read[op.Key]
			switch {
			case op.Append == 0 && !ok:
				read[op.Key] = len(op.List)
			case op.Append != 0 && ok && n >= 0:
				v := version{op.Key, n}
				if other, twice := first[v]; twice {
					l.forbidAt(LostUpdate, whenSerializable, "%s and %s both read key %d with %d elements and appended to it",
						l.name(other), l.name(i), op.Key, n)
				}
				first[v], read[op.Key] = i, -1
			case op.Append != 0:
				read[op.Key] = -1
			}
		}
	}
}

// staleReads finds reads that lack an element whose transaction had been acknowledged before the reader began.
func (l *lists) staleReads() {
	oldest := map[int64][]int64{} // by key and index: the earliest acknowledgement of this element and of later ones
	for key, order := range l.order {
		ends := make([]int64, len(order)+1)
		ends[len(order)] = forever
		for n := len(order) - 1; n >= 0; n-- {
			ends[n] = ends[n+1]
			if w, ok := l.writer[order[n]]; ok && l.txns[w.txn].Outcome == Acked {
				ends[n] = min(ends[n], l.txns[w.txn].End)
			}
		}
		oldest[key] = ends
	}
	for i, t := range l.txns {
		if t.Outcome != Acked || t.Node != "" {
			continue
		}
		l.eachRead(i, func(key int64, list []int64) {
			if ends := oldest[key]; ends != nil && ends[len(list)] < t.Begin {
				l.part.addStale(StaleRead{Key: key, At: time.Duration(t.Begin), Age: time.Duration(t.Begin - ends[len(list)])})
			}
		})
	}
}

// eachRead calls f for each list that a transaction read before it appended to it, once for each key, if the list is a
// beginning of the key's order.
func (l *lists) eachRead(i int, f func(key int64, list []int64)) {
	done := map[int64]bool{}
	for _, op := range l.txns[i].Ops {
		if !done[op.Key] && op.Append == 0 && slices.Equal(l.order[op.Key][:len(op.List)], op.List) {
			f(op.Key, op.List)
		}
		done[op.Key] = true
	}
}

func (l *lists) name(i int) string {
	t := l.txns[i]
	if t.Node != "" {
		return "the last read of " + t.Node
	}
	return fmt.Sprintf("T%d (client %d, %v)", i, t.Client, time.Duration(t.Begin))
}
