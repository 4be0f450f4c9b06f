package dashboard

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"trireme/internal/api"
)

// TestPicture: the sentences that are drawn say who leads, what is lost, and what a further loss would do, and claim
// nothing of who is silent.
func TestPicture(t *testing.T) {
	texts := func(f *fake) string {
		p := described(t, f).Picture
		all := []string{p.Summary}
		for _, n := range p.Nodes {
			all = append(all, n.Name+" "+n.Words())
		}
		for _, o := range p.Outlook {
			all = append(all, o.Level+" "+o.Word+": "+o.Text)
		}
		return strings.Join(all, "\n")
	}
	two := healthy() // n3 is down: no further voter may be lost
	two.view.Members[2].State, two.view.Members[2].AgeSeconds = api.StateDown, nil
	cut := healthy()
	cut.view.Members[0].Links[1] = api.LinkView{To: "n3", Error: "connection refused"}
	must := healthy()
	must.view.Members[2].Raft.MustAck, must.view.CommitRules = true, &api.CommitRulesView{GraceSeconds: 10}
	lone := healthy()
	lone.view.Failover = api.FailoverView{Problem: "n2 and n3 lag"}
	leaderless := healthy()
	leaderless.view.Leader = ""
	paused := healthy()
	paused.view.Pause = &api.PauseView{}
	for _, c := range []struct {
		name  string
		fake  *fake
		wants []string
		not   string
	}{
		{"healthy", healthy(), []string{"n1 leads and sends its log to n2, n3.",
			"n1 leads in zone aachen, healthy, log up to #1\u202f841\u202f233, 12 sessions through its router",
			"n3 is a follower in zone berlin, healthy, round trip to the leader 0.24 ms, lag 0.4 s", "good Lost now: nothing.",
			"good Votes: 3 of 3 answer as far as n2 hears, 2 are needed: the majority survives the loss of 1 more.",
			"good Loss of n1: n2 leads in about 0.8 s, or 1.6 s if", "warn Loss of zone aachen: NO QUORUM",
			"good Loss of zone berlin: writes continue"}, "stops"},
		{"two of three", two, []string{"n1 leads and sends its log to n2.",
			"n2 is a follower in zone aachen, healthy, round trip to the leader 0.21 ms, lag 0.0 s, log up to #1\u202f841\u202f233, its loss stops writes", "n3 is a follower in zone berlin, down", "bad Lost now: n3 (down).", "warn Votes: 2 of 3 answer as far as n2 hears, 2 are needed: the loss of one more stops writes."}, "down, "},
		{"no quorum", headless(), []string{"There is no leader: nothing is written.", "bad Lost now: n1 (down), n2 (down).",
			"bad Votes: 1 of 3 answer as far as l1 hears, 2 are needed: writes stay refused until 1 more answer",
			"bad Leader: there is none; writes are refused until"}, "sends its log"},
		{"nothing heard", fresh(), []string{"warn Votes: who leads is not known"}, "0 are needed"},
		{"a broken way", cut, []string{"not reached: connection refused", "n1 leads and sends its log to n2."},
			"0.24 ms, not"},
		{"a rule", must,
			[]string{
				"n3 is a follower in zone berlin, healthy, round trip to the leader 0.24 ms, lag 0.4 s, log up to #1\u202f841\u202f233, its loss holds commits for 10 s"}, "stops"},
		{"no candidate", lone, []string{"12 sessions", "its loss stops writes",
			"bad Loss of n1: no node could take over: n2 and n3 lag"}, "leads in about"},
		{"a failover under way", leaderless, []string{"There is no leader: nothing is written.",
			"warn Lost now: not known yet;", "good Votes: 3 of 3", "bad Leader: there is none"}, "Loss of"},
		{"a failover under way, lag", leaderless, nil, "lag"},
		{"paused", paused, []string{"warn Loss of n1: failover is paused"}, "leads in about"},
	} {
		got := texts(c.fake)
		for _, want := range c.wants {
			if !strings.Contains(got, want) {
				t.Errorf("%s: no %q in\n%s", c.name, want, got)
			}
		}
		if strings.Contains(got, c.not) {
			t.Errorf("%s: %q in\n%s", c.name, c.not, got)
		}
	}
}

// TestJoiners: a node on its way in is told of until it is there; the tables of what sessions do are short, and say who
// is missing.
func TestJoiners(t *testing.T) {
	f := healthy()
	if got := described(t, f).Joining; len(got) != 0 {
		t.Errorf("%+v", got)
	}
	m := f.view.Members
	m[0].ReasonCode = api.NeverStarted
	m[1].State, m[1].Seed = api.StateSeeding, &api.SeedView{From: "n1", DoneBytes: 3 << 30, TotalBytes: 4 << 30,
		BytesPerSecond: 1 << 20}
	m[2].State, m[2].Reason = api.StateCatchingUp, "it applies the log"
	if got := described(t, f).Joining; len(got) != 2 {
		t.Errorf("a voter that lags is on its way in: %+v", got)
	}
	m[2].Raft.Voter = false
	want := []joiner{{"n1", "has joined. Start its daemon: systemctl enable --now trireme", ""},
		{"n2", "copies the data of n1: 3.0 GiB of about 4.0 GiB, 75%, about 17 min left", "75%"},
		{"n3", "is catching-up: it applies the log", ""}}
	if got := described(t, f).Joining; !slices.Equal(got, want) {
		t.Errorf("%+v", got)
	}
	b := busyOf(recorded(busySpan, 10*time.Second), nil)
	if b.Problem != "n4 is missing: https://n4:8008 does not answer" || len(b.Tables) != 2 || len(b.Tables[0].Rows) != 4 ||
		len(b.Tables[1].Rows) != busyRows ||
		len(b.Tables[0].Rows[1][0]) > 170 || b.Tables[1].Rows[0][2] != "commit: a majority" {
		t.Errorf("%+v", b)
	}
	if b := busyOf(api.Report{}, errors.New("no")); b.Problem != "no" || b.Until != "" {
		t.Errorf("%+v", b)
	}
}
