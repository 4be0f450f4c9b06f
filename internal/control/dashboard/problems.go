package dashboard

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"trireme/internal/api"
)

// kind is a kind of problem of a cluster: what the page's alerts, `trireme status`, and what both say to do next have
// in common. What must be noticed when nobody looks has an alert of Prometheus as well.
type kind struct {
	Level, Word string // on the page
	Docs        string // what says more: a section of docs/ops/alerts.md, or another page in docs
}

var (
	noLeader       = kind{levelLoud, "No leader", "TriremeNoWrites"}
	noLeaderKnown  = kind{levelLoud, "No leader known", "TriremeNoWrites"}
	inDoubt        = kind{levelBad, "In doubt", "TriremeNoWrites"}
	diskFull       = kind{levelBad, "Disk full", "TriremeDiskFull"}
	nodeFailed     = kind{levelBad, "Failed", "TriremeNotReady"}
	nodesDown      = kind{levelBad, "Down", "TriremeNodeDown"}
	nodesSilent    = kind{levelBad, "Silent", "TriremeNodeDown"}
	entryBlocked   = kind{levelBad, "Entry cannot be applied", "TriremeEntryBlocked"}
	nodeNotReady   = kind{levelWarn, "Not ready", "TriremeNotReady"}
	paused         = kind{levelWarn, "Paused", "TriremePaused"}
	pausedHeadless = kind{levelLoud, "Paused without a leader", "TriremePaused"}
	noFailover     = kind{levelWarn, "No failover", "TriremeNoFailover"}
	commitsSlowed  = kind{levelWarn, "Commits slowed", "TriremeWritesSlowed"}
	slowFailover   = kind{levelWarn, "Slow failover", "TriremeLongReplay"}
	ruleSuspended  = kind{levelWarn, "Rule suspended", "TriremeRuleSuspended"}
	commitsWait    = kind{levelWarn, "Commits wait", "TriremeRuleSuspended"}
	notApplying    = kind{levelWarn, "Not applying", "TriremeApplyStopped"}
	nodeWarns      = kind{levelWarn, "Warning", "ops/failures.md"}
	logGrows       = kind{levelWarn, "Log grows", "TriremeLogPinned"}
	diskFilling    = kind{levelWarn, "Disk", "TriremeDiskFilling"}
	more           = kind{levelWarn, "More", "cli.md"}
)

// Problem is something of a cluster that is not as it should be. What it lacks is shown in another way.
type Problem struct {
	kind
	Text string // for the page; it names no moment that moves, so that it is read out only when it has changed
	Line string // for `trireme status`
	Do   string // what an operator does next; the most urgent comes first
}

// finder looks for problems.
type finder struct {
	api.ClusterView
	found []Problem
	// nodes; data: those with data that answer and do not lead
	starting, down, silent, full, fenced, data []string
}

func (f *finder) tell(k kind, p Problem) {
	p.kind = k
	f.found = append(f.found, p)
}

// Problems are what is wrong with a cluster, the worst first. The reasons of nodes are shown in a place such as
// "below".
func Problems(v api.ClusterView, reasons string) []Problem {
	f := finder{ClusterView: v}
	if v.Doubt != "" {
		p := Problem{Text: v.Doubt + ". What is shown of other nodes is what was last heard of them.",
			Line: "UNKNOWN: " + v.Doubt + "; what is shown of other nodes is what was last heard of them"}
		if v.Leader == "" { // the doubt is in the first line
			p.Line = "UNKNOWN: what is shown of other nodes is what " + v.SeenBy + " last heard of them"
		}
		f.tell(inDoubt, p)
	}
	for _, m := range v.Members {
		f.state(m)
	}
	whyNot := "`trireme why-not NODE`"
	if len(f.data) == 1 {
		whyNot = "`trireme why-not " + f.data[0] + "`"
	}
	f.lost(whyNot, reasons)
	f.commits(whyNot)
	for _, m := range v.Members {
		if !m.Answers() {
			continue
		}
		if e := m.ApplyError; e != nil && v.Blocked == nil {
			f.tell(notApplying, Problem{Text: fmt.Sprintf("%s: error %d at entry %d (%s); %s.", m.Name, e.Number, e.Index,
				e.Entry, e.Next)})
		}
		for _, w := range m.Warnings {
			f.tell(nodeWarns, Problem{Text: m.Name + ": " + w})
		}
		if m.Raft.LogPinned != "" {
			f.tell(logGrows, Problem{Text: m.Name + " cannot purge its log: " + m.Raft.LogPinned})
		}
	}
	slices.SortStableFunc(f.found, func(a, b Problem) int {
		return cmp.Compare(slices.Index(levels, a.Level), slices.Index(levels, b.Level))
	})
	return f.found
}

// Steps are the problems that say what to do.
func Steps(problems []Problem) []Problem {
	return slices.DeleteFunc(slices.Clone(problems), func(p Problem) bool { return p.Do == "" })
}

// state looks at a node's state and disks.
func (f *finder) state(m api.MemberView) {
	p := Problem{Text: fmt.Sprintf("%s is %s: %s", m.Name, m.State, cmp.Or(m.Reason, "it gives no reason"))}
	switch m.State {
	case api.StateHealthy:
	case api.StateDown:
		f.down = append(f.down, m.Name)
		return
	case api.StateUnknown:
		f.silent = append(f.silent, m.Name)
		return
	case api.StateFenced:
		if m.DiskFull == "" { // else that is why
			f.fenced = append(f.fenced, m.Name)
		}
		f.tell(nodeFailed, p)
	default:
		if m.State == api.StateStarting || m.State == api.StateRecovering {
			f.starting = append(f.starting, m.Name)
		}
		f.tell(nodeNotReady, p)
	}
	if m.DiskFull != "" {
		f.full = append(f.full, m.Name)
		text := fmt.Sprintf("%s: the disk of %s is full, or nearly: make room", m.Name, m.DiskFull)
		f.tell(diskFull, Problem{Text: text + ".", Line: "DISK FULL: " + text})
	}
	if m.MySQL != nil && m.Role != api.RoleLeader {
		f.data = append(f.data, m.Name)
	}
}

