package main

import (
	"fmt"
	"time"

	"trireme/internal/api"
)

// heavyLines say what is under way that followers will be busy with.
func heavyLines(v api.ClusterView) []string {
	var out []string
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
