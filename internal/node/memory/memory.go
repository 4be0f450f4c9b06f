// Package memory is node.json: what a member must remember over a restart besides the raft log. The file is written
// whole, and it is on disk before anything that depends on it happens.
//
// A version keeps the keys that it does not know, for the newer one that wrote them. What an older version must not
// ignore raises the format, which the file then tells as "needs".
package memory

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"

	"trireme/internal/base/config"
	"trireme/internal/core/raftlog"
	"trireme/internal/node/delay"
	"trireme/internal/node/lifecycle"
	"trireme/internal/node/seeding"
)

// Name of the file in a member's directory.
const Name = "node.json"

// State is what the file holds.
type State struct {
	lifecycle.State
	// LogMade says that the raft log was made: finding none from then on means that it was lost (S2).
	LogMade bool `json:"log_made"`
	seeding.Notes
	// Hold is an operator's order to this node as a delayed learner; nil: no order.
	Hold *delay.Order `json:"hold,omitempty"`

	kept config.Kept
}

// format is the newest one that this version understands; a file without "needs" is of the first.
const format = 1

// MarshalJSON implements json.Marshaler.
func (s State) MarshalJSON() ([]byte, error) {
	type plain State
	return s.kept.Encode(plain(s))
}

// UnmarshalJSON implements json.Unmarshaler.
func (s *State) UnmarshalJSON(b []byte) (err error) {
	type plain State
	s.kept, err = config.DecodeKept(b, (*plain)(s))
	return err
}

// Memory is a State and its file. Its methods may be called from any goroutine, and reading never waits for the disk.
type Memory struct {
	mu    sync.Mutex // one update at a time
	fs    raftlog.FS
	path  string
	state atomic.Pointer[State]
}

var (
	_ lifecycle.Memory = (*Memory)(nil)
	_ seeding.Memory   = (*Memory)(nil)
	_ delay.Memory     = (*Memory)(nil)
)

// Open reads the file in a member's directory. If there is none, nothing is remembered.
func Open(fsys raftlog.FS, dir string) (*Memory, error) {
	m := &Memory{fs: fsys, path: filepath.Join(dir, Name)}
	m.state.Store(&State{})
	b, err := raftlog.ReadFile(fsys, m.path)
	if errors.Is(err, fs.ErrNotExist) {
		return m, nil
	}
	if err != nil {
		return nil, err
	}
	if err := config.CheckFormat(b, format); err != nil {
		return nil, fmt.Errorf("%s: %w", m.path, err)
	}
	var s State
	if err := json.Unmarshal(b, &s); err != nil {
		return nil, config.Damaged(m.path, err)
	}
	m.state.Store(&s)
	return m, nil
}

// Get returns the newest state; it is not to be changed.
func (m *Memory) Get() *State { return m.state.Load() }

// Update changes the state and returns once it is on disk. After an error the disk may have the change or not, and Get
// does not show it.
func (m *Memory) Update(change func(*State)) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	next := *m.state.Load()
	next.Led = slices.Clone(next.Led)
	next.Retired, next.Prelude = cloneMap(next.Retired), cloneMap(next.Prelude)
	change(&next)
	b, err := json.MarshalIndent(next, "", "  ")
	if err != nil {
		return err
	}
	if err := raftlog.ReplaceFile(m.fs, m.path, append(b, '\n')); err != nil {
		return fmt.Errorf("writing %s: %w", m.path, err)
	}
	m.state.Store(&next)
	return nil
}

// Recall implements lifecycle.Memory.
func (m *Memory) Recall() *lifecycle.State { return &m.Get().State }

// Remember implements lifecycle.Memory.
func (m *Memory) Remember(change func(*lifecycle.State)) error {
	return m.Update(func(s *State) { change(&s.State) })
}

// Notes implements seeding.Memory.
func (m *Memory) Notes() *seeding.Notes { return &m.Get().Notes }

// Note implements seeding.Memory.
func (m *Memory) Note(change func(*seeding.Notes, *lifecycle.State)) error {
	return m.Update(func(s *State) { change(&s.Notes, &s.State) })
}

// Order implements delay.Memory.
func (m *Memory) Order() *delay.Order { return m.Get().Hold }

// SetOrder implements delay.Memory.
func (m *Memory) SetOrder(o *delay.Order) error { return m.Update(func(s *State) { s.Hold = o }) }

// cloneMap never returns nil.
func cloneMap(m map[uint64]int64) map[uint64]int64 {
	if m == nil {
		return map[uint64]int64{}
	}
	return maps.Clone(m)
}
