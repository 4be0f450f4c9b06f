package config

import (
	"fmt"
	"strings"
	"testing"
)

// upstreamCluster has two voters, a logger and learners r1 to r6.
func upstreamCluster() *Cluster {
	c := &Cluster{Name: "c", ClusterID: 1, NextID: 20}
	add := func(name, role string) {
		id := uint64(len(c.Members) + 1)
		m := Member{ID: id, Name: name, Role: role, Peer: fmt.Sprintf("h%d:7306", id), API: fmt.Sprintf("h%d:8008", id)}
		if role != RoleLogger {
			m.MySQLHost, m.MySQLPort, m.Weight = fmt.Sprintf("h%d", id), 3306, DefaultWeight
		}
		c.Members = append(c.Members, m)
	}
	add("n1", RoleVoter)
	add("n2", RoleVoter)
	add("l1", RoleLogger)
	for i := range 6 {
		add(fmt.Sprintf("r%d", i+1), RoleLearner)
	}
	return c
}

func TestUpstreams(t *testing.T) {
	for _, tt := range []struct {
		set  string // in this order
		want string // error of the last one; "": all is well
	}{
		{"r1=n1", ""},
		{"r1=l1", ""},
		{"r1=r2 r2=r3 r3=n1", ""},
		{"r1=n1 r1=none", ""},
		{"r1=r1", "cycle: r1 <- r1"},
		{"r1=r2 r2=r3 r3=r1", "cycle"},
		{"r1=n1 r2=r1 r3=r2 r4=r3", ""},
		{"r1=n1 r2=r1 r3=r2 r4=r3 r5=r4", "more than 4 upstreams in a row"},
		{"n1=n2", "only a learner has an upstream"},
		{"l1=n2", "only a learner has an upstream"},
		{"r9=n1", "no such node"},
		{"r1=nobody", `no such node: "nobody"`},
		{"r1=", "upstream.r1"},
		{"r 1=n1", "upstream.r 1"},
	} {
		c := upstreamCluster()
		var err error
		for _, s := range strings.Split(tt.set, " ") {
			if tt.set == "r 1=n1" {
				s = tt.set
			}
			key, value, _ := strings.Cut(s, "=")
			if err = c.Set("upstream."+key, value); err != nil {
				break
			}
		}
		if (err == nil) != (tt.want == "") || err != nil && !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: %v, want %q", tt.set, err, tt.want)
		}
		if err := c.Validate(); err != nil {
			t.Errorf("%s: a refused change has left %v", tt.set, err)
		}
	}
}

// TestDropUpstreams: a learner that becomes a voter has none, and what followed a node that leaves follows the leader.
func TestDropUpstreams(t *testing.T) {
	c := upstreamCluster()
	for _, s := range []string{"r1=n1", "r2=r1", "r3=n2"} {
		key, value, _ := strings.Cut(s, "=")
		if err := c.Set("upstream."+key, value); err != nil {
			t.Fatal(err)
		}
	}
	c.Members[3].Role = RoleVoter // r1
	c.Members[1].Removing = true  // n2
	c.Members = c.Members[:6]     // without r4 to r6
	c.DropUpstreams()
	var got []string
	for _, m := range c.Members {
		if up := c.UpstreamOf(m); up != "" {
			got = append(got, m.Name+"="+up)
		}
	}
	if len(got) != 1 || got[0] != "r2=r1" {
		t.Errorf("%v", got)
	}
	if err := c.Validate(); err != nil {
		t.Error(err)
	}
	for _, s := range c.Settings() {
		if s.Key == "upstream.r3" && s.Value != "none" || s.Key == "upstream.r2" && s.Value != "r1" || s.Key == "upstream.r1" {
			t.Errorf("%+v", s)
		}
	}
}
