package sim

import (
	"maps"
	"math"
	"slices"

	"trireme/internal/base/config"
	"trireme/internal/core/consensus"
)

// forced is told that an operator has made a new generation of what the log of a node holds, said is where the logs of
// its members ended by their own word. It returns up to which entry that is what was committed before.
func (c *checks) forced(source *Node, g *config.Generation, t *consensus.Takeover, said map[uint64]uint64) uint64 {
	src := c.log(source)
	if src.durable < g.Base {
		c.w.Violate("S2", "node %d makes a generation of its log up to entry %d and has fsynced up to %d", source.ID, g.Base,
			src.durable)
	}
	kept := c.common(src, g.Base)
	for _, id := range g.Members {
		if has := c.common(&c.logs[id-1], said[id]); has > kept {
			c.w.Violate("generations", "node %d makes a generation that keeps what is committed to %d, node %d has it to %d",
				source.ID, kept, id, has)
		}
	}
	c.entries, c.commit, c.lastChange = c.entries[:kept], t.End(), t.End()
	c.confs = slices.DeleteFunc(c.confs, func(f conf) bool { return f.index > kept })
	c.confs = append(c.confs, conf{index: t.End(), voters: sorted(t.Conf.Voters), ln: sorted(t.Conf.Learners)})
	maps.DeleteFunc(c.leaders, func(term, _ uint64) bool { return term >= t.Term })
	maps.DeleteFunc(c.seen, func(e entryID, _ entryContent) bool { return e.term >= t.Term })
	for i := range c.logs { // of the older generation, whose voters may have come to the same term since
		maps.DeleteFunc(c.logs[i].synced, func(e entryID, _ bool) bool { return e.term >= t.Term })
	}
	return kept
}

// beyond reports whether a node's log goes beyond what a generation begins with.
func (c *checks) beyond(n *Node, g *config.Generation) bool {
	l := c.log(n)
	term := l.lastTerm(c)
	return term > g.BaseTerm || term == g.BaseTerm && l.last() > g.Base
}

// common is up to where a log holds what is committed, looked at up to an index.
func (c *checks) common(l *logModel, limit uint64) uint64 {
	// Log matching makes the newest one stand for all below it.
	at := min(limit, l.last(), uint64(len(c.entries)))
	for at > l.base && l.term(at) != c.entries[at-1].term {
		at--
	}
	return at
}

// begins is told up to where a node does not want to be given anything again. With a takeover in its log that may be
// more than any node was ever given: its base is committed by that.
func (c *checks) begins(n *Node, applied uint64) {
	if n.w.generation == 0 || n.past() || applied > c.commit {
		return
	}
	for known := uint64(len(c.entries)); known < applied; {
		entries, err := n.log.Entries(known+1, applied+1, math.MaxUint64) // those of one segment
		if err != nil || len(entries) == 0 {
			return
		}
		c.committed(n, entries)
		known = entries[len(entries)-1].GetIndex()
	}
}

// lastTerm is the term of its last entry.
func (l *logModel) lastTerm(c *checks) uint64 {
	switch {
	case len(l.terms) > 0:
		return l.terms[len(l.terms)-1]
	case l.base > 0 && l.base <= uint64(len(c.entries)):
		return c.entries[l.base-1].term
	}
	return 0
}
