package verify

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"time"
)

// Files of a kept set: set.json, and for each workload what its clients did and what the nodes held.

const setFile = "set.json"

// keptSet is what set.json says.
type keptSet struct {
	Workloads   []string     `json:"workloads"`
	Seed        uint64       `json:"seed"`
	StaleMargin int64        `json:"stale_margin_ns"`
	Nodes       []string     `json:"nodes"`      // whose data was read at the end
	EveryNode   bool         `json:"every_node"` // readers read each of them
	Garbled     []GarbledRow `json:"garbled,omitempty"`
	Committed   *Committed   `json:"committed,omitempty"`
}

// save writes everything to the set's directory, if it has one.
func (s *Set) save() error {
	dir := s.cfg.Dir
	if dir == "" {
		return nil
	}
	k := keptSet{Seed: s.cfg.Seed, StaleMargin: int64(s.cfg.StaleMargin), Nodes: s.nodes, EveryNode: s.everyNode,
		Garbled: s.garbled, Committed: s.committed}
	for _, p := range s.parts {
		k.Workloads = append(k.Workloads, p.name())
		if err := p.save(dir); err != nil {
			return fmt.Errorf("keeping the history of %s: %w", p.name(), err)
		}
	}
	return saveJSON(dir, setFile, k)
}

// Recheck judges a set that was kept in a directory, without any server. What Check compares on live nodes only
// (checksums, definitions, gtid_executed) is not part of it.
func Recheck(dir string) (Report, error) {
	var k keptSet
	if err := loadJSON(dir, setFile, &k); err != nil {
		return Report{}, err
	}
	if len(k.Nodes) == 0 {
		return Report{}, fmt.Errorf("%s: the set was stopped but never checked, so it is not known what the nodes held", dir)
	}
	margin := k.StaleMargin
	if margin == 0 {
		margin = -1
	}
	s, err := NewSet(SetConfig{Login: Login{Addr: Fixed("")}, Workloads: k.Workloads, Seed: k.Seed,
		StaleMargin: time.Duration(margin)})
	if err != nil {
		return Report{}, err
	}
	for _, p := range s.parts {
		if err := p.load(dir); err != nil {
			return Report{}, fmt.Errorf("loading the history of %s: %w", p.name(), err)
		}
	}
	s.nodes, s.everyNode, s.garbled, s.committed = k.Nodes, k.EveryNode, k.Garbled, k.Committed
	r := Report{Nodes: k.Nodes}
	if s.committed != nil {
		r.Unread = s.committed.Why
	}
	s.judge(&r)
	return r, nil
}

func saveJSON(dir, name string, v any) error {
	b, err := json.Marshal(v)
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, name), append(b, '\n'), 0o644)
}

func loadJSON(dir, name string, v any) error {
	b, err := os.ReadFile(filepath.Join(dir, name))
	if err != nil {
		return err
	}
	if err := json.Unmarshal(b, v); err != nil {
		return fmt.Errorf("%s: %w", filepath.Join(dir, name), err)
	}
	return nil
}
