package consensus

import (
	"cmp"
	"slices"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/tracker"
)

// Matches is how far the logs of the voters are on disk, as the leader of Term knows it (S2).
type Matches struct {
	Term   uint64
	Voters []Match // by id; both halves of a joint configuration, this node included
}

// Match is one voter's.
type Match struct {
	ID    uint64
	Index uint64 // highest index that it has fsynced
}

// WatchMatches switches OnMatch on or off. While it is off, which is the default, it costs nothing.
func (n *Node) WatchMatches(on bool) {
	if n.pub.watched.Swap(on) != on {
		n.inbox.put(input{call: func(c *core) { c.matches = Matches{} }}) // tell all of it, now
	}
}

// Matches is what OnMatch would report, at most one tick old; false on a node that does not lead.
func (n *Node) Matches() (Matches, bool) {
	s := n.pub.state.Load()
	m := Matches{Term: s.Term}
	for id, pr := range s.Members {
		if !pr.Learner {
			m.Voters = append(m.Voters, Match{id, pr.Match})
		}
	}
	slices.SortFunc(m.Voters, func(a, b Match) int { return cmp.Compare(a.ID, b.ID) })
	return m, s.Role == Leader
}

// grownMatches returns the news for OnMatch, nil if there is no news.
func (c *core) grownMatches() *Matches {
	if !c.pub.watched.Load() || c.state.Role != Leader {
		return nil
	}
	m := Matches{Term: c.state.Term, Voters: make([]Match, 0, len(c.matches.Voters)+1)}
	c.rn.WithProgress(func(id uint64, typ raft.ProgressType, pr tracker.Progress) {
		if typ == raft.ProgressTypePeer {
			m.Voters = append(m.Voters, Match{id, pr.Match})
		}
	})
	if m.Term == c.matches.Term && slices.Equal(m.Voters, c.matches.Voters) {
		return nil
	}
	c.matches = m
	return &m
}
