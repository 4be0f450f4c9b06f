package model

// settle moves the commit index: an entry of the leader's own term that a majority has on disk is committed, with all
// below it.
func (m *model) settle(s *state) {
	l := m.leader(s)
	if l < 0 {
		return
	}
	lead := &s.nodes[l]
	for k := int(lead.n); k > int(s.n); k-- {
		if lead.log[k-1].term() != lead.lead {
			return
		}
		votes := 0
		for i := range m.Nodes {
			n := &s.nodes[i]
			has := n.fsynced
			if m.broken(S2) {
				has = n.n
			}
			if int(has) >= k && agreed(n.entries(), lead.log[:k]) == k {
				votes++
			}
		}
		if 2*votes > m.Nodes {
			s.n = uint8(copy(s.chosen[:], lead.log[:k]))
			return
		}
	}
}

// propose appends to the log of a node that takes itself for the leader.
func (m *model) propose(s *state, n *node, kind uint8) {
	n.append(newEntry(kind, n.lead))
	if !m.Fsync {
		n.fsynced = n.n
	}
	m.settle(s)
}

// replicate brings a node's log to where the leader's is.
func (m *model) replicate(s *state, from, to int) bool {
	l, f := &s.nodes[from], &s.nodes[to]
	if from == to || !f.up || f.lead == l.lead || f.lead == 0 && f.n == l.n && f.log == l.log {
		return false
	}
	same := agreed(f.entries(), l.entries())
	f.log, f.n, f.lead = l.log, l.n, 0
	f.fsynced = min(f.fsynced, uint8(same))
	if !m.Fsync {
		f.fsynced = f.n
	}
	m.settle(s)
	return true
}

func (m *model) fsync(s *state, i int) bool {
	n := &s.nodes[i]
	if !n.up || n.fsynced == n.n {
		return false
	}
	n.fsynced = n.n
	m.settle(s)
	return true
}

// elect makes a node the leader of a new term if a majority of those that are up votes for it. deaf says that leaders
// of older terms are cut off: they do not vote, and do not learn of it.
func (m *model) elect(s *state, at int, deaf bool) bool {
	c := &s.nodes[at]
	if !c.up || c.lead == s.term {
		return false
	}
	votes, others := 0, false
	for i := range m.Nodes {
		n := &s.nodes[i]
		if !n.up || c.isBehind(n) {
			continue
		}
		if i != at && n.lead != 0 {
			others = true
			if deaf {
				continue
			}
		}
		votes++
	}
	if 2*votes <= m.Nodes || deaf && !others {
		return false
	}
	for i := range m.Nodes {
		if n := &s.nodes[i]; n.up && !c.isBehind(n) && !deaf {
			n.lead = 0
		}
	}
	s.term++
	c.lead = s.term
	m.propose(s, c, kindEmpty)
	// What was thought to be committed and is in no leader's log any more: Raft promises that this does not happen (S2).
	s.n = uint8(agreed(s.committed(), c.entries()))
	clear(s.chosen[s.n:])
	return true
}

// isBehind reports whether a voter refuses this candidate.
func (n *node) isBehind(voter *node) bool {
	a, b := n.lastTerm(), voter.lastTerm()
	return a < b || a == b && n.n < voter.n
}

func (n *node) lastTerm() uint8 {
	if n.n == 0 {
		return 0
	}
	return n.log[n.n-1].term()
}

// cut shortens a log.
func (n *node) cut(to uint8) {
	clear(n.log[to:])
	n.n = to
	n.fsynced = min(n.fsynced, to)
}
