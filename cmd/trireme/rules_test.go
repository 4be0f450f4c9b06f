package main

import (
	"strings"
	"testing"
	"time"

	"trireme/internal/api"
)

func TestStatusShowsCommitRules(t *testing.T) {
	at := time.Date(2026, 11, 21, 13, 0, 0, 0, time.Local)
	v := api.ClusterView{Leader: "n1", Failover: api.FailoverView{To: "n2"},
		CommitRules: &api.CommitRulesView{GraceSeconds: 10, Rules: []api.CommitRuleView{
			{Rule: "must_ack.n2"},
			{Rule: "must_ack.n3", Suspended: true, Since: &at, Why: "n3: not heard of for 12.0 s", Waiting: 4,
				WaitingSeconds: 10},
			{Rule: "commit_zones=2", Waiting: 3, WaitingSeconds: 2.5, Why: "n2: 7 entries missing in zone b"}}},
		Zones: []api.ZoneView{{Zone: "a", Leader: true, Text: "loss of a"}, {Zone: "b", Warning: true, Text: "loss of b"},
			{Zone: "c", Text: "loss of c"}}}
	var b strings.Builder
	printStatus(&b, false, v)
	for _, want := range []string{
		"commits are acknowledged with must_ack.n2 must_ack.n3 commit_zones=2; suspended after 10s\n",
		"must_ack.n3 is SUSPENDED since ", "(n3: not heard of for 12.0 s)",
		"COMMITS WAIT for commit_zones=2, the oldest for 2.5 s (n2: 7 entries missing in zone b)\n",
		"\nloss of a\n", "\nWARNING: loss of b\n"} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("no %q in:\n%s", want, b.String())
		}
	}
	if strings.Contains(b.String(), "loss of c") {
		t.Errorf("what is no news is shown:\n%s", b.String())
	}
	for line := range strings.Lines(b.String()) {
		if len([]rune(line)) > 101 {
			t.Errorf("%d columns: %s", len([]rune(line)), line)
		}
	}
}