// lost looks for what does not work at all.
func (f *finder) lost(whyNot, reasons string) {
	waits, wait := f.WritesWait(), ""
	p := Problem{Text: strings.ToUpper(waits[:1]) + waits[1:] + "."}
	if f.Leader == "" && len(f.starting) > 0 {
		wait = "wait some seconds for the start of " + list(f.starting) + "; if nothing changes: "
	}
	switch {
	case f.Leader != "":
	case f.Doubt != "":
		f.tell(noLeaderKnown, p)
	case f.Blocked == nil && f.Pause != nil:
		wait = ""
		f.tell(noLeader, p)
		f.tell(pausedHeadless,
			Problem{Do: "have another node lead: `trireme resume`, or `trireme failover` during the pause"})
	default:
		if f.Blocked == nil {
			p.Do, wait = wait+"ask each data node why it does not lead: "+whyNot, ""
		}
		f.tell(noLeader, p)
	}
	if len(f.down) > 0 {
		p := Problem{Text: list(f.down) + ": no word from them.",
			Do: wait + "on " + list(f.down) + ": `systemctl status trireme`, then `journalctl -u trireme -n 100`"}
		if len(f.down) == 1 {
			p.Text = f.down[0] + ": no word from it."
		}
		f.tell(nodesDown, p)
	}
	if len(f.silent) > 0 {
		f.tell(nodesSilent, Problem{Text: list(f.silent) + ": no word for a moment. Nothing is known of how it is now."})
	}
	if len(f.full) > 0 {
		f.tell(diskFull, Problem{Do: "make room on " + list(f.full) + ": mysqld and the daemon continue by themselves"})
	}
	if len(f.fenced) > 0 {
		f.tell(nodeFailed, Problem{Do: "read the reason of " + list(f.fenced) + " " + reasons + ", or " + whyNot})
	}
	if b := f.Blocked; b != nil {
		entry, nodes := fmt.Sprintf("ntry %d, %s (%s): ", b.Index, b.GTID, b.Entry), strings.Join(b.Nodes, ", ")
		f.tell(entryBlocked, Problem{Text: fmt.Sprintf("E%serror %d on %s. %s; %s.", entry, b.Number, nodes, b.Told, b.Next),
			Line: fmt.Sprintf("BLOCKED at e%s%s could not apply it, error %d: %s; %s; %s.", entry, nodes, b.Number,
				strings.TrimSuffix(b.Error, "."), b.Told, b.Next)})
	}
}

// commits looks for what speaks against a failover, for what slows commits, and for OKs that mean less than they
// should.
func (f *finder) commits(whyNot string) {
	if f.Pause != nil {
		end := "until an operator resumes it"
		if f.Pause.Until != nil {
			end = "until " + clock(*f.Pause.Until)
		}
		f.tell(paused, Problem{Text: fmt.Sprintf("Automatic failover is off since %s, %s.", clock(f.Pause.Since), end)})
	}
	if f.Leader != "" && f.Failover.To == "" {
		p := Problem{Text: fmt.Sprintf("No node could take over from %s now: %s", f.Leader, f.Failover.Problem)}
		switch heard, voters := f.Voters(); {
		case len(f.data) == 0 || len(f.down)+len(f.full)+len(f.fenced) > 0: // that is why
		case voters < 3 && heard == voters:
			p.Do = "add voters until there are 3, which survive the loss of one: `trireme add NAME`; " +
				"a node that has just joined gets its vote by itself"
		default:
			p.Do = "ask " + list(f.data) + " why not: " + whyNot
		}
		f.tell(noFailover, p)
	}
	if l := f.Flow; l != nil && l.DelaySeconds > 0 {
		p := Problem{Line: fmt.Sprintf("commits are slowed by %.0f ms each: %s needs %.1f s for what it has still to "+
			"apply, lag_objective is %v", 1000*l.DelaySeconds, l.Node, l.BacklogSeconds,
			time.Duration(l.ObjectiveSeconds*float64(time.Second)))}
		if l.DelaySeconds >= 0.1 {
			p.Text = fmt.Sprintf("%s needs %s for what it has still to apply: lag_objective adds %s ms to each commit.",
				l.Node, seconds(l.BacklogSeconds), millis(l.DelaySeconds))
		}
		f.tell(commitsSlowed, p)
	}
	if s := f.Failover.HeavySeconds; s >= 10 {
		f.tell(slowFailover, Problem{Text: f.Failover.To + " would first apply large transactions and DDL, for about " +
			seconds(s) + "."})
	}
	if f.CommitRules == nil {
		return
	}
	for _, r := range f.CommitRules.Rules {
		if r.Suspended {
			p := Problem{Text: "OKs do not wait for the commit rule " + r.Rule + "."}
			if r.Since != nil {
				p.Line = fmt.Sprintf("%s is SUSPENDED since %s (%s): OKs are given by plain majority", r.Rule,
					r.Since.Local().Format(time.DateTime), r.Why)
			}
			f.tell(ruleSuspended, p)
		} else if r.WaitingSeconds >= 1 {
			f.tell(commitsWait, Problem{Line: fmt.Sprintf("COMMITS WAIT for %s, the oldest for %.1f s (%s)", r.Rule,
				r.WaitingSeconds, r.Why)})
		}
	}
}
