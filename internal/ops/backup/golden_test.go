package backup

import (
	"bufio"
	"bytes"
	"flag"
	"io"
	"os"
	"path/filepath"
	"testing"
	"time"

	"trireme/lab/heap"
)

// The backup in testdata/golden is as a released version wrote it, and is read forever (docs/format/README.md).
const newest = "testdata/golden/v1"

var update = flag.Bool("update", false,
	"write the backup of a format that is not released yet; one that is there is kept")

// goldenBackup writes a backup with a copy and two segments.
func goldenBackup(t *testing.T, dir string) {
	t.Helper()
	to, err := NewDir(dir)
	check(t, err)
	s := newScript(t)
	for range 2 {
		s.some(5)
		s.archive(to)
	}
	testBase(t, s, to, 3, 4)
	at := time.Date(2026, 11, 22, 12, 30, 0, 0, time.UTC)
	check(t, putSealed(to, identityName, &identity{Version: formatVersion, Cluster: testID.Name, ClusterID: testID.ID,
		Made: at}))
	c, err := Read(to)
	check(t, err)
	c.Reached.At = at
	check(t, putSealed(to, reachedName, &c.Reached))
}

// TestGolden: what all released versions wrote says what it said, and what this one writes is the newest of them.
// Compressed bytes may differ: they are another library's.
func TestGolden(t *testing.T) {
	if _, err := os.Stat(newest); *update && os.IsNotExist(err) {
		goldenBackup(t, newest)
	}
	versions, err := filepath.Glob("testdata/golden/v*")
	if err != nil || len(versions) == 0 {
		t.Fatal(versions, err)
	}
	for _, version := range versions {
		dir := filepath.Join(t.TempDir(), "copy") // who reads a backup leaves a lock file
		check(t, os.CopyFS(dir, os.DirFS(version)))
		d, err := OpenDir(dir)
		check(t, err)
		v, err := Verify(t.Context(), d, nil)
		check(t, err)
		if len(v.Problems) > 0 || v.Bases != 1 || v.Segments != 2 {
			t.Errorf("%s: %+v", version, v)
		}
		c, err := Read(d)
		check(t, err)
		s := newScript(t)
		s.some(5)
		s.some(5)
		s.same(d, s.last())
		b := c.Bases[0]
		if c.Cluster != "shop" || c.Reached.Index != s.last() || !c.Reached.GTIDs.Equal(s.log.GTIDSet()) || b.Index != 3 ||
			b.Last != 4 || b.Account != mysqldAccount {
			t.Errorf("%s: %+v", version, c)
		}
	}
	for name, read := range map[string]func([]byte) (any, error){
		identityName: sealedAs[identity], reachedName: sealedAs[Reached],
		"base/20261122T120003Z/manifest.json": sealedAs[Base], "log/0000000000000001-0000000000000007.seg": sealedAs[Segment],
		"log/0000000000000008-000000000000000d.seg": sealedAs[Segment],
	} {
		have, err := os.ReadFile(filepath.Join(newest, name))
		check(t, err)
		v, err := read(have)
		check(t, err)
		again, err := seal(v)
		check(t, err)
		if !bytes.HasPrefix(have, again) {
			t.Errorf("%s would be written as\n%s\nnot as\n%.*s", name, again, len(again), have)
		}
	}
}

func sealedAs[T any](b []byte) (any, error) {
	v := new(T)
	return v, unseal(bufio.NewReader(bytes.NewReader(b)), "golden", v)
}

// memStore holds one object.
type memStore struct {
	name string
	data []byte
}

func (m *memStore) Put(name string, fill func(io.Writer) error) error {
	var b bytes.Buffer
	err := fill(&b)
	m.name, m.data = name, b.Bytes()
	return err
}
func (m *memStore) Open(string) (io.ReadCloser, error) {
	return io.NopCloser(bytes.NewReader(m.data)), nil
}
func (m *memStore) List(string) ([]string, error) { return []string{m.name}, nil }
func (m *memStore) Remove(string) error           { return nil }
func (m *memStore) String() string                { return "memory" }

// FuzzSegment: any bytes are a segment that is written again as the same one, or damage.
func FuzzSegment(f *testing.F) {
	files, err := filepath.Glob(newest + "/log/*.seg")
	check(f, err)
	for _, name := range files {
		b, err := os.ReadFile(name)
		check(f, err)
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		// A head that speaks of other bytes is refused by its checksum; sealed again it has to be refused for what it says.
		var head Segment
		r := bufio.NewReader(bytes.NewReader(data))
		if err := unseal(r, "fuzz", &head); err != nil {
			return
		}
		name := head.Name()
		in := &memStore{name, data}
		var entries []Entry
		var seg Segment
		heap.Within(t, 128<<20, func() { // the decompressor's windows; a head that announces more gets no more
			seg, err = readSegment(in, name, func(e Entry) error { entries = append(entries, e); return nil })
		})
		if err != nil {
			return
		}
		w, err := newSegmentWriter(clusterID{seg.Cluster, seg.ClusterID}, seg.boundary(), seg.Begins)
		check(t, err)
		for i := range entries {
			if err := w.add(&entries[i]); err != nil {
				return // raft's checksum vouches for entries, not this format
			}
		}
		out := &memStore{}
		check(t, w.put(out))
		again, err := readSegment(out, out.name, func(Entry) error { return nil })
		check(t, err)
		if again.First != seg.First || again.Last != seg.Last || again.Raw != seg.Raw || !again.Before.Equal(seg.Before) {
			t.Errorf("written again: %+v, was %+v", again, seg)
		}
	})
}
