package gtid

import (
	"encoding"
	"encoding/json"
	"errors"
	"strings"
	"testing"
)

const (
	uuidA = "3e11fa47-71ca-11e1-9e33-c80aa9429562"
	uuidB = "ffffffff-0000-4000-8000-000000000001"
)

func mustUUID(t testing.TB, s string) UUID {
	t.Helper()
	u, err := ParseUUID(s)
	if err != nil {
		t.Fatal(err)
	}
	return u
}

func mustSet(t testing.TB, s string) Set {
	t.Helper()
	set, err := ParseSet(s)
	if err != nil {
		t.Fatalf("%q: %v", s, err)
	}
	return set
}

func TestUUID(t *testing.T) {
	for _, text := range []string{uuidA, strings.ToUpper(uuidA), "{" + uuidA + "}", strings.ReplaceAll(uuidA, "-", "")} {
		if u := mustUUID(t, text); u.String() != uuidA {
			t.Errorf("%q is read as %v", text, u)
		}
	}
	for _, text := range []string{"", "x", uuidA[:35], uuidA + "0", "{" + uuidA, uuidA + "}",
		strings.Replace(uuidA, "-", "0", 1), strings.Replace(uuidA, "3", "g", 1), strings.Repeat("-", 36),
		strings.Replace(strings.ReplaceAll(uuidA, "-", ""), "f", "-", 1)} {
		if u, err := ParseUUID(text); !errors.Is(err, ErrSyntax) {
			t.Errorf("%q: %v, %v", text, u, err)
		}
	}
	if !(UUID{}).IsZero() || mustUUID(t, uuidA).IsZero() {
		t.Error("IsZero")
	}
}

func TestGTIDText(t *testing.T) {
	for text, want := range map[string]string{
		uuidA + ":1":                                      uuidA + ":1",
		strings.ToUpper(uuidA) + ":Tag_9:7":               uuidA + ":tag_9:7",
		" " + uuidA + " : _ : 9223372036854775806 ":       uuidA + ":_:9223372036854775806",
		uuidA + ":" + strings.Repeat("a", 32) + ":000012": uuidA + ":" + strings.Repeat("a", 32) + ":12",
	} {
		g, err := ParseGTID(text)
		if err != nil || g.String() != want {
			t.Errorf("%q: %v, %v", text, g, err)
		}
	}
	for _, text := range []string{
		"", uuidA, uuidA + ":", uuidA + ":0", uuidA + ":-1", uuidA + ":+1", uuidA + ":9223372036854775807", uuidA +
			":99999999999999999999",
		uuidA + ":1-2", uuidA + ":tag", uuidA + ":tag:", uuidA + "::1", uuidA + ":9tag:1", uuidA + ":ta-g:1", uuidA +
			":tag:1:2", uuidA + ":" + strings.Repeat("a", 33) + ":1", "x:1",
	} {
		if g, err := ParseGTID(text); !errors.Is(err, ErrSyntax) {
			t.Errorf("%q: %v, %v", text, g, err)
		}
	}
	if !(GTID{}).IsZero() {
		t.Error("IsZero")
	}
	r := Range{SID{mustUUID(t, uuidA), "t"}, 3, 5}
	if r.String() != uuidA+":t:3-5" || r.Len() != 3 || (Range{r.SID, 3, 3}).String() != uuidA+":t:3" {
		t.Error(r, r.Len())
	}
}

