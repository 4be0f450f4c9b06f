package model

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
)

// Result is what a search found.
type Result struct {
	States   int      // all that can be reached, or as many as were looked at before a violation
	Depth    int      // moves on the longest of the shortest ways to a state
	Judged   int      // different questions put to package ledger
	Bad      string   // what is wrong, "" if nothing
	Trace    []string // a shortest way there
	Complete bool     // false: the limit came first, or a violation
	moves    [verbs]int
}

// next is a successor.
type next struct {
	move
	s   state
	bad string
}

// successors appends all states that are one move away.
func (m *model) successors(s *state, out []next) []next {
	try := func(v verb, at, arg int, f func(s *state) (bool, string)) {
		out = append(out, next{move: move{v, int8(at), int8(arg)}, s: *s})
		t := &out[len(out)-1]
		done, bad := f(&t.s)
		if t.bad = bad; !done && bad == "" {
			out = out[:len(out)-1]
		}
	}
	simple := func(v verb, at, arg int, f func(s *state) bool) {
		try(v, at, arg, func(s *state) (bool, string) { return f(s), "" })
	}
	for i := range m.Nodes {
		n := &s.nodes[i]
		simple(doWrite, i, 0, func(s *state) bool { return m.write(s, i) })
		simple(doPump, i, 0, func(s *state) bool { return m.pump(s, i, false) })
		if m.broken(S12) {
			simple(doLose, i, 0, func(s *state) bool { return m.pump(s, i, true) })
		}
		if n.up && n.lead == s.term {
			for k := range m.Nodes {
				simple(doReplicate, i, k, func(s *state) bool { return m.replicate(s, i, k) })
			}
		}
		simple(doFsync, i, 0, func(s *state) bool { return m.fsync(s, i) })
		simple(doAck, i, 0, func(s *state) bool { return m.acknowledge(s, i) })
		try(doApply, i, 0, func(s *state) (bool, string) { return m.apply(s, i, false) })
		if m.Disorder {
			try(doSecond, i, 0, func(s *state) (bool, string) { return m.apply(s, i, true) })
		}
		for keep := int(n.flushed); keep <= int(n.commits); keep++ {
			simple(doCrash, i, keep, func(s *state) bool { return m.crash(s, i, keep, false) })
			simple(doHost, i, keep, func(s *state) bool { return m.crash(s, i, keep, true) })
			simple(doFence, i, keep, func(s *state) bool { return m.fence(s, i, keep) })
		}
		simple(doDisk, i, 0, func(s *state) bool { return m.loseDisk(s, i) })
		simple(doReplace, i, 0, func(s *state) bool { return m.replace(s, i) })
		simple(doStart, i, 0, func(s *state) bool { return m.start(s, i) })
		if s.elections > 0 {
			for _, v := range []verb{doElect, doDeaf} {
				simple(v, i, 0, func(s *state) bool { s.elections--; return m.elect(s, i, v == doDeaf) })
			}
		}
		try(doJudge, i, 0, func(s *state) (bool, string) { return m.judge(s, i) })
		simple(doPromote, i, 0, func(s *state) bool { return m.promote(s, i) })
		simple(doOpen, i, 0, func(s *state) bool { return m.openWrites(s, i) })
		if m.Flush {
			simple(doFlush, i, 0, func(s *state) bool { return m.flush(s, i) })
		}
		if n.phase == broken {
			for k := range m.Nodes {
				simple(doSeed, i, k, func(s *state) bool { return m.seed(s, i, k) })
			}
		}
	}
	if m.Flush {
		simple(doPurge, 0, 0, m.purge)
	}
	return out
}

// Search goes through all states, at most limit of them, and stops at the first that breaks a promise, or from which
// healing does not lead back to equal nodes that take writes.
func (c Config) Search(limit int) (r Result) {
	m := &model{c, map[question]verdict{}, firstLabels}
	defer func() { r.Judged = len(m.judged) }()
	var (
		keys    []string
		parents []int32
		depths  []uint16
		index   = map[string]int32{}
		buf     []byte
		out     []next
	)
	add := func(s *state, parent int32) {
		key := m.key(s, buf[:0])
		if _, known := index[string(key)]; known {
			return
		}
		text := string(key)
		index[text] = int32(len(keys))
		keys, parents = append(keys, text), append(parents, parent)
		d := uint16(0)
		if parent >= 0 {
			d = depths[parent] + 1
		}
		depths = append(depths, d)
	}
	s := m.first()
	buf = make([]byte, 0, 512)
	add(&s, -1)
	for at := int32(0); int(at) < len(keys); at++ {
		s := m.decode([]byte(keys[at]))
		r.States, r.Depth = int(at)+1, int(depths[at])
		if m.wrong(&s) != "" {
			r.Trace, r.Bad = m.trace(keys, parents, at)
			return r
		}
		if len(keys) > limit {
			return r
		}
		out = m.successors(&s, out[:0])
		for k := range out {
			if out[k].bad != "" {
				r.Trace, r.Bad = m.trace(keys, parents, at)
				return r
			}
			r.moves[out[k].verb]++
			add(&out[k].s, at)
		}
	}
	r.Complete = true
	return r
}

// wrong says what is wrong with a state, "" if nothing.
func (m *model) wrong(s *state) string {
	if bad := m.check(s); bad != "" {
		return bad
	}
	if m.Heal {
		if bad := m.heal(*s); bad != "" {
			return "once all faults are over: " + bad
		}
	}
	return ""
}

// trace tells the way to what is wrong with a state, or with a move from it. The search remembers states without the
// names of their nodes: the way is walked once more, with names.
func (m *model) trace(keys []string, parents []int32, at int32) (lines []string, bad string) {
	var path []string
	for k := at; k >= 0; k = parents[k] {
		path = append(path, keys[k])
	}
	s := m.first()
	for k := len(path) - 2; k >= 0; k-- {
		for _, n := range m.successors(&s, nil) {
			if string(m.key(&n.s, nil)) == path[k] {
				lines = append(lines, m.text(n.move, &s, &n.s))
				s = n.s
				break
			}
		}
	}
	// What is wrong with a state was found with its nodes in the key's order.
	m.label = m.labels(&s)
	found := m.decode([]byte(path[0]))
	if bad := m.wrong(&found); bad != "" {
		return lines, bad
	}
	m.label = firstLabels
	for _, n := range m.successors(&s, nil) {
		if n.bad != "" {
			return append(lines, m.text(n.move, &s, &n.s)), n.bad
		}
	}
	return lines, ""
}

// labels are the names of a state's nodes in the order of its key.
func (m *model) labels(s *state) (of [maxNodes]string) {
	type named struct {
		node []byte
		name string
	}
	var all []named
	for i := range m.Nodes {
		all = append(all, named{s.nodes[i].encode(nil), firstLabels[i]})
	}
	slices.SortStableFunc(all, func(a, b named) int { return bytes.Compare(a.node, b.node) })
	for i := range all {
		of[i] = all[i].name
	}
	return of
}

// String is the trace, as it is kept in testdata.
func (r Result) String() string {
	var b strings.Builder
	for k, l := range r.Trace {
		fmt.Fprintf(&b, "%2d. %s\n", k+1, l)
	}
	fmt.Fprintf(&b, "==> %s\n", r.Bad)
	return b.String()
}
