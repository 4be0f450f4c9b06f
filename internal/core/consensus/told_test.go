package consensus

import (
	"fmt"
	"slices"
	"testing"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"
)

func removal(ids ...uint64) *raftpb.ConfChangeV2 {
	cc := &raftpb.ConfChangeV2{}
	for _, id := range ids {
		cc.Changes = append(cc.Changes, &raftpb.ConfChangeSingle{Type: raftpb.ConfChangeRemoveNode.Enum(), NodeId: new(id)})
	}
	return cc
}

// newTold is a voter of three whose log holds the removal of 3, as entry 4, and does not know that it is committed.
func newTold(t *testing.T) (*env, *member) {
	e := newEnv(t)
	st := storeOf(t, &raftpb.ConfState{Voters: []uint64{1, 2, 3}}, []uint64{1, 1, 1, 2, 2},
		map[int]*raftpb.ConfChangeV2{4: removal(3)})
	if err := e.start(2, st, nil); err != nil {
		t.Fatal(err)
	}
	m := e.members[2]
	m.core.elections.promised = 0
	return e, m
}

// TestToldIsProven: what a vote tells to be committed counts for a voter whose own log holds that very entry, by index
// and term, and for no other.
func TestToldIsProven(t *testing.T) {
	for _, c := range []struct {
		what string
		told entryID
		want uint64
	}{
		{"the change itself", entryID{4, 2}, 4},
		{"an entry after it", entryID{5, 2}, 5},
		{"another entry in its place", entryID{4, 3}, 0},
		{"an older one in its place", entryID{4, 1}, 0},
		{"another entry after it", entryID{5, 3}, 0},
		{"an entry after the log's end", entryID{6, 2}, 0},
		{"an entry before it", entryID{3, 1}, 0},
		{"nothing, as older versions do", entryID{}, 0},
	} {
		for _, typ := range []raftpb.MessageType{raftpb.MsgPreVote, raftpb.MsgVote, raftpb.MsgPreVoteResp,
			raftpb.MsgVoteResp} {
			for _, role := range []raft.StateType{raft.StateFollower, raft.StatePreCandidate, raft.StateCandidate} {
				e, m := newTold(t)
				if role != raft.StateFollower {
					m.core.campaign()
				}
				if role == raft.StateCandidate {
					m.turn()
					m.core.receive(&raftpb.Message{Type: raftpb.MsgPreVoteResp.Enum(), From: new(uint64(1)), To: new(uint64(2)),
						Term: new(uint64(3))})
				}
				before := m.core.rn.BasicStatus()
				if before.RaftState != role {
					t.Fatalf("is %s, and should be %s", before.RaftState, role)
				}
				vote := &raftpb.Message{Type: typ.Enum(), From: new(uint64(1)), To: new(uint64(2)), Term: new(before.GetTerm()),
					Reject: new(true),
					Commit: new(c.told.index), RejectHint: new(c.told.term)}
				if typ == raftpb.MsgPreVote || typ == raftpb.MsgVote {
					vote.Reject = nil
				}
				m.core.acceptCommitHint(vote)
				after := m.core.rn.BasicStatus()
				if after.GetCommit() != c.want || after.Lead != 0 || after.GetTerm() != before.GetTerm() ||
					after.GetVote() != before.GetVote() {
					t.Errorf("%s, in a %s to a %s: before %+v, after %+v", c.what, typ, role, before, after)
				}
				if c.want == 0 && after.RaftState != role {
					t.Errorf("%s, in a %s: ended the campaign of a %s", c.what, typ, role)
				}
				m.core.receive(vote)
				for m.turn() {
				}
				if got := m.pub.state.Load().Voters; slices.Equal(got, []uint64{1, 2}) != (c.want > 0) {
					t.Errorf("%s, in a %s to a %s: voters %v\n%s", c.what, typ, role, got, e.out.String())
				}
			}
		}
	}
}

