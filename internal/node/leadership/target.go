package leadership

import (
	"fmt"
	"strings"

	"trireme/internal/api"
	"trireme/internal/core/ha"
)

// ChooseTarget checks an operator's wish for a switchover before anything happens. Without a name it is the best of
// those that could take over.
func (l *Leadership) ChooseTarget(v ha.View, name string) (uint64, error) {
	if v.Serving.Phase == ha.PhaseHandover {
		return 0, UnderWay()
	}
	if v.Serving.Phase != ha.PhaseOpen {
		return 0, api.Errorf(api.KindNoLeader, "%s is not a leader with open writes", l.id.Name).
			With("wait until `trireme status` shows a healthy leader")
	}
	if name == "" {
		for _, p := range ha.Candidates(v) {
			if len(ha.WhyNotSwitchover(v, p.ID)) == 0 {
				return p.ID, nil
			}
		}
		return 0, api.Errorf(api.KindCannotLead, "no other node can take over: %s", allReasons(v)).
			With("`trireme why-not NODE` shows it as it is now")
	}
	m, err := l.host.Member(name)
	if err != nil {
		return 0, err
	}
	if m.ID == l.id.ID {
		return 0, api.Errorf(api.KindAlready, "%s is the leader already", name)
	}
	if rs := ha.WhyNotSwitchover(v, m.ID); len(rs) > 0 {
		return 0, api.Errorf(api.KindCannotLead, "%s cannot take over: %s", name, reasonsText(rs)).
			With("`trireme why-not %s` shows it as it is now", name)
	}
	return m.ID, nil
}

// allReasons says of every other member why it cannot take over.
func allReasons(v ha.View) string {
	var texts []string
	for _, p := range v.Peers {
		texts = append(texts, p.Name+": "+reasonsText(ha.WhyNotSwitchover(v, p.ID)))
	}
	if len(texts) == 0 {
		return "there is none"
	}
	return strings.Join(texts, "; ")
}

// Candidates weighs every other member, for people.
func Candidates(v ha.View) []api.Candidate {
	var out []api.Candidate
	for _, p := range v.Peers {
		why := reasonsText(ha.WhyNotSwitchover(v, p.ID))
		c := api.Candidate{Name: p.Name, Eligible: why == "", Reason: why}
		if why == "" {
			c.Reason = fmt.Sprintf("weight %d, %d entries to apply", p.Weight, v.Raft.Commit-min(p.Applied, v.Raft.Commit))
		}
		out = append(out, c)
	}
	return out
}

func reasonsText(rs []ha.Reason) string {
	texts := make([]string, len(rs))
	for i, r := range rs {
		texts[i] = r.Text
	}
	return strings.Join(texts, "; ")
}
