package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"trireme/internal/api"
	"trireme/internal/base/poll"
	"trireme/internal/control/dashboard"
	"trireme/internal/ops/cli"
)

// statusCmd is `trireme status`.
type statusCmd struct {
	remote
	JSON     bool          `help:"Print GET /cluster as it is."`
	Watch    bool          `short:"w" help:"Show it again and again until Ctrl-C."`
	Interval time.Duration `default:"1s" help:"Pause between two with --watch."`
}

// Run prints the cluster. Without a leader the exit code is 3, so that scripts notice.
func (c *statusCmd) Run(e *env) error {
	if c.Interval < 100*time.Millisecond {
		return usagef("--interval=%v is too short; at least 100ms", c.Interval)
	}
	t, err := c.choose(e.ctx, false)
	if err != nil {
		return err
	}
	client := t.client()
	defer client.Close()
	if c.Watch {
		return c.watch(e, client, t)
	}
	view, err := c.once(e, client, t)
	if err == nil && view.Leader == "" {
		return cli.Silent(exitUnreachable)
	}
	return err
}

func (c *statusCmd) once(e *env, client *api.Client, t target) (api.ClusterView, error) {
	ctx, cancel := context.WithTimeout(e.ctx, readTimeout)
	defer cancel()
	view, err := client.Cluster(ctx)
	if err != nil {
		return view, err
	}
	t.remember(view)
	if c.JSON {
		return view, printJSON(e.out, view)
	}
	printStatus(e.out, e.palette, view)
	if events, err := client.History(ctx); err == nil { // the rest is worth showing without it
		for _, line := range hourLines(e.palette, events, time.Now()) {
			fmt.Fprintln(e.out, line)
		}
	}
	return view, nil
}

// hourLines draw the last hour, one character for each minute, and sum up what it shows.
func hourLines(p palette, events []api.Event, now time.Time) []string {
	const minutes = 60
	const (
		other = iota + 1
		planned
		lost
	)
	signs := [...]string{p.good("─"), other: p.odd("·"), planned: p.odd("o"), lost: p.bad("×")}
	var worst [minutes]int
	var seen [len(signs)]int
	gap := 0.0
	for _, ev := range events {
		ago := int(now.Sub(ev.Time) / time.Minute)
		if ago < 0 || ago >= minutes {
			continue
		}
		kind := other
		switch ev.Kind {
		case "switchover", "election":
			kind = planned
		case "failover":
			kind = lost
		}
		seen[kind]++
		gap = max(gap, ev.GapMS)
		at := &worst[minutes-1-ago]
		*at = max(*at, kind)
	}
	picture := ""
	for _, kind := range worst {
		picture += signs[kind]
	}
	lines := []string{"", "last hour  " + picture}
	var parts []string
	if n := seen[lost]; n > 0 {
		parts = append(parts, "× "+count(n, "failover", "failovers"))
	}
	if n := seen[planned]; n > 0 {
		parts = append(parts, "o "+count(n, "switchover or election", "switchovers or elections"))
	}
	if gap > 0 {
		parts = append(parts, fmt.Sprintf("longest time without writes %.1f s", gap/1000))
	}
	if n := seen[other]; n > 0 {
		parts = append(parts, "· "+count(n, "other event", "other events"))
	}
	if len(parts) == 0 {
		return lines
	}
	return append(lines, "           "+strings.Join(parts, ", ")+": `trireme history`")
}

// watch goes on through errors: a node that restarts is just what one wants to watch.
func (c *statusCmd) watch(e *env, client *api.Client, t target) error {
	for {
		if isTerminal(e.out) && !c.JSON {
			fmt.Fprint(e.out, "\x1b[H\x1b[2J")
		}
		if _, err := c.once(e, client, t); err != nil && e.ctx.Err() == nil {
			fmt.Fprintln(e.out, err)
		}
		if !c.JSON {
			fmt.Fprintln(e.out)
		}
		if poll.Pause(e.ctx, c.Interval) != nil {
			return nil
		}
	}
}

// isTerminal says whether what is read or written is one.
func isTerminal(file any) bool {
	f, ok := file.(*os.File)
	if !ok {
		return false
	}
	_, err := unix.IoctlGetTermios(int(f.Fd()), unix.TCGETS)
	return err == nil
}

