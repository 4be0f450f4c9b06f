package node

import (
	"strings"
	"testing"
	"time"

	"trireme/internal/api"
	"trireme/internal/config"
	"trireme/internal/consensus"
	"trireme/internal/ha"
)

// A new leader goes on with what the leader before had suspended, in its words, and asks for the rest.
func TestRulesAreTakenOver(t *testing.T) {
	c := &config.Cluster{CommitZones: 2, Members: []config.Member{
		{ID: 1, Name: "n1", Role: config.RoleVoter, Zone: "a"}, {ID: 2, Name: "n2", Role: config.RoleVoter, Zone: "b", MustAck: true},
		{ID: 3, Name: "n3", Role: config.RoleLogger, MustAck: true}, {ID: 4, Name: "n4", Role: config.RoleVoter, MustAck: true, Removing: true}}}
	rules, names := rulesOf(c)
	if len(rules.MustAck) != 2 || rules.Zones != 2 || rules.Grace != config.DefaultCommitGrace || len(rules.ZoneOf) != 2 {
		t.Fatalf("%+v", rules)
	}
	r := &commitRules{names: names}
	r.gate.Set(rules, 0)
	r.on.Store(true)
	since := time.Now()
	r.heard(5, &api.CommitRulesView{Rules: []api.CommitRuleView{{Rule: "must_ack.n2"},
		{Rule: "must_ack.n3", Suspended: true, Since: &since, Why: "gone"}}})
	r.heard(4, &api.CommitRulesView{}) // of an older leader
	r.mu.Lock()
	r.matchLocked(consensus.Matches{Term: 6, Voters: []consensus.Match{{ID: 1, Index: 50}, {ID: 2, Index: 40}}}, 40)
	r.matchLocked(consensus.Matches{Term: 5, Voters: []consensus.Match{{ID: 2, Index: 60}}}, 60) // comes late
	states := r.gate.States(now(), 50)
	r.mu.Unlock()
	got := ""
	for _, s := range states {
		got += r.nameLocked(s.CommitRule) + map[bool]string{true: " suspended", false: " asked for"}[s.Suspended] + "; "
	}
	if want := "must_ack.n2 asked for; must_ack.n3 suspended; commit_zones=2 asked for; "; got != want {
		t.Errorf("%s, want %s", got, want)
	}
	if states[0].Behind != 10 || r.suspended[ha.CommitRule{Member: 3}].Why != "gone" {
		t.Errorf("%+v %+v", states, r.suspended)
	}
	if mustAck, zones := r.inForce(rules); len(mustAck) != 1 || mustAck[0] != 2 || zones != 2 {
		t.Errorf("%v %d are in force", mustAck, zones)
	}
}

// A rule that was in force on the leader before, and was only not met yet by what was older, is asked for. When it is met that is told.
func TestRuleInForceIsTakenOver(t *testing.T) {
	n := atRest(t, 1, 1, 1)
	runRaft(t, n)
	n.cluster.Members = []config.Member{{ID: 1, Name: "n1", Role: config.RoleVoter},
		{ID: 3, Name: "n3", Role: config.RoleVoter, MustAck: true}}
	r := &n.rules
	rules, names := rulesOf(n.cluster)
	r.names = names
	r.gate.Set(rules, 0)
	r.heard(5, &api.CommitRulesView{Rules: []api.CommitRuleView{{Rule: "must_ack.n3", Suspended: true}}})
	m := consensus.Matches{Term: 6, Voters: []consensus.Match{{ID: 1, Index: 50}}}
	r.mu.Lock()
	r.matchLocked(m, 40)
	r.gate.Add(41, now(), heldAck{})
	_, early := r.gate.Release()
	r.mu.Unlock()
	if early || len(r.suspended) != 0 {
		t.Errorf("OKs are given without n3: %+v", r.suspended)
	}
	n.tellRule(ha.RuleState{CommitRule: ha.CommitRule{Member: 3}}, m, 50)
	if all := n.history.all(); len(all) != 1 || all[0].Message != "must_ack.n3 is in force" {
		t.Errorf("%+v", all)
	}
}

func TestZoneText(t *testing.T) {
	for want, z := range map[string]api.ZoneView{
		"loss of zone a (1 of 3 voters): n2 would lead; nothing": {
			Zone: "a", Voters: 1, Leader: true, Quorum: true, Kept: true, To: "n2"},
		"loss of zone a (1 of 3 voters): writes go on, OKs wait for 10s first; nothing": {
			Zone: "a", Voters: 1, Quorum: true, Kept: true, Waits: true},
		"loss of zone a (2 of 3 voters): NO QUORUM, writes stop; nothing acknowledged is lost": {
			Zone: "a", Voters: 2, Kept: true, Waits: true},
		"loss of zone a (2 of 3 voters): NO QUORUM, writes stop; what is on disk there alone is lost": {
			Zone: "a", Voters: 2},
		"loss of zone a (1 of 3 voters): no other node could lead; nothing": {
			Zone: "a", Voters: 1, Leader: true, Quorum: true, Kept: true},
	} {
		if got := zoneText(z, 3, 10*time.Second); !strings.HasPrefix(got, want) {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
