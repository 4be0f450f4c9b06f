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

// LagObjective is for how long the slowest healthy follower may have to apply what it lacks; 0: commits are never
// slowed for that.
func (c *Cluster) LagObjective() time.Duration {
	return time.Duration(c.LagObjectiveMS) * time.Millisecond
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
		if n, err := strconv.Atoi(s.Value); err == nil && strconv.Itoa(n) == s.Value || s.Value == "true" ||
			s.Value == "false" {
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
