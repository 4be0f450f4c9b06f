package ha

import (
	"fmt"
	"reflect"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// brokenRule returns what in acts breaks a rule of this package's contract, or "". It is written from the safety rules,
// not from Decide.
func brokenRule(v View, st State, acts []Action) string {
	phase := v.Serving.Phase
	fit := v.Server.State == ServerReady && v.Server.Stuck == "" && v.Server.Applier == "" && v.Raft.Stuck == "" &&
		v.Weight > 0 && !v.Stopping && v.Now >= v.Server.RetryAt
	// S7, S10: what serves, or will in a moment, without the right to.
	serving := phase == PhasePromoting || phase == PhaseOpen || phase == PhaseHandover && !v.Serving.Drained
	right := v.Raft.IsLeader && v.Serving.Term == v.Raft.Term && (v.Now <= v.Raft.LeaseUntil || phase == PhasePromoting)
	mustFence := serving && !right || phase != PhaseNone && phase != PhaseFencing && v.Server.State != ServerReady
	switch {
	case st.Why == "" || !slices.Contains([]string{StateStarting, StateRecovering, StateSeeding, StateCatchingUp,
		StateHealthy, StateFenced, StateDown}, st.Name):
		return fmt.Sprintf("state %q with the sentence %q", st.Name, st.Why)
	case len(acts) > 1:
		return "two actions at once"
	case mustFence && (len(acts) != 1 || acts[0].Kind != Fence):
		return "no fence"
	case len(acts) == 0:
		return ""
	}
	a := acts[0]
	var target *Peer
	for i := range v.Peers {
		if v.Peers[i].ID == a.To {
			target = &v.Peers[i]
		}
	}
	goodTarget := target != nil && target.Voter && target.Data && target.Live && target.Ready && target.Weight > 0
	pending := v.Raft.Transferee != 0
	switch {
	case a.Term != v.Raft.Term:
		return "an action of another term"
	case phase == PhaseFencing:
		return "an action together with a fence"
	case a.Kind == Fence && phase == PhaseNone:
		return "a fence although nothing serves"
	case a.Kind != Fence && a.Kind != Switchover && phase != PhaseNone:
		return "an action on a mysqld that another one works on"
	case a.Kind == Promote && (!v.Raft.IsLeader || !fit || pending):
		return "promotion of a node that must not lead"
	case a.Kind == HandOver && (!v.Raft.IsLeader || !goodTarget || pending):
		return "hand-over to a node that cannot lead, or together with another"
	case a.Kind == HandOver && fit && v.HandoverTriedTerm == v.Raft.Term:
		return "a second hand-over in one term by a node that can lead itself"
	case a.Kind == HandOver && fit && v.Raft.Asked:
		return "hand-over by a node that was asked to lead"
	case a.Kind == Switchover && (phase != PhaseOpen || !right || !goodTarget):
		return "switchover to a node that cannot lead"
	case a.Kind == Switchover && v.Request == nil && (v.Paused || !v.Stopping && (v.Raft.Full == "" || target.Full) &&
		(target.Weight <= v.Weight || v.Weight > 0 && v.FailbackAfter == 0)):
		return "switchover that was not asked for"
	case a.Kind == Promote && v.Paused && v.LastOpen != 0 && v.LastOpen != v.Self && !v.Raft.Asked:
		return "failover in a pause"
	case a.Kind == HandOver && v.Paused && v.LastOpen != 0 && a.To != v.LastOpen:
		return "hand-over in a pause to a node that did not lead"
	case a.Kind == Restart && (phase != PhaseNone || v.Server.State != ServerReady && v.Server.State != ServerUp ||
		v.Server.Stuck == "" ||
		v.Server.StuckSince == 0 || v.Now < v.Server.StuckSince+30*time.Second || v.Stopping):
		return "restart of a mysqld that must not be restarted"
	case a.Kind == StartServer && (v.Server.State != ServerOff || v.Stopping || v.Now < v.Server.RetryAt):
		return "start of a mysqld that must not be started"
	case a.Kind == Judge && (v.Server.State != ServerUp || v.Raft.Leader == 0 || v.Stopping):
		return "judgement that cannot be made"
	case a.Kind == Seed && (v.Server.State != ServerBehind || v.Raft.Leader == 0 || v.Stopping || v.Paused ||
		v.Now < v.Server.RetryAt):
		return "data thrown away that must be kept"
	}
	return ""
}

func drawView(t *rapid.T) View {
	few := rapid.Uint64Range(0, 3)
	applied := rapid.SampledFrom([]uint64{0, 100, 300, 400, 5000, 10000})
	moment := rapid.SampledFrom([]time.Duration{0, 98 * time.Second, 99 * time.Second, 100 * time.Second,
		101 * time.Second})
	v := View{
		Now:    100 * time.Second,
		Self:   1,
		Weight: rapid.SampledFrom([]int{0, 50, 100}).Draw(t, "weight"),
		Voter:  rapid.Bool().Draw(t, "voter"),
		Raft: Raft{
			Term: few.Draw(t, "term") + 1, Leader: few.Draw(t, "leader"), Commit: applied.Draw(t, "commit"),
			LeaseUntil: moment.Draw(t, "lease"), Asked: rapid.Bool().Draw(t, "asked"), Voters: 3,
			Stuck: rapid.SampledFrom([]string{"", "", "", "stuck log"}).Draw(t, "log stuck"),
			Full:  rapid.SampledFrom([]string{"", "", "", "full"}).Draw(t, "full"),
		},
		Server: Server{
			State:   ServerState(rapid.IntRange(0, len(serverStateNames)-1).Draw(t, "server")),
			Applied: applied.Draw(t, "applied"), Stuck: rapid.SampledFrom([]string{"", "", "", "stuck"}).Draw(t, "stuck"),
			Applier:    rapid.SampledFrom([]string{"", "", "", "stopped"}).Draw(t, "applier"),
			StuckSince: rapid.SampledFrom([]time.Duration{0, 70 * time.Second, 71 * time.Second}).Draw(t, "stuck since"),
			RetryAt:    moment.Draw(t, "retry"),
		},
		Serving: Serving{
			Phase: Phase(rapid.IntRange(0, len(phaseNames)-1).Draw(t, "phase")), Term: few.Draw(t, "serving term") + 1,
			Drained: rapid.Bool().Draw(t, "drained"),
		},
		HandoverTriedTerm: few.Draw(t, "tried"), HandoverAt: moment.Draw(t, "tried at"), HandoverTo: few.Draw(t, "tried to"),
		Stopping: rapid.Bool().Draw(t, "stopping"), Paused: rapid.Bool().Draw(t, "paused"),
		Open: few.Draw(t, "open"), LastOpen: few.Draw(t, "last open"),
		FailbackAfter: rapid.SampledFrom([]time.Duration{0, time.Second, time.Hour}).Draw(t, "failback"),
	}
	if v.Raft.IsLeader = v.Raft.Leader == v.Self; v.Raft.IsLeader {
		v.Raft.Transferee = rapid.SampledFrom([]uint64{0, 0, 2}).Draw(t, "transferee")
	}
	if rapid.Bool().Draw(t, "requested") {
		v.Request = &Transfer{To: few.Draw(t, "request")}
	}
	for id := uint64(2); id <= 4; id++ {
		v.Peers = append(v.Peers, Peer{
			ID: id, Name: fmt.Sprintf("n%d", id), Voter: rapid.Bool().Draw(t, "peer votes"), Data: rapid.Bool().
				Draw(t, "peer has data"),
			Live: rapid.Bool().Draw(t, "peer lives"), Ready: rapid.Bool().Draw(t, "peer is ready"),
			Applied: applied.Draw(t, "peer applied"), Weight: rapid.SampledFrom([]int{0, 50, 100}).Draw(t, "peer weight"),
			Since: moment.Draw(t, "peer since"), Full: rapid.SampledFrom([]bool{false, false, true}).Draw(t, "peer is full"),
			Stalled: rapid.SampledFrom([]bool{false, false, true}).Draw(t, "peer stalls"),
		})
	}
	return v
}

// TestDecideKeepsTheRules: no View, however odd, makes Decide break a rule, and Decide changes nothing and has no
// memory.
func TestDecideKeepsTheRules(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		v := drawView(t)
		before := v
		before.Peers = slices.Clone(v.Peers)
		st, acts := Decide(v)
		if why := brokenRule(v, st, acts); why != "" {
			t.Fatalf("%s: %v %v", why, st, acts)
		}
		again, actsAgain := Decide(v)
		if again != st || !slices.Equal(acts, actsAgain) {
			t.Fatalf("Decide said %v %v, then %v %v", st, acts, again, actsAgain)
		}
		if !reflect.DeepEqual(v, before) {
			t.Fatalf("Decide changed its View")
		}
	})
}

