package sim

import (
	"fmt"
	"slices"
)

// conf is the membership that is in force from an index on.
type conf struct {
	index                uint64
	voters, outgoing, ln []uint64
}

func (c *conf) equal(d *conf) bool {
	return slices.Equal(c.voters, d.voters) && slices.Equal(c.outgoing, d.outgoing) && slices.Equal(c.ln, d.ln)
}

func (c *conf) String() string {
	return fmt.Sprintf("voters %v, outgoing %v, learners %v", c.voters, c.outgoing, c.ln)
}

// isQuorum reports whether the nodes in set, as bits, can commit.
func (c *conf) isQuorum(set uint64) bool {
	for _, half := range [][]uint64{c.voters, c.outgoing} {
		have := 0
		for _, id := range half {
			have += int(set >> id & 1)
		}
		if len(half) > 0 && 2*have <= len(half) {
			return false
		}
	}
	return len(c.voters) > 0
}

// membership: the configuration after an entry is the same everywhere, and no majority of one is without a member of
// every majority of the next.
func (c *checks) membership(n *Node, index uint64) {
	if index < uint64(c.w.plan.nodes) {
		return // the first membership comes in pieces, and its members begin with the whole of it
	}
	n.confAt = index
	s := n.st.Status()
	now := conf{index, sorted(s.Voters), sorted(s.Outgoing), sorted(s.Learners)}
	at, known := slices.BinarySearchFunc(c.confs, index, func(f conf, i uint64) int { return int(f.index) - int(i) })
	if known {
		if !c.confs[at].equal(&now) {
			c.w.Violate("membership", "after entry %d node %d has %v, another had %v", index, n.ID, &now, &c.confs[at])
		}
		return
	}
	if at < len(c.confs) {
		return // below a snapshot of somebody who was told first
	}
	if at > 0 {
		c.w.count(cChanges)
		if set, ok := disjoint(&c.confs[at-1], &now); ok {
			c.w.Violate("membership",
				"%v is followed by %v at entry %d: %b is a majority of the first, and all others are one of the second",
				&c.confs[at-1], &now, index, set)
		}
	}
	c.w.Tracef("membership from entry %d on: %v", index, &now)
	c.confs = append(c.confs, now)
}

func sorted(ids []uint64) []uint64 {
	ids = slices.Clone(ids)
	slices.Sort(ids)
	return ids
}

// disjoint looks for a majority of a that leaves one of b untouched.
func disjoint(a, b *conf) (set uint64, found bool) {
	all := uint64(0)
	for _, ids := range [][]uint64{a.voters, a.outgoing, b.voters, b.outgoing} {
		for _, id := range ids {
			all |= 1 << id
		}
	}
	for set := all; ; set = (set - 1) & all { // every subset
		if a.isQuorum(set) && b.isQuorum(all&^set) {
			return set, true
		}
		if set == 0 {
			return 0, false
		}
	}
}
