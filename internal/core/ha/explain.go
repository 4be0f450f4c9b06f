package ha

import (
	"fmt"
	"sort"
	"strings"
	"time"
)

// Code names a reason, for programs.
type Code string

// The reasons why a member does not lead.
const (
	NotMember    Code = "not-a-member"
	IsLogger     Code = "logger"
	NotVoter     Code = "not-a-voter"
	Unreachable  Code = "unreachable"
	Leaving      Code = "stopping"      // its daemon was asked to stop
	MySQLDown    Code = "mysqld-down"   // its mysqld is off, starting, or not judged yet
	NeedsSeed    Code = "needs-seed"    // its data does not fit the log, or the log it needs is gone
	IsStuck      Code = "stuck"         // its mysqld is alive and cannot serve, or its raft log cannot be written
	NotApplying  Code = "not-applying"  // replication from the feed has stopped
	SteppingDown Code = "stepping-down" // it was the leader a moment ago
	IsDelayed    Code = "delayed"       // a delayed learner: it holds old data on purpose
	JustFailed   Code = "just-failed"   // opening writes there failed a moment ago
	ZeroWeight   Code = "weight-0"
	NoQuorum     Code = "no-quorum"
	NoLease      Code = "no-lease"
	Opening      Code = "opening" // it was elected and has not opened writes yet
	Behind       Code = "behind"
	PausedCode   Code = "paused"
	OtherLeads   Code = "other-leads"
	OtherBetter  Code = "other-better"
	DiskFull     Code = "disk-full" // a node with more space is preferred
	Stalled      Code = "stalled"   // a node whose applier makes progress is preferred
	Warning      Code = "warning"   // something of it is not as it should be
	Failback     Code = "failback"  // it is preferred and gets leadership after a time
)

// Reason is one thing that keeps a member from leading. Text is a clause, such as "mysqld is starting".
type Reason struct {
	Code Code   `json:"code"`
	Text string `json:"text"`
	// Bars says that the member cannot lead while this holds: it is not handed leadership, and opens no writes itself.
	// Otherwise it only says why it does not lead now.
	Bars bool `json:"bars"`
}

func bar(c Code, format string, args ...any) Reason {
	return Reason{Code: c, Text: fmt.Sprintf(format, args...), Bars: true}
}

func note(c Code, format string, args ...any) Reason {
	return Reason{Code: c, Text: fmt.Sprintf(format, args...)}
}

// Unready says why a node's own mysqld, raft log (Raft.Stuck) or daemon cannot lead or serve reads; ok is true when
// nothing speaks against it. A node tells its peers exactly this.
func Unready(s Server, log string, stopping bool, now time.Duration) (r Reason, ok bool) {
	problem := ""
	if s.Problem != "" {
		problem = ": " + s.Problem
	}
	switch {
	case s.State == ServerAbsent:
		return bar(IsLogger, "a logger has no mysqld"), false
	case stopping:
		return bar(Leaving, "the daemon is stopping"), false
	case s.State == ServerBroken:
		return bar(NeedsSeed, "mysqld must be seeded again%s", problem), false
	case s.State == ServerBehind || s.State == ServerSeeding:
		return bar(NeedsSeed, "mysqld is seeded from another node%s", problem), false
	case s.State == ServerUp || s.State == ServerJudging:
		return bar(MySQLDown, "mysqld is not judged against the committed log yet%s", problem), false
	case s.State != ServerReady:
		return bar(MySQLDown, "mysqld is %s%s", s.State, problem), false
	case s.Stuck != "":
		return bar(IsStuck, "%s", s.Stuck), false
	case log != "":
		return bar(IsStuck, "%s", log), false
	case s.SteppingDown:
		return bar(SteppingDown, "it led a moment ago and is still becoming a follower"), false
	case s.Applier != "":
		return bar(NotApplying, "%s", s.Applier), false
	case now < s.RetryAt:
		return bar(JustFailed, "opening writes failed a moment ago"), false
	case s.Delayed != "":
		return bar(IsDelayed, "it is %s", s.Delayed), false
	}
	return Reason{}, true
}

// bars are the reasons why a member cannot lead, whichever others could. Elections, hand-overs and switchovers check
// nothing else.
func (p Peer) bars() []Reason {
	var out []Reason
	switch {
	case !p.Data:
		return []Reason{bar(IsLogger, "a logger has no mysqld")}
	case !p.Live:
		out = append(out, bar(Unreachable, "it does not answer"))
	case !p.Ready && p.Unready.Code != "":
		out = append(out, p.Unready)
	case !p.Ready:
		out = append(out, bar(MySQLDown, "mysqld is not ready"))
	}
	if !p.Voter {
		out = append(out, bar(NotVoter, "it is a learner: it has no vote"))
	}
	if p.Weight == 0 {
		out = append(out, bar(ZeroWeight, "its weight is 0"))
	}
	return out
}

