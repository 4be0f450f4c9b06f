package dashboard

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"trireme/internal/api"
)

// TestSteps: what to do about what is wrong, with the names of nodes, and to wait while one has just started; nothing
// where all is well.
func TestSteps(t *testing.T) {
	// view has a leader n1, if leads, and followers. A state with a disk, such as healthy/data, is of one that is full.
	view := func(leads bool, states ...string) (v api.ClusterView) {
		for i, state := range states {
			state, full, _ := strings.Cut(state, "/")
			m := api.MemberView{Name: "n" + string(rune('1'+i)), Role: api.RoleFollower, State: state, DiskFull: full,
				MySQL: &api.MySQLView{}, Raft: api.RaftView{Voter: true}}
			if leads && i == 0 {
				m.Role, v.Leader, v.Failover.To = api.RoleLeader, m.Name, "n2"
			}
			v.Members = append(v.Members, m)
		}
		return v
	}
	alone := func(v api.ClusterView) api.ClusterView { v.Failover.To = ""; return v }
	inDoubt := func(v api.ClusterView) api.ClusterView { v.Doubt = "n2 has not heard from the cluster yet"; return v }
	pausedView := view(false, "healthy", "healthy")
	pausedView.Pause = &api.PauseView{}
	pausedAndDown := view(false, "starting", "healthy", "down")
	pausedAndDown.Pause = &api.PauseView{}
	whyNot := "ask each data node why it does not lead: `trireme why-not "
	logs := "`systemctl status trireme`, then `journalctl -u trireme -n 100` (TriremeNodeDown)"
	for name, c := range map[string]struct {
		v    api.ClusterView
		want string // texts, and their sections
	}{
		"all is well": {view(true, "healthy", "healthy", "healthy"), ""},
		"a node down": {view(true, "healthy", "down", "healthy"), "on n2: " + logs},
		"one fenced": {view(true, "healthy", "fenced", "healthy"),
			"read the reason of n2 above, or `trireme why-not NODE` (TriremeNotReady)"},
		"a full disk": {view(true, "healthy", "healthy/data"),
			"make room on n2: mysqld and the daemon continue by themselves (TriremeDiskFull)"},
		"a full disk is why": {view(true, "healthy", "fenced/data"),
			"make room on n2: mysqld and the daemon continue by themselves (TriremeDiskFull)"},
		"no leader":   {view(false, "healthy", "healthy", "down"), whyNot + "NODE` (TriremeNoWrites)\non n3: " + logs},
		"no majority": {inDoubt(view(false, "healthy", "down", "down")), "on n2, n3: " + logs},
		"the only node starts": {view(false, "starting"),
			"wait some seconds for the start of n1; if nothing changes: " + whyNot + "n1` (TriremeNoWrites)"},
		"it has just joined": {inDoubt(view(false, "down", "starting")),
			"wait some seconds for the start of n2; if nothing changes: on n1: " + logs},
		"two voters": {alone(view(true, "healthy", "healthy")), "add voters until there are 3, which survive the loss " +
			"of one: `trireme add NAME`; a node that has just joined gets its vote by itself (TriremeNoFailover)"},
		"no candidate": {alone(view(true, "healthy", "healthy", "healthy")),
			"ask n2, n3 why not: `trireme why-not NODE` (TriremeNoFailover)"},
		"down is why": {alone(view(true, "healthy", "down", "down")), "on n2, n3: " + logs},
		"a failover during a pause": {pausedView,
			"have another node lead: `trireme resume`, or `trireme failover` during the pause (TriremePaused)"},
		"during a pause, and one is down": {pausedAndDown,
			"have another node lead: `trireme resume`, or `trireme failover` during the pause (TriremePaused)\non n3: " + logs},
		"fenced, and in doubt": {inDoubt(view(false, "fenced")),
			"read the reason of n1 above, or `trireme why-not n1` (TriremeNotReady)"},
	} {
		var got []string
		for _, p := range Steps(Problems(c.v, "above")) {
			got = append(got, p.Do+" ("+p.Docs+")")
		}
		if text := strings.Join(got, "\n"); text != c.want {
			t.Errorf("%s: %s\nnot %s", name, text, c.want)
		}
	}
}

// TestKindsAreTold: docs says more of each kind of problem, where its declaration says.
func TestKindsAreTold(t *testing.T) {
	source, err := os.ReadFile("problems.go")
	if err != nil {
		t.Fatal(err)
	}
	alerts, err := os.ReadFile("../../../docs/ops/alerts.md")
	if err != nil {
		t.Fatal(err)
	}
	kinds := regexp.MustCompile(`= kind\{level\w+, "(.+)", "(.+)"\}\n`).FindAllSubmatch(source, -1)
	if len(kinds) != strings.Count(string(source), "= kind{") || len(kinds) < 15 {
		t.Errorf("%d kinds", len(kinds))
	}
	for _, k := range kinds {
		docs := string(k[2])
		if strings.HasPrefix(docs, "Trireme") {
			if !strings.Contains(string(alerts), "\n## "+docs+"\n") {
				t.Errorf("%s: docs/ops/alerts.md has no section %s", k[1], docs)
			}
		} else if _, err := os.Stat("../../../docs/" + docs); err != nil {
			t.Errorf("%s: %v", k[1], err)
		}
	}
}
