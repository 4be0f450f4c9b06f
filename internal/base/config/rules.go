package config

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// DefaultCommitGrace is how long a commit waits for a rule that is not met before the rule is suspended.
const DefaultCommitGrace = 10 * time.Second

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
			return fmt.Errorf("%s: commits have to be on %s's disk, so it cannot leave; set %[1]s=false first", keyMustAck+
				m.Name, m.Name)
		case m.Role == RoleLearner:
			return fmt.Errorf(
				"%s: %s has no vote as a learner: only a voter or a logger can be asked for; set %[1]s=false first",
				keyMustAck+m.Name, m.Name)
		case m.Pending:
			return fmt.Errorf("%s: %s has joined and was never started; start its daemon first", keyMustAck+m.Name, m.Name)
		case voters == 1:
			return fmt.Errorf("%s: %s would be the only voter, every commit is on its disk anyway; set %[1]s=false", keyMustAck+
				m.Name, m.Name)
		}
	}
	if zones := c.Zones(); c.CommitZones > 1 && c.CommitZones > len(zones) {
		return fmt.Errorf("%s = %d: zones of the voters: %d (%s); set %sNODE, or lower %[1]s first",
			keyCommitZones, c.CommitZones, len(zones), strings.Join(zones, " "), keyZone)
	}
	return nil
}
