package model

import (
	"fmt"
	"strings"
)

// check says which promise a state breaks, "" if none.
func (m *model) check(s *state) string {
	for t := range m.Script {
		bit := uint8(1) << t
		if (s.acked|s.seen)&bit == 0 || !m.gone(s, t) {
			continue
		}
		if s.acked&bit != 0 {
			return fmt.Sprintf("%s was answered OK and is gone: no log can bring it back", m.name(t))
		}
		return fmt.Sprintf("%s could be seen and is gone: no log can bring it back", m.name(t))
	}
	for i := range m.Nodes {
		n := &s.nodes[i]
		if !n.good() {
			continue
		}
		for _, it := range n.items() {
			if it&itemPlug != 0 && m.Script[it.tx()] != 'Q' {
				return fmt.Sprintf("%s counts %s as executed and never did", m.label[i], m.name(int(it.tx())))
			}
		}
		if at := n.barrier(); n.phase == open && at >= 0 && at < s.known(n) {
			if lacks := s.acked & txs(n.log[:at]) &^ n.executed(); lacks != 0 {
				return fmt.Sprintf("%s takes writes without %s, which a client was told is committed", m.label[i], m.names(lacks))
			}
		}
	}
	return ""
}

// gone reports whether a transaction can never come back.
func (m *model) gone(s *state, t int) bool {
	for k, e := range s.committed() {
		if e.isTx() && e.kind() == uint8(t) {
			return !m.held(s, uint8(1)<<t) && (k < int(s.purged) || !m.logged(s, k))
		}
	}
	newest := s.chosen[s.n-1].term()
	for i := range m.Nodes {
		n := &s.nodes[i]
		for _, e := range n.entries() {
			if e.isTx() && e.kind() == uint8(t) && e.term() >= newest {
				return false // an entry of an older term cannot be committed after the newest
			}
		}
		if n.phase != open || !m.serves(n) {
			continue
		}
		for _, u := range n.bin[n.proposed:n.written] {
			if u == uint8(t) {
				return false
			}
		}
	}
	return true
}

// logged reports whether some log holds a committed entry.
func (m *model) logged(s *state, k int) bool {
	for i := range m.Nodes {
		if s.known(&s.nodes[i]) > k {
			return true
		}
	}
	return false
}

// held reports whether some server has it in its data.
func (m *model) held(s *state, bit uint8) bool {
	for i := range m.Nodes {
		if n := &s.nodes[i]; (n.executed()|n.effects())&bit != 0 {
			return true
		}
	}
	return false
}

// heal ends all faults and lets everything settle: hosts are up, links work, an operator gives up data that was judged
// not to belong. It says what is wrong then, "" if all nodes are equal, have what was acknowledged, and one takes
// writes.
func (m *model) heal(s state) string {
	s.term = min(s.term, 14)
	for round := 0; ; round++ {
		if round == 12 {
			return "the cluster does not come to rest: " + m.dump(&s)
		}
		before := s
		if bad := m.healRound(&s); bad != "" {
			return bad
		}
		if s == before {
			break
		}
	}
	want := txs(s.committed())
	opened := false
	for i := range m.Nodes {
		n := &s.nodes[i]
		opened = opened || n.phase == open
		switch {
		case !n.good():
			return fmt.Sprintf("%s does not get well: %s", m.label[i], m.dump(&s))
		case n.executed() != want:
			return fmt.Sprintf("%s has executed %s, the log holds %s", m.label[i], m.names(n.executed()), m.names(want))
		case m.lacks(n, want) != 0:
			return fmt.Sprintf("%s lacks %s", m.label[i], m.names(m.lacks(n, want)))
		}
	}
	if !opened {
		return "no node takes writes: " + m.dump(&s)
	}
	if lost := s.acked &^ want; lost != 0 {
		return fmt.Sprintf("%s was answered OK and is not in the log", m.names(lost))
	}
	return ""
}

// lacks returns the transactions that should have taken effect and have not; a statement without effect cannot be
// checked.
func (m *model) lacks(n *node, want uint8) uint8 {
	for t := range m.Script {
		if m.Script[t] == 'Q' {
			want &^= 1 << t
		}
	}
	return want &^ n.effects()
}

// healRound does once whatever can be done, in the order in which it helps most.
func (m *model) healRound(s *state) string {
	for i := range m.Nodes {
		m.start(s, i)
	}
	if l := m.leader(s); l < 0 || s.nodes[l].phase == broken && m.fittest(s) >= 0 && m.fittest(s) != l {
		if at := m.fittest(s); at >= 0 && s.term < 15 {
			m.elect(s, at, false)
		}
	}
	l := m.leader(s)
	if l < 0 {
		return ""
	}
	for m.pump(s, l, false) {
	}
	m.spread(s, l)
	for i := range m.Nodes {
		m.acknowledge(s, i)
		m.fence(s, i, int(s.nodes[i].commits))
		if _, bad := m.judge(s, i); bad != "" {
			return bad
		}
	}
	for i := range m.Nodes {
		for {
			done, bad := m.apply(s, i, false)
			if bad != "" {
				return bad
			}
			if !done || s.nodes[i].phase == unjudged {
				break
			}
		}
		for from := range m.Nodes {
			m.seed(s, i, from)
		}
	}
	for i := range m.Nodes {
		m.replace(s, i)
	}
	m.promote(s, l)
	m.spread(s, l)
	m.openWrites(s, l)
	return ""
}

func (m *model) spread(s *state, l int) {
	m.fsync(s, l)
	for i := range m.Nodes {
		m.replicate(s, l, i)
		m.fsync(s, i)
	}
}

// fittest is who would be elected: with the longest log, and with a server that is not broken if there is one.
func (m *model) fittest(s *state) int {
	best := -1
	for i := range m.Nodes {
		n := &s.nodes[i]
		votes := 0
		for k := range m.Nodes {
			if voter := &s.nodes[k]; n.up && voter.up && !n.isBehind(voter) {
				votes++
			}
		}
		if 2*votes > m.Nodes && (best < 0 || s.nodes[best].phase == broken && n.phase != broken) {
			best = i
		}
	}
	return best
}

// dump shows a state, one word a node.
func (m *model) dump(s *state) string {
	var b strings.Builder
	fmt.Fprintf(&b, "committed %s, purged %d", m.log(s.committed()), s.purged)
	for i := range m.Nodes {
		n := &s.nodes[i]
		fmt.Fprintf(&b, "; %s %s log %s data %s", m.label[i], phaseNames[n.phase], m.log(n.entries()), m.names(n.effects()))
	}
	return b.String()
}
