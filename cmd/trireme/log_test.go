package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"go.etcd.io/raft/v3/raftpb"

	"trireme/internal/core/raftlog"
	"trireme/internal/mysql/binlog"
)

// TestLogDump: one line or object for each entry of the range, in order.
func TestLogDump(t *testing.T) {
	dir := t.TempDir()
	l, err := raftlog.Open(raftlog.Options{Dir: dir, SegmentBytes: 1 << 20, CacheBytes: 1 << 20, Cluster: 5, NodeID: 1})
	if err != nil {
		t.Fatal(err)
	}
	m := raftlog.Meta{Kind: raftlog.Barrier, Node: 1, Incarnation: 3, Start: raftlog.Pos{File: 1, Off: 4},
		End: raftlog.Pos{File: 1, Off: 4}}
	piece := m
	piece.Kind, piece.Flags, piece.End.Off = raftlog.Trx, raftlog.FlagUnfinished, 31
	events := binlog.AppendEvent(nil, binlog.Header{Type: binlog.TypeXID}, make([]byte, 8))
	var entries []*raftpb.Entry
	for i, data := range [][]byte{nil, raftlog.AppendMeta(nil, &m), append(raftlog.AppendMeta(nil, &piece), events...)} {
		entries = append(entries, &raftpb.Entry{Index: new(uint64(i + 1)), Term: new(uint64(2)), Data: data})
	}
	if err := errors.Join(l.SetHardState(&raftpb.HardState{Term: new(uint64(2))}), l.Append(entries), l.Sync()); err != nil {
		t.Fatal(err)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	if code := run([]string{"log", "dump", dir, "--json", "--to", "2"}, nil, &out, io.Discard); code != exitDone {
		t.Fatal(code, out.String())
	}
	dec := json.NewDecoder(bytes.NewBufferString(out.String()))
	for _, want := range []logEntry{{Index: 1, Term: 2, Kind: "empty"}, {Index: 2, Term: 2, Kind: "barrier", Node: 1,
		Incarnation: 3}} {
		var got logEntry
		if err := dec.Decode(&got); err != nil {
			t.Fatal(err)
		}
		if got.Index != want.Index || got.Term != want.Term || got.Kind != want.Kind || got.Node != want.Node ||
			got.Incarnation != want.Incarnation {
			t.Errorf("%+v, not %+v", got, want)
		}
	}
	if dec.More() {
		t.Errorf("more than was asked for: %s", out.String())
	}
	out.Reset()
	if code := run([]string{"log", "dump", dir, "--events", "--from", "2"}, nil, &out, io.Discard); code != exitDone {
		t.Fatal(code, out.String())
	}
	const file = "0000000000000001.log:"
	for _, want := range []string{"2\tterm 2\tbarrier\tnode 1 incarnation 3\tbinlog.000001:4..1:4\t0 bytes\t" + file,
		"3\tterm 2\ttrx\tnode 1 incarnation 3\tbinlog.000001:4..1:31\t31 bytes\tunfinished\t" + file, "\tXid\t31 bytes\t"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("no %q in %q", want, out.String())
		}
	}
	if strings.Contains(out.String(), "empty") {
		t.Errorf("entry 1 is printed: %q", out.String())
	}
}

// TestLogEncrypted: with its keys, from a flag or from the node's settings, an encrypted log is printed and verified;
// without, the error names the key.
func TestLogEncrypted(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "keys")
	do := func(want int, args ...string) string {
		t.Helper()
		var out, errOut strings.Builder
		if code := run(args, nil, &out, &errOut); code != want {
			t.Fatalf("%v: exit code %d, not %d: %s%s", args, code, want, &out, &errOut)
		}
		return out.String() + errOut.String()
	}
	do(exitDone, "log", "new-key", file, "--id", "one")
	do(exitFailed, "log", "new-key", file, "--id", "one")
	do(exitDone, "log", "new-key", file)
	do(exitDone, "log", "new-key", file, "--id", "two")
	if st, err := os.Stat(file); err != nil || st.Mode().Perm() != 0o600 {
		t.Fatal(st, err)
	}
	keys, err := raftlog.LoadKeys(t.Context(), file, nil)
	if err != nil || keys.CurrentID() != "two" {
		t.Fatal(keys, err)
	}
	log := filepath.Join(dir, "raft")
	l, err := raftlog.Open(raftlog.Options{Dir: log, Cluster: 5, NodeID: 1, Keys: keys})
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(l.SetHardState(&raftpb.HardState{Term: new(uint64(2))}),
		l.Append([]*raftpb.Entry{{Index: new(uint64(1)), Term: new(uint64(2))}}), l.Close()); err != nil {
		t.Fatal(err)
	}
	none := filepath.Join(dir, "none.toml")
	t.Setenv("TRIREME_CONFIG", none)
	for _, verb := range []string{"dump", "verify"} {
		if out := do(exitFailed, "log", verb, log); !strings.Contains(out, `"two"`) {
			t.Errorf("%s: %s", verb, out)
		}
		do(exitDone, "log", verb, log, "--key-file", file)
	}
	toml :=
		"cluster = \"a\"\nname = \"b\"\ndir = \"/x\"\n[peer]\nadvertise = \"h:7306\"\n[api]\nadvertise = \"h:8008\"\n[raft]\nlog_key_command = [\"cat\", \"" + file + "\"]\n"
	if err := os.WriteFile(none, []byte(toml), 0o600); err != nil {
		t.Fatal(err)
	}
	if out := do(exitDone, "log", "verify", log); !strings.Contains(out, "KEY") || !strings.Contains(out, "two") {
		t.Error(out)
	}
	// The settings of a node that init --dir has made are in its directory.
	if err := os.Rename(none, filepath.Join(log, "trireme.toml")); err != nil {
		t.Fatal(err)
	}
	do(exitDone, "log", "verify", log)
}