// TestRankIsATotalOrder: the ranking does not depend on the order of the peers, so all nodes name the same best one.
func TestRankIsATotalOrder(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		v := drawView(t)
		all := append([]Peer{self(v)}, v.Peers...)
		other := rapid.Permutation(all).Draw(t, "order")
		rank(all)
		rank(other)
		if !slices.Equal(all, other) {
			t.Fatalf("%v\n%v", all, other)
		}
		for i := 1; i < len(all); i++ {
			if all[i].canLead() && !all[i-1].canLead() {
				t.Fatalf("a node that cannot lead is ranked before one that can: %v", all)
			}
		}
	})
}

// TestNoHandoverInACircle: while the figures stay the same, following the preferences of nodes that can all lead ends
// at once at a node that keeps leadership, whichever was elected first.
func TestNoHandoverInACircle(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		applied := rapid.Uint64Range(0, 2000)
		all := []Peer{}
		for id := uint64(1); id <= 5; id++ {
			all = append(all, Peer{ID: id, Voter: true, Data: true, Live: true, Ready: true,
				Applied: applied.Draw(t, "applied"), Weight: rapid.IntRange(1, 4).Draw(t, "weight")})
		}
		leader := rapid.IntRange(0, len(all)-1).Draw(t, "elected")
		for moves := 0; ; moves++ {
			me := all[leader]
			v := View{Now: time.Minute, Self: me.ID, Weight: me.Weight, Voter: true,
				Raft:   Raft{Term: 9, Leader: me.ID, IsLeader: true},
				Server: Server{State: ServerReady, Applied: me.Applied}}
			for _, p := range all {
				if p.ID != me.ID {
					v.Peers = append(v.Peers, p)
				}
			}
			_, acts := Decide(v)
			if len(acts) != 1 {
				t.Fatalf("elected node does nothing: %v", acts)
			}
			if acts[0].Kind == Promote {
				return
			}
			if moves == 1 {
				t.Fatalf("node %d was chosen and hands over again: %v", me.ID, acts[0])
			}
			leader = slices.IndexFunc(all, func(p Peer) bool { return p.ID == acts[0].To })
		}
	})
}

