package main

import (
	"fmt"
	"strings"
	"time"

	"trireme/internal/api"
)

// ruleLines are must_ack and commit_zones, and the zones as far as they matter now.
func ruleLines(v api.ClusterView) []string {
	var out []string
	if r := v.CommitRules; r != nil {
		var names []string
		for _, one := range r.Rules {
			names = append(names, one.Rule)
		}
		out = append(out, fmt.Sprintf("commits are acknowledged with %s; suspended after %v", strings.Join(names, " "),
			time.Duration(r.GraceSeconds*float64(time.Second))))
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
