package main

import (
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"trireme/internal/api"
	"trireme/internal/ops/cli"
)

// TestStatusTellsOfLogs: whose log cannot be purged, one line for each reason.
func TestStatusTellsOfLogs(t *testing.T) {
	member := func(name, pinned, state string) api.MemberView {
		return api.MemberView{Name: name, State: state, Raft: api.RaftView{LogBytes: 5 << 30, LogPinned: pinned}}
	}
	v := api.ClusterView{Leader: "n1", Members: []api.MemberView{
		member("n1", "n2 is away", api.StateHealthy),
		member("n2", "n2 is away", api.StateDown),
		member("l1", "n2 is away", api.StateHealthy),
		member("r1", "r1 recovers", api.StateHealthy),
	}}
	var b strings.Builder
	printStatus(&b, false, v)
	for _, want := range []string{
		"raft log cannot be purged on n1 (5120 MiB), l1 (5120 MiB): n2 is away\n",
		"raft log cannot be purged on r1 (5120 MiB): r1 recovers\n",
	} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("no %q in:\n%s", want, b.String())
		}
	}
}

// TestStatusTellsOfOldBackups: one line when a backup is too old, and none when it is not or none is known.
func TestStatusTellsOfOldBackups(t *testing.T) {
	for want, b := range map[string]*api.BackupView{
		"WARNING: the backup is old: the newest copy is 9 d old (TriremeBackupOld); the log is archived " +
			"up to 2 h ago (TriremeArchiveOld)": {Copy: &api.BackupCopy{}, CopyAgeS: 9 * 86400,
			Archive: &api.BackupArchive{}, ArchiveAgeS: 7300},
		"": {Copy: &api.BackupCopy{}, CopyAgeS: 86400},
	} {
		var out strings.Builder
		printStatus(&out, false, api.ClusterView{Leader: "n1", Backup: b})
		if got := strings.Join(strings.Fields(out.String()), " "); !strings.Contains(got, want) ||
			want == "" && strings.Contains(got, "backup") {
			t.Errorf("no %q in:\n%s", want, out.String())
		}
	}
}

// TestStatusTellsOfVirtualAddresses: who holds each, if anybody; what a node that is down said last does not count.
func TestStatusTellsOfVirtualAddresses(t *testing.T) {
	member := func(name, state string, held ...bool) api.MemberView {
		return api.MemberView{Name: name, State: state,
			VIPs: []api.VIPView{{Address: "10.0.0.100", Access: "read-write", Held: held[0]},
				{Address: "10.0.0.101", Access: "read-only", Held: held[1]}}}
	}
	var b strings.Builder
	printStatus(&b, false, api.ClusterView{Leader: "n1", Members: []api.MemberView{
		member("n1", api.StateHealthy, true, false), member("n2", api.StateDown, true, true),
		member("n3", api.StateHealthy, false, false)}})
	for _, want := range []string{"virtual address 10.0.0.100 (read-write): n1\n",
		"virtual address 10.0.0.101 (read-only): no node\n"} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("no %q in:\n%s", want, b.String())
		}
	}
}

// TestTopology: everybody is drawn once, under the leader.
func TestTopology(t *testing.T) {
	lag := 1.25
	member := func(name, role, state string) api.MemberView {
		m := api.MemberView{Name: name, Role: role, State: state, Daemon: api.DaemonView{API: name + ":8008"}}
		if role != api.RoleLogger {
			m.MySQL = &api.MySQLView{LagSeconds: &lag}
		}
		return m
	}
	v := api.ClusterView{Leader: "n1", Members: []api.MemberView{
		member("r1", api.RoleLearner, api.StateHealthy),
		member("n1", api.RoleLeader, api.StateHealthy),
		member("l1", api.RoleLogger, api.StateHealthy),
		member("n2", api.RoleFollower, api.StateDown),
	}}
	v.Members[1].Raft.Zone = "a"
	v.Members[1].Links = []api.LinkView{{To: "l1", RTTMS: 0.34}, {To: "r1", RTTMS: 9}}
	var b strings.Builder
	printTopology(&b, false, v)
	want := `n1  leader, healthy, zone a, n1:8008
├─ r1  learner, healthy, r1:8008, 9.0 ms, lags by 1.2 s
├─ l1  logger, healthy, l1:8008, 0.3 ms
└─ n2  follower, down, n2:8008
`
	if b.String() != want {
		t.Errorf("%s", b.String())
	}
	b.Reset()
	v.Leader = ""
	printTopology(&b, false, v)
	if !strings.HasPrefix(b.String(), "no leader\n├─ r1  learner") {
		t.Errorf("%s", b.String())
	}
}

