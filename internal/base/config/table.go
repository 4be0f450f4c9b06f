package config

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// clusterSetting is a key of the settings that all nodes share and an operator may change. The table below is the only
// list of them: what is shown, checked, changed, and told as possible follows it.
type clusterSetting struct {
	key string // one that ends in a dot is a node's, with the node's name after it
	doc string // for who edits them
	// Of a node's, m is its record; of others it is nil. set says what is wrong with a value, whatever the cluster looks
	// like: c and m may be empty.
	get func(c *Cluster, m *Member) string
	set func(c *Cluster, m *Member, value string) error
	has func(m *Member) bool              // nil: every member has one
	fit func(c *Cluster, m *Member) error // what is wrong with the cluster now that it is set; nil: see CheckRules
}

var clusterSettings = []clusterSetting{
	{
		key: "failback_after",
		doc: "how long a node with a higher weight than the leader's is healthy before it gets leadership; never: not by itself", get: func(c *Cluster, _ *Member) string {
			if d := c.Failback(); d > 0 {
				return Duration(d).String()
			}
			return never
		},
		set: func(c *Cluster, _ *Member, value string) error {
			if value == never {
				c.FailbackMS = -1
				return nil
			}
			return within(&c.FailbackMS, value, time.Second, 24*time.Hour,
				`neither "never" nor a time from 1s to 24h, such as "60s"`)
		},
	}, {
		key: "weight.", doc: fmt.Sprintf("0..%d; among nodes that are up to date the highest leads; 0 never leads",
			MaxWeight),
		get: func(_ *Cluster, m *Member) string { return strconv.Itoa(m.Weight) },
		set: func(_ *Cluster, m *Member, value string) error {
			return number(&m.Weight, value, 0, MaxWeight, strconv.Itoa(MaxWeight))
		},
		has: func(m *Member) bool { return m.Role != RoleLogger },
		fit: (*Cluster).checkWeight,
	}, {
		key: "commit_grace", doc: "how long a commit waits for must_ack and commit_zones before they are suspended",
		get: func(c *Cluster, _ *Member) string { return Duration(c.CommitGrace()).String() },
		set: func(c *Cluster, _ *Member, value string) error { // without an end one node's fault would be an outage of all
			return within(&c.CommitGraceMS, value, time.Second, time.Hour, `not a time from 1s to 1h, such as "10s"`)
		},
	}, {
		key: keyCommitZones, doc: "a commit is acknowledged once it is on disk in that many zones; 1: no rule",
		get: func(c *Cluster, _ *Member) string { return strconv.Itoa(max(1, c.CommitZones)) },
		set: func(c *Cluster, _ *Member, value string) error {
			return number(&c.CommitZones, value, 1, MaxMembers, "the number of zones")
		},
	}, {
		key: keyMustAck, doc: "true: a commit is acknowledged once it is on this node's disk too",
		get: func(_ *Cluster, m *Member) string { return strconv.FormatBool(m.MustAck) },
		set: func(_ *Cluster, m *Member, value string) error { return yesOrNo(&m.MustAck, value) },
		has: func(m *Member) bool { return m.Role != RoleLearner },
	}, {
		key: keyZone, doc: "what fails together, such as a data centre; empty: none",
		get: func(_ *Cluster, m *Member) string { return m.Zone },
		set: func(_ *Cluster, m *Member, value string) error {
			if value != "" {
				if err := CheckName("zone", value); err != nil {
					return err
				}
			}
			m.Zone = value
			return nil
		},
	}, {
		key: keyDelay,
		doc: "how old a transaction is before this learner applies it, 1s..168h; none: it applies what is committed",
		get: func(_ *Cluster, m *Member) string {
			if d := m.Delay(); d > 0 {
				return Duration(d).String()
			}
			return none
		},
		set: func(_ *Cluster, m *Member, value string) error {
			if value == none {
				m.ApplyDelayMS = 0
				return nil
			}
			// its raft log holds all of that
			return within(&m.ApplyDelayMS, value, time.Second, 7*24*time.Hour,
				`neither "none" nor a time from 1s to 168h, such as "1h"`)
		},
		has: func(m *Member) bool { return m.Role == RoleLearner },
		fit: func(c *Cluster, _ *Member) error { return c.checkDelays() },
	}, {
		key: "transaction_warn", doc: "a transaction of that many bytes is logged and recorded in the history; 0B: none is",
		get: func(c *Cluster, _ *Member) string { return c.TransactionWarn.String() },
		set: func(c *Cluster, _ *Member, value string) error { return transactionSize(&c.TransactionWarn, value) },
	}, {
		key: "transaction_refuse", doc: "the leader's mysqld refuses a transaction of more bytes, with error 1197; 0B: none",
		get: func(c *Cluster, _ *Member) string { return c.TransactionRefuse.String() },
		set: func(c *Cluster, _ *Member, value string) error { return transactionSize(&c.TransactionRefuse, value) },
	}, {
		key: "lag_objective",
		doc: "commits are slowed so that the slowest healthy follower has no more to apply than takes so long; 0s: never",
		get: func(c *Cluster, _ *Member) string { return Duration(c.LagObjective()).String() },
		set: func(c *Cluster, _ *Member, value string) error {
			if d, err := ParseDuration(value); err == nil && d == 0 { // "0" and "0ms" too
				c.LagObjectiveMS = 0
				return nil
			}
			// followers look, and tell, five times a second
			return within(&c.LagObjectiveMS, value, 2*time.Second, time.Hour,
				`neither "0s" nor a time from 2s to 1h, such as "5s"`)
		},
	}, {
		key: "read_login",
		doc: "true: /cluster, /history, /load, /metrics, /member, /config and /why-not need a token or certificate, too; health checks never do",
		get: func(c *Cluster, _ *Member) string { return strconv.FormatBool(c.ReadLogin) },
		set: func(c *Cluster, _ *Member, value string) error { return yesOrNo(&c.ReadLogin, value) },
	},
}

