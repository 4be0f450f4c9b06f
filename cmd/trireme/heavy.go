package main

import (
	"fmt"
	"time"

	"trireme/internal/api"
)

// heavyLines say what is under way that followers will be busy with, and whether commits are slowed.
func heavyLines(v api.ClusterView) []string {
	var out []string
	if f := v.Flow; f != nil && f.DelaySeconds > 0 {
		out = append(out,
			fmt.Sprintf("commits are slowed by %s each: %s needs %.1f s for what it has still to apply, lag_objective is %v",
				millis(f.DelaySeconds), f.Node, f.BacklogSeconds, seconds(f.ObjectiveSeconds)))
	}
	for _, m := range v.Members {
		if m.Name != v.Leader {
			continue
		}
		for _, h := range m.Heavy {
			out = append(out, heavyText(h))
		}
	}
	return out
}

func heavyText(h api.HeavyView) string {
	what := h.Text
	if h.Kind == api.HeavyTransaction {
		what = fmt.Sprintf("a transaction of %d MiB, %s", h.Bytes>>20, h.Text)
	}
	done := ""
	if h.Done > 0 {
		done = fmt.Sprintf(" (%.0f %%)", 100*h.Done)
	}
	return fmt.Sprintf("under way for %.0f s%s: %s; once it is committed a follower applies it for about %.0f s, and a failover until then takes as much longer",
		h.AgeSeconds, done, what, h.ReplaySeconds)
}

func seconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }

func millis(s float64) string { return fmt.Sprintf("%.0f ms", 1000*s) }
