package transport

import (
	"bufio"
	"bytes"
	"encoding/hex"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"go.etcd.io/raft/v3/raftpb"
)

// The frames in testdata/golden are as released versions send them, and are read forever (docs/format/README.md):
// lines `name hex`.
const newest = "testdata/golden/v4/frames.txt"

var update = flag.Bool("update", false,
	"write the files of a format that is not released yet; those that are there are kept")

func goldenHello() *hello {
	return &hello{version: 2, minVersion: 1, stream: bulkStream, from: 2, to: 1, instance: 0x0102030405060708,
		cluster: "prod", address: "db2:7306",
		generation: Generation{3, 4, `{"number":3}`}}
}

func goldenWelcome() *welcome {
	return &welcome{verdict: refusedGeneration, version: 2, id: 1, instance: 9, text: "node 2 is of generation 1",
		generation: Generation{2, 7, "{}"}}
}

// goldenMessages are one of each shape.
func goldenMessages() map[string]*raftpb.Message {
	full := message(raftpb.MsgApp, 2, 1, 7, []byte("data"), nil)
	full.LogTerm, full.Index, full.Commit = new(uint64(6)), new(uint64(100)), new(uint64(99))
	reject := message(raftpb.MsgAppResp, 2, 1, 7)
	reject.Reject, reject.RejectHint, reject.Context = new(true), new(uint64(5)), []byte("context")
	snap := message(raftpb.MsgSnap, 2, 1, 7)
	snap.Snapshot = &raftpb.Snapshot{Data: []byte("boundary"), Metadata: &raftpb.SnapshotMetadata{Index: new(uint64(50)),
		Term:      new(uint64(6)),
		ConfState: &raftpb.ConfState{Voters: []uint64{1, 2, 3}}}}
	told := message(raftpb.MsgPreVoteResp, 2, 1, 8) // from v2 on: what is committed
	told.Reject, told.Commit, told.RejectHint = new(true), new(uint64(99)), new(uint64(6))
	return map[string]*raftpb.Message{"append": full, "reject": reject, "snapshot": snap,
		"vote": message(raftpb.MsgPreVote, 2, 1, 8), "told": told}
}

// goldenFrames are what this version sends.
func goldenFrames(t *testing.T) string {
	t.Helper()
	var b bytes.Buffer
	w := newFrameWriter(&b)
	lines := func(name string, kind frameKind, body []byte) string {
		t.Helper()
		b.Reset()
		if err := w.frame(kind, body); err != nil {
			t.Fatal(err)
		}
		if err := w.Flush(); err != nil {
			t.Fatal(err)
		}
		return fmt.Sprintf("%s %x\n", name, b.Bytes())
	}
	out := lines("hello", frameHello, goldenHello().encode()) + lines("welcome", frameWelcome, goldenWelcome().encode())
	for _, name := range []string{"append", "reject", "snapshot", "vote", "told"} {
		out += lines(name, frameRaft, encodeMessage(t, goldenMessages()[name]))
	}
	return out
}

// TestGoldenWritten: what peers send does not change by accident.
func TestGoldenWritten(t *testing.T) {
	got := goldenFrames(t)
	want, err := os.ReadFile(newest)
	if *update && os.IsNotExist(err) {
		if err = os.MkdirAll(filepath.Dir(newest), 0o755); err == nil {
			want, err = []byte(got), os.WriteFile(newest, []byte(got), 0o644)
		}
	}
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("not what %s holds: the format has changed; see docs/format/README.md\n%s", newest, got)
	}
}

// TestGoldenRead: what all released versions send says what it said.
func TestGoldenRead(t *testing.T) {
	versions, err := filepath.Glob("testdata/golden/v*/frames.txt")
	if err != nil || len(versions) == 0 {
		t.Fatal(versions, err)
	}
	for _, path := range versions {
		b, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		seen := 0
		for lines := bufio.NewScanner(bytes.NewReader(b)); lines.Scan(); seen++ {
			name, digits, _ := strings.Cut(lines.Text(), " ")
			frame, err := hex.DecodeString(digits)
			if err != nil {
				t.Fatal(err)
			}
			kind, body, err := newFrameReader(bytes.NewReader(frame)).next(maxBulkFrame)
			if err != nil {
				t.Fatal(err)
			}
			switch kind {
			case frameHello:
				if h, err := decodeHello(body); err != nil || *h != *goldenHello() {
					t.Errorf("%s: %+v, %v", name, h, err)
				}
				if h, err := decodeHello(append(body, "of a later version"...)); err != nil || *h != *goldenHello() {
					t.Errorf("%s with more bytes after it: %+v, %v", name, h, err)
				}
			case frameWelcome:
				if w, err := decodeWelcome(append(body, "of a later version"...)); err != nil || *w != *goldenWelcome() {
					t.Errorf("%s: %+v, %v", name, w, err)
				}
			case frameRaft:
				m, err := decodeMessage(bytes.Clone(body))
				if err != nil || !bytes.Equal(encodeMessage(t, m), encodeMessage(t, goldenMessages()[name])) {
					t.Errorf("%s: %v, %v", name, m, err)
				}
			case frameRelay:
				in := &inbound{stream: bulkStream}
				if err := in.handle(kind, body); err != nil {
					t.Errorf("%s, which should be dropped: %v", name, err)
				}
			default:
				t.Errorf("%s is of kind %d", name, kind)
			}
		}
		if want := map[bool]int{false: 7, true: 8}[strings.Contains(path, "/v2/")]; seen != want {
			t.Errorf("%s has %d frames", path, seen)
		}
	}
}
