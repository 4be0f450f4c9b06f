package config

import (
	"fmt"
	"time"
)

// Delay is how old a transaction is before this learner's mysqld gets it (docs/ops/delayed.md); 0: it gets it at once.
func (m Member) Delay() time.Duration { return time.Duration(m.ApplyDelayMS) * time.Millisecond }

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
