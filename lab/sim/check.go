package sim

import (
	"errors"
	"hash/fnv"
	"slices"
	"strings"

	"go.etcd.io/raft/v3/raftpb"

	"trireme/internal/core/consensus"
	"trireme/internal/core/raftlog"
)

// checks is what the world knows of everything that ever happened, and the promises that it holds the nodes to.
type checks struct {
	w       *World
	leaders map[uint64]uint64        // by term
	votes   map[vote]uint64          // whom a node voted for
	seen    map[entryID]entryContent // every entry that was ever in a log
	logs    []logModel               // by node
	entries []committedEntry         // by index - 1
	commit  uint64                   // highest index that is committed anywhere
	confs   []conf                   // in order of index
	// lastChange is the highest index at which any log ever held a change of membership.
	lastChange uint64
}

type vote struct{ node, term uint64 }

// entryID names an entry: of one term and index there is only one, and what is below it is the same in every log (log
// matching).
type entryID struct{ index, term uint64 }

type entryContent struct{ prevTerm, sum uint64 }

type committedEntry struct{ term, sum uint64 }

// logModel is what a node's disk must hold: the terms of its entries. Those of a lost disk stay as they were: they were
// counted.
type logModel struct {
	base    uint64   // the entries up to here are not known by themselves: a snapshot
	terms   []uint64 // of base+1, base+2, ...
	durable uint64   // highest index that was synced
	proven  uint64   // what is on disk says itself that everything up to here was synced
	// every entry that was ever synced: a tail that is written again is not on disk because the old one was
	synced   map[entryID]bool
	promised uint64 // highest term of an answer
	voted    uint64 // the node voted for in that term
	commit   uint64 // in this life
}

func (l *logModel) last() uint64 { return l.base + uint64(len(l.terms)) }

// term is the term of an entry above base.
func (l *logModel) term(index uint64) uint64 { return l.terms[index-l.base-1] }

func (c *checks) init(w *World) {
	*c = checks{w: w, leaders: map[uint64]uint64{}, votes: map[vote]uint64{}, seen: map[entryID]entryContent{}}
}

func (c *checks) addNode() { c.logs = append(c.logs, logModel{synced: map[entryID]bool{}}) }

func (c *checks) log(n *Node) *logModel { return &c.logs[n.ID-1] }

func sumOf(e *raftpb.Entry) uint64 {
	h := fnv.New64a()
	h.Write([]byte{byte(e.GetType())})
	h.Write(e.GetData())
	return h.Sum64()
}

// appending is told what a node is about to write: the tail that differs may go, whether or not the rest succeeds.
func (c *checks) appending(n *Node, entries []*raftpb.Entry) {
	l := c.log(n)
	for _, e := range entries {
		if at := e.GetIndex(); at > l.base && at <= l.last() && l.term(at) != e.GetTerm() {
			l.durable, l.proven = min(l.durable, at-1), min(l.proven, at-1)
			return
		}
	}
}

// appended is told what a node has written.
func (c *checks) appended(n *Node, entries []*raftpb.Entry) {
	l := c.log(n)
	first := entries[0].GetIndex()
	if first > l.last()+1 || first <= l.base {
		return // known already, or refused
	}
	prev := uint64(0)
	if first > l.base+1 {
		prev = l.term(first - 1)
	} else if l.base > 0 && !n.past() {
		prev = c.entries[l.base-1].term
	}
	for _, e := range entries {
		c.same(n, e, prev)
		prev = e.GetTerm()
		if e.GetType() != raftpb.EntryNormal && !n.past() {
			c.lastChange = max(c.lastChange, e.GetIndex())
		}
		if at := e.GetIndex(); at <= l.last() && l.term(at) != e.GetTerm() {
			l.terms = l.terms[:at-l.base-1]
		}
		if e.GetIndex() > l.last() {
			l.terms = append(l.terms, e.GetTerm())
		}
	}
}