// TestSetText: on the right is what mysqld 9.7 answers to SELECT GTID_SUBTRACT(text, ”) for the text on the left. It
// refuses what is refused here, but for a UUID or tag without interval.
func TestSetText(t *testing.T) {
	for text, want := range map[string]string{
		"":                                   "",
		" \n, ,,\t":                          "",
		uuidA + ":1":                         uuidA + ":1",
		uuidA + ":1-5:7":                     uuidA + ":1-5:7",
		uuidA + ":7:1-3:4-5:2":               uuidA + ":1-5:7",
		uuidA + ":1-1":                       uuidA + ":1",
		uuidA + ":5-3":                       "",
		uuidA + ":5-0":                       "",
		uuidA + ":5-3:9":                     uuidA + ":9",
		uuidB + ":1,\n" + uuidA + ":2":       uuidA + ":2,\n" + uuidB + ":1",
		uuidA + ":1," + uuidA + ":2":         uuidA + ":1-2",
		uuidA + ":1-2:tag:3:1:Other:5":       uuidA + ":1-2:other:5:tag:1:3",
		uuidA + ":tag:3":                     uuidA + ":tag:3",
		uuidA + ":tag:3:1,":                  uuidA + ":tag:1:3",
		uuidA + ":z:1," + uuidA + ":5:_x9:1": uuidA + ":5:_x9:1:z:1",
		" " + strings.ToUpper(uuidA) + " : 1 - 3 : tag : 4 ,\n ": uuidA + ":1-3:tag:4",
		uuidA + ":1-9223372036854775806":                         uuidA + ":1-9223372036854775806",
	} {
		set, err := ParseSet(text)
		if err != nil || set.String() != want {
			t.Errorf("%q: %q, %v, want %q", text, set.String(), err, want)
		}
	}
	for _, text := range []string{
		"x", uuidA, uuidA + ":", uuidA + ":0", uuidA + ":0-5", uuidA + ":1-", uuidA + ":-1", uuidA + ":1-x", uuidA + ":1--2",
		uuidA + ":1:", uuidA + "::1", uuidA + ":tag", uuidA + ":tag:", uuidA + ":a:b:1", uuidA + ":1-9223372036854775807",
		uuidA + ":1;" + uuidB + ":1", uuidA + ":1 2", uuidA + ":a b:1", "+" + uuidA + ":1",
	} {
		if set, err := ParseSet(text); !errors.Is(err, ErrSyntax) {
			t.Errorf("%q: %q, %v", text, set.String(), err)
		}
	}
}

func TestTextMarshal(t *testing.T) {
	type all struct {
		U UUID
		G GTID
		S Set
	}
	in := all{mustUUID(t, uuidA), GTID{SID{mustUUID(t, uuidB), "t"}, 4}, mustSet(t, uuidA+":1-3:t:5,"+uuidB+":1")}
	b, err := json.Marshal(in)
	if err != nil {
		t.Fatal(err)
	}
	var out all
	if err := json.Unmarshal(b, &out); err != nil || out.U != in.U || out.G != in.G || !out.S.Equal(in.S) {
		t.Errorf("%s: %v, %v", b, out, err)
	}
	for _, bad := range []encoding.TextUnmarshaler{&out.U, &out.G, &out.S} {
		if err := bad.UnmarshalText([]byte("x")); !errors.Is(err, ErrSyntax) {
			t.Errorf("%T: %v", bad, err)
		}
	}
	if b, err := (Set{}).MarshalText(); err != nil || b == nil || len(b) != 0 {
		t.Errorf("empty set: %q, %v", b, err)
	}
}

func TestIncarnation(t *testing.T) {
	for _, test := range []struct {
		cluster     uint64
		node        uint16
		incarnation uint64
		want        string
	}{
		{0, 0, 0, "00000000-0000-8000-8000-000000000000"},
		{0x123456789abcdef, 0x321, 0xa1b2c3d4e5f6, "12345678-9abc-8def-8321-a1b2c3d4e5f6"},
		{1<<64 - 1, MaxNode, MaxIncarnation, "ffffffff-ffff-8fff-8fff-ffffffffffff"},
	} {
		u := IncarnationUUID(test.cluster, test.node, test.incarnation)
		if u.String() != test.want {
			t.Errorf("%v, want %s", u, test.want)
		}
		c, n, i, ok := ParseIncarnation(u)
		if !ok || c != test.cluster&ClusterMask || n != test.node || i != test.incarnation {
			t.Errorf("%v: %x %x %x %t", u, c, n, i, ok)
		}
	}
	for _, text := range []string{uuidA, uuidB, "12345678-9abc-4def-8321-a1b2c3d4e5f6",
		"12345678-9abc-8def-9321-a1b2c3d4e5f6", "12345678-9abc-8def-c321-a1b2c3d4e5f6"} {
		if _, _, _, ok := ParseIncarnation(mustUUID(t, text)); ok {
			t.Errorf("%s is taken for an incarnation", text)
		}
	}
	for name, f := range map[string]func(){
		"node":        func() { IncarnationUUID(1, MaxNode+1, 1) },
		"incarnation": func() { IncarnationUUID(1, 1, MaxIncarnation+1) },
	} {
		t.Run(name, func(t *testing.T) {
			defer func() {
				if recover() == nil {
					t.Error("no panic")
				}
			}()
			f()
		})
	}
}
