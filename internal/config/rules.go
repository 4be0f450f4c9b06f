package config

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Settings of what the OK of a commit needs beyond Raft's majority. must_ack.NODE and zone.NODE are a node's.
const (
	keyMustAck     = "must_ack."
	keyZone        = "zone."
	keyCommitZones = "commit_zones"
	keyCommitGrace = "commit_grace"
)

// DefaultCommitGrace is how long a commit waits for a rule that is not met before the rule is suspended.
const DefaultCommitGrace = 10 * time.Second

// Limits of commit_grace. A wait without an end would make one node's fault an outage of all.
const (
	minCommitGrace = time.Second
	maxCommitGrace = time.Hour
)

// CommitGrace is how long a commit waits for a rule that is not met.
func (c *Cluster) CommitGrace() time.Duration {
	if c.CommitGraceMS == 0 {
		return DefaultCommitGrace
	}
	return time.Duration(c.CommitGraceMS) * time.Millisecond
}

// Zones of the voters, by name. A member that is to have no vote counts for no rule: its log does not survive the
// voters'. Nor does one that was never started: it may be taken out unasked.
func (c *Cluster) Zones() []string {
	var zones []string
	for _, m := range c.Members {
		if !m.Leaving() && !m.Pending && m.Zone != "" && !slices.Contains(zones, m.Zone) {
			zones = append(zones, m.Zone)
		}
	}
	slices.Sort(zones)
	return zones
}

// CheckRules says why a commit rule could not be met by these members, nil when each can.
func (c *Cluster) CheckRules() error {
	voters := 0
	for _, m := range c.Members {
		if !m.Leaving() && !m.Pending {
			voters++
		}
	}
	for _, m := range c.Members {
		switch {
		case !m.MustAck:
		case m.Removing:
			return fmt.Errorf("%s: commits have to be on %s's disk, so it cannot leave; set %[1]s=false first", keyMustAck+m.Name, m.Name)
		case m.Role == RoleLearner:
			return fmt.Errorf("%s: %s has no vote as a learner: only a voter or a logger can be asked for; set %[1]s=false first",
				keyMustAck+m.Name, m.Name)
		case m.Pending:
			return fmt.Errorf("%s: %s has joined and was never started; start its daemon first", keyMustAck+m.Name, m.Name)
		case voters == 1:
			return fmt.Errorf("%s: %s would be the only voter, every commit is on its disk anyway; set %[1]s=false", keyMustAck+m.Name, m.Name)
		}
	}
	if zones := c.Zones(); c.CommitZones > 1 && c.CommitZones > len(zones) {
		return fmt.Errorf("%s = %d: zones of the voters: %d (%s); set %sNODE, or lower %[1]s first",
			keyCommitZones, c.CommitZones, len(zones), strings.Join(zones, " "), keyZone)
	}
	return nil
}

// ruleSettings lists those of this file.
func (c *Cluster) ruleSettings() []Setting {
	out := []Setting{
		{keyCommitGrace, Duration(c.CommitGrace()).String(), "how long a commit waits for must_ack and commit_zones before they are suspended"},
		{keyCommitZones, strconv.Itoa(max(1, c.CommitZones)), "a commit is acknowledged once it is on disk in that many zones; 1: no rule"},
	}
	for _, m := range c.Members {
		if m.Role != RoleLearner {
			out = append(out, Setting{keyMustAck + m.Name, strconv.FormatBool(m.MustAck),
				"true: a commit is acknowledged once it is on this node's disk too"})
		}
	}
	for _, m := range c.Members {
		out = append(out, Setting{keyZone + m.Name, m.Zone, "what fails together, such as a data centre; empty: none"})
	}
	return out
}

// isRule reports whether a key is one of this file's.
func isRule(key string) bool {
	return key == keyCommitGrace || key == keyCommitZones || strings.HasPrefix(key, keyMustAck) || strings.HasPrefix(key, keyZone)
}

// setRule changes one of them. With c nil it only says what is wrong with key or value.
func (c *Cluster) setRule(key, value string) error {
	switch key {
	case keyCommitGrace:
		d, err := ParseDuration(value)
		if err != nil || d.Std() < minCommitGrace || d.Std() > maxCommitGrace {
			return fmt.Errorf("%s: %q is not a time from 1s to 1h, such as \"10s\"", key, value)
		}
		if c != nil {
			c.CommitGraceMS = d.Std().Milliseconds()
		}
		return nil
	case keyCommitZones:
		z, err := strconv.Atoi(value)
		if err != nil || z < 1 || z > MaxMembers {
			return fmt.Errorf("%s: %q is not a whole number from 1 to the number of zones", key, value)
		}
		if c != nil {
			c.CommitZones = z
		}
		return nil
	}
	if name, isZone := strings.CutPrefix(key, keyZone); isZone {
		if value != "" && CheckName("zone", value) != nil {
			return fmt.Errorf("%s: %w", key, CheckName("zone", value))
		}
		return c.setOf(key, name, func(m *Member) { m.Zone = value })
	}
	if value != "true" && value != "false" {
		return fmt.Errorf("%s: %q is neither true nor false", key, value)
	}
	return c.setOf(key, strings.TrimPrefix(key, keyMustAck), func(m *Member) { m.MustAck = value == "true" })
}

// setOf changes a member's record; with c nil it only looks at the name.
func (c *Cluster) setOf(key, name string, change func(*Member)) error {
	if c == nil {
		if err := CheckName("node", name); err != nil {
			return fmt.Errorf("%s: %w", key, err)
		}
		return nil
	}
	i := slices.IndexFunc(c.Members, func(m Member) bool { return m.Name == name })
	if i < 0 {
		return fmt.Errorf("%s: %w; nodes are %s", key, ErrNoNode, strings.Join(c.Names(), " "))
	}
	change(&c.Members[i])
	return nil
}
