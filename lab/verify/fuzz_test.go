package verify

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"trireme/lab/heap"
)

// FuzzReadLog reads any file as a client's log: it is refused with its line, or every line of it counts.
func FuzzReadLog(f *testing.F) {
	f.Add([]byte("A 0 1\nA 1 1\nK 0 1\nU 1 1\nA 0 2\nF 0 2\nA 0 3\n"))
	f.Add([]byte("A 4096 1\n"))
	f.Add([]byte("K 0 1\n"))
	f.Add([]byte("A 0 1\nK 0 1\nK 0 1\n"))
	path := filepath.Join(f.TempDir(), "log")
	f.Fuzz(func(t *testing.T, b []byte) {
		if err := os.WriteFile(path, b, 0o600); err != nil {
			t.Fatal(err)
		}
		heap.Within(t, 4*(maxWriters+1)*128+4096*(1+len(b)), func() {
			l, err := ReadLog(path)
			if err != nil {
				if !strings.Contains(err.Error(), path+":") && !strings.Contains(err.Error(), "token too long") {
					t.Fatalf("it does not say where: %v", err)
				}
				return
			}
			c := l.Counts()
			lines := int64(bytes.Count(b, []byte("\n")))
			if len(b) > 0 && b[len(b)-1] != '\n' {
				lines++
			}
			settled := c.Acked + c.Failed
			if c.Attempts != c.Acked+c.Unknown+c.Failed || c.Attempts > lines || c.Attempts+settled > lines {
				t.Fatalf("%+v from %d lines", c, lines)
			}
		})
	})
}
