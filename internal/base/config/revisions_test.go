package config

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

var revisedAt = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

// revise makes the next version of settings as a leader does.
func revise(t interface{ Fatal(...any) }, c *Cluster, change func(*Cluster)) *Cluster {
	next := c.Clone()
	change(next)
	next.Version++
	next.Record(c, revisedAt, "operator")
	b, err := next.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	read, err := ParseCluster(b)
	if err != nil {
		t.Fatal(err)
	}
	return read
}

// threeMembers is testCluster with a second data node.
func threeMembers() *Cluster {
	c := testCluster()
	n2 := c.Members[0]
	n2.ID, n2.Name, n2.Peer, n2.API, n2.MySQLHost = 3, "n2", "db3:7306", "db3:8008", "db3"
	c.Members, c.NextID = append(c.Members, n2), 4
	return c
}

func text(s string) *string { return &s }

func TestRecord(t *testing.T) {
	first := threeMembers()
	paused := revise(t, first, func(c *Cluster) { c.Pause = &Pause{Since: revisedAt} })
	if len(paused.Revisions) != 0 || paused.OldestVersion() != paused.Version {
		t.Errorf("a pause is no setting: %+v", paused.Revisions)
	}
	set := revise(t, paused, func(c *Cluster) {
		if err := c.SetAll(map[string]string{"weight.n2": "7", "zone.n1": "east"}); err != nil {
			t.Fatal(err)
		}
	})
	want := []Revision{{Version: set.Version, At: revisedAt, By: "operator",
		Changes: []Change{{"weight.n2", text("100"), text("7")}, {"zone.n1", text(""), text("east")}}}}
	if !reflect.DeepEqual(set.Revisions, want) || set.OldestVersion() != paused.Version {
		t.Errorf("%+v back to %d", set.Revisions, set.OldestVersion())
	}
	gone := revise(t, set, func(c *Cluster) {
		c.Members = slices.DeleteFunc(c.Members, func(m Member) bool { return m.Name == "n2" })
	})
	if ch := gone.Revisions[1].Changes; len(ch) != 3 || ch[1] != (Change{Key: "weight.n2", Before: ch[1].Before}) ||
		*ch[1].Before != "7" {
		t.Errorf("%+v", ch)
	}
	if len(set.Revisions) != 1 {
		t.Error("settings in use were changed")
	}
}

// TestRevisionsAreBounded: whatever is changed how often, settings stay small, and say how far back they go.
func TestRevisionsAreBounded(t *testing.T) {
	c := threeMembers()
	for i := range keptRevisions + 10 {
		c = revise(t, c, func(c *Cluster) { c.Members[0].Weight = i%2 + 1 })
	}
	if len(c.Revisions) != keptRevisions || c.OldestVersion() != c.Revisions[0].Version-1 {
		t.Errorf("%d kept, back to %d", len(c.Revisions), c.OldestVersion())
	}
	for i := range MaxMembers - len(c.Members) {
		m := c.Members[0]
		m.ID, m.Name, m.Peer, m.API, m.MySQLPort = c.NextID, fmt.Sprintf("m%d", i), fmt.Sprintf("h:%d", 1000+i),
			fmt.Sprintf("h:%d", 2000+i), 3000+i
		c.Members, c.NextID = append(c.Members, m), c.NextID+1
	}
	for i := range keptRevisions + 10 {
		c = revise(t, c, func(c *Cluster) {
			for j := range c.Members {
				if c.Members[j].Role != RoleLogger {
					c.Members[j].Weight = i%2 + 1
				}
			}
		})
	}
	total := 0
	for _, r := range c.Revisions {
		total += len(r.Changes)
	}
	if total > keptChanges || total < keptChanges/2 || c.OldestVersion() != c.Revisions[0].Version-1 {
		t.Errorf("%d changes in %d revisions, back to %d", total, len(c.Revisions), c.OldestVersion())
	}
}

// TestRollback: after any changes, every version that is kept can be taken up again, but for what depends on who is a
// member, and compared with any later one.
func TestRollback(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := threeMembers()
		states := map[uint64]map[string]string{c.Version: c.values()}
		for range rapid.IntRange(1, 12).Draw(t, "changes") {
			c = revise(t, c, func(c *Cluster) {
				switch i := rapid.IntRange(0, len(c.Members)-1).Draw(t, "member"); rapid.IntRange(0, 3).Draw(t, "what") {
				case 0:
					c.Members[i].Zone = rapid.SampledFrom([]string{"", "a", "b"}).Draw(t, "zone")
				case 1:
					if c.Members[i].Role != RoleLogger {
						c.Members[i].Weight = rapid.IntRange(1, 3).Draw(t, "weight")
					}
				case 2:
					c.FailbackMS = rapid.Int64Range(1, 9).Draw(t, "failback") * 1000
				case 3:
					if len(c.Members) > 1 && c.Members[i].Name != "n1" {
						c.Members = slices.Delete(c.Members, i, i+1)
					}
				}
			})
			states[c.Version] = c.values()
		}
		to := rapid.Uint64Range(c.OldestVersion(), c.Version).Draw(t, "to")
		now := c.values()
		for version, then := range states {
			if version >= to && !reflect.DeepEqual(Between(c.Revisions, to, version), difference(states[to], then)) {
				t.Errorf("from %d to %d: %+v", to, version, Between(c.Revisions, to, version))
			}
		}
		changes, kept, err := c.Rollback(to)
		if err != nil {
			t.Fatal(err)
		}
		for key, value := range c.values() {
			want, there := states[to][key]
			if !there {
				want = now[key]
			}
			if there == slices.Contains(kept, key) || value != want {
				t.Errorf("%s = %q at version %d, it was %q (%v)", key, value, to, want, kept)
			}
		}
		if !reflect.DeepEqual(changes, difference(now, c.values())) {
			t.Errorf("%+v", changes)
		}
	})
}

// TestSetAll: the order in which settings are given does not matter.
func TestSetAll(t *testing.T) {
	c := threeMembers()
	for i := range c.Members {
		if c.Members[i].Name != "n2" {
			c.Members[i].Weight = 0
		}
	}
	for _, set := range []map[string]string{{"weight.n1": "5", "weight.n2": "0"}, {"weight.n1": "0", "weight.n2": "5"}} {
		if err := c.SetAll(set); err != nil {
			t.Errorf("%v: %v", set, err)
		}
		for key, want := range set {
			if got := c.values()[key]; got != want {
				t.Errorf("%s = %s, want %s", key, got, want)
			}
		}
	}
	if err := c.SetAll(map[string]string{"weight.n1": "0", "weight.n2": "0"}); err == nil ||
		!strings.Contains(err.Error(), "no node could lead") {
		t.Error(err)
	}
}
