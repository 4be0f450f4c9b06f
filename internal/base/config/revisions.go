package config

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"
)

// Bounds of Cluster.Revisions. All of them travel with every change of the settings.
const (
	keptRevisions = 100
	keptChanges   = 1000 // in all of them together
)

// Revision is one change of what Settings lists, by an operator or by a node that joined or left.
type Revision struct {
	Version uint64    `json:"version"` // of the settings since then
	At      time.Time `json:"at"`      // by the clock of the leader
	By      string    `json:"by"`      // as api.AskedBy tells; a node's name: that node by itself
	Changes []Change  `json:"changes"` // by key

	kept
}

// Change of one setting.
type Change struct {
	Key    string  `json:"key"`
	Before *string `json:"before"` // null: there was no such setting, since its node was no member
	After  *string `json:"after"`  // null: not set any more
}

// values of all settings, by key.
func (c *Cluster) values() map[string]string {
	out := map[string]string{}
	for _, s := range c.Settings() {
		out[s.Key] = s.Value
	}
	return out
}

// difference between two states of the settings, by key.
func difference(before, after map[string]string) []Change {
	var out []Change
	for key, value := range after {
		if old, there := before[key]; !there {
			out = append(out, Change{Key: key, After: &value})
		} else if old != value {
			out = append(out, Change{key, &old, &value})
		}
	}
	for key, old := range before {
		if _, there := after[key]; !there {
			out = append(out, Change{Key: key, Before: &old})
		}
	}
	slices.SortFunc(out, func(a, b Change) int { return cmp.Compare(a.Key, b.Key) })
	return out
}

// Record notes in the settings themselves how they differ from those before, whose version is lower; nothing if no
// setting does.
func (c *Cluster) Record(before *Cluster, at time.Time, by string) {
	changes := difference(before.values(), c.values())
	if len(changes) == 0 {
		return
	}
	if len(c.Revisions) == 0 {
		c.RevisionsFrom = before.Version
	}
	c.Revisions = append(slices.Clone(c.Revisions), Revision{Version: c.Version, At: at.UTC().Round(0), By: by,
		Changes: changes})
	kept := 0
	for _, r := range c.Revisions {
		kept += len(r.Changes)
	}
	for len(c.Revisions) > 1 && (len(c.Revisions) > keptRevisions || kept > keptChanges) {
		kept -= len(c.Revisions[0].Changes)
		c.RevisionsFrom = c.Revisions[0].Version
		c.Revisions = c.Revisions[1:]
	}
}

// Between is how the settings of version to differ from those of version from, an earlier one.
func Between(revisions []Revision, from, to uint64) []Change {
	before, after := map[string]string{}, map[string]string{}
	seen := map[string]bool{}
	for _, r := range revisions {
		if r.Version <= from || r.Version > to {
			continue
		}
		for _, ch := range r.Changes {
			if !seen[ch.Key] && ch.Before != nil {
				before[ch.Key] = *ch.Before
			}
			seen[ch.Key] = true
			if delete(after, ch.Key); ch.After != nil {
				after[ch.Key] = *ch.After
			}
		}
	}
	return difference(before, after)
}

// OldestVersion is the lowest one that Rollback can go back to.
func (c *Cluster) OldestVersion() uint64 {
	if len(c.Revisions) == 0 {
		return c.Version
	}
	return c.RevisionsFrom
}

// Rollback gives the settings the values that they had at an earlier version, OldestVersion or later. Settings of nodes
// that were not members then stay as they are, and kept names them; those of former members are left out. changes are
// the differences from now.
func (c *Cluster) Rollback(version uint64) (changes []Change, kept []string, err error) {
	now := c.values()
	then := maps.Clone(now)
	for _, r := range slices.Backward(c.Revisions) {
		if r.Version <= version {
			break
		}
		for _, ch := range r.Changes {
			if ch.Before == nil {
				delete(then, ch.Key)
			} else {
				then[ch.Key] = *ch.Before
			}
		}
	}
	set := map[string]string{}
	for key, value := range now {
		if old, there := then[key]; !there {
			kept = append(kept, key)
		} else if old != value {
			set[key] = old
		}
	}
	slices.Sort(kept)
	if err := c.SetAll(set); err != nil {
		return nil, nil, fmt.Errorf("version %d cannot be taken up again: %w", version, err)
	}
	return difference(now, c.values()), kept, nil
}

// SetAll is Set for several settings. If one is refused because another has to be set first, it is tried again after
// that one.
func (c *Cluster) SetAll(set map[string]string) error {
	left := slices.Sorted(maps.Keys(set))
	for len(left) > 0 {
		var refused []string
		var first error
		for _, key := range left {
			trial := c.Clone()
			if err := trial.Set(key, set[key]); err != nil {
				if refused = append(refused, key); first == nil {
					first = err
				}
				continue
			}
			*c = *trial
		}
		if len(refused) == len(left) {
			return first
		}
		left = refused
	}
	return nil
}
