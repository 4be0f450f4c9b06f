package dashboard

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"trireme/internal/api"
)

// state is the cluster in the words of the page.
type state struct {
	Cluster, Node, Leader string
	Term, Generation      uint64
	Clock                 string // when this was seen
	Paused                bool
	Alerts                []Problem
	Steps                 []Problem // those that say what to do
	Tiles                 []tile
	Nodes                 []nodeRow
	Picture               picture
	Clients               []clientRow
	Joining               []joiner
	Busy                  *busy // nil: not known yet
	Commit                commitPath
	Reigns                []reign
	Changes               []change
	Events                []event
	NoHistory             string // why the history is missing
}

// Levels of an alert and of a node's state. The page shows each by a word and a sign, too.
const (
	levelGood = "good"
	levelWarn = "warn"
	levelBad  = "bad"
	levelLoud = "loud" // the cluster does not do what it is for
)

// levels, the worst first.
var levels = []string{levelLoud, levelBad, levelWarn, levelGood}

type alert struct {
	Level string
	Word  string
	Text  string
}

type tile struct {
	Name, Value, Unit string
	Note              string // lines
	Level             string
	Chart             *chart
}

// nodeRow is a member. Texts that are not known are empty.
type nodeRow struct {
	Name, API, Role, Detail string
	Here, Leads             bool
	MySQL, Voter            bool
	State, Level, Reason    string
	Lag, LagBytes           string
	Log, LogSize            string
	Fsync, Ping             string
	Disks                   []diskCell
	Version                 string
}

type diskCell struct {
	Holds, Text string
	Low         bool
	Used        string // part of the width, in percent
}

// lowDisk is the part of a disk below which the page warns.
const lowDisk = 0.1

func describe(v api.ClusterView, here string, events []api.Event, eventsErr error, s *series, at time.Time) *state {
	st := &state{Cluster: v.Cluster, Node: here, Leader: v.Leader, Term: v.Term, Generation: v.Generation,
		Paused: v.Pause != nil, Clock: at.UTC().Format("2006-01-02 15:04:05 UTC")}
	for _, m := range v.Members {
		st.Nodes = append(st.Nodes, row(v, m, here, s))
	}
	st.Picture = pictureOf(v, st, s)
	st.Clients, st.Joining, st.Busy = clientsOf(v, s, at), joinersOf(v), s.busy
	st.Commit = pathOf(v, s)
	problems := Problems(v, "below")
	st.Alerts, st.Steps = alertsOf(problems, st.Nodes), Steps(problems)
	st.Tiles = tilesOf(v, s)
	st.Reigns = reigns(events, at)
	st.Changes = changes(events)
	st.Events = latest(events)
	if eventsErr != nil {
		st.NoHistory = eventsErr.Error()
	}
	return st
}

func row(v api.ClusterView, m api.MemberView, here string, s *series) nodeRow {
	n := nodeRow{Name: m.Name, API: m.Daemon.API, Role: m.Role, Here: m.Name == here, Leads: m.Name == v.Leader,
		MySQL: m.MySQL != nil, Voter: m.Raft.Voter, State: m.State, Level: levelOf(m.State), Reason: m.Reason,
		Version: m.Daemon.Version}
	n.Detail = detail(m)
	if n.Level == levelGood {
		n.Reason = ""
	}
	if m.DiskFull != "" {
		n.Level, n.Reason = levelBad, "disk full: "+m.DiskFull
	}
	if m.Seed != nil {
		n.Reason += seedText(m.Seed)
	}
	if m.MySQL != nil {
		if version, _, _ := strings.Cut(m.MySQL.Version, "-"); version != "" {
			n.Version = strings.TrimSpace("MySQL " + version + " · trireme " + n.Version)
		}
		switch lag, bytes, known := m.Lag(); {
		case n.Leads:
		case !known && m.Delay == nil:
			n.Lag = "unknown"
		case !known:
		case m.Delay == nil:
			n.Lag, n.LagBytes = seconds(lag), bytesText(bytes)
		case m.Delay.Stopped:
			n.Lag, n.LagBytes = "stopped", bytesText(m.Delay.BehindBytes)
		default:
			n.Lag, n.LagBytes = "delayed", bytesText(m.Delay.BehindBytes)
		}
	}
	if !m.Answers() {
		return n
	}
	if m.Raft.Last > 0 {
		n.Log = "#" + grouped(m.Raft.Last)
	}
	n.LogSize = bytesText(uint64(max(m.Raft.LogBytes, 0)))
	for _, l := range m.Links {
		if l.To == v.Leader {
			n.Ping = fmt.Sprintf("%.2f ms", l.RTTMS)
		}
	}
	if sp := s.since(m.Name); sp.known {
		if d := sp.b.LogWrites.Since(sp.a.LogWrites); d.Count > 0 {
			n.Fsync = millis(d.Quantile(0.5)) + " / " + millis(d.Quantile(0.99)) + " ms"
		}
	}
	if list := s.nodes[m.Name]; len(list) > 0 {
		for _, d := range list[len(list)-1].load.Disks {
			n.Disks = append(n.Disks, disk(d))
		}
	}
	return n
}