// printStatus writes the table, as wide as the terminal and 100 columns at most, and what to do.
func printStatus(w io.Writer, p palette, v api.ClusterView) {
	width := cli.WidthOf(w)
	leader := "leader " + p.strong(v.Leader)
	if v.Leader == "" {
		leader = noLeader(v)
	}
	generation := ""
	if v.Generation > 1 {
		generation = fmt.Sprintf("generation %d · ", v.Generation)
	}
	title := fmt.Sprintf("cluster %s · %sterm %d · commit index %d · %s", v.Cluster, generation, v.Term, v.CommitIndex,
		leader)
	say := func(text string) {
		for _, line := range cli.Wrap(text, width) {
			fmt.Fprintln(w, p.warnings(line))
		}
	}
	say(title)
	if v.Pause != nil {
		fmt.Fprintf(w, "%s since %s, %s: NO AUTOMATIC FAILOVER; `trireme resume` ends it\n", p.bad("PAUSED"),
			clock(v.Pause.Since), pauseEnd(v.Pause))
	}
	problems := dashboard.Problems(v, "above")
	for _, problem := range problems {
		if problem.Line != "" {
			say(problem.Line)
		}
	}
	for _, text := range slices.Concat([]string{failoverText(v.Failover)}, heavyLines(v), ruleLines(v)) {
		say(text)
	}
	fmt.Fprintln(w)
	rows := [][]string{{"NODE", "ROLE", "STATE", "LAG", "MYSQL", "VERSION", "LAST", "APPLIED", "API"}}
	for _, m := range v.Members {
		rows = append(rows, p.statusRow(m, v.Leader))
	}
	cli.PrintTable(w, cli.Narrowed(rows, width, "LAST", "VERSION", "API", "MYSQL", "APPLIED"))
	for _, line := range slices.Concat(vipTexts(v), delayTexts(v), lagTexts(v), pinnedLogs(v), tiedTexts(v)) {
		for _, l := range cli.Wrap(line, width) {
			fmt.Fprintln(w, l)
		}
	}
	for _, m := range v.Members {
		for _, text := range m.Warnings {
			say("WARNING: " + m.Name + ": " + text)
		}
		if m.State != api.StateHealthy && m.Reason != "" {
			for i, line := range cli.Wrap(m.Reason+seedText(m.Seed), width-len(m.Name)-2) {
				prefix := m.Name + ": "
				if i > 0 {
					prefix = strings.Repeat(" ", len(prefix))
				}
				fmt.Fprintf(w, "%s%s\n", prefix, line)
			}
		}
	}
	if old := dashboard.BackupProblems(v.Backup); len(old) > 0 {
		say("WARNING: the backup is old: " + strings.Join(old, "; "))
	}
	for i, step := range dashboard.Steps(problems) {
		if i == 0 {
			fmt.Fprintf(w, "\n%s (sections of ops/alerts.md in the documentation)\n", p.strong("What to do"))
		}
		for _, line := range cli.Wrap("* "+step.Do+" ("+step.Docs+")", width) {
			fmt.Fprintln(w, line)
		}
	}
}

// noLeader is said of a cluster without a leader, or of one of which none is known.
func noLeader(v api.ClusterView) string {
	if v.Doubt != "" {
		return "NO LEADER KNOWN: " + v.Doubt
	}
	return "NO LEADER: " + v.WritesWait()
}

// vipTexts says who holds which virtual address.
func vipTexts(v api.ClusterView) []string {
	var order []string
	holders, access := map[string][]string{}, map[string]string{}
	for _, m := range v.Members {
		for _, x := range m.VIPs {
			if access[x.Address] == "" {
				order = append(order, x.Address)
				access[x.Address] = x.Access
			}
			if x.Held && m.Answers() {
				holders[x.Address] = append(holders[x.Address], m.Name)
			}
		}
	}
	var out []string
	for _, a := range order {
		who := "no node"
		if len(holders[a]) > 0 {
			who = strings.Join(holders[a], " and ")
		}
		out = append(out, fmt.Sprintf("virtual address %s (%s): %s", a, access[a], who))
	}
	return out
}