// TestToldIsProvenTwice: raft has replaced the entry that the disk still has.
func TestToldIsProvenTwice(t *testing.T) {
	_, m := newTold(t)
	m.core.receive(&raftpb.Message{Type: raftpb.MsgApp.Enum(), From: new(uint64(1)), To: new(uint64(2)),
		Term: new(uint64(3)), Index: new(uint64(3)), LogTerm: new(uint64(1)),
		Entries: []*raftpb.Entry{{Index: new(uint64(4)), Term: new(uint64(3))}}})
	m.core.leaderLost(1)
	if term, err := m.store.Term(4); err != nil || term != 2 || m.core.change != 4 {
		t.Fatalf("entry 4 is of term %d (%v), the last change is entry %d", term, err, m.core.change)
	}
	m.core.acceptCommitHint(&raftpb.Message{Type: raftpb.MsgPreVote.Enum(), From: new(uint64(3)), To: new(uint64(2)),
		Term: new(uint64(4)), Commit: new(uint64(4)), RejectHint: new(uint64(2))})
	for m.turn() {
	}
	if bs := m.core.rn.BasicStatus(); bs.GetCommit() != 0 || bs.Lead != 0 || m.core.change != 0 {
		t.Errorf("%+v, last change %d", bs, m.core.change)
	}
}

// TestReplacedChangeIsForgotten: a change in the place of another one, or in front of it, is the one to learn of.
func TestReplacedChangeIsForgotten(t *testing.T) {
	c := &core{}
	entry := func(index uint64, typ raftpb.EntryType) *raftpb.Entry {
		return &raftpb.Entry{Index: new(index), Type: typ.Enum()}
	}
	for _, step := range []struct {
		entries []*raftpb.Entry
		want    uint64
	}{
		{[]*raftpb.Entry{entry(1, raftpb.EntryNormal)}, 0},
		{[]*raftpb.Entry{entry(2, raftpb.EntryConfChangeV2), entry(3, raftpb.EntryNormal)}, 2},
		{[]*raftpb.Entry{entry(4, raftpb.EntryNormal), entry(5, raftpb.EntryConfChange)}, 5},
		{[]*raftpb.Entry{entry(6, raftpb.EntryNormal)}, 5},
		{[]*raftpb.Entry{entry(4, raftpb.EntryConfChangeV2), entry(5, raftpb.EntryNormal)}, 4},
		{[]*raftpb.Entry{entry(3, raftpb.EntryNormal)}, 0},
	} {
		if c.noteChanges(step.entries); c.change != step.want {
			t.Errorf("after entry %d the last change is entry %d, not %d", step.entries[0].GetIndex(), c.change, step.want)
		}
	}
}

// TestToldUnderLease: a voter that knows a leader, or may have promised one something in an earlier life, learns from
// that leader alone (S10).
func TestToldUnderLease(t *testing.T) {
	vote := &raftpb.Message{Type: raftpb.MsgPreVote.Enum(), From: new(uint64(3)), To: new(uint64(2)), Term: new(uint64(3)),
		Commit: new(uint64(4)), RejectHint: new(uint64(2))}
	for what, prepare := range map[string]func(*member){
		"knows a leader": func(m *member) {
			m.core.receive(&raftpb.Message{Type: raftpb.MsgHeartbeat.Enum(), From: new(uint64(1)), To: new(uint64(2)),
				Term: new(uint64(2))})
		},
		"has just started": func(m *member) { m.core.elections.promised = m.core.ticks + 10 },
	} {
		_, m := newTold(t)
		prepare(m)
		before := m.core.rn.BasicStatus()
		m.core.receive(vote)
		if after := m.core.rn.BasicStatus(); after.GetCommit() != 0 || after.Lead != before.Lead {
			t.Errorf("%s: before %+v, after %+v", what, before, after)
		}
	}
}

