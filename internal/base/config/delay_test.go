package config

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

// learnerCluster has two voters, a logger and learners r1 to r6.
func learnerCluster() *Cluster {
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

func TestApplyDelay(t *testing.T) {
	c := learnerCluster() // n1 n2 voters, r1… learners
	for _, tt := range []struct{ key, value, want string }{
		{"apply_delay.r1", "1h", ""},
		{"apply_delay.r2", "1s", ""},
		{"apply_delay.r2", "none", ""},
		{"apply_delay.n1", "1h", "only a learner can be delayed"},
		{"apply_delay.n1", "none", ""},
		{"apply_delay.r9", "1h", "no such node"},
		{"apply_delay.r1", "0s", "neither"},
		{"apply_delay.r1", "169h", "neither"},
		{"apply_delay.r1", "soon", "neither"},
	} {
		err := c.Set(tt.key, tt.value)
		if (err == nil) != (tt.want == "") || err != nil && !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s=%s: %v, want %q", tt.key, tt.value, err, tt.want)
		}
		if err := c.Validate(); err != nil {
			t.Errorf("%s=%s: a refused change has left %v", tt.key, tt.value, err)
		}
	}
	m, _ := c.Member("r1")
	if m.Delay() != time.Hour {
		t.Errorf("%v", m.Delay())
	}
	if got := c.values()["apply_delay.r1"]; got != "1h" {
		t.Errorf("shown as %q", got)
	}
	if _, there := c.values()["apply_delay.n1"]; there {
		t.Error("a voter has the setting")
	}
	for i := range c.Members {
		if c.Members[i].Name == "r1" {
			c.Members[i].Role = RoleVoter
		}
	}
	if err := c.Validate(); err == nil || !strings.Contains(err.Error(), "r1 is a voter: only a learner can be delayed") {
		t.Errorf("a delayed voter: %v", err)
	}
}
