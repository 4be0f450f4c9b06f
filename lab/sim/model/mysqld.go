package model

import "fmt"

// write is a client's next transaction: mysqld prepares it and writes it to its binary log. The client waits.
func (m *model) write(s *state, i int) bool {
	n := &s.nodes[i]
	if n.phase != open {
		return false
	}
	for t := range len(m.Script) {
		if s.sent&(1<<t) != 0 {
			continue
		}
		if m.Script[t] == 'C' && (s.acked&(1<<m.other(t)) == 0 || n.effects()&(1<<m.other(t)) == 0) {
			continue // it ends what was prepared
		}
		s.sent |= 1 << t
		n.bin[n.written] = uint8(t)
		n.written++
		return true
	}
	return false
}

// other is the XA PREPARE of an XA COMMIT, and the reverse; -1: none.
func (m *model) other(t int) int {
	switch m.Script[t] {
	case 'C':
		for k := t; k >= 0; k-- {
			if m.Script[k] == 'P' {
				return k
			}
		}
	case 'P':
		for k := t; k < len(m.Script); k++ {
			if m.Script[k] == 'C' {
				return k
			}
		}
	}
	return -1
}

// serves reports whether this incarnation may still act for its term (S7).
func (m *model) serves(n *node) bool {
	return n.lead != 0 && (n.lead == n.serve || m.broken(S7))
}

// pump reads a transaction from the binary log and proposes it.
func (m *model) pump(s *state, i int, lose bool) bool {
	n := &s.nodes[i]
	if n.phase != open || n.proposed == n.written || !m.serves(n) || n.n == maxLog {
		return false
	}
	t := n.bin[n.proposed]
	n.proposed++
	if !lose {
		m.propose(s, n, t)
	}
	return true
}

// acknowledge sends mysqld the newest position that it may have. mysqld commits everything up to there.
func (m *model) acknowledge(s *state, i int) bool {
	n := &s.nodes[i]
	if n.phase != open || !n.up {
		return false
	}
	to := n.acked
	if m.broken(S1) {
		to = n.proposed
	} else if m.serves(n) {
		for _, e := range n.log[:s.known(n)] {
			for k := n.acked; k < n.proposed; k++ {
				if e.isTx() && e.kind() == n.bin[k] && (e.term() == n.serve || m.broken(S7)) {
					to = max(to, k+1)
				}
			}
		}
	}
	if to == n.acked {
		return false
	}
	m.release(s, n, to)
	return true
}

// release lets those that wait go on: they are committed in InnoDB, visible, and their clients are told so.
func (m *model) release(s *state, n *node, to uint8) {
	for ; n.acked < to; n.acked++ {
		t := n.bin[n.acked]
		i := item(t)
		if m.Script[t] == 'Q' {
			i |= itemFrail
		}
		n.commit(i)
		s.acked |= 1 << t
		s.seen |= 1 << t
	}
}

// crash ends mysqld, which keeps the first keep commits, and with it the host when host is set.
func (m *model) crash(s *state, i, keep int, host bool) bool {
	n := &s.nodes[i]
	if s.crashes == 0 || !n.up || !m.die(n, keep) && !host {
		return false
	}
	s.crashes--
	if host {
		n.up, n.lead, n.keep = false, 0, 0
		n.cut(n.fsynced)
	}
	return true
}

// die is the end of a mysqld: of what InnoDB committed since its log was flushed a part may be gone, and with it what
// has no trace.
func (m *model) die(n *node, keep int) bool {
	if n.phase == off {
		return false
	}
	before := n.hist
	n.commits = uint8(keep)
	effects := n.effects()
	n.hist, n.commits = [maxTxs]item{}, 0
	for _, i := range before[:keep] {
		if i&itemFrail != 0 {
			i &^= itemFrail
			if m.Script[i.tx()] == 'P' {
				if end := m.other(int(i.tx())); end < 0 || effects&(1<<end) == 0 {
					continue // prepared no more
				}
			}
			i |= itemNoGTID
		}
		n.commit(i)
	}
	n.flushed = n.commits
	n.phase, n.serve = off, 0
	n.proposed, n.acked = 0, 0
	if !m.broken(S5) {
		n.bin, n.written = [maxTxs]uint8{}, 0
	}
	return true
}

// start brings up host, daemon and mysqld, as far as they are down.
func (m *model) start(s *state, i int) bool {
	n := &s.nodes[i]
	if n.up && n.phase != off || n.phase == lost {
		return false
	}
	n.up, n.phase = true, unjudged
	for _, t := range n.bin[:n.written] { // S5 is broken, and mysqld recovers from its binary log
		if n.effects()&(1<<t) == 0 {
			n.commit(item(t))
			s.seen |= 1 << t
		}
	}
	n.flushed = n.commits
	n.bin, n.written = [maxTxs]uint8{}, 0
	return true
}

