package api

import "time"

// CommitRulesView is must_ack and commit_zones on the leader.
type CommitRulesView struct {
	GraceSeconds float64          `json:"grace_seconds"`
	Rules        []CommitRuleView `json:"rules"`
}

// CommitRuleView is one rule.
type CommitRuleView struct {
	Rule      string     `json:"rule"`      // must_ack.NODE, or commit_zones=N
	Suspended bool       `json:"suspended"` // OKs are given by plain majority
	Since     *time.Time `json:"since"`     // of the suspension
	Why       string     `json:"why,omitempty"`
	Behind    uint64     `json:"behind"` // committed entries that do not meet it
	// Log entries, of one or many commits each, that wait for it now, and for how long the oldest has. Of a suspended
	// rule: when it was suspended.
	Waiting        int     `json:"waiting"`
	WaitingSeconds float64 `json:"waiting_seconds"`
}

// Suspended lists the rules that are.
func (v *CommitRulesView) Suspended() []string {
	if v == nil {
		return nil
	}
	var out []string
	for _, r := range v.Rules {
		if r.Suspended {
			out = append(out, r.Rule)
		}
	}
	return out
}

// ZoneView is what the loss of a zone would mean now.
type ZoneView struct {
	Zone    string `json:"zone"`
	Voters  int    `json:"voters"`
	Leader  bool   `json:"leader"` // it is in this zone
	Quorum  bool   `json:"quorum"` // there would be one
	Kept    bool   `json:"kept"`   // nothing acknowledged would be lost
	Waits   bool   `json:"waits"`  // OKs would wait for commit_grace: a commit rule could not be met
	To      string `json:"to"`     // who would lead if the leader is in it; empty: no node
	Text    string `json:"text"`
	Warning bool   `json:"warning"` // the zone holds a majority of the voters
}
