package node

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"

	"trireme/internal/base/config"
	"trireme/internal/base/durable"
	"trireme/internal/node/delay"
	"trireme/internal/node/lifecycle"
	"trireme/internal/node/seeding"
)

// localState is what a node must remember of itself over a restart, besides the raft log. It is in node.json, written
// whole and fsynced before anything that depends on it happens.
//
// A version keeps the keys that it does not know, for the newer one that wrote them. What an older version must not
// ignore raises localFormat, which the file then tells as "needs".
type localState struct {
	lifecycle.State
	// LogMade says that the raft log was made: finding none from then on means that it was lost (S2).
	LogMade bool `json:"log_made"`
	seeding.Notes
	// Hold is an operator's order to this node as a delayed learner; nil: no order.
	Hold *delay.Order `json:"hold,omitempty"`

	kept config.Kept
}

// localFormat is the newest format of node.json that this version understands; a file without "needs" is of the first.
const localFormat = 1

// MarshalJSON implements json.Marshaler.
func (s localState) MarshalJSON() ([]byte, error) {
	type plain localState
	return s.kept.Encode(plain(s))
}

// UnmarshalJSON implements json.Unmarshaler.
func (s *localState) UnmarshalJSON(b []byte) (err error) {
	type plain localState
	s.kept, err = config.DecodeKept(b, (*plain)(s))
	return err
}

// localFile keeps a localState on disk. Reading it never waits for the disk.
type localFile struct {
	mu    sync.Mutex // one update at a time
	path  string
	state atomic.Pointer[localState]
}

func openLocalFile(dir string) (*localFile, error) {
	f := &localFile{path: filepath.Join(dir, "node.json")}
	f.state.Store(&localState{})
	b, err := os.ReadFile(f.path)
	if errors.Is(err, fs.ErrNotExist) {
		return f, nil
	}
	if err != nil {
		return nil, err
	}
	if err := config.CheckFormat(b, localFormat); err != nil {
		return nil, fmt.Errorf("%s: %w", f.path, err)
	}
	var s localState
	if err := json.Unmarshal(b, &s); err != nil {
		return nil, config.Damaged(f.path, err)
	}
	f.state.Store(&s)
	return f, nil
}

// get returns the newest state; it is not to be changed.
func (f *localFile) get() *localState { return f.state.Load() }

// update changes the state and returns once it is on disk.
func (f *localFile) update(change func(*localState)) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	next := *f.state.Load()
	next.Led = slices.Clone(next.Led)
	next.Retired, next.Prelude = cloneMap(next.Retired), cloneMap(next.Prelude)
	change(&next)
	b, err := json.MarshalIndent(next, "", "  ")
	if err != nil {
		return err
	}
	if err := durable.WriteFile(f.path, append(b, '\n'), 0o600); err != nil {
		return fmt.Errorf("writing %s: %w", f.path, err)
	}
	f.state.Store(&next)
	return nil
}

// Recall implements lifecycle.Memory.
func (f *localFile) Recall() *lifecycle.State { return &f.get().State }

// Remember implements lifecycle.Memory.
func (f *localFile) Remember(change func(*lifecycle.State)) error {
	return f.update(func(s *localState) { change(&s.State) })
}

// cloneMap never returns nil.
func cloneMap(m map[uint64]int64) map[uint64]int64 {
	if m == nil {
		return map[uint64]int64{}
	}
	return maps.Clone(m)
}
