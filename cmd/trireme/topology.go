package main

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"trireme/internal/api"
	"trireme/internal/base/config"
	"trireme/internal/ops/cli"
)

// topologyCmd is `trireme topology`.
type topologyCmd struct {
	remote
	JSON bool `help:"Print GET /cluster as it is."`
}

// Run draws the leader and those who get the log from it.
func (c *topologyCmd) Run(e *env) error {
	view, err := ask(c.remote, e, reads, (*api.Client).Cluster)
	if err != nil {
		return err
	}
	if c.JSON {
		err = printJSON(e.out, view)
	} else {
		printTopology(e.out, e.palette, view)
	}
	if err == nil && view.Leader == "" {
		return cli.Silent(exitUnreachable)
	}
	return err
}

// printTopology draws a tree: the leader, and under it those who get their entries from it.
func printTopology(w io.Writer, p palette, v api.ClusterView) {
	var links []api.LinkView // of the leader
	var followers []api.MemberView
	for _, m := range v.Members {
		if m.Name == v.Leader {
			links = m.Links
			fmt.Fprintln(w, topologyLine(p, m, ""))
		} else {
			followers = append(followers, m)
		}
	}
	if v.Leader == "" {
		fmt.Fprintln(w, p.bad("no leader"))
	}
	for i, m := range followers {
		branch, rtt := "├─ ", ""
		if i == len(followers)-1 {
			branch = "└─ "
		}
		if k := slices.IndexFunc(links, func(l api.LinkView) bool { return l.To == m.Name }); k >= 0 {
			rtt = fmt.Sprintf("%.1f ms", links[k].RTTMS)
		}
		fmt.Fprintln(w, branch+topologyLine(p, m, rtt))
	}
}

// topologyLine is a node on one line: what it is, where, and the round trip to it.
func topologyLine(p palette, m api.MemberView, link string) string {
	parts := []string{p.strong(m.Name) + "  " + m.Role, p.state(m.State)}
	if m.Raft.Zone != "" {
		parts = append(parts, "zone "+m.Raft.Zone)
	}
	if m.Daemon.API != "" {
		parts = append(parts, m.Daemon.API)
	}
	if link != "" {
		parts = append(parts, link)
	}
	switch lag, _, known := m.Lag(); {
	case m.Role == api.RoleLeader || !known:
	case m.Delay != nil:
		parts = append(parts, fmt.Sprintf("delayed by %v", config.Duration(seconds(m.Delay.Seconds))))
	default:
		parts = append(parts, fmt.Sprintf("lags by %.1f s", lag))
	}
	return strings.Join(parts, ", ")
}
