package config

import (
	"strings"
	"testing"
	"time"
)

func ruleCluster() *Cluster {
	c := testCluster()
	for _, name := range []string{"n3", "n4"} {
		n := Default()
		n.Name, n.Peer.Advertise, n.API.Advertise, n.MySQL.Advertise = name, name+":7306", name+":8008", name
		c.Members = append(c.Members, n.Member(c.NextID, RoleVoter))
		c.NextID++
	}
	return c
}

func TestRuleSettings(t *testing.T) {
	c := ruleCluster()
	if c.CommitGrace() != DefaultCommitGrace {
		t.Errorf("default of commit_grace: %v", c.CommitGrace())
	}
	for _, pair := range []string{"commit_zones=2", "commit_grace=1500ms", "must_ack.l1=true", "zone.n1=007",
		"zone.l1=true", "zone.n3=dc-1", "zone.n4="} {
		key, value, _ := strings.Cut(pair, "=")
		if err := CheckSetting(key, value); err != nil {
			t.Error(err)
		}
		if err := c.Set(key, value); err != nil {
			t.Error(err)
		}
	}
	if c.CommitGrace() != 1500*time.Millisecond || c.CommitZones != 2 || !c.Members[1].MustAck ||
		c.Members[1].Zone != "true" {
		t.Errorf("%+v", c)
	}
	if err := c.CheckRules(); err != nil {
		t.Error(err)
	}
	// What is shown can be given back as it is.
	shown, err := ParseSettings(RenderSettings(c.Settings()))
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range c.Settings() {
		if shown[s.Key] != s.Value {
			t.Errorf("%s: %q is read back as %q", s.Key, s.Value, shown[s.Key])
		}
	}
	data, err := c.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	if d, err := ParseCluster(data); err != nil || d.Members[2].Zone != "dc-1" || d.CommitZones != 2 {
		t.Errorf("%+v, %v", d, err)
	}
}

func TestRulesThatCannotBeMet(t *testing.T) {
	for want, change := range map[string]func(*Cluster){
		"has no vote as a learner":      func(c *Cluster) { c.Members[2].MustAck, c.Members[2].Role = true, RoleLearner },
		"set must_ack.n3=false first":   func(c *Cluster) { c.Members[2].MustAck, c.Members[2].Removing = true, true },
		"was never started":             func(c *Cluster) { c.Members[2].MustAck, c.Members[2].Pending = true, true },
		"1 (a); set zone.NODE":          func(c *Cluster) { c.CommitZones, c.Members[2].Pending = 2, true },
		"would be the only voter":       func(c *Cluster) { c.Members = c.Members[:1]; c.Members[0].MustAck = true },
		"zones of the voters: 2 (a b);": func(c *Cluster) { c.CommitZones = 3 },
		"zones of the voters: 1 (a)":    func(c *Cluster) { c.CommitZones, c.Members[2].Role = 2, RoleLearner },
		"zones of the voters: 1 (a);":   func(c *Cluster) { c.CommitZones, c.Members[2].Removing = 2, true },
	} {
		c := ruleCluster()
		c.Members[0].Zone, c.Members[2].Zone = "a", "b"
		if err := c.CheckRules(); err != nil {
			t.Fatal(err)
		}
		change(c)
		if err := c.CheckRules(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
}