func levelOf(state string) string {
	switch state {
	case api.StateHealthy:
		return levelGood
	case api.StateDown, api.StateFenced:
		return levelBad
	}
	return levelWarn
}

// detail is what a node's settings make of it.
func detail(m api.MemberView) string {
	var parts []string
	switch {
	case !m.Raft.Voter:
		parts = append(parts, "no vote")
	case m.Role != api.RoleLogger:
		parts = append(parts, fmt.Sprintf("weight %d", m.Raft.Weight))
	}
	if m.Raft.Zone != "" {
		parts = append(parts, "zone "+m.Raft.Zone)
	}
	if m.Raft.MustAck {
		parts = append(parts, "must ack")
	}
	for _, x := range m.VIPs {
		if x.Held {
			parts = append(parts, "holds "+x.Address)
		}
	}
	return strings.Join(parts, " · ")
}

func disk(d api.DiskView) diskCell {
	c := diskCell{Holds: d.Holds, Text: bytesText(d.FreeBytes) + " free of " + bytesText(d.TotalBytes)}
	if d.TotalBytes > 0 {
		free := float64(d.FreeBytes) / float64(d.TotalBytes)
		c.Low, c.Used = free < lowDisk, fmt.Sprintf("%.1f%%", 100*(1-free))
	}
	return c
}

func seedText(s *api.SeedView) string {
	if s.TotalBytes == 0 {
		return " (from " + s.From + ")"
	}
	return fmt.Sprintf(" (from %s; %s of about %s, %s)", s.From, bytesText(s.DoneBytes), bytesText(s.TotalBytes), s.Stage)
}

// alertsOf are the problems that the page tells of, with those of disks.
func alertsOf(problems []Problem, nodes []nodeRow) []Problem {
	for _, n := range nodes {
		for _, d := range n.Disks {
			if d.Low {
				problems = append(problems, Problem{kind: diskFilling,
					Text: n.Name + ": under a tenth of the disk with its " + d.Holds + " is free."})
			}
		}
	}
	out := slices.DeleteFunc(slices.Clone(problems), func(p Problem) bool { return p.Text == "" })
	if n := len(out) - maxAlerts; n > 0 {
		out = append(out[:maxAlerts], Problem{kind: more, Text: fmt.Sprintf("%d more are in `trireme status`.", n)})
	}
	return out
}

// maxAlerts are shown; where everything is wrong the page must not be only that.
const maxAlerts = 12

func tilesOf(v api.ClusterView, s *series) []tile {
	return []tile{rateTile(s), delayTile(v, s), lagTile(v), failoverTile(v), backupTile(v)}
}

const waiting = "–" // not known, or not yet

func rateTile(s *series) tile {
	t := tile{Name: "Commits", Value: waiting, Unit: "per second", Chart: chartOf(s.rate, "Commits per second", rate)}
	if n := len(s.rate); n > 0 && s.rate[n-1].known {
		t.Value = rate(s.rate[n-1].value)
	}
	return t
}

func delayTile(v api.ClusterView, s *series) tile {
	t := tile{Name: "Commit time", Value: waiting, Unit: "ms, mean of 10 s",
		Chart: chartOf(s.delay, "Mean commit time in milliseconds", millis)}
	if d, known := s.since(v.Leader).commit(api.StageTotal); known && d.Count > 0 {
		t.Value = millis(d.Mean())
		t.Note = fmt.Sprintf("p50 %s ms · p99 %s ms", millis(d.Quantile(0.5)), millis(d.Quantile(0.99)))
	} else if known {
		t.Note = "no commits"
	}
	return t
}

