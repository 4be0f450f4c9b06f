package main

import (
	"fmt"
	"strings"
	"time"

	"trireme/internal/api"
)

// ruleLines are must_ack, commit_zones and the zones, as far as they matter now.
func ruleLines(v api.ClusterView) []string {
	var out []string
	if r := v.CommitRules; r != nil {
		var names []string
		for _, one := range r.Rules {
			names = append(names, one.Rule)
		}
		out = append(out, fmt.Sprintf("commits are acknowledged with %s; suspended after %v", strings.Join(names, " "),
			time.Duration(r.GraceSeconds*float64(time.Second))))
		for _, one := range r.Rules {
			out = append(out, ruleText(one)...)
		}
	}
	for _, z := range v.Zones {
		switch {
		case z.Warning:
			out = append(out, "WARNING: "+z.Text)
		case z.Leader:
			out = append(out, z.Text)
		}
	}
	return out
}

// ruleText is what is wrong with a rule.
func ruleText(r api.CommitRuleView) []string {
	switch {
	case r.Suspended && r.Since != nil:
		return []string{fmt.Sprintf("%s is SUSPENDED since %s (%s): OKs are given by plain majority", r.Rule, clock(*r.Since),
			r.Why)}
	case r.WaitingSeconds >= 1:
		return []string{fmt.Sprintf("COMMITS WAIT for %s, the oldest for %.1f s (%s)", r.Rule, r.WaitingSeconds, r.Why)}
	}
	return nil
}