// same holds an entry of a log to what was seen of it elsewhere.
func (c *checks) same(n *Node, e *raftpb.Entry, prevTerm uint64) {
	if n.past() {
		return
	}
	id, content := entryID{e.GetIndex(), e.GetTerm()}, entryContent{prevTerm, sumOf(e)}
	old, ok := c.seen[id]
	if !ok {
		c.seen[id] = content
		return
	}
	if old != content {
		c.w.Violate("log matching",
			"node %d has an entry %d of term %d (after term %d, content %x) that differs from what was seen before (after term %d, content %x)", n.ID, id.index, id.term, prevTerm, content.sum, old.prevTerm, old.sum)
	}
}

// synced is told that everything that a node has written is durable.
func (c *checks) synced(n *Node) {
	l := c.log(n)
	l.proven = l.durable // the records that were synced now were written when the log knew that much
	l.syncedTo(l.last())
}

// syncedTo notes that everything up to an index is durable.
func (l *logModel) syncedTo(index uint64) {
	for at := max(l.base, l.durable) + 1; at <= index; at++ {
		l.synced[entryID{at, l.term(at)}] = true
	}
	l.durable = index
}

// had reports whether an entry was ever on the disk. What the log was purged up to is committed, so there is only one
// entry of each index.
func (l *logModel) had(index, term uint64) bool {
	return index <= l.base || l.synced[entryID{index, term}]
}

// reset is told that a node's log was replaced by a snapshot.
func (c *checks) reset(n *Node, snap *raftpb.Snapshot) {
	l, index := c.log(n), snap.GetMetadata().GetIndex()
	if !n.past() && (index > uint64(len(c.entries)) || c.entries[index-1].term != snap.GetMetadata().GetTerm()) {
		c.w.Violate("state-machine safety", "node %d got a snapshot at %d of term %d, which is not committed", n.ID, index,
			snap.GetMetadata().GetTerm())
		return
	}
	l.base, l.terms, l.durable, l.proven = index, l.terms[:0], index, index
}

// reopened compares what a node finds on its disk with what was fsynced there, and reports whether it may go on.
func (c *checks) reopened(n *Node) bool {
	l := c.log(n)
	l.commit = 0
	first, _ := n.log.FirstIndex()
	last, _ := n.log.LastIndex()
	if last < l.durable {
		if n.rotten != "" && last >= l.proven {
			// The damage is in what was written last, which nothing says was synced: it looks like a torn write.
			c.w.count(cRotUnseen)
			n.lose("its last entries have rotted")
			return false
		}
		c.w.Violate("S2", "node %d had fsynced up to entry %d and opens with a log to %d", n.ID, l.durable, last)
		return false
	}
	if hs, _, err := n.log.InitialState(); err == nil && hs != nil || l.promised > 0 {
		if hs.GetTerm() < l.promised || hs.GetTerm() == l.promised && l.voted != 0 && hs.GetVote() != l.voted {
			if strings.HasSuffix(n.rotten, "/state") { // its other copy may be an older one until the next sync
				c.w.count(cRotUnseen)
				n.lose("its vote has rotted")
				return false
			}
			c.w.Violate("S2", "node %d had answered in term %d with a vote for %d, and opens with term %d and a vote for %d",
				n.ID, l.promised, l.voted, hs.GetTerm(), hs.GetVote())
			return false
		}
	}
	prev, _ := n.log.Term(first - 1)
	terms := make([]uint64, 0, last+1-first)
	for at := first; at <= last; at++ {
		term, err := n.log.Term(at)
		if err != nil || at <= l.durable && at > l.base && l.term(at) != term {
			c.w.Violate("S2", "node %d had fsynced entry %d of term %d and finds one of term %d there (%v)", n.ID, at,
				l.term(at), term, err)
			return false
		}
		terms = append(terms, term)
		switch entries, err := n.log.Entries(at, at+1, 0); {
		case err == nil:
			c.same(n, entries[0], prev)
		case n.disk.powerCut:
			n.cutOff()
			return false
		case n.rotten == "" || !errors.Is(err, raftlog.ErrCorrupt): // a closed segment that has rotted shows when it is read
			c.w.Violate("S2", "node %d opens its log and cannot read it: %v", n.ID, err)
			return false
		}
		prev = term
	}
	l.base, l.terms, l.proven = first-1, terms, last // it is all synced now, and the state file says so
	l.syncedTo(last)
	return true
}