func TestNames(t *testing.T) {
	for k := StartServer; k <= Seed; k++ {
		if k.String() == "" {
			t.Errorf("kind %d has no name", k)
		}
	}
	if got := (Action{Kind: HandOver, Term: 3, To: 2, Reason: "why"}).String(); got != "hand-over term=3 to=2 (why)" {
		t.Error(got)
	}
}

// TestStalledStandsBack: a follower whose applier is stuck, in a session's table lock for example, lacks a few entries
// only, and may lack them for ever. It campaigns after the others, is not the one that leadership goes to, and gives it
// away if it was elected all the same.
func TestStalledStandsBack(t *testing.T) {
	v := View{Now: time.Hour, Self: 2, Name: "n2", Weight: 1, Voter: true,
		Raft:   Raft{Term: 5, Voters: 3, Commit: 100},
		Server: Server{State: ServerReady, Applied: 95, Stalled: true},
		Peers: []Peer{{ID: 3, Name: "n3", Voter: true, Data: true, Live: true, Ready: true, Weight: 1, Applied: 100,
			Heard: true, Match: 100}}}
	if d := CampaignDelay(v, 1); d == 0 {
		t.Error("it campaigns at once")
	}
	v.Raft.IsLeader, v.Raft.Leader, v.Raft.LeaseUntil, v.Raft.Since = true, 2, 2*time.Hour, time.Hour
	_, acts := Decide(v)
	if len(acts) != 1 || acts[0].Kind != HandOver || acts[0].To != 3 {
		t.Errorf("elected, it does %v", acts)
	}
	v.Raft.Asked, v.HandoverAt = true, v.Now-time.Second // by a leader that had not heard of it yet
	if _, acts := Decide(v); len(acts) != 1 || acts[0].Kind != HandOver || acts[0].To != 3 {
		t.Errorf("asked to lead, it does %v", acts)
	}
	v.Server.Stalled = false
	if _, acts := Decide(v); len(acts) != 1 || acts[0].Kind != Promote {
		t.Errorf("with an applier that moves it does %v", acts)
	}
	v.Peers[0].Stalled = true
	v.Peers = append(v.Peers, Peer{ID: 4, Voter: true, Data: true, Live: true, Ready: true, Weight: 1, Applied: 90})
	if c := Candidates(v); len(c) != 2 || c[0].ID != 4 {
		t.Errorf("candidates: %v", c)
	}
}
