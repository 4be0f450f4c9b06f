package ackpath

import (
	"slices"
	"testing"
	"time"

	"trireme/internal/api"
	"trireme/internal/base/config"
	"trireme/internal/core/consensus"
	"trireme/internal/core/ha"
)

// TestRulesAreTakenOver: a new leader goes on with what the leader before had suspended, in its words, and asks for the
// rest.
func TestRulesAreTakenOver(t *testing.T) {
	c := &config.Cluster{CommitZones: 2, Members: []config.Member{
		{ID: 1, Name: "n1", Role: config.RoleVoter, Zone: "a"}, {ID: 2, Name: "n2", Role: config.RoleVoter,
			Zone: "b", MustAck: true},
		{ID: 3, Name: "n3", Role: config.RoleLogger, MustAck: true}, {ID: 4, Name: "n4", Role: config.RoleVoter,
			MustAck: true, Removing: true}}}
	wanted, _ := RulesOf(c)
	if len(wanted.MustAck) != 2 || wanted.Zones != 2 || wanted.Grace != config.DefaultCommitGrace ||
		len(wanted.ZoneOf) != 2 {
		t.Fatalf("%+v", wanted)
	}
	p, h := newTestPath()
	h.status.Role = consensus.Follower
	p.TickRules(c)
	since := time.Now()
	p.HeardRules(5, &api.CommitRulesView{Rules: []api.CommitRuleView{{Rule: "must_ack.n2"},
		{Rule: "must_ack.n3", Suspended: true, Since: &since, Why: "gone"}}})
	p.HeardRules(4, &api.CommitRulesView{}) // of an older leader
	h.status.Role, h.status.Term, h.status.Commit = consensus.Leader, 6, 40
	p.OnMatch(consensus.Matches{Term: 6, Voters: []consensus.Match{{ID: 1, Index: 50}, {ID: 2, Index: 40}}})
	p.OnMatch(consensus.Matches{Term: 5, Voters: []consensus.Match{{ID: 2, Index: 60}}}) // comes late
	r := &p.rules
	states := r.gate.States(realTime.Now(), 50)
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
	if mustAck, zones := p.InForce(wanted); len(mustAck) != 1 || mustAck[0] != 2 || zones != 2 {
		t.Errorf("%v %d are in force", mustAck, zones)
	}
}

// TestRuleInForceIsTakenOver: a rule that was in force on the leader before, and was only not met yet by what was
// older, is asked for. When it is met that is told.
func TestRuleInForceIsTakenOver(t *testing.T) {
	c := &config.Cluster{Members: []config.Member{{ID: 1, Name: "n1", Role: config.RoleVoter},
		{ID: 3, Name: "n3", Role: config.RoleVoter, MustAck: true}}}
	p, h := newTestPath()
	h.status.Role = consensus.Follower
	p.TickRules(c)
	p.HeardRules(5, &api.CommitRulesView{Rules: []api.CommitRuleView{{Rule: "must_ack.n3", Suspended: true}}})
	h.status.Role = consensus.Leader
	commit(t, p, barrier(), transaction(2, 0))
	if len(h.acked) > 0 || len(p.rules.suspended) != 0 {
		t.Errorf("OKs are given without n3: %d %+v", h.acked, p.rules.suspended)
	}
	if w := p.LongestWait(); w.Rule != "must_ack.n3" || w.Entries != 1 || w.Grace != config.DefaultCommitGrace {
		t.Errorf("%+v", w)
	}
	h.status.Commit = 2
	h.matches = consensus.Matches{Term: 7, Voters: []consensus.Match{{ID: 1, Index: 2}, {ID: 3, Index: 2}}}
	p.OnMatch(h.matches)
	if !slices.Equal(h.acked, []uint64{104}) || p.LongestWait() != (Wait{}) {
		t.Errorf("n3 has it: %d", h.acked)
	}
	if p.TickRules(c); len(h.told) > 0 {
		t.Errorf("it was in force: %q", h.told)
	}
	p.tellRule(ha.RuleState{CommitRule: ha.CommitRule{Member: 3}}, h.matches, 2)
	if !slices.Equal(h.told, []string{"must_ack.n3 is in force"}) {
		t.Errorf("%q", h.told)
	}
	if v := p.Rules(); len(v.Rules) != 1 || v.Rules[0].Suspended {
		t.Errorf("%+v", v)
	}
}