func (p Peer) canLead() bool { return len(p.bars()) == 0 }

// self is this node as its peers see it.
func self(v View) Peer {
	p := Peer{ID: v.Self, Name: v.Name, Voter: v.Voter, Data: v.Server.State != ServerAbsent, Live: true,
		Applied: v.Server.Applied, Rate: v.Server.Rate, Heavy: v.Server.Heavy, Weight: v.Weight, Since: v.Server.Since,
		Full: v.Raft.Full != "", Stalled: v.Server.Stalled}
	p.Unready, p.Ready = Unready(v.Server, v.Raft.Stuck, v.Stopping, v.Now)
	return p
}

// member is any member as this View shows it.
func member(v View, id uint64) (Peer, bool) {
	if id == v.Self {
		return self(v), true
	}
	for _, p := range v.Peers {
		if p.ID == id {
			return p, true
		}
	}
	return Peer{}, false
}

// whyUnfit says why this node cannot open writes, or "". Being raft's leader it is a voter, whatever its View says.
func whyUnfit(v View) string {
	p := self(v)
	p.Voter = true
	if rs := p.bars(); len(rs) > 0 {
		return rs[0].Text
	}
	return ""
}

// switchoverBars are the reasons for which leadership is not moved to p on purpose: those of bars, and much to apply,
// for which writes would be closed.
func switchoverBars(v View, p Peer) []Reason {
	out := p.bars()
	if b := unapplied(v, p.Applied); b > catchingUp {
		out = append(out, bar(Behind, "it has more than %d entries to apply first", catchingUp))
	} else if p.Heavy > heavyWait {
		out = append(out, bar(Behind, "it has large transactions or DDL to apply first, for about %.0f s", p.Heavy.Seconds()))
	}
	return out
}

// WhyNotSwitchover says why a switchover to a member is refused now; empty when it is not.
func WhyNotSwitchover(v View, id uint64) []Reason {
	if id == v.Self {
		return []Reason{bar(OtherLeads, "it is the leader already")}
	}
	p, known := member(v, id)
	if !known {
		return []Reason{bar(NotMember, "it is not a member")}
	}
	return switchoverBars(v, p)
}

// WhyNot says why a member does not take writes now: first what bars it, then why another one leads instead. It is
// empty for the member that does.
func WhyNot(v View, id uint64) []Reason {
	p, known := member(v, id)
	if !known {
		return []Reason{bar(NotMember, "it is not a member")}
	}
	if id == v.Open && (id != v.Self || v.Now <= v.Raft.LeaseUntil) {
		return nil
	}
	out := p.bars()
	if live, all := liveVoters(v, 0), v.Raft.Voters; v.Open == 0 && 2*live <= all {
		out = append(out, bar(NoQuorum, "only %d of %d voters answer: no majority, no node can lead", live, all))
	}
	if id == v.Self && v.Serving.Phase == PhaseOpen && v.Now > v.Raft.LeaseUntil {
		out = append(out, bar(NoLease, "it cannot prove that it is still leader: the lease has run out"))
	}
	if b := unapplied(v, p.Applied); b > 0 && p.Data && p.Live {
		out = append(out, note(Behind, "it has %s", backlogText(v, p)))
	}
	if id == v.Raft.Leader && id != v.Open {
		out = append(out, note(Opening, "it is elected for term %d and has not opened writes yet", v.Raft.Term))
	}
	return append(out, whyAnother(v, p)...)
}

// whyAnother says, of a member that does not lead, what the choice of the leader rests on.
func whyAnother(v View, p Peer) []Reason {
	var out []Reason
	if v.Paused {
		out = append(out,
			note(PausedCode,
				"automatic failover is paused: leadership moves by `trireme switchover` and `trireme failover` only"))
	}
	if v.Open != 0 && v.Open != p.ID {
		out = append(out, note(OtherLeads, "%s leads term %d and takes writes", peerName(v, v.Open), v.Raft.Term))
	}
	if p.Full && p.Live {
		out = append(out, note(DiskFull, "a disk of it is nearly full: a node with more space is preferred"))
	}
	if p.Stalled && p.Live {
		out = append(out, note(Stalled, "it applies nothing of what waits there: a node that does is preferred"))
	}
	if !p.canLead() || v.Open == p.ID || p.ID == v.Raft.Leader {
		return out
	}
	if best, ok := best(v, v.Raft.Leader); ok && best.ID != p.ID {
		out = append(out, note(OtherBetter, "%s would take over before it: %s", peerName(v, best.ID), whyBetter(v, best, p)))
	} else if leader, ok := member(v, v.Open); ok && p.Weight > leader.Weight {
		out = append(out, note(Failback, "its weight %d is above the leader's %d: it gets leadership %s", p.Weight,
			leader.Weight,
			failbackIn(v, leader, p)))
	}
	return out
}