// TestStatusTellsOfHeavyWork: what is under way, what it adds to a failover, and who slows commits.
func TestStatusTellsOfHeavyWork(t *testing.T) {
	v := api.ClusterView{Leader: "n1", Failover: api.FailoverView{To: "n2", Seconds: 41, HostLostSeconds: 42,
		HeavySeconds: 40},
		Flow: &api.FlowView{ObjectiveSeconds: 5, DelaySeconds: 0.125, Node: "n2", BacklogSeconds: 3.75},
		Members: []api.MemberView{{Name: "n1", State: api.StateHealthy, Heavy: []api.HeavyView{
			{Kind: api.HeavyTransaction, Text: "uuid:7", Bytes: 512 << 20, AgeSeconds: 2, Done: 0.25, ReplaySeconds: 32},
			{Kind: api.HeavyDDL, Text: "ALTER TABLE shop.orders ADD c INT", AgeSeconds: 40, ReplaySeconds: 40}}}}}
	var b strings.Builder
	printStatus(&b, false, v)
	got := strings.Join(strings.Fields(b.String()), " ")
	for _, want := range []string{
		"about 41.0 s (42.0 s if the leader's host or link is lost); 40.0 s of it for large transactions and DDL",
		"commits are slowed by 125 ms each: n2 needs 3.8 s for what it has still to apply, lag_objective is 5s",
		"under way for 2 s (25 %): a transaction of 512 MiB, uuid:7; once it is committed a follower applies it for about 32 s",
		"under way for 40 s: ALTER TABLE shop.orders ADD c INT; once it is committed a follower applies it for about 40 s",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("no %q in:\n%s", want, b.String())
		}
	}
}

func TestProgressText(t *testing.T) {
	for want, got := range map[string]string{
		"copying: [#####...............] 25 of 100 MiB": progressText("copying", 0, 25, 100,
			" MiB", time.Second/2),
		"copying: [##########..........] 50 of 100 MiB, 10 MiB/s, about 5s left": progressText("copying", 0, 50, 100,
			" MiB", 5*time.Second),
		"applying: [##########..........] 50 of 100, 4/s, about 13s left": progressText("applying", 10, 50, 100,
			"", 10*time.Second),
		"applying: [####################] 100 of 100, 10/s": progressText("applying", 0, 100, 100,
			"", 10*time.Second),
		"reading: 7 MiB, 7 MiB/s": progressText("reading", 0, 7, 0,
			" MiB", time.Second),
		"copying: [....................] 0 of 100 MiB": progressText("copying", 0, 0, 100,
			" MiB", time.Minute),
	} {
		if got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

// TestStatusTellsOfTiedSessions: status lists, over all nodes that answer, the sessions that a planned switchover would
// end; if there are no such sessions, nothing.
func TestStatusTellsOfTiedSessions(t *testing.T) {
	member := func(name, state string, tied map[string]int) api.MemberView {
		return api.MemberView{Name: name, State: state, Router: api.RouterView{TiedSessions: tied}}
	}
	v := api.ClusterView{Leader: "n1", Members: []api.MemberView{
		member("n1", api.StateHealthy, map[string]int{"user locks": 1, "temporary tables": 1}),
		member("n2", api.StateHealthy, map[string]int{"temporary tables": 1}),
		member("n3", api.StateDown, map[string]int{"LOCK TABLES": 1})}}
	var b strings.Builder
	printStatus(&b, false, v)
	if want := "\n3 sessions cannot be carried over a switchover: temporary tables (2), user locks (1)\n"; !strings.Contains(b.String(), want) {
		t.Errorf("no %q in:\n%s", want, b.String())
	}
	b.Reset()
	v.Members = v.Members[2:]
	printStatus(&b, false, v)
	if strings.Contains(b.String(), "carried") {
		t.Errorf("%s", b.String())
	}
}

// TestHourLines: each minute shows the worst that happened in it, and older events are left out.
func TestHourLines(t *testing.T) {
	now := time.Date(2026, 3, 4, 12, 0, 0, 0, time.UTC)
	at := func(minutes int, kind string, gap float64) api.Event {
		return api.Event{Time: now.Add(-time.Duration(minutes) * time.Minute), Kind: kind, GapMS: gap}
	}
	lines := hourLines(false, []api.Event{at(75, "failover", 9000), at(30, "down", 0), at(30, "failover", 1100),
		at(30, "rejoin", 0), at(5, "switchover", 70), at(1, "settings", 0)}, now)
	picture := strings.Repeat("─", 29) + "×" + strings.Repeat("─", 24) + "o" + strings.Repeat("─", 3) + "·─"
	want := []string{"", "last hour  " + picture,
		"           × 1 failover, o 1 switchover or election, longest time without writes 1.1 s, · 3 other events: `trireme history`"}
	if !slices.Equal(lines, want) {
		t.Errorf("%q, want %q", lines, want)
	}
	if lines = hourLines(false, nil, now); len(lines) != 2 || lines[1] != "last hour  "+strings.Repeat("─", 60) {
		t.Errorf("nothing happened: %q", lines)
	}
}

// TestStatusSaysWhatToDo: of what is wrong, with the section of the documentation that says more.
func TestStatusSaysWhatToDo(t *testing.T) {
	var b strings.Builder
	printStatus(&b, false, api.ClusterView{Doubt: "nothing is heard", SeenBy: "n1", Members: []api.MemberView{
		{Name: "n1", State: api.StateHealthy, DiskFull: "/data"}, {Name: "n2", State: api.StateDown}}})
	for _, want := range []string{"\nUNKNOWN: what is shown of other nodes is what n1 last heard of them\nDISK FULL: n1: ",
		"\nWhat to do (", "\n* on n2: `systemctl status trireme`, then `journalctl -u trireme -n 100` (TriremeNodeDown)\n"} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("no %q in:\n%s", want, b.String())
		}
	}
}

