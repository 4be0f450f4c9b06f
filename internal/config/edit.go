package config

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/BurntSushi/toml"
)

// DefaultFailback is how long a preferred node has been healthy before it gets leadership back.
const DefaultFailback = time.Minute

// Limits of failback_after.
const (
	minFailback = time.Second
	maxFailback = 24 * time.Hour
)

// Keys of the cluster settings that an operator may change, with those of rules.go, delay.go,
// flow.go and access.go. A node's weight is weight.NAME.
const (
	keyFailback = "failback_after"
	keyWeight   = "weight."
	never       = "never"
)

// ErrNoNode says that a key names a node that is no member.
var ErrNoNode = errors.New("no such node")

// Setting is one of them with its value, as a file would hold it without quotes.
type Setting struct {
	Key   string `json:"key"`
	Value string `json:"value"`
	Doc   string `json:"doc"`
}

// Failback is how long a preferred node has been healthy before it gets leadership back; 0: it never does by itself.
func (c *Cluster) Failback() time.Duration {
	switch {
	case c.FailbackMS < 0:
		return 0
	case c.FailbackMS == 0:
		return DefaultFailback
	}
	return time.Duration(c.FailbackMS) * time.Millisecond
}

// Settings lists what an operator may change. A logger has no weight: it never leads.
func (c *Cluster) Settings() []Setting {
	after := never
	if d := c.Failback(); d > 0 {
		after = Duration(d).String()
	}
	out := []Setting{{keyFailback, after,
		"how long a node with a higher weight than the leader's is healthy before it gets leadership; never: not by itself"}}
	for _, m := range c.Members {
		if m.Role != RoleLogger {
			out = append(out, Setting{keyWeight + m.Name, strconv.Itoa(m.Weight),
				fmt.Sprintf("0..%d; among nodes that are up to date the highest leads; 0 never leads", MaxWeight)})
		}
	}
	return slices.Concat(out, c.ruleSettings(), c.delaySettings(), c.flowSettings(), c.accessSettings())
}

// CheckSetting says what is wrong with a key or a value, whatever the cluster looks like.
func CheckSetting(key, value string) error {
	if isRule(key) {
		return (*Cluster)(nil).setRule(key, value)
	}
	if isDelay(key) {
		_, err := parseDelay(key, value)
		return err
	}
	if isFlow(key) {
		return (*Cluster)(nil).setFlow(key, value)
	}
	if key == keyReadLogin {
		return (*Cluster)(nil).setReadLogin(value)
	}
	_, err := parseSetting(key, value)
	return err
}

// parseSetting gives ms of failback_after (below 0: never) or a weight.
func parseSetting(key, value string) (int64, error) {
	node, isWeight := strings.CutPrefix(key, keyWeight)
	switch {
	case isWeight:
		if err := CheckName("node", node); err != nil {
			return 0, fmt.Errorf("%s: %w", key, err)
		}
		w, err := strconv.Atoi(value)
		if err != nil || w < 0 || w > MaxWeight {
			return 0, fmt.Errorf("%s: %q is not a whole number from 0 to %d", key, value, MaxWeight)
		}
		return int64(w), nil
	case key != keyFailback:
		return 0, fmt.Errorf("%q is no setting of the cluster; there are %s %s %s %s %s %s %s %sNODE %sNODE %sNODE %sNODE", key,
			keyCommitGrace, keyCommitZones, keyFailback, keyLag, keyReadLogin, keyRefuse, keyWarn, keyDelay, keyMustAck, keyWeight, keyZone)
	case value == never:
		return -1, nil
	}
	d, err := ParseDuration(value)
	if err != nil || d.Std() < minFailback || d.Std() > maxFailback {
		return 0, fmt.Errorf("%s: %q is neither \"never\" nor a time from 1s to 24h, such as \"60s\"", key, value)
	}
	return d.Std().Milliseconds(), nil
}

// Set changes one setting. Whether the commit rules can be met then is for CheckRules, after the last change of
// several.
func (c *Cluster) Set(key, value string) error {
	if isRule(key) {
		return c.setRule(key, value)
	}
	if isDelay(key) {
		return c.setDelay(key, value)
	}
	if isFlow(key) {
		return c.setFlow(key, value)
	}
	if key == keyReadLogin {
		return c.setReadLogin(value)
	}
	v, err := parseSetting(key, value)
	if err != nil {
		return err
	}
	if key == keyFailback {
		c.FailbackMS = v
		return nil
	}
	name := strings.TrimPrefix(key, keyWeight)
	i := slices.IndexFunc(c.Members, func(m Member) bool { return m.Name == name })
	switch {
	case i < 0:
		return fmt.Errorf("%s: %w; nodes are %s", key, ErrNoNode, strings.Join(c.Names(), " "))
	case c.Members[i].Role == RoleLogger:
		return fmt.Errorf("%s: %s is a logger, which never leads and has no weight", key, name)
	}
	c.Members[i].Weight = int(v)
	for _, m := range c.Members {
		if m.Role == RoleVoter && m.Weight > 0 {
			return nil
		}
	}
	return fmt.Errorf("%s: no voter with a mysqld would have a weight above 0, so no node could lead", key)
}

// RenderSettings writes settings as the text that an operator edits.
func RenderSettings(settings []Setting) string {
	var b strings.Builder
	doc := ""
	for _, s := range settings {
		if s.Doc != doc {
			doc = s.Doc
			fmt.Fprintf(&b, "# %s\n", doc)
		}
		if n, err := strconv.Atoi(s.Value); err == nil && strconv.Itoa(n) == s.Value || s.Value == "true" || s.Value == "false" {
			fmt.Fprintf(&b, "%s = %s\n", s.Key, s.Value)
		} else {
			fmt.Fprintf(&b, "%s = %q\n", s.Key, s.Value)
		}
	}
	return b.String()
}

// ParseSettings reads such text back: key to value.
func ParseSettings(text string) (map[string]string, error) {
	var tree map[string]any
	if _, err := toml.Decode(text, &tree); err != nil {
		return nil, err
	}
	out := map[string]string{}
	var walk func(prefix string, t map[string]any)
	walk = func(prefix string, t map[string]any) {
		for k, v := range t {
			if sub, ok := v.(map[string]any); ok {
				walk(prefix+k+".", sub)
			} else {
				out[prefix+k] = fmt.Sprint(v)
			}
		}
	}
	walk("", tree)
	for _, k := range slices.Sorted(maps.Keys(out)) {
		if err := CheckSetting(k, out[k]); err != nil {
			return nil, err
		}
	}
	return out, nil
}
