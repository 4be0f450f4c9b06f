package verify

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
)

// Files of a kept set, for people who look into a violation: set.json, and for each workload what its clients did and what the nodes held.

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
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("directory of the histories: %w", err)
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

func saveJSON(dir, name string, v any) error {
	b, err := json.Marshal(v)
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, name), append(b, '\n'), 0o644)
}
