package config

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// A learner may be delayed: its mysqld gets a transaction only once that is so old (docs/ops/delayed.md).
const (
	keyDelay = "apply_delay."
	none     = "none"
)

// Limits of it.
const (
	minDelay = time.Second
	maxDelay = 7 * 24 * time.Hour // its raft log holds all of that
)

func isDelay(key string) bool { return strings.HasPrefix(key, keyDelay) }

// Delay is how old a transaction is before this learner's mysqld gets it; 0: it gets it at once.
func (m Member) Delay() time.Duration { return time.Duration(m.ApplyDelayMS) * time.Millisecond }

// parseDelay checks a setting by itself.
func parseDelay(key, value string) (time.Duration, error) {
	if err := CheckName("node", strings.TrimPrefix(key, keyDelay)); err != nil {
		return 0, fmt.Errorf("%s: %w", key, err)
	}
	if value == none {
		return 0, nil
	}
	d, err := ParseDuration(value)
	if err != nil || d.Std() < minDelay || d.Std() > maxDelay {
		return 0, fmt.Errorf("%s: %q is neither %q nor a time from 1s to 168h, such as \"1h\"", key, value, none)
	}
	return d.Std(), nil
}

// setDelay changes one member's.
func (c *Cluster) setDelay(key, value string) error {
	d, err := parseDelay(key, value)
	if err != nil {
		return err
	}
	name := strings.TrimPrefix(key, keyDelay)
	i := slices.IndexFunc(c.Members, func(m Member) bool { return m.Name == name })
	if i < 0 {
		return fmt.Errorf("%s: %w; nodes are %s", key, ErrNoNode, strings.Join(c.Names(), " "))
	}
	before := c.Members[i].ApplyDelayMS
	c.Members[i].ApplyDelayMS = d.Milliseconds()
	if err := c.checkDelays(); err != nil {
		c.Members[i].ApplyDelayMS = before
		return fmt.Errorf("%s: %w", key, err)
	}
	return nil
}

// checkDelays: only learners have one. A voter may have to lead at any moment, and would have to apply all of it first.
func (c *Cluster) checkDelays() error {
	for _, m := range c.Members {
		if m.ApplyDelayMS != 0 && m.Role != RoleLearner {
			return fmt.Errorf("%s is a %s: only a learner can be delayed, since a voter may have to lead (`trireme demote %[1]s` makes it a learner; `trireme config edit %s%[1]s=%s` takes a learner's delay away)",
				m.Name, m.Role, keyDelay, none)
		}
	}
	return nil
}

func (c *Cluster) delaySettings() []Setting {
	var out []Setting
	for _, m := range c.Members {
		if m.Role != RoleLearner {
			continue
		}
		value := none
		if d := m.Delay(); d > 0 {
			value = Duration(d).String()
		}
		out = append(out, Setting{keyDelay + m.Name, value,
			"how old a transaction is before this learner applies it, 1s..168h; none: it applies what is committed"})
	}
	return out
}
