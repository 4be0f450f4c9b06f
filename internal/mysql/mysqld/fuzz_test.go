package mysqld

import (
	"errors"
	"testing"

	"trireme/lab/heap"
)

// FuzzServerTexts reads anything that a server, or its program, may print.
func FuzzServerTexts(f *testing.F) {
	f.Add("1", "2", "1", "0x6162FF")
	f.Add("1", "9223372036854775807", "9223372036854775807", "0x")
	f.Add("mysqld  Ver 9.7.4 for Linux", "", "", "")
	f.Fuzz(func(t *testing.T, a, b, c, d string) {
		heap.Within(t, 64<<10+128*(len(a)+len(b)+len(c)+len(d)), func() {
			if x, err := parseXID(a, b, c, d); err == nil && 2*(len(x.Gtrid)+len(x.Bqual)) > len(d) {
				t.Fatalf("%+v from %q", x, d)
			}
			if v, err := ParseVersion(a); err == nil {
				if again, err := ParseVersion(v.String()); err != nil || again.Major != v.Major || again.Minor != v.Minor ||
					again.Patch != v.Patch {
					t.Fatalf("%q: %v, then %v, %v", a, v, again, err)
				}
			} else if !errors.Is(err, ErrNotMySQL) {
				t.Fatalf("unclassified: %v", err)
			}
			_, _ = parseReplicaStatus(map[string]string{"last_io_errno": a, "last_sql_errno": b, "relay_log_space": c,
				"seconds_behind_source": d})
		})
	})
}
