package config

import (
	"strings"
	"testing"
	"time"
)

func TestApplyDelay(t *testing.T) {
	c := upstreamCluster() // n1 n2 voters, r1… learners
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
	c.DropUpstreams()
	if err := c.Validate(); err == nil || !strings.Contains(err.Error(), "r1 is a voter: only a learner can be delayed") {
		t.Errorf("a delayed voter: %v", err)
	}
}
