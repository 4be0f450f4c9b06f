package membership

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"go.etcd.io/raft/v3/confchange"
	"go.etcd.io/raft/v3/quorum"
	"go.etcd.io/raft/v3/raftpb"
	"go.etcd.io/raft/v3/tracker"

	"trireme/internal/base/config"
)

// testStandings reads members such as "1v 2V- 3l+": the id; v voter, l learner, n not there in raft's membership;
// then: - its vote is due to be taken, x it leaves, + it gets a vote, . it has not caught up, p pending, d
// down, and a digit: its move.
func testStandings(text string) []standing {
	var all []standing
	for i, f := range strings.Fields(text) {
		s := standing{Member: config.Member{ID: uint64(i + 1), Name: "n" + f[:1], Role: config.RoleLearner}, live: true,
			caughtUp: true}
		for _, flag := range f[1:] {
			switch flag {
			case 'v':
				s.voter, s.Role = true, config.RoleVoter
			case 'l':
				s.learner = true
			case '-':
				s.Role = config.RoleLearner
			case '+':
				s.Role = config.RoleVoter
			case 'x':
				s.Removing = true
			case '.':
				s.caughtUp = false
			case 'p':
				s.Pending = true
			case 'd':
				s.live, s.caughtUp = false, false
			case 'n':
			default:
				s.Move = uint64(flag - '0')
			}
		}
		all = append(all, s)
	}
	return all
}

// TestNextStep: what is due is done in one change, in which no vote is given up before those that replace it can
// take theirs.
func TestNextStep(t *testing.T) {
	for _, tt := range []struct {
		members string // 1 is the leader
		refused bool   // the rest cannot do without those that leave
		want    string
	}{
		{"1v 2v 3v", false, ""},
		{"1v 2v 3v 4n+", false, "n4 was added as learner"},
		{"1v 2v 3v 4np+d", false, ""},
		{"1v 2v 3v 4np+ 5n", false, "n4 was added as learner, n5 was added as learner"},
		{"1v 2v 3v 4l+", false, "n4 was made a voter"},
		{"1v 2v 3v 4l+.", false, ""},
		{"1v 2v 3v 4l+ 5l+", false, "n4 was made a voter, n5 was made a voter"},
		{"1v 2v 3vx", false, "n3 was removed"},
		{"1v 2v 3vx", true, ""},
		{"1v 2v 3nx", false, ""},
		{"1v 2v 3lx", true, "n3 was removed"},
		{"1v 2v 3v-", false, "n3 was made a learner"},
		{"1v- 2v 3v", false, ""}, // hands over first
		{"1v 2v 3vx 4l+.", false, "n3 was removed"},
		{"1v 2v 3vxd9 4l+9", false, "n4 was made a voter, n3 was removed"},
		{"1v 2v 3vxd9 4l+9", true, ""},
		{"1v 2v 3vxd9 4l+.9", false, ""},
		{"1v 2v 3vxd9 4n+9", false, "n4 was added as learner"},
		{"1v-9 2v-9 3v-9 4l+9 5l+9 6l+.9", false, ""},
		{"1v-9 2v-9 3v-9 4l+9 5l+9 6l+9", false,
			"n4 was made a voter, n5 was made a voter, n6 was made a voter, n2 was made a learner, n3 was made a learner"},
		{"1v 2v-9 3v-9 4l+9 5l+9 6lx9", false,
			"n6 was removed, n4 was made a voter, n5 was made a voter, n2 was made a learner, n3 was made a learner"},
		{"1v 2v-9 3v 4l+.9 5vx 6l+8", false, "n6 was made a voter, n5 was removed"},
		{"1v 2v 3v 4l+9 5vx", true, ""},
		{"1v 2v 3v 4l+ 5vx", true, "n4 was made a voter"},
	} {
		s, held := nextStep(1, testStandings(tt.members), func(_, out []uint64) error {
			if tt.refused {
				return errors.New("refused")
			}
			return nil
		})
		if got := strings.Join(s.texts, ", "); got != tt.want {
			t.Errorf("%s: %q, want %q", tt.members, got, tt.want)
		}
		if held != nil && !tt.refused {
			t.Errorf("%s: held up: %v", tt.members, held)
		}
	}
}

