package node

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"trireme/internal/base/config"
	"trireme/internal/core/raftlog"
	"trireme/internal/node/lifecycle"
	"trireme/internal/node/recovery"
)

// TestDamagedFiles: a file of the node that cannot be understood is named and left as it is, and another start would
// find the same.
func TestDamagedFiles(t *testing.T) {
	for name, load := range map[string]func(dir string) error{
		config.IdentityName: func(dir string) error { _, err := config.LoadIdentity(dir); return err },
		config.ClusterName:  func(dir string) error { _, err := config.LoadCluster(dir); return err },
		config.SecretsName:  func(dir string) error { _, err := config.LoadSecrets(dir); return err },
		"node.json":         func(dir string) error { _, err := openLocalFile(dir); return err },
		"generation.json":   func(dir string) error { _, err := recovery.Load(raftlog.OSFS{}, dir); return err },
	} {
		for _, text := range []string{`{"x`, `{"name": 1, "members": 1, "feed": 1, "incarnation": "x", "takeover": "x"}`} {
			dir := t.TempDir()
			path := filepath.Join(dir, name)
			if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
			err := load(dir)
			if !errors.Is(final(err), ErrFinal) || !strings.Contains(err.Error(), path) {
				t.Errorf("%s: %v", name, err)
			}
			if kept, err := os.ReadFile(path); err != nil || string(kept) != text {
				t.Errorf("%s was changed: %s, %v", name, kept, err)
			}
		}
	}
}

// TestDamagedLog: a log that the feed cannot read takes mysqld out of service. (That it ends a promotion as well is
// shown by the simulation, seed 10174.)
func TestDamagedLog(t *testing.T) {
	n := newTestNode(t)
	rot := fmt.Errorf("reading entry 7: %w", raftlog.ErrCorrupt)
	ready := func(s *lifecycle.Status) {
		s.Started(&lifecycle.Life{Incarnation: 7})
		s.Ready()
	}
	n.lives.Change(ready)
	n.feedFailed(rot)
	if s := n.lives.Status(); s.Follows() || s.Problem() != rot.Error() {
		t.Errorf("it is %v: %s", s.State(), s.Problem())
	}
}
