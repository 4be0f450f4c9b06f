package api

import (
	"fmt"
	"strings"
)

// Step is what an operator does next about something that is not as it should be.
type Step struct {
	Do    string `json:"do"`
	Alert string `json:"alert"` // the section of docs/ops/alerts.md that says more
}

// Steps are for what v shows, the most urgent first. What says by itself what to do about it (a pause, an entry that
// blocks the cluster, a log that cannot be purged) has none.
func (v ClusterView) Steps() (steps []Step) {
	add := func(alert, format string, args ...any) {
		steps = append(steps, Step{Do: fmt.Sprintf(format, args...), Alert: alert})
	}
	var down, full, unready, data []string
	for _, m := range v.Members {
		switch {
		case m.MySQL == nil || m.Role == RoleLeader:
		case m.Answers():
			data = append(data, m.Name)
		}
		switch {
		case m.FullDisk() != "":
			full = append(full, m.Name)
		case m.State == StateDown:
			down = append(down, m.Name)
		case m.State == StateFenced:
			unready = append(unready, m.Name)
		}
	}
	heard, voters := v.Voters()
	switch {
	case v.Leader != "" || v.Doubt != "":
	case 2*heard <= voters:
		add("TriremeNoWrites", "bring nodes or their network back: a majority continues by itself")
	case v.Blocked == nil:
		add("TriremeNoWrites", "ask each data node why it does not lead: `trireme why-not NODE`")
	}
	if len(down) > 0 {
		add("TriremeNodeDown", "on %s: `systemctl status trireme`, then `journalctl -u trireme -n 100`",
			strings.Join(down, ", "))
	}
	if len(full) > 0 {
		add("TriremeDiskFull", "make room on %s: mysqld and the daemon continue by themselves", strings.Join(full, ", "))
	}
	if len(unready) > 0 {
		add("TriremeNotReady", "read the reason of %s below, or `trireme why-not NODE`", strings.Join(unready, ", "))
	}
	if v.Leader != "" && v.Failover.To == "" && len(data) > 0 && len(steps) == 0 {
		add("TriremeNoFailover", "ask %s why not: `trireme why-not NODE`", strings.Join(data, ", "))
	}
	return steps
}