// lagTile is of the data node that lags most.
func lagTile(v api.ClusterView) tile {
	t := tile{Name: "Largest lag", Value: waiting, Unit: "s"}
	worst := -1.0
	for _, m := range v.Members {
		if m.MySQL == nil || m.Name == v.Leader || m.Delay != nil {
			continue
		}
		lag, bytes, known := m.Lag()
		if !known {
			t.Note, t.Level = strings.TrimPrefix(t.Note+", ", ", ")+m.Name+" not known", levelWarn
			continue
		}
		if lag > worst {
			worst = lag
			t.Value, t.Unit = fmt.Sprintf("%.1f", worst), "s · "+m.Name+" · "+bytesText(bytes)
		}
	}
	if t.Value == waiting {
		t.Unit = ""
	}
	if worst == 0 && t.Note == "" {
		t.Unit, t.Note = "s", "all followers have applied everything"
	}
	return t
}

func failoverTile(v api.ClusterView) tile {
	f := v.Failover
	switch {
	case v.Leader == "":
		return tile{Name: "A failover now", Value: "no leader", Level: levelBad}
	case f.To == "":
		return tile{Name: "A failover now", Value: "not possible", Level: levelBad}
	case v.Pause != nil:
		return tile{Name: "A failover now", Value: "paused", Level: levelWarn, Note: "no node takes over until it is resumed"}
	}
	return tile{Name: "A failover now", Value: f.To, Unit: fmt.Sprintf("in about %.1f s", max(f.Seconds, 0.1)),
		Note: fmt.Sprintf("%.1f s if the leader's host or link is lost", f.HostLostSeconds)}
}

// commitPath is where the time of a commit goes, on the leader.
type commitPath struct {
	Stages []stageRow
	Bar    []barPart
	Count  string
	Why    string // nothing is known
	Ping   string // from the leader to the others
	Heavy  []string
}

type stageRow struct {
	Name, What       string
	Mean, Half, Most string
	Class, Share     string
}

type barPart struct{ X, Width, Class, Title string }

var stageTexts = map[string][2]string{
	api.StageMySQL:    {"mysqld", "written to its binary log, read by the daemon"},
	api.StageLog:      {"Own log", "fsync of the leader's log"},
	api.StageMajority: {"Majority", "network, and fsync on the others"},
	api.StageAck:      {"ACK", "mysqld gets the acknowledgement"},
}

func heavyText(h api.HeavyView) string {
	what := h.Text
	if h.Kind == api.HeavyTransaction {
		what = fmt.Sprintf("transaction of %s, %s", bytesText(h.Bytes), h.Text)
	}
	return fmt.Sprintf("%s: for %s, %.0f %% done; a follower will apply it for about %s", what, seconds(h.AgeSeconds),
		100*h.Done, seconds(h.ReplaySeconds))
}

func pathOf(v api.ClusterView, s *series) (c commitPath) {
	for _, m := range v.Members {
		if m.Name == v.Leader && m.Answers() {
			for _, h := range m.Heavy {
				c.Heavy = append(c.Heavy, heavyText(h))
			}
			var pings []string
			for _, l := range m.Links {
				pings = append(pings, fmt.Sprintf("%s %.2f ms", l.To, l.RTTMS))
			}
			c.Ping = strings.Join(pings, ", ")
		}
	}
	sp := s.since(v.Leader)
	total, known := sp.commit(api.StageTotal)
	switch {
	case v.Leader == "":
		c.Why = "There is no leader: nothing is committed."
		return c
	case !known:
		c.Why = "Waiting for a second look at the leader's counters."
		return c
	case total.Count == 0:
		c.Why = "No commits in the last 10 s."
		return c
	}
	c.Count = fmt.Sprintf("of %s commits sampled in the last 10 s", grouped(total.Count))
	x := 0.0
	for i, stage := range api.Stages {
		h, _ := sp.commit(stage)
		share := 0.0
		if total.SumS > 0 {
			share = 100 * h.SumS / total.SumS
		}
		r := stageRow{Name: stageTexts[stage][0], What: stageTexts[stage][1], Mean: millis(h.Mean()),
			Half: millis(h.Quantile(0.5)), Most: millis(h.Quantile(0.99)), Class: fmt.Sprintf("s%d", i),
			Share: fmt.Sprintf("%.0f", share)}
		c.Stages = append(c.Stages, r)
		c.Bar = append(c.Bar, barPart{fmt.Sprintf("%.2f%%", x), fmt.Sprintf("%.2f%%", share), r.Class, r.Name + " " + r.Mean +
			" ms"})
		x += share
	}
	return c
}