// TestSettleRecords: the record of what is done goes, and a move lasts until its member has given or taken its vote,
// also when that one has just joined: the others of the move would not wait for it.
func TestSettleRecords(t *testing.T) {
	for _, tt := range []struct{ before, want string }{
		{"1v 2lp+", "n1 n2"},
		{"1v 2np+", "n1 n2 pending"},
		{"1v 2lp+9", "n1 n2 move"},
		{"1v 2vp+9", "n1 n2"},
		{"1v 2v+9", "n1 n2"},
		{"1v 2v-9", "n1 n2 move"},
		{"1v 2nx 3vx", "n1 n3"},
	} {
		all := testStandings(tt.before)
		c := &config.Cluster{}
		for _, s := range all {
			c.Members = append(c.Members, s.Member)
		}
		if err := settleRecords(c, all); err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, m := range c.Members {
			got = append(got, m.Name)
			if m.Pending {
				got = append(got, "pending")
			}
			if m.Move != 0 {
				got = append(got, "move")
			}
		}
		if s := strings.Join(got, " "); s != tt.want {
			t.Errorf("%s: %q, want %q", tt.before, s, tt.want)
		}
	}
}

// TestStepsNeverWeaken carries random wishes out, with a new leader now and then, as raft does, and checks that every
// configuration on the way bears as many losses as the weaker of the first and the last one, that no vote is taken
// from the leader, and that the wish is reached.
func TestStepsNeverWeaken(t *testing.T) {
	for seed := range uint64(300) {
		rnd := rand.New(rand.NewPCG(seed, 7))
		before, move := 3+2*rnd.IntN(2), 1+rnd.IntN(3)
		var all []standing
		for i := range before + move {
			s := standing{Member: config.Member{ID: uint64(i + 1), Name: fmt.Sprint("n", i+1), Role: config.RoleVoter, Move: 9},
				live: true}
			if s.voter = i < before; s.voter && i < move {
				s.Role = config.RoleLearner
				s.Removing = rnd.IntN(2) == 0
			} else if s.voter {
				s.Move = 0
			}
			all = append(all, s)
		}
		rnd.Shuffle(before, func(i, j int) { all[i], all[j] = all[j], all[i] })
		g := newRaftModel(before, all)
		for turn := 0; ; turn++ {
			if turn > 100 {
				t.Fatalf("seed %d: no end: %+v", seed, all)
			}
			voters := g.voters()
			self := voters[rnd.IntN(len(voters))] // a hand-over or a failover
			for i := range all {
				all[i].caughtUp = all[i].learner && (all[i].caughtUp || rnd.IntN(3) == 0)
			}
			s, _ := nextStep(self, all, func(_, _ []uint64) error { return nil })
			if len(s.changes) > 0 {
				g.apply(t, s.changes)
			}
			if voters = g.voters(); len(voters) < before || !slices.Contains(voters, self) {
				t.Fatalf("seed %d: %d led, voters are %v, there were %d", seed, self, voters, before)
			}
			g.show(all)
			if len(voters) == before && !slices.ContainsFunc(all, func(s standing) bool { return s.leaves() || s.enters() }) {
				break
			}
		}
	}
}

// raftModel is the membership as raft computes it.
type raftModel struct{ c confchange.Changer }

func newRaftModel(voters int, all []standing) *raftModel {
	g := &raftModel{confchange.Changer{Tracker: tracker.MakeProgressTracker(10, 1<<20), LastIndex: 1}}
	for _, s := range all[:voters] {
		cfg, prs, err := g.c.Simple(&raftpb.ConfChangeSingle{Type: raftpb.ConfChangeAddNode.Enum(), NodeId: &s.ID})
		if err != nil {
			panic(err)
		}
		g.c.Tracker.Config, g.c.Tracker.Progress = cfg, prs
	}
	return g
}

func (g *raftModel) voters() []uint64 { return quorum.JointConfig{g.c.Tracker.Voters[0]}[0].Slice() }

// apply is what the leader's raft does with a change.
func (g *raftModel) apply(t *testing.T, changes []*raftpb.ConfChangeSingle) {
	t.Helper()
	cc := raftpb.ConfChangeV2{Changes: changes}
	if auto, joint := cc.EnterJoint(); !joint {
		cfg, prs, err := g.c.Simple(changes...)
		if err != nil {
			t.Fatal(err)
		}
		g.c.Tracker.Config, g.c.Tracker.Progress = cfg, prs
		return
	} else if !auto {
		t.Fatal("no node would leave the joint configuration")
	}
	cfg, prs, err := g.c.EnterJoint(true, changes...)
	if err != nil {
		t.Fatal(err)
	}
	g.c.Tracker.Config, g.c.Tracker.Progress = cfg, prs
	if cfg, prs, err = g.c.LeaveJoint(); err != nil {
		t.Fatal(err)
	}
	g.c.Tracker.Config, g.c.Tracker.Progress = cfg, prs
}

// show writes the membership into the standings.
func (g *raftModel) show(all []standing) {
	for i := range all {
		_, all[i].voter = g.c.Tracker.Voters[0][all[i].ID]
		_, all[i].learner = g.c.Tracker.Learners[all[i].ID]
	}
}
