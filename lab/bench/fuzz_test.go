package bench

import (
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"trireme/lab/heap"
)

// FuzzReadResults reads any file of results.
func FuzzReadResults(f *testing.F) {
	f.Add([]byte("{\"mysql\":\"9.7.4\"}\n{\"values\":{\"tps\":1}}\n{\"seri"))
	f.Add([]byte("\n"))
	path := filepath.Join(f.TempDir(), "cpu.jsonl")
	f.Fuzz(func(t *testing.T, b []byte) {
		if err := os.WriteFile(path, b, 0o600); err != nil {
			t.Fatal(err)
		}
		heap.Within(t, 64<<10+8192*len(b), func() {
			r, err := readResults(path)
			if err != nil {
				if !strings.Contains(err.Error(), path) {
					t.Fatalf("it does not say which file: %v", err)
				}
				return
			}
			for _, rec := range r.Records {
				if _, err := json.Marshal(rec); err != nil && !strings.Contains(err.Error(), "Time") {
					t.Fatal(err)
				}
			}
		})
	})
}

// FuzzReports reads anything that a load generator or the kernel prints.
func FuzzReports(f *testing.F) {
	f.Add("    transactions: 10 \n queries: 20\ntotal time: 1.0s\nignored errors: 0\navg: 1.2\n 12.345 |*** 678\n[ 1s ] thds: 1 tps: 3.1 x")
	f.Add("1 (a) b) S 1 1 1 1 1 1 1 1 1 1 7 8 9")
	f.Add("VmRSS:\t 12 kB\nVmHWM: 9223372036854775807 kB\n")
	f.Fuzz(func(t *testing.T, text string) {
		heap.Within(t, 1<<20+256*len(text), func() {
			if r, err := parseSysbench(text); err == nil && (math.IsNaN(r.Seconds) || r.Transactions == 0) {
				t.Fatalf("%+v", r)
			}
			_, _ = parseStat(text)
			_, _ = statusKiB(text, "VmRSS:")
		})
	})
}