// sent holds what a node answers to what it has on disk.
func (c *checks) sent(n *Node, m *raftpb.Message) {
	l := c.log(n)
	switch m.GetType() {
	case raftpb.MsgAppResp:
		if !m.GetReject() && m.GetIndex() > l.durable {
			c.w.Violate("S2", "node %d acknowledges entry %d and has fsynced up to %d", n.ID, m.GetIndex(), l.durable)
		}
	case raftpb.MsgVoteResp:
		if m.GetReject() {
			break
		}
		v := vote{n.ID, m.GetTerm()}
		if other, ok := c.votes[v]; ok && other != m.GetTo() {
			c.w.Violate("election safety", "node %d votes for %d and %d in term %d", n.ID, other, m.GetTo(), m.GetTerm())
		}
		c.votes[v] = m.GetTo()
	default:
		return
	}
	if m.GetTerm() > l.promised {
		l.promised, l.voted = m.GetTerm(), 0
	}
	if m.GetType() == raftpb.MsgVoteResp && !m.GetReject() && m.GetTerm() == l.promised {
		l.voted = m.GetTo()
	}
}

// committed holds committed entries to what was delivered before, here or elsewhere, in this life or another.
func (c *checks) committed(n *Node, entries []*raftpb.Entry) {
	if n.past() {
		for _, e := range entries {
			if e.GetType() != raftpb.EntryNormal && e.GetIndex() > n.confFrom {
				n.confAt = e.GetIndex()
			}
		}
		return
	}
	for _, e := range entries {
		at, content := e.GetIndex(), committedEntry{e.GetTerm(), sumOf(e)}
		switch known := uint64(len(c.entries)); {
		case at > known+1:
			c.w.Violate("state-machine safety", "node %d is given entry %d, and no node has ever been given entry %d", n.ID, at,
				known+1)
			return
		case at == known+1:
			c.entries = append(c.entries, content)
			c.w.count(cCommits)
			c.w.note(6, at, content.term, content.sum)
		case c.entries[at-1] != content:
			c.w.Violate("state-machine safety",
				"node %d is given entry %d of term %d, content %x; another was given one of term %d, content %x", n.ID, at,
				content.term, content.sum, c.entries[at-1].term, c.entries[at-1].sum)
			return
		}
		if e.GetType() != raftpb.EntryNormal && at > n.confFrom {
			c.membership(n, at)
		}
	}
}

// state is told of a change of role.
func (c *checks) state(n *Node, s consensus.State) {
	if s.Role == consensus.Leader && !n.past() {
		if c.leads(n, s.Term) {
			c.w.count(cElections)
		}
	}
}

// leads notes who leads a term; true: it was not known.
func (c *checks) leads(n *Node, term uint64) bool {
	id, ok := c.leaders[term]
	if ok && id != n.ID {
		c.w.Violate("election safety", "nodes %d and %d both lead term %d", id, n.ID, term)
	}
	c.leaders[term] = n.ID
	return !ok
}

// node checks a node that has just done a piece of work.
func (c *checks) node(n *Node) {
	s, l := &n.status, c.log(n)
	if s.Commit < l.commit {
		c.w.Violate("commit index", "node %d takes back its commit index from %d to %d", n.ID, l.commit, s.Commit)
	}
	l.commit = s.Commit
	if n.past() {
		return
	}
	if s.Commit > c.commit {
		c.newCommit(n)
	}
	if s.Role == consensus.Leader {
		c.leads(n, s.Term)
		c.matches(n)
		c.complete(n)
	}
	c.leases(n)
}

// newCommit: what is committed is durable on a majority, of both halves of a joint configuration (S2).
func (c *checks) newCommit(n *Node) {
	s, term := &n.status, n.status.Term
	c.commit = s.Commit
	if s.Role != consensus.Leader {
		// It was the leader until a moment ago, or begins with a commit index, or learns a commit index that no node
		// has shown: the entry's own term counts.
		l := c.log(n)
		if s.Commit <= l.base || s.Commit > l.last() || !c.agreed(s) {
			return
		}
		term = l.term(s.Commit)
	}
	for _, half := range [][]uint64{s.Voters, s.Outgoing} {
		have := 0
		for _, id := range half {
			if c.logs[id-1].had(s.Commit, term) {
				have++
			}
		}
		if 2*have <= len(half) && len(half) > 0 {
			c.w.Violate("S2", "node %d of term %d commits entry %d, which is on the disks of %d of the voters %v only", n.ID,
				term, s.Commit, have, half)
		}
	}
}

