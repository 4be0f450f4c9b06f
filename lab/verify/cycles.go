package verify

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"
)

const forever = math.MaxInt64

// edge kinds of the graph of dependencies, as bits.
type edgeKind uint8

const (
	ww edgeKind = 1 << iota // wrote the version before
	wr                      // wrote what the other one read
	rw                      // read the version before the one that the other wrote
	rt                      // had ended before the other began
)

func (k edgeKind) String() string {
	return map[edgeKind]string{ww: "ww", wr: "wr", rw: "rw", rt: "rt"}[k]
}

type edge struct {
	to   int
	kind edgeKind
}

// graph of transactions. Nodes from len(txns) on are moments, in order of time: a transaction leads to the first moment
// after its end, each moment to the next one, and to the transactions that begin there. So real time costs three edges
// for each transaction.
type graph struct {
	l     *lists
	out   [][]edge
	steps int // of searches, bounded by maxSteps
}

// maxSteps bounds the work of all searches in one graph; some seconds.
const maxSteps = 50_000_000

func newGraph(l *lists) *graph {
	g := &graph{l: l, out: make([][]edge, len(l.txns))}
	for _, order := range l.order {
		for n := 1; n < len(order); n++ {
			g.connect(l.txnOf(order[n-1]), l.txnOf(order[n]), ww)
		}
	}
	for i, t := range l.txns {
		if t.Outcome != Acked || t.Node != "" {
			continue
		}
		l.eachRead(i, func(key int64, list []int64) {
			order := l.order[key]
			if len(list) > 0 {
				g.connect(l.txnOf(list[len(list)-1]), i, wr)
			}
			if len(list) < len(order) {
				g.connect(i, l.txnOf(order[len(list)]), rw)
			}
		})
	}
	g.addMoments()
	return g
}

// txnOf is the transaction that appended an element, -1 if no transaction did.
func (l *lists) txnOf(element int64) int {
	if w, ok := l.writer[element]; ok {
		return w.txn
	}
	return -1
}

func (g *graph) connect(from, to int, kind edgeKind) {
	if from >= 0 && to >= 0 && from != to {
		g.out[from] = append(g.out[from], edge{to, kind})
	}
}

// addMoments adds real time. Transactions without an answer have no end.
func (g *graph) addMoments() {
	var begins []int
	for i, t := range g.l.txns {
		if g.l.committed[i] && t.Node == "" {
			begins = append(begins, i)
		}
	}
	slices.SortFunc(begins, func(a, b int) int { return cmp.Compare(g.l.txns[a].Begin, g.l.txns[b].Begin) })
	first := len(g.out)
	for n, i := range begins {
		g.out = append(g.out, []edge{{i, rt}})
		if n > 0 {
			g.connect(first+n-1, first+n, rt)
		}
	}
	for _, i := range begins {
		t := g.l.txns[i]
		if t.Outcome != Acked {
			continue
		}
		n, _ := slices.BinarySearchFunc(begins, t.End+g.l.margin, func(j int, end int64) int {
			if g.l.txns[j].Begin <= end {
				return -1
			}
			return 1
		})
		if n < len(begins) {
			g.connect(i, first+n, rt)
		}
	}
}

// judge reports every strongly connected component by the smallest class of cycle in it.
func (g *graph) judge() {
	l := g.l
	l.part.Figures["transactions"] += int64(count(l.committed))
	plain := map[int]bool{} // transactions that are in a cycle without reads of old versions or real time
	for _, c := range g.components(ww) {
		l.forbidAt(G0, always, "%s", g.describe(g.cycle(c[0], c[0], ww)))
		mark(plain, c)
	}
	for _, c := range g.components(ww | wr) {
		if a, b, ok := g.edgeWithin(c, wr); ok {
			l.forbidAt(G1c, always, "%s", g.describe(g.through(a, b, wr, ww|wr)))
		}
		mark(plain, c)
	}
	reported := g.judgeSkew(ww|wr, nil, GSingle, G2)
	for _, c := range g.components(ww | wr | rt) {
		c = slices.DeleteFunc(c, func(n int) bool { return n >= len(l.txns) })
		if len(c) > 0 && !anyOf(plain, c) {
			l.forbidAt(G1cRealtime, always, "%s", g.describe(g.cycle(c[0], c[0], ww|wr|rt)))
			mark(plain, c)
		}
	}
	mark(reported, keys(plain))
	g.judgeSkew(ww|wr|rt, reported, GSingleReal, G2Realtime)
	if g.steps > maxSteps {
		l.part.Undecided = append(l.part.Undecided, fmt.Sprintf("%d transactions: more dependencies than can be searched",
			len(l.txns)))
	}
}