// Keys that errors name, and words that stand for no value.
const (
	keyCommitZones = "commit_zones"
	keyMustAck     = "must_ack."
	keyZone        = "zone."
	keyDelay       = "apply_delay."
	never          = "never"
	none           = "none"
)

// within reads a time from lowest to highest, in ms; not is what another value is.
func within(ms *int64, value string, lowest, highest time.Duration, not string) error {
	d, err := ParseDuration(value)
	if err != nil || d.Std() < lowest || d.Std() > highest {
		return fmt.Errorf("%q is %s", value, not)
	}
	*ms = d.Std().Milliseconds()
	return nil
}

// number reads a whole number; most is how its upper bound is called.
func number(n *int, value string, lowest, highest int, most string) error {
	v, err := strconv.Atoi(value)
	if err != nil || v < lowest || v > highest {
		return fmt.Errorf("%q is not a whole number from %d to %s", value, lowest, most)
	}
	*n = v
	return nil
}

// yesOrNo takes what strconv.ParseBool does: programs write 1 and True too.
func yesOrNo(b *bool, value string) error {
	v, err := strconv.ParseBool(value)
	if err != nil {
		return fmt.Errorf("%q is neither true nor false", value)
	}
	*b = v
	return nil
}

func transactionSize(b *Bytes, value string) error {
	v, err := ParseBytes(value)
	if err != nil || v != 0 && (v < MiB || v > TiB) {
		return fmt.Errorf("%q is neither \"0B\" nor a size from 1MiB to 1TiB, such as \"256MiB\"", value)
	}
	*b = v
	return nil
}

// settingOf finds a key's setting; node is whose it is, empty for one of the whole cluster.
func settingOf(key string) (s clusterSetting, node string, err error) {
	var plain, ofNodes []string
	for _, s := range clusterSettings {
		name, isNodes := strings.CutPrefix(key, s.key)
		switch {
		case !strings.HasSuffix(s.key, "."):
			if key == s.key {
				return s, "", nil
			}
			plain = append(plain, s.key)
		case isNodes:
			return s, name, of(key, CheckName("node", name))
		default:
			ofNodes = append(ofNodes, s.key+"NODE")
		}
	}
	slices.Sort(plain)
	slices.Sort(ofNodes)
	return s, "", fmt.Errorf("%q is no setting of the cluster; there are %s", key,
		strings.Join(append(plain, ofNodes...), " "))
}

// Settings lists what an operator may change.
func (c *Cluster) Settings() (out []Setting) {
	for _, s := range clusterSettings {
		if !strings.HasSuffix(s.key, ".") {
			out = append(out, Setting{s.key, s.get(c, nil), s.doc})
			continue
		}
		for i := range c.Members {
			if m := &c.Members[i]; s.has == nil || s.has(m) {
				out = append(out, Setting{s.key + m.Name, s.get(c, m), s.doc})
			}
		}
	}
	return out
}

// CheckSetting says what is wrong with a key or a value, whatever the cluster looks like.
func CheckSetting(key, value string) error {
	s, _, err := settingOf(key)
	if err != nil {
		return err
	}
	return of(key, s.set(new(Cluster), new(Member), value))
}

// Set changes one setting. Whether the commit rules can be met then is for CheckRules, after the last change of
// several.
func (c *Cluster) Set(key, value string) error {
	s, node, err := settingOf(key)
	if err != nil {
		return err
	}
	if node == "" {
		return of(key, s.set(c, nil, value))
	}
	i := slices.IndexFunc(c.Members, func(m Member) bool { return m.Name == node })
	if i < 0 {
		return fmt.Errorf("%s: %w; nodes are %s", key, ErrNoNode, strings.Join(c.Names(), " "))
	}
	before := c.Members[i]
	err = s.set(c, &c.Members[i], value)
	if err == nil && s.fit != nil {
		err = s.fit(c, &c.Members[i])
	}
	if err != nil {
		c.Members[i] = before
	}
	return of(key, err)
}

// of names the key that an error is about.
func of(key string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s: %w", key, err)
}

var errNoLeader = errors.New("no voter with a mysqld would have a weight above 0, so no node could lead")

// checkWeight says why m cannot have its weight.
func (c *Cluster) checkWeight(m *Member) error {
	if m.Role == RoleLogger {
		return fmt.Errorf("%s is a logger, which never leads and has no weight", m.Name)
	}
	if !slices.ContainsFunc(c.Members, func(m Member) bool { return m.Role == RoleVoter && m.Weight > 0 }) {
		return errNoLeader
	}
	return nil
}