// agreed reports whether a status has the membership that everybody has: one who does not lead may know an older one
// than its entry was committed by.
func (c *checks) agreed(s *consensus.Status) bool {
	for _, m := range c.w.nodes {
		if m.up && !m.past() && !(slices.Equal(m.status.Voters, s.Voters) && slices.Equal(m.status.Outgoing, s.Outgoing)) {
			return false
		}
	}
	return len(s.Outgoing) == 0 && c.lastChange <= s.Applied
}

// matches: a leader counts for a member no more than that has fsynced (S2). Its log shows once it has written the first
// entry of its own term; what it sends before it has written it is of that term too. For itself it begins with its
// whole log, which may not be synced yet if the others have elected it; but nothing of an older term is committed by
// counting, and an entry of its own is synced with all below.
func (c *checks) matches(n *Node) {
	own, s := c.log(n), &n.status
	if own.last() <= own.base || own.term(own.last()) != s.Term {
		return
	}
	for id, pr := range s.Members {
		term := s.Term
		switch {
		case pr.Match == 0:
			continue
		case pr.Match <= own.base:
			term = c.entries[pr.Match-1].term
		case pr.Match <= own.last():
			term = own.term(pr.Match)
		}
		if id == n.ID && term != s.Term {
			continue
		}
		if !c.logs[id-1].had(pr.Match, term) {
			c.w.Violate("S2", "node %d counts entry %d of term %d for node %d, which has never fsynced it", n.ID, pr.Match, term,
				id)
		}
	}
}

// complete: a leader's log holds everything that was committed before it was elected (leader completeness). What is in
// its log shows once it has written the first entry of its own term.
func (c *checks) complete(n *Node) {
	l, s := c.log(n), &n.status
	if l.last() <= l.base || l.term(l.last()) != s.Term {
		return
	}
	// Log matching makes the newest committed entry stand for all below it.
	at := uint64(len(c.entries))
	if at <= l.base || at > l.last() && c.entries[at-1].term > s.Term {
		return // purged, or committed by a later leader of whom this one has not heard
	}
	if at > l.last() {
		if c.entries[at-1].term < s.Term {
			c.w.Violate("leader completeness", "node %d leads term %d with a log to %d, entry %d is committed", n.ID, s.Term,
				l.last(), at)
		}
		return
	}
	if got, want := l.term(at), c.entries[at-1].term; got != want && want <= s.Term {
		c.w.Violate("leader completeness", "node %d leads term %d, its entry %d is of term %d, one of term %d is committed",
			n.ID, s.Term, at, got, want)
	}
}

// leases: a lease runs only while its holder leads, on one node at a time, while no node leads a later term and no node
// knows of more commits (S10).
func (c *checks) leases(n *Node) {
	if c.w.opts.broken.leases {
		return
	}
	holds := n.HoldsLease()
	if holds {
		c.w.count(cLeaseSteps)
		if !n.leads() {
			c.w.Violate("S10", "node %d is %s of term %d and holds a lease", n.ID, n.status.Role, n.status.Term)
		}
		if n.status.Commit < c.commit {
			c.w.Violate("S10", "node %d holds a lease and knows of commits to %d, others of %d", n.ID, n.status.Commit, c.commit)
		}
	}
	if !holds && !n.leads() {
		return
	}
	for _, m := range c.w.nodes {
		if m == n || !m.up || m.past() {
			continue
		}
		switch other := m.HoldsLease(); {
		case holds && other:
			c.w.Violate("S10", "nodes %d (term %d) and %d (term %d) both hold a lease", n.ID, n.status.Term, m.ID, m.status.Term)
		case other && n.status.Term > m.status.Term:
			c.w.Violate("S10", "node %d leads term %d while %d holds a lease of term %d", n.ID, n.status.Term, m.ID,
				m.status.Term)
		case holds && m.leads() && m.status.Term > n.status.Term:
			c.w.Violate("S10", "node %d leads term %d while %d holds a lease of term %d", m.ID, m.status.Term, n.ID,
				n.status.Term)
		}
	}
}
