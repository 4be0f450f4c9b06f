package node

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"go.etcd.io/raft/v3/raftpb"

	"trireme/internal/base/durable"
	"trireme/internal/core/raftlog"
)

// TestKeysAreTakenUp: a running node uses a new key of its key file, and warns as long as it could not start again.
func TestKeysAreTakenUp(t *testing.T) {
	file := filepath.Join(t.TempDir(), "keys")
	n := newTestNode(t, func(d *testDir) { d.cfg.Raft.LogKeyFile = file })
	var text []byte
	write := func(id string) {
		t.Helper()
		var err error
		if text, err = raftlog.AddKey(text, id); err != nil {
			t.Fatal(err)
		}
		if err := durable.WriteFile(file, text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	tend := func(warning string) {
		t.Helper()
		n.updateKeys(t.Context())
		if got := strings.Join(n.keyWarnings, "\n"); (warning == "") != (got == "") || !strings.Contains(got, warning) {
			t.Errorf("warning %q, want %q", got, warning)
		}
	}
	write("one")
	first := bytes.Clone(text)
	openTestLog(t, n)
	tend("")
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	tend("no such file")
	text = nil
	write("two")
	tend(`"one"`)
	var err error
	if text, err = raftlog.AddKey(nil, "one"); err != nil { // another one of that name
		t.Fatal(err)
	}
	write("two")
	tend(`"one"`)
	text = first
	write("two")
	tend("")
	e := &raftpb.Entry{Index: new(uint64(1)), Term: new(uint64(1))}
	if err := errors.Join(n.rlog.SetHardState(&raftpb.HardState{Term: new(uint64(1))}), n.rlog.Append([]*raftpb.Entry{e})); err != nil {
		t.Fatal(err)
	}
	rep, err := raftlog.Verify(nil, n.cfg.RaftDir(), nil)
	if !errors.Is(err, raftlog.ErrKey) || !strings.Contains(err.Error(), `"two"`) {
		t.Errorf("%+v, %v", rep, err)
	}
}