// TestVotesTell: everything that is said in an election tells the newest committed entry by index and term, also one
// that is no longer in the log.
func TestVotesTell(t *testing.T) {
	c := newChaos(t, 0, 5, 1, 2, 3)
	c.members[1].core.campaign()
	c.settle()
	for i := range 3 {
		c.propose()
		c.settle()
		if i == 1 {
			c.members[2].store.purge(2)
			c.restart(c.members[2])
			c.applied[2] = 2
		}
	}
	c.tick(c.ids(), 10)
	c.members[1].down = true
	seen := map[raftpb.MessageType]int{}
	for range 100 {
		c.now += int64(c.members[2].cfg.TickInterval)
		c.members[2].tick()
		c.members[3].tick()
		for range 10 {
			c.members[2].turn()
			c.members[3].turn()
			msgs := c.net
			c.net = nil
			for _, m := range msgs {
				if isElection(m) {
					seen[m.GetType()]++
					told := entryID{m.GetCommit(), m.GetRejectHint()}
					if e := c.committed[told.index]; told.index != uint64(len(c.committed)) || e.GetTerm() != told.term {
						t.Fatalf("%d tells entry %+v in a %s, %d are committed", m.GetFrom(), told, m.GetType(), len(c.committed))
					}
				}
				c.deliver(m)
			}
		}
		c.check()
		if c.members[2].core.stateNow().Leader > 1 {
			break
		}
	}
	if len(seen) != 4 {
		t.Errorf("saw only %v", seen)
	}
}

// TestReplacedChangeIsNotTaken: a deposed leader's log holds a membership change where the others committed something
// else. What it is told when it asks for votes is about another entry of that index.
func TestReplacedChangeIsNotTaken(t *testing.T) {
	c := newChaos(t, 0, 6, 1, 2, 3, 4, 5)
	one := c.members[1]
	one.core.campaign()
	c.settle()
	c.cut[1] = true
	p, err := newChangeProposal(removal(4, 5))
	if err != nil {
		t.Fatal(err)
	}
	one.core.props.waiting = append(one.core.props.waiting, p)
	one.turn()
	c.propose()
	c.propose() // so that its log is longer than the others'
	c.settle()
	if one.core.change == 0 {
		t.Fatal("the change is not in the log")
	}
	others := c.ids()[1:]
	for range 100 {
		c.tick(others, 1)
		if l := c.leader(others); l != nil {
			c.propose()
			c.settle()
			break
		}
	}
	c.check()
	if uint64(len(c.committed)) <= one.core.change {
		t.Fatalf("%d entries are committed, the change is entry %d", len(c.committed), one.core.change)
	}
	gone := c.leader(others).id
	c.members[gone].down = true
	c.restart(one)
	clear(c.cut)
	for _, id := range others {
		if id != gone {
			c.members[id].core.peerGone(gone)
		}
	}
	one = c.members[1]
	one.core.elections.promised = 0
	told := 0
	for range 10 {
		one.core.campaign()
		one.turn()
		msgs := c.net
		c.net = nil
		for _, m := range msgs {
			c.deliver(m)
			if id := m.GetTo(); id != 1 && id != gone {
				c.members[id].turn()
			}
		}
		for _, m := range c.net {
			if m.GetTo() == 1 && isElection(m) && m.GetCommit() >= one.core.change && one.core.change > 0 {
				told++
			}
		}
	}
	if told == 0 {
		t.Error("no member has told the deposed leader: the test does not test")
	}
	c.settle()
	c.check()
	c.members[gone].down = false
	c.restart(c.members[gone])
	c.peace()
}

func (c *chaos) leader(ids []uint64) *member {
	for _, id := range ids {
		if m := c.members[id]; m.core.stateNow().Role == Leader {
			return m
		}
	}
	return nil
}

// TestOlderVersions: members that send no hints, and ignore them, elect as before together with members that send them.
func TestOlderVersions(t *testing.T) {
	for mask := range 8 {
		t.Run(fmt.Sprintf("older=%03b", mask), func(t *testing.T) {
			c := newChaos(t, uint64(mask), 7, 1, 2, 3)
			c.older = func(id uint64) bool { return mask>>(id-1)&1 != 0 }
			c.members[1].core.campaign()
			c.settle()
			c.members[1].down = true
			c.tick(c.ids(), 40)
			c.members[1].down = false
			c.peace()
		})
	}
}