// judge decides by S5 what follows for a mysqld that has come up. It waits for a read index: the leader's commit index,
// of its own term.
func (m *model) judge(s *state, i int) (done bool, bad string) {
	n, l := &s.nodes[i], m.leader(s)
	if n.phase != unjudged || l < 0 || s.n == 0 || s.chosen[s.n-1].term() != s.term || s.known(n) < int(s.n) {
		return false, ""
	}
	against := txs(s.committed())
	if m.broken(S11) && l != i {
		against = s.nodes[l].executed()
	}
	v := m.verdict(n, s, against)
	if m.broken(S5Judge) {
		v = verdict{good: true}
	}
	if !v.good {
		n.phase = broken
		if m.isPrefix(n, s) {
			return true, fmt.Sprintf("%s is thrown away, and all that it holds is committed", m.label[i])
		}
		return true, ""
	}
	for t := range m.Script {
		if v.plug&(1<<t) != 0 && !m.broken(NoPlug) {
			n.plug(uint8(t))
		}
	}
	n.phase = ready
	n.flushed = n.commits
	if n.keep = min(n.durable, s.applied(n)); m.prepared(n) {
		n.keep = 0
	}
	return true, ""
}

// plug marks a transaction as executed.
func (n *node) plug(t uint8) {
	for k := range n.items() {
		if n.hist[k].tx() == t {
			n.hist[k] &^= itemNoGTID
			return
		}
	}
	n.commit(item(t) | itemPlug)
}

// prepared reports whether XA RECOVER shows anything.
func (m *model) prepared(n *node) bool { return m.inDoubt(n) != 0 }

// inDoubt is what XA RECOVER shows.
func (m *model) inDoubt(n *node) (set uint8) {
	effects := n.effects()
	for t := range m.Script {
		if m.Script[t] == 'P' && effects&(1<<t) != 0 {
			if end := m.other(t); end < 0 || effects&(1<<end) == 0 {
				set |= 1 << t
			}
		}
	}
	return set
}

// isPrefix reports whether what a server holds is a beginning of the committed log, and the log has the rest.
func (m *model) isPrefix(n *node, s *state) bool {
	effects, missing := n.effects(), false
	if effects&^txs(s.committed()) != 0 {
		return false
	}
	for k, e := range s.committed() {
		if !e.isTx() {
			continue
		}
		has := effects&(1<<e.kind()) != 0
		if m.Script[e.kind()] == 'P' && !has {
			continue // it may be prepared again wherever it lies
		}
		if has && missing || !has && k < int(s.purged) {
			return false
		}
		missing = missing || !has
	}
	return true
}

// apply feeds a transaction to a follower's mysqld, which executes it: the next one that it lacks, or the following
// one.
func (m *model) apply(s *state, i int, second bool) (done bool, bad string) {
	n := &s.nodes[i]
	if n.phase != ready && n.phase != promoting {
		return false, ""
	}
	to := s.known(n)
	if m.broken(S3) {
		to = int(n.n)
	}
	executed, skipped := n.executed(), -1
	for k, e := range n.log[:to] {
		if !e.isTx() || executed&(1<<e.kind()) != 0 {
			continue
		}
		if second && skipped < 0 {
			if skipped = k; m.Script[e.kind()] != 'R' {
				return false, ""
			}
			continue
		}
		if second && m.Script[e.kind()] != 'R' {
			return false, ""
		}
		if k < int(s.purged) {
			n.phase = unjudged // ErrPurged: judged once more
			return true, ""
		}
		bad = m.execute(n, i, k, int(e.kind()))
		s.seen |= 1 << e.kind()
		return true, bad
	}
	return false, ""
}

// execute runs transaction t, entry k of the log, on a follower. bad says what a server would do wrong by it.
func (m *model) execute(n *node, i, k, t int) (bad string) {
	effects := n.effects()
	m.take(n, t)
	switch m.Script[t] {
	case 'R', 'P':
		if effects&(1<<t) != 0 {
			return fmt.Sprintf("%s executes %s a second time", m.label[i], m.name(t))
		}
		if end := m.other(t); end >= 0 && effects&(1<<end) != 0 {
			return fmt.Sprintf("%s prepares %s again, which has ended there", m.label[i], m.name(t))
		}
	case 'Q':
		for _, e := range n.log[k+1 : n.n] {
			if e.isTx() && effects&(1<<e.kind()) != 0 {
				return fmt.Sprintf("%s runs %s over %s, which came after it", m.label[i], m.name(t), m.name(int(e.kind())))
			}
		}
	case 'C':
		if effects&(1<<m.other(t)) == 0 {
			return fmt.Sprintf("the applier of %s stops: nothing is prepared that %s could end", m.label[i], m.name(t))
		}
	}
	return ""
}

