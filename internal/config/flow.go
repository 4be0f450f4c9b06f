package config

import (
	"fmt"
	"time"
)

// Settings of what one writer may do to all others: large transactions, and more writes than followers apply
// (docs/ops/large-transactions.md).
const (
	keyWarn   = "transaction_warn"
	keyRefuse = "transaction_refuse"
	keyLag    = "lag_objective"
)

// Limits of them; 0 is off.
const (
	minTransaction  = MiB
	maxTransaction  = TiB
	minLagObjective = 2 * time.Second // followers look, and tell, five times a second
	maxLagObjective = time.Hour
)

func isFlow(key string) bool { return key == keyWarn || key == keyRefuse || key == keyLag }

// flowSettings lists those of this file.
func (c *Cluster) flowSettings() []Setting {
	return []Setting{
		{keyWarn, c.TransactionWarn.String(), "a transaction of that many bytes is logged and recorded in the history; 0B: none is"},
		{keyRefuse, c.TransactionRefuse.String(), "the leader's mysqld refuses a transaction of more bytes, with error 1197; 0B: none"},
		{keyLag, Duration(c.LagObjective()).String(), "commits are slowed so that the slowest healthy follower has no more to apply than takes so long; 0s: never"},
	}
}

// LagObjective is for how long the slowest healthy follower may have to apply what it lacks; 0: commits are never
// slowed for that.
func (c *Cluster) LagObjective() time.Duration {
	return time.Duration(c.LagObjectiveMS) * time.Millisecond
}

// setFlow changes one of them. With c nil it only says what is wrong with the value.
func (c *Cluster) setFlow(key, value string) error {
	if c == nil {
		c = new(Cluster)
	}
	if key == keyLag {
		d, err := ParseDuration(value)
		if err != nil || d != 0 && (d.Std() < minLagObjective || d.Std() > maxLagObjective) {
			return fmt.Errorf("%s: %q is neither \"0s\" nor a time from 2s to 1h, such as \"5s\"", key, value)
		}
		c.LagObjectiveMS = d.Std().Milliseconds()
		return nil
	}
	b, err := ParseBytes(value)
	if err != nil || b != 0 && (b < minTransaction || b > maxTransaction) {
		return fmt.Errorf("%s: %q is neither \"0B\" nor a size from 1MiB to 1TiB, such as \"256MiB\"", key, value)
	}
	if key == keyWarn {
		c.TransactionWarn = b
	} else {
		c.TransactionRefuse = b
	}
	return nil
}