// TestStatusFitsTheTerminal: one line for each node on a terminal of 80 columns.
func TestStatusFitsTheTerminal(t *testing.T) {
	terminal, err := os.OpenFile("/dev/ptmx", os.O_RDWR, 0)
	if err != nil {
		t.Skipf("no terminal to be had: %v", err)
	}
	defer func() { _ = terminal.Close() }()
	for cols, want := range map[uint16]int{80: 80, 40: cli.MinColumns, 300: cli.MaxColumns} {
		if err := unix.IoctlSetWinsize(int(terminal.Fd()), unix.TIOCSWINSZ, &unix.Winsize{Row: 24, Col: cols}); err != nil {
			t.Fatal(err)
		}
		if got := cli.WidthOf(terminal); got != want {
			t.Errorf("a terminal of %d columns: %d, want %d", cols, got, want)
		}
	}
	rows := [][]string{{"NODE", "ROLE", "STATE", "LAG", "MYSQL", "VERSION", "LAST", "APPLIED", "API"}}
	for _, name := range []string{"db1", "db2", "db3"} {
		rows = append(rows, []string{name, "follower", "healthy", "0.0s", name + ".example.com:3306", "9.7.4", "123456789",
			"123456789", name + ".example.com:8008"})
	}
	for _, row := range cli.Narrowed(rows, 80, "LAST", "VERSION", "API", "MYSQL", "APPLIED") {
		if n := len(strings.Join(row, "  ")); n > 80 {
			t.Errorf("%d columns: %q", n, row)
		}
	}
}

// TestBlockedIsOneSentence: what is said of an entry that blocks the cluster hangs together, whether mysqld's error ends
// with a full stop or not.
func TestBlockedIsOneSentence(t *testing.T) {
	v := blocked()
	v.Blocked.Told, v.Blocked.Next = "it is committed", "make it applicable"
	var b strings.Builder
	printStatus(&b, false, v)
	_, text, _ := strings.Cut(b.String(), "BLOCKED at entry ")
	text, _, _ = strings.Cut(strings.Join(strings.Fields(text), " "), " a failover now")
	if strings.Contains(text, ". ") || !strings.HasSuffix(text, "is violated; it is committed; make it applicable.") {
		t.Error(text)
	}
}
