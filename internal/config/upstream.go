package config

import (
	"fmt"
	"slices"
	"strings"
)

// A learner may have an upstream: a member that passes the log's entries on to it, in place of the leader (docs/ops/shapes.md).
const (
	keyUpstream = "upstream."
	none        = "none"
)

// MaxUpstreams bounds a chain of upstreams: each one is a place more at which a learner can be held up.
const MaxUpstreams = 4

func isUpstream(key string) bool { return strings.HasPrefix(key, keyUpstream) }

// checkUpstream checks a setting by itself.
func checkUpstream(key, value string) error {
	if err := CheckName("node", strings.TrimPrefix(key, keyUpstream)); err != nil {
		return fmt.Errorf("%s: %w", key, err)
	}
	if err := CheckName("node", value); err != nil {
		return fmt.Errorf("%s: %w (%q: the leader sends to it directly)", key, err, none)
	}
	return nil
}

// setUpstream changes one member's.
func (c *Cluster) setUpstream(key, value string) error {
	if err := checkUpstream(key, value); err != nil {
		return err
	}
	name := strings.TrimPrefix(key, keyUpstream)
	i := slices.IndexFunc(c.Members, func(m Member) bool { return m.Name == name })
	if i < 0 {
		return fmt.Errorf("%s: %w; nodes are %s", key, ErrNoNode, strings.Join(c.Names(), " "))
	}
	before := c.Members[i].Upstream
	if c.Members[i].Upstream = 0; value != none {
		up, ok := c.Member(value)
		if !ok {
			return fmt.Errorf("%s: %w: %q; nodes are %s", key, ErrNoNode, value, strings.Join(c.Names(), " "))
		}
		c.Members[i].Upstream = up.ID
	}
	if err := c.checkUpstreams(); err != nil {
		c.Members[i].Upstream = before
		return fmt.Errorf("%s: %w", key, err)
	}
	return nil
}

// CheckFollower says why a node of some role that is to join could not have up as its upstream.
func (c *Cluster) CheckFollower(up Member, role string) error {
	d := c.Clone()
	d.Members = append(d.Members, Member{ID: c.NextID, Name: "the new node", Role: role, Upstream: up.ID})
	return d.checkUpstreams()
}

// checkUpstreams: only learners have one, and following them comes to an end.
func (c *Cluster) checkUpstreams() error {
	for _, m := range c.Members {
		if m.Upstream == 0 {
			continue
		}
		if m.Role != RoleLearner {
			return fmt.Errorf("%s is a %s: only a learner has an upstream, since a vote counts what the leader sent", m.Name, m.Role)
		}
		chain := []string{m.Name}
		for at := m; at.Upstream != 0; {
			up, ok := c.MemberByID(at.Upstream)
			if !ok {
				return fmt.Errorf("the upstream of %s, id %d, is no member", at.Name, at.Upstream)
			}
			chain = append(chain, up.Name)
			if up.ID == m.ID {
				return fmt.Errorf("upstreams form a cycle: %s", strings.Join(chain, " <- "))
			}
			if len(chain) > MaxUpstreams+1 {
				return fmt.Errorf("more than %d upstreams in a row: %s", MaxUpstreams, strings.Join(chain, " <- "))
			}
			at = up
		}
	}
	return nil
}

// DropUpstreams takes away those that cannot be any more: of a member that is no learner, and those that leave or have left. What followed a
// node that leaves follows the leader.
func (c *Cluster) DropUpstreams() {
	for i := range c.Members {
		m := &c.Members[i]
		if up, ok := c.MemberByID(m.Upstream); m.Role != RoleLearner || !ok || up.Removing {
			m.Upstream = 0
		}
	}
}

// UpstreamOf is the name of a member's upstream, empty if it has none.
func (c *Cluster) UpstreamOf(m Member) string {
	up, _ := c.MemberByID(m.Upstream)
	return up.Name
}

func (c *Cluster) upstreamSettings() []Setting {
	var out []Setting
	for _, m := range c.Members {
		if m.Role != RoleLearner {
			continue
		}
		value := none
		if up := c.UpstreamOf(m); up != "" {
			value = up
		}
		out = append(out, Setting{keyUpstream + m.Name, value,
			"the node near this learner that passes the log on to it; none: the leader sends to it directly"})
	}
	return out
}
