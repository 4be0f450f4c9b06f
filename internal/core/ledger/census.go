package ledger

import "slices"

// Census is what a leader knows of everybody when a change of the membership is weighed.
type Census struct {
	Nodes map[uint64]CensusNode // by raft id
	Whole bool                  // the leader's log begins at its first entry, and the cluster began empty
}

// CensusNode is one member of a Census.
type CensusNode struct {
	Name  string
	Voter bool // in raft's membership now
	Live  bool
	Data  bool // has a mysqld
	Ready bool // whose data is judged and fed
}

// Count is a census in figures.
type Count struct {
	Voters, LiveVoters int
	Holders            int // voters with healthy data
	Donors             int // members with healthy data
}

// Without counts everybody but one; 0 counts all.
func (c Census) Without(id uint64) Count { return c.With(nil, []uint64{id}) }

// With counts everybody but out, and counts the votes of in as well.
func (c Census) With(in, out []uint64) Count {
	var k Count
	for i, s := range c.Nodes {
		if slices.Contains(out, i) {
			continue
		}
		if s.Voter || slices.Contains(in, i) {
			k.Voters++
			if s.Live {
				k.LiveVoters++
			}
			if s.Data && s.Ready {
				k.Holders++
			}
		}
		if s.Data && s.Ready {
			k.Donors++
		}
	}
	return k
}

// holds reports whether every majority of some voters has one with healthy data among them, or the whole log (S8).
func (c Census) holds(voters, holders int) bool {
	return c.Whole || voters-holders < majority(voters)
}

// KeptWithout: every majority holds the data although id's is gone and its vote stays.
func (c Census) KeptWithout(id uint64) bool {
	k := c.Without(id)
	voters := k.Voters
	if c.Nodes[id].Voter {
		voters++
	}
	return c.holds(voters, k.Holders)
}

// Bar is why votes must not be given up.
type Bar int

const (
	MayLeave   Bar = iota
	NoQuorum       // no quorum now, so nothing can be changed
	NoVoters       // no voter would be left
	LeftBehind     // those who are left would have no quorum
	NoHolder       // none of those who are left has healthy data
	DataNeeded     // a majority of those who are left could come together that has no healthy data
)

// Leave says why the voters out must keep their votes when in get one at the same moment (S8).
func (c Census) Leave(in, out []uint64) Bar {
	now, k := c.Without(0), c.With(in, out)
	switch {
	case len(out) == 0:
		return MayLeave
	case now.LiveVoters < majority(now.Voters):
		return NoQuorum
	case k.Voters == 0:
		return NoVoters
	case k.LiveVoters < majority(k.Voters):
		return LeftBehind
	case k.Holders == 0:
		return NoHolder
	case !c.holds(k.Voters, k.Holders) && c.holds(now.Voters, now.Holders):
		return DataNeeded
	}
	return MayLeave
}