// failbackIn says when leadership goes to the preferred node p, if nothing changes.
func failbackIn(v View, leader, p Peer) string {
	at := failbackAt(v, leader.ID == v.Self, p)
	switch {
	case v.Paused:
		return "after `trireme resume` at the earliest"
	case v.FailbackAfter <= 0 && leader.Weight > 0:
		return `by a failover or switchover only (failback_after = "never")`
	case unapplied(v, p.Applied) > closeEnough:
		return "when it has applied the log"
	case p.Full:
		return "when its disk has more space"
	case at <= v.Now || leader.Weight == 0:
		return "now"
	}
	return fmt.Sprintf("in about %v, if it stays healthy", (at - v.Now).Round(time.Second))
}

// failbackAt is when p has been healthy for long enough, and the last attempt and the last election lie back as far: a
// switchover by an operator is not undone at once.
func failbackAt(v View, mine bool, p Peer) time.Duration {
	at := p.Since + v.FailbackAfter
	if mine {
		at = max(at, v.Raft.Since+v.FailbackAfter)
	}
	if mine && v.HandoverTriedTerm == v.Raft.Term {
		at = max(at, v.HandoverAt+v.FailbackAfter)
	}
	return at
}

// whyBetter says why a is ranked before b.
func whyBetter(v View, a, b Peer) string {
	backlog := backlogBehind(allBut(v, v.Raft.Leader))
	switch {
	case b.Stalled && !a.Stalled:
		return "it applies what waits there"
	case backlog(a) < backlog(b):
		return fmt.Sprintf("it has %d entries less to apply", a.Applied-b.Applied)
	case a.Weight > b.Weight:
		return fmt.Sprintf("its weight is %d, not %d", a.Weight, b.Weight)
	}
	return "they are equal and its id is lower"
}

// liveVoters counts the voters that answer, this node included, but for one.
func liveVoters(v View, but uint64) int {
	n := 0
	if v.Voter && v.Self != but {
		n++
	}
	for _, p := range v.Peers {
		if p.Voter && p.Live && p.ID != but {
			n++
		}
	}
	return n
}

// allBut are all members but one.
func allBut(v View, gone uint64) []Peer {
	var all []Peer
	for _, p := range append([]Peer{self(v)}, v.Peers...) {
		if p.ID != gone {
			all = append(all, p)
		}
	}
	return all
}

// best is who would lead if one member were gone.
func best(v View, gone uint64) (Peer, bool) {
	all := allBut(v, gone)
	rank(all)
	if len(all) == 0 || !all[0].canLead() {
		return Peer{}, false
	}
	return all[0], true
}

// assumedRate is what a mysqld of which nothing is known applies, in entries per second. An entry holds one transaction
// or many.
const assumedRate = 500

// applyTime is about how long a member needs to apply what it lacks.
func applyTime(v View, p Peer) time.Duration {
	rate := p.Rate
	if rate < 1 {
		rate = assumedRate
	}
	return time.Duration(float64(unapplied(v, p.Applied))/rate*float64(time.Second)) + p.Heavy
}

// ApplyTime is about how long a member needs to apply what it lacks; 0 for one that is no member.
func ApplyTime(v View, id uint64) time.Duration {
	p, _ := member(v, id)
	if p.ID == 0 {
		return 0
	}
	return applyTime(v, p)
}

func backlogText(v View, p Peer) string {
	entries := "entries"
	if unapplied(v, p.Applied) == 1 {
		entries = "entry"
	}
	return fmt.Sprintf("%d %s to apply, about %.1f s", unapplied(v, p.Applied), entries, applyTime(v, p).Seconds())
}

// Forecast is what a failover would be like now.
type Forecast struct {
	To      uint64        // who would lead; 0: no node could
	Apply   time.Duration // about how long it would apply before it opened writes
	Heavy   time.Duration // of Apply: large transactions and DDL
	Problem string        // why no node could
}

// Failover forecasts the loss of the leader, or of this node when none is known.
func Failover(v View) Forecast {
	leader := v.Raft.Leader
	if v.Paused {
		return Forecast{Problem: "automatic failover is paused"}
	}
	if leader == 0 {
		return Forecast{Problem: "there is no leader now"}
	}
	if live := liveVoters(v, leader); 2*live <= v.Raft.Voters {
		return Forecast{Problem: fmt.Sprintf("without %s only %d of %d voters answer: no majority", peerName(v, leader), live,
			v.Raft.Voters)}
	}
	if p, ok := best(v, leader); ok {
		return Forecast{To: p.ID, Apply: applyTime(v, p), Heavy: p.Heavy}
	}
	var why []string
	for _, p := range allBut(v, leader) {
		if rs := p.bars(); len(rs) > 0 {
			why = append(why, peerName(v, p.ID)+": "+rs[0].Text)
		}
	}
	sort.Strings(why)
	return Forecast{Problem: "no other node can lead (" + strings.Join(why, "; ") + ")"}
}
