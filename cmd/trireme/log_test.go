package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"strings"
	"testing"

	"go.etcd.io/raft/v3/raftpb"

	"trireme/internal/raftlog"
)

// TestLogDumpObjects: one object for each entry of the range, in order.
func TestLogDumpObjects(t *testing.T) {
	dir := t.TempDir()
	l, err := raftlog.Open(raftlog.Options{Dir: dir, SegmentBytes: 1 << 20, CacheBytes: 1 << 20, Cluster: 5, NodeID: 1})
	if err != nil {
		t.Fatal(err)
	}
	m := raftlog.Meta{Kind: raftlog.Barrier, Node: 1, Incarnation: 3}
	var entries []*raftpb.Entry
	for i, data := range [][]byte{nil, raftlog.AppendMeta(nil, &m), nil} {
		entries = append(entries, &raftpb.Entry{Index: new(uint64(i + 1)), Term: new(uint64(2)), Data: data})
	}
	if err := errors.Join(l.SetHardState(&raftpb.HardState{Term: new(uint64(2))}), l.AppendSync(entries)); err != nil {
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
	for _, want := range []logEntry{{Index: 1, Term: 2, Kind: "empty"}, {Index: 2, Term: 2, Kind: "barrier", Node: 1, Incarnation: 3}} {
		var got logEntry
		if err := dec.Decode(&got); err != nil {
			t.Fatal(err)
		}
		if got.Index != want.Index || got.Term != want.Term || got.Kind != want.Kind || got.Node != want.Node || got.Incarnation != want.Incarnation {
			t.Errorf("%+v, not %+v", got, want)
		}
	}
	if dec.More() {
		t.Errorf("more than was asked for: %s", out.String())
	}
}
