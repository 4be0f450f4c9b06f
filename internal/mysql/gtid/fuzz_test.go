package gtid

import (
	"errors"
	"testing"

	"trireme/lab/heap"
)

// FuzzParseGTID reads single GTIDs, UUIDs and tags.
func FuzzParseGTID(f *testing.F) {
	for _, s := range []string{uuidA + ":1", uuidA + ":tag:9223372036854775806", "{" + uuidA + "}:7", uuidA,
		"_a", IncarnationUUID(1, 2, 3).String()} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		heap.Within(t, 64*len(s), func() {
			if g, err := ParseGTID(s); err == nil {
				if again, err := ParseGTID(g.String()); err != nil || again != g {
					t.Fatalf("%q: %v, then %v, %v", s, g, again, err)
				}
			} else if !errors.Is(err, ErrSyntax) {
				t.Fatalf("unclassified: %v", err)
			}
			if u, err := ParseUUID(s); err == nil {
				if again, err := ParseUUID(u.String()); err != nil || again != u {
					t.Fatalf("%q: %v, then %v, %v", s, u, again, err)
				}
				if c, n, i, ok := ParseIncarnation(u); ok && IncarnationUUID(c, n, i) != u {
					t.Fatalf("%v is of %x, %d, %d", u, c, n, i)
				}
			} else if !errors.Is(err, ErrSyntax) {
				t.Fatalf("unclassified: %v", err)
			}
			if tag, err := ParseTag(s); err == nil {
				if again, err := ParseTag(tag); err != nil || again != tag {
					t.Fatalf("%q: %q, then %q, %v", s, tag, again, err)
				}
			} else if !errors.Is(err, ErrSyntax) {
				t.Fatalf("unclassified: %v", err)
			}
		})
	})
}

// FuzzSetSize: a set takes memory in proportion to the text or bytes that it comes from, whatever numbers they hold.
func FuzzSetSize(f *testing.F) {
	f.Add([]byte(uuidA + ":1-9223372036854775806"))
	f.Add(mustSet(f, uuidA+":1-5:7:tag:1").AppendBinary(nil))
	f.Add([]byte{0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0, 0})
	f.Fuzz(func(t *testing.T, b []byte) {
		heap.Within(t, 512*len(b), func() {
			_, _ = ParseSet(string(b))
			_, _ = DecodeBinary(b)
		})
	})
}
