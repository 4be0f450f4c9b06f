package history

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"trireme/internal/api"
	"trireme/lab/heap"
)

// FuzzHistory reads any history.jsonl, and what a peer sends for events: bounds hold, and nodes that know the same know
// that they do.
func FuzzHistory(f *testing.F) {
	golden, err := os.ReadFile(filepath.Join("..", "testdata", "golden", "v1", "history.jsonl"))
	if err != nil {
		f.Fatal(err)
	}
	f.Add(golden)
	f.Add([]byte("{}\n{\"to\":\"x\"}\nnull\n"))
	f.Add([]byte(`{"time":"9999-12-31T23:59:59Z","message":"` + strings.Repeat("m", maxEventBytes+10) + `"}`))
	dir := f.TempDir() // one for all runs of this process: making one each would be most of the work
	f.Fuzz(func(t *testing.T, b []byte) {
		heap.Within(t, 64<<10+4096*len(b), func() {
			if err := os.WriteFile(filepath.Join(dir, "history.jsonl"), b, 0o600); err != nil {
				t.Fatal(err)
			}
			h := open(dir)
			events := h.All()
			if len(events) > maxChanges+maxOthers+maxWriters || len(events) != len(h.ids) {
				t.Fatalf("%d events, %d ids", len(events), len(h.ids))
			}
			for _, e := range events {
				if !sized(e) {
					t.Fatalf("an event of %d bytes of text is kept", len(e.Message))
				}
			}
			h.save()
			if again := open(dir); again.Sum() != h.Sum() {
				t.Fatalf("%d events became %d", len(events), len(again.All()))
			}
			// Another node fetches them.
			other := &History{changed: make(chan struct{}, 1), ids: map[uint64]bool{}}
			for range (maxChanges+maxOthers+maxWriters)/historyBatch + 1 {
				var list []api.Event
				sent, err := json.Marshal(lacking(h, other.known()))
				if err != nil {
					t.Fatal(err)
				}
				if err := json.Unmarshal(sent, &list); err != nil {
					t.Fatal(err)
				}
				other.merge(list)
			}
			if other.Sum() != h.Sum() {
				t.Fatalf("%d events, fetched %d", len(events), len(other.All()))
			}
			lacking(h, b) // whatever a peer says that it knows
		})
	})
}
