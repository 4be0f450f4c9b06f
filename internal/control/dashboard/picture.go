package dashboard

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"trireme/internal/api"
)

// picture is the cluster in sentences. picture.js draws it from the figures that each sentence carries: the text and
// the drawing cannot differ.
type picture struct {
	Summary string
	Log     string // how much is written; empty: not known, or nothing
	Nodes   []pictureNode
	Outlook []alert // what is lost now, and what a further loss would do
}

// pictureNode is a member. Texts that are not known are empty.
type pictureNode struct {
	Name     string   `json:"name"`
	Zone     string   `json:"zone"`
	Role     string   `json:"role"`
	State    string   `json:"state"`
	Level    string   `json:"level"`
	Sign     string   `json:"sign"`
	Leads    bool     `json:"leads"`
	Answers  bool     `json:"answers"`
	Linked   bool     `json:"linked"` // there is a leader, and it hears the node
	Flows    bool     `json:"flows"`  // the node has received log lately
	RTT      string   `json:"rtt"`
	Lag      string   `json:"lag"`
	Log      string   `json:"log"`
	Cut      string   `json:"cut"`      // why the way to the leader is broken
	Sessions int      `json:"sessions"` // through its router; -1: not known
	Copy     string   `json:"copy"`     // how far the copy of its data has come
	Loss     string   `json:"loss"`     // what its loss would do beyond a failover
	Age      *float64 `json:"age"`      // seconds since it was heard of; nil: never
}

// JSON is what picture.js reads.
func (n pictureNode) JSON() string {
	b, _ := json.Marshal(n) // cannot fail: it has only plain values
	return string(b)
}

// Words is the node in a sentence, without its age.
func (n pictureNode) Words() string {
	parts := []string{"is a " + n.Role}
	if n.Leads {
		parts[0] = "leads"
	}
	if n.Zone != "" {
		parts[0] += " in zone " + n.Zone
	}
	parts = append(parts, n.State)
	for _, p := range [][2]string{{"%s", n.Copy}, {"round trip to the leader %s", n.RTT}, {"lag %s", n.Lag},
		{"log up to %s", n.Log}, {"not reached: %s", n.Cut}, {"%s", n.Loss}} {
		if p[1] != "" {
			parts = append(parts, fmt.Sprintf(p[0], p[1]))
		}
	}
	if n.Sessions >= 0 {
		parts = append(parts, count(n.Sessions, "session")+" through its router")
	}
	return strings.Join(parts, ", ")
}

func count(n int, what string) string {
	if n != 1 {
		what += "s"
	}
	return grouped(uint64(max(n, 0))) + " " + what
}

func pictureOf(v api.ClusterView, st *state, s *series) (p picture) {
	heard, voters := v.Voters()
	spare := heard - (voters/2 + 1)
	var followers, lost []string
	for i, m := range v.Members {
		n := pictureNode{Name: m.Name, Zone: m.Raft.Zone, Role: m.Role, State: m.State, Level: st.Nodes[i].Level,
			Leads: m.Name == v.Leader, Answers: m.Answers(), Log: st.Nodes[i].Log, Lag: st.Nodes[i].Lag, Sessions: -1,
			Age: m.AgeSeconds}
		n.Sign = signs[n.Level]
		if m.Name == st.Node {
			n.Age = new(float64)
		}
		if !n.Answers || n.Level == levelBad {
			lost = append(lost, m.Name+" ("+m.State+")")
		}
		if n.Answers {
			n.Sessions = m.Router.Connections
			n.RTT, n.Cut = link(v, m)
			n.Linked = v.Leader != "" && n.Cut == ""
			n.Flows = n.Linked && !n.Leads && logRate(s, m.Name) > 0
			n.Loss = lossOf(v, m, spare)
		}
		if !n.Answers || v.Leader == "" {
			n.Lag = "" // nothing tells how much it lacks
		}
		if m.Seed != nil {
			n.Copy = "copying" + seedText(m.Seed)
		}
		if !n.Leads && n.Linked {
			followers = append(followers, m.Name)
		}
		p.Nodes = append(p.Nodes, n)
	}
	slices.SortStableFunc(p.Nodes, func(a, b pictureNode) int { return strings.Compare(a.Zone, b.Zone) })
	if r := logRate(s, v.Leader); r > 0 {
		p.Log = bytesText(uint64(r)) + "/s"
	}
	p.Summary = "There is no leader: nothing is written."
	if v.Leader != "" {
		p.Summary = v.Leader + " leads and sends its log to " + list(followers) + "."
	}
	p.Outlook = outlook(v, st, lost, heard, voters, spare)
	return p
}

