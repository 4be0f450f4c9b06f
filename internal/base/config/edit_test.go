package config

import (
	"errors"
	"maps"
	"strings"
	"testing"
	"time"
)

func TestSettingsRoundTrip(t *testing.T) {
	c := testCluster()
	if c.Failback() != DefaultFailback {
		t.Errorf("default of failback_after: %v", c.Failback())
	}
	want := map[string]string{}
	for _, s := range c.Settings() {
		want[s.Key] = s.Value
	}
	got, err := ParseSettings(RenderSettings(c.Settings()))
	if err != nil || !maps.Equal(got, want) {
		t.Errorf("%v, %v, want %v", got, err, want)
	}
	for key, value := range map[string]string{"transaction_warn": "256MiB", "transaction_refuse": "1GiB",
		"lag_objective": "5s"} {
		if err := c.Set(key, value); err != nil {
			t.Error(err)
		}
		want[key] = value
	}
	if got, err := ParseSettings(RenderSettings(c.Settings())); err != nil || !maps.Equal(got, want) {
		t.Errorf("%v, %v, want %v", got, err, want)
	}
	if c.TransactionWarn != 256*MiB || c.TransactionRefuse != GiB || c.LagObjective() != 5*time.Second {
		t.Errorf("%v %v %v", c.TransactionWarn, c.TransactionRefuse, c.LagObjective())
	}
	for value, after := range map[string]time.Duration{"never": 0, "5s": 5 * time.Second, "1h": time.Hour} {
		if err := c.Set("failback_after", value); err != nil || c.Failback() != after {
			t.Errorf("%s: %v, %v", value, c.Failback(), err)
		}
		if got := c.Settings()[0].Value; got != value {
			t.Errorf("%q is shown as %q", value, got)
		}
	}
}

// TestOtherSpellings: what is not written as it is shown counts all the same.
func TestOtherSpellings(t *testing.T) {
	c := testCluster()
	for _, pair := range [][3]string{
		{"read_login", "1", "true"}, {"read_login", "F", "false"}, {"read_login", "TRUE", "true"},
		{"lag_objective", "5000ms", "5s"}, {"lag_objective", "0", "0s"}, {"lag_objective", "0.1m", "6s"},
		{"lag_objective", "0ms", "0s"}, {"commit_grace", " 60s", "1m"}, {"failback_after", "60m", "1h"},
		{"transaction_warn", "1024MiB", "1GiB"}, {"weight.n1", "+7", "7"},
	} {
		key, value, want := pair[0], pair[1], pair[2]
		if err := errors.Join(CheckSetting(key, value), c.Set(key, value)); err != nil || c.values()[key] != want {
			t.Errorf("%s=%q: %v, shown as %q, want %q", key, value, err, c.values()[key], want)
		}
	}
}

func TestSetMistakes(t *testing.T) {
	for pair, want := range map[string]string{
		"weight.nobody=1":         "no such node",
		"weight.n1=1001":          "not a whole number from 0 to 1000",
		"weight.n1=-1":            "not a whole number",
		"weight.n1=":              "not a whole number",
		"weight.=1":               "is not usable",
		"failback_after=0s":       "from 1s to 24h",
		"failback_after=25h":      "from 1s to 24h",
		"failback_after=soon":     "neither",
		"name=x":                  "is no setting of the cluster",
		"commit_grace=0s":         "from 1s to 1h",
		"commit_zones=0":          "not a whole number",
		"commit_zones=two":        "not a whole number",
		"must_ack.n1=maybe":       "neither true nor false",
		"must_ack.nobody=true":    "no such node",
		"must_ack.=true":          "is not usable",
		"zone.nobody=a":           "no such node",
		"zone.n1=a b":             "letters, digits",
		"weight.n1=0":             "no node could lead",
		"transaction_warn=100":    "from 1MiB to 1TiB",
		"transaction_refuse=4B":   "from 1MiB to 1TiB",
		"transaction_refuse=2TiB": "from 1MiB to 1TiB",
		"lag_objective=500ms":     "from 2s to 1h",
		"lag_objective=2h":        "from 2s to 1h",
	} {
		c := testCluster()
		for i := range c.Members {
			if c.Members[i].Name != "n1" {
				c.Members[i].Weight = 0
			}
		}
		key, value, _ := strings.Cut(pair, "=")
		if err := c.Set(key, value); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: error %v, want %q", pair, err, want)
		}
	}
	c := testCluster()
	if err := c.Set("weight.nobody", "1"); !errors.Is(err, ErrNoNode) {
		t.Error(err)
	}
	for _, m := range c.Members {
		if m.Role == RoleLogger {
			if err := c.Set("weight."+m.Name, "1"); err == nil || !strings.Contains(err.Error(), "is a logger") {
				t.Error(err)
			}
		}
	}
}

func TestPausedAt(t *testing.T) {
	now := time.Unix(1000, 0)
	c := testCluster()
	if c.PausedAt(now) {
		t.Error("paused without a pause")
	}
	c.Pause = &Pause{Since: now}
	if !c.PausedAt(now.Add(time.Hour)) {
		t.Error("a pause without an end has ended")
	}
	c.Pause.Until = now.Add(time.Minute)
	if !c.PausedAt(now) || c.PausedAt(now.Add(time.Minute)) {
		t.Error("a pause does not end when it should")
	}
	d := c.Clone()
	d.Pause.Until = now
	if !c.PausedAt(now) {
		t.Error("Clone shares the pause")
	}
}