// judgeSkew classifies cycles with reads of old versions (rw), whose other edges are of the given kinds. Pairs of
// transactions in reported have been told already; what is reported here is returned.
//
// With one rw edge, from a to b, and a way back from b to a, it is G-single. REPEATABLE READ permits it when the way
// comes back to a by a write, which sees the newest version while a's reads do not. When it comes by a read (or by real
// time) a's snapshot should have had b.
func (g *graph) judgeSkew(kinds edgeKind, reported map[int]bool, single, double Kind) map[int]bool {
	l, found := g.l, map[int]bool{}
	tell := func(k Kind, levels []Level, cycle []step) {
		if !slices.Contains(levels, l.level) && kinds&rt != 0 {
			return // was counted without real time
		}
		if l.forbidAt(k, levels, "%s", g.describe(cycle)) {
			for _, s := range cycle {
				found[s.node] = true
			}
		}
	}
	for _, c := range g.components(kinds | rw) {
		inside := map[int]bool{}
		mark(inside, c)
		one := false
		var crossed []step // a cycle with more than one rw edge
		for _, a := range c {
			for _, e := range g.out[a] {
				if e.kind != rw || !inside[e.to] || reported[a] && reported[e.to] {
					continue
				}
				levels := always
				way := g.path(e.to, a, kinds, kinds&^ww, inside)
				if way == nil {
					levels, way = whenSerializable, g.path(e.to, a, kinds, kinds, inside)
				}
				switch {
				case way != nil:
					one = true
					tell(single, levels, append([]step{{a, rw}}, way...))
				case crossed == nil:
					crossed = append([]step{{a, rw}}, g.path(e.to, a, kinds|rw, kinds|rw, inside)...)
				}
			}
		}
		if !one && crossed != nil {
			tell(double, whenSerializable, crossed)
		}
	}
	return found
}

// edgeWithin finds an edge of one kind between two nodes of a component.
func (g *graph) edgeWithin(c []int, kind edgeKind) (a, b int, ok bool) {
	inside := map[int]bool{}
	mark(inside, c)
	for _, a := range c {
		for _, e := range g.out[a] {
			if e.kind == kind && inside[e.to] {
				return a, e.to, true
			}
		}
	}
	return 0, 0, false
}

// step is a node of a path and the kind of edge by which it is left.
type step struct {
	node int
	by   edgeKind
}

// through is a cycle over the edge from a to b.
func (g *graph) through(a, b int, kind, kinds edgeKind) []step {
	return append([]step{{a, kind}}, g.path(b, a, kinds, kinds, nil)...)
}

// cycle finds a shortest one through a node.
func (g *graph) cycle(from, to int, kinds edgeKind) []step {
	return g.path(from, to, kinds, kinds, nil)
}

// path finds a shortest way over edges of kinds whose last one is of the kinds in last, within a set of nodes (nil:
// anywhere). It is nil if no such way exists, or if the searches have become too long.
func (g *graph) path(from, to int, kinds, last edgeKind, inside map[int]bool) []step {
	came := map[int]step{from: {-1, 0}} // where from, and by which edge
	queue := []int{from}
	for len(queue) > 0 {
		n := queue[0]
		queue = queue[1:]
		for _, e := range g.out[n] {
			if g.steps++; g.steps > maxSteps {
				return nil
			}
			if e.kind&kinds == 0 || inside != nil && !inside[e.to] {
				continue
			}
			if e.to == to && e.kind&last != 0 {
				way := []step{{n, e.kind}}
				for n != from {
					way, n = append(way, came[n]), came[n].node
				}
				slices.Reverse(way)
				return way
			}
			if _, seen := came[e.to]; !seen && e.to != to {
				came[e.to] = step{n, e.kind}
				queue = append(queue, e.to)
			}
		}
	}
	return nil
}

// describe writes a cycle as "T1 -ww-> T2 -rw-> T1". Moments are left out.
func (g *graph) describe(cycle []step) string {
	var b strings.Builder
	for _, s := range cycle {
		if s.node < len(g.l.txns) {
			fmt.Fprintf(&b, "%s -%s-> ", g.l.name(s.node), s.by)
		}
	}
	if len(cycle) > 0 {
		b.WriteString(g.l.name(cycle[0].node))
	}
	return b.String()
}

// components are the strongly connected ones with more than one node over edges of these kinds, by Tarjan's algorithm
// without recursion.
func (g *graph) components(kinds edgeKind) [][]int {
	n := len(g.out)
	index, low, onStack := make([]int, n), make([]int, n), make([]bool, n)
	var stack []int
	var out [][]int
	next := 1
	type frame struct{ node, edge int }
	for root := range n {
		if index[root] != 0 {
			continue
		}
		frames := []frame{{root, 0}}
		for len(frames) > 0 {
			f := &frames[len(frames)-1]
			v := f.node
			if f.edge == 0 && index[v] == 0 {
				index[v], low[v] = next, next
				next++
				stack, onStack[v] = append(stack, v), true
			}
			if f.edge < len(g.out[v]) {
				e := g.out[v][f.edge]
				f.edge++
				switch {
				case e.kind&kinds == 0:
				case index[e.to] == 0:
					frames = append(frames, frame{e.to, 0})
				case onStack[e.to]:
					low[v] = min(low[v], index[e.to])
				}
				continue
			}
			frames = frames[:len(frames)-1]
			if len(frames) > 0 {
				parent := frames[len(frames)-1].node
				low[parent] = min(low[parent], low[v])
			}
			if low[v] != index[v] {
				continue
			}
			at := len(stack) - 1
			for stack[at] != v {
				at--
			}
			c := slices.Clone(stack[at:])
			stack = stack[:at]
			for _, w := range c {
				onStack[w] = false
			}
			if len(c) > 1 {
				slices.Sort(c)
				out = append(out, c)
			}
		}
	}
	return out
}

func mark(set map[int]bool, nodes []int) {
	for _, n := range nodes {
		set[n] = true
	}
}

func anyOf(set map[int]bool, nodes []int) bool {
	return slices.ContainsFunc(nodes, func(n int) bool { return set[n] })
}

func keys(set map[int]bool) []int {
	var out []int
	for n := range set {
		out = append(out, n)
	}
	return out
}

func count(set []bool) (n int) {
	for _, b := range set {
		if b {
			n++
		}
	}
	return n
}