func list(names []string) string {
	if len(names) == 0 {
		return "no other node"
	}
	return strings.Join(names, ", ")
}

// logRate is how many bytes of log the node receives in a second; 0: nothing, or not known.
func logRate(s *series, name string) float64 {
	sp := s.since(name)
	if age := sp.b.AgeS - sp.a.AgeS; sp.known && age > 0 && sp.b.Bytes > sp.a.Bytes {
		return float64(sp.b.Bytes-sp.a.Bytes) / age
	}
	return 0
}

// link is the round trip between a member and the leader, or why it is not known.
func link(v api.ClusterView, m api.MemberView) (rtt, cut string) {
	for _, from := range v.Members {
		for _, l := range from.Links {
			if !from.Answers() || !(from.Name == v.Leader && l.To == m.Name || from.Name == m.Name && l.To == v.Leader) {
				continue
			}
			if l.Error != "" {
				cut = l.Error
			} else if l.RTTMS > 0 && rtt == "" {
				rtt = fmt.Sprintf("%.2f ms", l.RTTMS)
			}
		}
	}
	return rtt, cut
}

// lossOf says what the loss of a member would do beyond a failover. spare is how many more voters may be lost.
func lossOf(v api.ClusterView, m api.MemberView, spare int) string {
	switch {
	case v.Leader == "" || !m.Raft.Voter:
		return ""
	case spare <= 0, m.Name == v.Leader && v.Failover.To == "":
		return "its loss stops writes"
	case m.Raft.MustAck && v.CommitRules != nil:
		return fmt.Sprintf("its loss holds commits for %.0f s", v.CommitRules.GraceSeconds)
	}
	return ""
}

// outlook is what is lost now, and what a further loss would do.
func outlook(v api.ClusterView, st *state, lost []string, heard, voters, spare int) (out []alert) {
	add := func(level, word, format string, args ...any) {
		out = append(out, alert{level, word, fmt.Sprintf(format, args...)})
	}
	switch {
	case len(lost) > 0:
		add(levelBad, "Lost now", "%s.", strings.Join(lost, ", "))
	case v.Leader == "": // it may be what is lost: its silence has not lasted long enough to be told from a pause
		add(levelWarn, "Lost now", "not known yet; a node counts as lost when it has been silent for 1.5 s.")
	default:
		add(levelGood, "Lost now", "nothing.")
	}
	votes := fmt.Sprintf("%d of %d answer as far as %s hears, %d are needed: ", heard, voters, st.Node, voters/2+1)
	switch {
	case voters == 0:
		add(levelWarn, "Votes", "%s.", v.WritesWait())
	case spare < 0:
		add(levelBad, "Votes", "%swrites stay refused until %d more answer.", votes, -spare)
	case spare == 0:
		add(levelWarn, "Votes", "%sthe loss of one more stops writes.", votes)
	default:
		add(levelGood, "Votes", "%sthe majority survives the loss of %d more.", votes, spare)
	}
	f := v.Failover
	switch {
	case v.Leader == "":
		add(levelBad, "Leader", "there is none; %s.", v.WritesWait())
		return out // what would happen next is not known
	case f.To == "":
		add(levelBad, "Loss of "+v.Leader, "no node could take over: %s", f.Problem)
	case v.Pause != nil:
		add(levelWarn, "Loss of "+v.Leader, "failover is paused: writes stop until it is resumed.")
	default:
		add(levelGood, "Loss of "+v.Leader, "%s leads in about %.1f s, or %.1f s if the host or its link is lost.", f.To,
			max(f.Seconds, 0.1), f.HostLostSeconds)
	}
	for _, z := range v.Zones {
		level, text := levelGood, z.Text
		if !z.Quorum || !z.Kept || z.Waits {
			level = levelWarn
		}
		if _, after, ok := strings.Cut(text, ": "); ok { // "loss of zone a (1 of 3 voters): "
			text = after
		}
		add(level, "Loss of zone "+z.Zone, "%s.", text)
	}
	return out
}
