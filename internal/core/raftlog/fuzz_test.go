package raftlog

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"trireme/lab/heap"
)

// goldenFiles gives the committed files whose names end like that.
func goldenFiles(t testing.TB, suffix string) [][]byte {
	t.Helper()
	names, err := filepath.Glob(filepath.Join("testdata", "golden", "v1", "*"+suffix))
	if err != nil || len(names) == 0 {
		t.Fatalf("no golden file *%s: %v", suffix, err)
	}
	var files [][]byte
	for _, name := range names {
		b, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, b)
	}
	return files
}

// FuzzState reads arbitrary bytes as a slot of the state file.
func FuzzState(f *testing.F) {
	for _, b := range goldenFiles(f, "state") {
		f.Add(b[:stateSlot])
		f.Add(b[:stateFixed+40])
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		heap.Within(t, 64*len(b), func() {
			s, err := decodeState(b)
			if err != nil {
				if !errors.Is(err, errBadState) && !errors.Is(err, ErrNewer) {
					t.Fatalf("unclassified: %v", err)
				}
				return
			}
			if _, err := s.confState(); err != nil && !errors.Is(err, ErrCorrupt) {
				t.Fatalf("unclassified: %v", err)
			}
			if out, err := s.encode(); err == nil {
				again, err := decodeState(out)
				if err != nil || again.seq != s.seq || again.term != s.term || again.vote != s.vote ||
					again.resetting != s.resetting ||
					again.first != s.first || !bytes.Equal(again.conf, s.conf) {
					t.Fatalf("%+v became %+v: %v", s, again, err)
				}
			}
		})
	})
}

// FuzzHead reads arbitrary bytes as the head of a segment, which is also the data of a snapshot.
func FuzzHead(f *testing.F) {
	for _, b := range goldenFiles(f, ".log") {
		_, n, err := parseHead(b)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b[:n])
		f.Add(b[:n-1])
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		heap.Within(t, 600*len(b), func() {
			_, n, err := parseHead(b)
			if err != nil && !errors.Is(err, errShortRecord) && !errors.Is(err, errBadHead) && !errors.Is(err, ErrNewer) {
				t.Fatalf("unclassified: %v", err)
			}
			if n > len(b) || err == nil && n == 0 {
				t.Fatalf("%d bytes of %d", n, len(b))
			}
			bound, err := DecodeBoundary(b)
			if err != nil {
				if !errors.Is(err, ErrCorrupt) && !errors.Is(err, ErrNewer) {
					t.Fatalf("unclassified: %v", err)
				}
				return
			}
			if n != len(b) || bound.Index == ^uint64(0) {
				t.Fatalf("%+v from %d of %d bytes", bound, n, len(b))
			}
		})
	})
}

// FuzzRecord reads arbitrary bytes as the record that follows the chain of the given index, term and CRC.
func FuzzRecord(f *testing.F) {
	for _, b := range goldenFiles(f, ".log") {
		h, n, err := parseHead(b)
		if err != nil {
			f.Fatal(err)
		}
		prev := chain{h.first - 1, h.prevTerm, h.prevCRC}
		for {
			rec, err := decodeRecord(b[n:], prev)
			if err != nil {
				break
			}
			f.Add(b[n:n+rec.size], prev.index, prev.term, prev.crc)
			prev, n = rec.chain(), n+rec.size
		}
	}
	f.Fuzz(func(t *testing.T, b []byte, index, term uint64, crc uint32) {
		heap.Within(t, 4*len(b), func() {
			prev := chain{index, term, crc}
			rec, err := decodeRecord(bytes.Clone(b), prev)
			if err != nil {
				if !errors.Is(err, errShortRecord) && !errors.Is(err, errNoRecord) && !errors.Is(err, errBadRecord) &&
					!errors.Is(err, ErrNewer) {
					t.Fatalf("unclassified: %v", err)
				}
				return
			}
			if rec.index != index+1 || rec.term < term || rec.size > len(b) {
				t.Fatalf("%+v after %+v", rec, prev)
			}
			want := len(rec.inline) + len(rec.events)
			if data := rec.data(); len(data) != want {
				t.Fatalf("%d bytes of data, want %d", len(data), want)
			}
		})
	})
}

// FuzzNames: a segment's name says its first index and nothing else does.
func FuzzNames(f *testing.F) {
	f.Add("0000000000000001.log")
	f.Add("+000000000000001.log")
	f.Fuzz(func(t *testing.T, name string) {
		if first, ok := parseSegmentName(name); ok && segmentName(first) != name {
			t.Fatalf("%q is the segment of %d", name, first)
		} else if ok && !strings.HasSuffix(name, segmentSuffix) {
			t.Fatal(name)
		}
	})
}