// pinnedLogs says whose raft logs are larger than they should be, and why; one line for each reason.
func pinnedLogs(v api.ClusterView) []string {
	var reasons []string
	nodes := map[string][]string{}
	for _, m := range v.Members {
		if r := m.Raft; r.LogPinned != "" && m.Answers() {
			if nodes[r.LogPinned] == nil {
				reasons = append(reasons, r.LogPinned)
			}
			nodes[r.LogPinned] = append(nodes[r.LogPinned], fmt.Sprintf("%s (%d MiB)", m.Name, r.LogBytes>>20))
		}
	}
	for i, r := range reasons {
		reasons[i] = "raft log cannot be purged on " + strings.Join(nodes[r], ", ") + ": " + r
	}
	return reasons
}

// tiedTexts says which sessions a planned switchover would end.
func tiedTexts(v api.ClusterView) []string {
	tied := v.TiedSessions()
	if tied == nil {
		return nil
	}
	n, why := api.TiedText(tied)
	return []string{count(n, "session", "sessions") + " cannot be carried over a switchover: " + why}
}

// failoverText is what the loss of the leader would mean now.
func failoverText(f api.FailoverView) string {
	if f.To == "" {
		return "a failover now: NOT POSSIBLE: " + f.Problem
	}
	heavy := ""
	if f.HeavySeconds >= 0.1 {
		heavy = fmt.Sprintf("; %.1f s of it for large transactions and DDL that are committed and not applied there",
			f.HeavySeconds)
	}
	return fmt.Sprintf("a failover now: %s would lead in about %.1f s (%.1f s if the leader's host or link is lost)%s",
		f.To, max(f.Seconds, 0.1), f.HostLostSeconds, heavy)
}

// barWidth is that of a progress bar.
const barWidth = 20

// seedText is how far a copy has come, how fast, and how long it will take.
func seedText(s *api.SeedView) string {
	if s == nil {
		return ""
	}
	if s.TotalBytes == 0 {
		return " (" + s.From + ")"
	}
	done := min(s.DoneBytes, s.TotalBytes)
	full := int(done * barWidth / s.TotalBytes)
	text := fmt.Sprintf(" [%s%s] %d of about %d MiB from %s", strings.Repeat("#", full),
		strings.Repeat(".", barWidth-full), done>>20, s.TotalBytes>>20, s.From)
	if s.BytesPerSecond > 0 {
		left := time.Duration((s.TotalBytes-done)/s.BytesPerSecond) * time.Second
		text += fmt.Sprintf(", %d MiB/s, about %v left", s.BytesPerSecond>>20, left)
	}
	if s.Stage != "" {
		text += ", " + s.Stage
	}
	return text
}

// unknown stands for a figure that is too old to be shown.
const unknown = "?"

// statusRow is a member's line.
func (p palette) statusRow(m api.MemberView, leader string) []string {
	lag, mysql, version := "-", "-", "-"
	if s := m.MySQL; s != nil {
		mysql = fmt.Sprintf("%s:%d", s.Host, s.Port)
		if s.Version != "" {
			version, _, _ = strings.Cut(s.Version, "-")
		}
		switch late, _, known := m.Lag(); {
		case m.Role == api.RoleLeader:
		case !known:
			lag = unknown
		case m.Delay != nil && m.Delay.CaughtUp:
			lag = "delayed"
		default:
			lag = fmt.Sprintf("%.1fs", late)
		}
	}
	name, state, last, applied := m.Name, p.state(m.State), fmt.Sprint(m.Raft.Last), fmt.Sprint(m.Raft.Applied)
	if m.Role == api.RoleLeader && m.Name == leader {
		name = p.strong(name)
	}
	if m.DiskFull != "" {
		state = p.bad(m.State)
	}
	if !m.Answers() {
		last, applied = unknown, unknown
	}
	return []string{name, m.Role, state, lag, mysql, version, last, applied, m.Daemon.API}
}

// state colours a node's state.
func (p palette) state(s string) string {
	switch s {
	case api.StateHealthy:
		return p.good(s)
	case api.StateDown, api.StateFenced:
		return p.bad(s)
	}
	return p.odd(s)
}

func printJSON(w io.Writer, v any) error { return cli.PrintJSON(w, v) }
