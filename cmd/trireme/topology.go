package main

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"trireme/internal/api"
	"trireme/internal/config"
)

// topologyCmd is `trireme topology`.
type topologyCmd struct {
	remote
	JSON bool `help:"Print GET /cluster as it is."`
}

// Run draws who gets the log from whom.
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
		return errSilent(exitUnreachable)
	}
	return err
}

// printTopology draws a tree: the leader, under it those who get their entries from it, under those their learners.
func printTopology(w io.Writer, p palette, v api.ClusterView) {
	below := map[string][]api.MemberView{}
	var rtt []api.LinkView // from the leader
	for _, m := range v.Members {
		switch {
		case m.Name == v.Leader:
			rtt = m.Links
			fmt.Fprintln(w, topologyLine(p, m, ""))
		case m.Upstream != nil && m.Upstream.Followed:
			below[m.Upstream.Name] = append(below[m.Upstream.Name], m)
		default:
			below[v.Leader] = append(below[v.Leader], m)
		}
	}
	if v.Leader == "" {
		fmt.Fprintln(w, p.bad("no leader"))
	}
	var draw func(from, indent string)
	draw = func(from, indent string) {
		members := below[from]
		delete(below, from) // two nodes that name each other are drawn once
		for i, m := range members {
			branch, next := "├─ ", "│  "
			if i == len(members)-1 {
				branch, next = "└─ ", "   "
			}
			link := ""
			if k := slices.IndexFunc(rtt, func(l api.LinkView) bool { return l.To == m.Name }); k >= 0 && from == v.Leader {
				link = fmt.Sprintf("%.1f ms", rtt[k].RTTMS)
			}
			fmt.Fprintln(w, indent+branch+topologyLine(p, m, link))
			draw(m.Name, indent+next)
		}
	}
	draw(v.Leader, "")
	for _, from := range slices.Sorted(maps.Keys(below)) {
		if below[from] != nil { // not drawn since
			fmt.Fprintln(w, from)
			draw(from, "")
		}
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
	switch {
	case m.MySQL == nil || m.Role == api.RoleLeader || !m.Answers() || m.MySQL.LagSeconds == nil:
	case m.Delay != nil:
		parts = append(parts, fmt.Sprintf("delayed by %v", config.Duration(seconds(m.Delay.Seconds))))
	default:
		parts = append(parts, fmt.Sprintf("%.1f s behind", *m.MySQL.LagSeconds))
	}
	if m.Upstream != nil && !m.Upstream.Followed {
		parts = append(parts, "without its upstream "+m.Upstream.Name)
	}
	return strings.Join(parts, ", ")
}