// take notes a transaction of the feed as executed.
func (m *model) take(n *node, t int) {
	for at := range n.items() {
		if n.hist[at].tx() == uint8(t) { // its trace was lost
			n.hist[at] &^= itemNoGTID
			return
		}
	}
	it := item(t)
	if m.Script[t] == 'P' {
		it |= itemFrail
	}
	n.commit(it)
}

// promote proposes a barrier for a mysqld that is good.
func (m *model) promote(s *state, i int) bool {
	n := &s.nodes[i]
	if n.phase != ready || n.lead != s.term || n.n == maxLog {
		return false
	}
	n.phase, n.serve = promoting, n.lead
	m.propose(s, n, kindBarrier)
	return true
}

// openWrites is the last step of a promotion (S6).
func (m *model) openWrites(s *state, i int) bool {
	n := &s.nodes[i]
	if n.phase != promoting || !m.serves(n) {
		return false
	}
	known, at := s.known(n), n.barrier()
	if at < 0 || at >= known {
		return false
	}
	if txs(n.log[:at])&^n.executed() != 0 && !m.broken(S6) {
		return false
	}
	n.phase = open
	return true
}

// barrier is where the newest barrier of this node's term lies, -1: nowhere.
func (n *node) barrier() int {
	for k := int(n.n) - 1; k >= 0; k-- {
		if n.log[k] == newEntry(kindBarrier, n.serve) {
			return k
		}
	}
	return -1
}

// fence ends the service of a node that is not the leader of its term any more: by a kill, unless no session waits.
func (m *model) fence(s *state, i, keep int) bool {
	n := &s.nodes[i]
	if !n.up || n.phase != promoting && n.phase != open || n.lead == n.serve && n.lead == s.term {
		return false
	}
	if n.acked < n.written && !m.broken(S4) {
		return m.die(n, keep)
	}
	if keep != int(n.commits) {
		return false // nothing is lost
	}
	m.release(s, n, n.written)
	n.phase, n.serve = ready, 0
	n.bin, n.written, n.proposed, n.acked = [maxTxs]uint8{}, 0, 0, 0
	return true
}

// flush moves the durable index (S8).
func (m *model) flush(s *state, i int) bool {
	n := &s.nodes[i]
	if !n.good() {
		return false
	}
	applied, before := s.applied(n), *n
	n.flushed = n.commits
	n.keep = min(n.durable, applied)
	n.durable = max(n.durable, applied)
	if m.prepared(n) {
		n.keep = 0
	}
	return before != *n
}

// seed replaces the data of a node by a copy of another one's, which loses what a restart of that one would lose.
func (m *model) seed(s *state, to, from int) bool {
	n, d := &s.nodes[to], s.nodes[from]
	if n.phase != broken || !n.up || to == from || d.phase != ready && (d.phase != open || d.acked < d.written) {
		return false
	}
	applied := s.applied(&d)
	m.die(&d, int(d.commits))
	n.hist, n.commits, n.flushed = d.hist, d.commits, d.commits
	n.durable, n.keep, n.phase = applied, 0, unjudged
	return true
}

// loseDisk ends a node with all that it had.
func (m *model) loseDisk(s *state, i int) bool {
	if s.disks == 0 || s.nodes[i].phase == lost {
		return false
	}
	s.disks--
	s.nodes[i] = node{phase: lost}
	return true
}

// replace puts an empty node in the place of a lost one, as a change of membership: the leader has a majority, and has
// committed in its own term. The new member votes once it has what is committed, and is seeded.
func (m *model) replace(s *state, i int) bool {
	l := m.leader(s)
	if s.nodes[i].phase != lost || l < 0 || s.chosen[s.n-1].term() != s.term {
		return false
	}
	follow := 0
	for k := range m.Nodes {
		if n := &s.nodes[k]; n.up && s.known(n) == int(s.n) {
			follow++
		}
	}
	if 2*follow <= m.Nodes {
		return false
	}
	s.nodes[i] = node{up: true, phase: broken, log: s.chosen, n: s.n, fsynced: s.n}
	return true
}

// applied is the index up to which a server holds everything.
func (s *state) applied(n *node) (k uint8) {
	executed := n.executed()
	for _, e := range n.log[:s.known(n)] {
		if e.isTx() && executed&(1<<e.kind()) == 0 {
			break
		}
		k++
	}
	return k
}
