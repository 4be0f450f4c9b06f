package gtid

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// model is a set of GTIDs as simple as can be.
type model map[GTID]bool

func (m model) set() Set {
	var s Set
	for g := range m { // in random order
		s.Add(g)
	}
	return s
}

// ranges computes what Set.Ranges should say, one GNO at a time.
func (m model) ranges() []Range {
	var out []Range
	all := make([]GTID, 0, len(m))
	for g := range m {
		all = append(all, g)
	}
	slices.SortFunc(all, func(a, b GTID) int {
		if c := a.Compare(b.SID); c != 0 {
			return c
		}
		return int(a.GNO - b.GNO)
	})
	for _, g := range all {
		if n := len(out); n > 0 && out[n-1].SID == g.SID && out[n-1].Last == g.GNO-1 {
			out[n-1].Last++
		} else {
			out = append(out, Range{g.SID, g.GNO, g.GNO})
		}
	}
	return out
}

func genSID() *rapid.Generator[SID] {
	return rapid.Custom(func(t *rapid.T) SID {
		var s SID
		s.UUID[15] = byte(rapid.IntRange(0, 2).Draw(t, "uuid"))
		s.Tag = rapid.SampledFrom([]string{"", "", "a", "_b"}).Draw(t, "tag")
		return s
	})
}

func genGTID() *rapid.Generator[GTID] {
	return rapid.Custom(func(t *rapid.T) GTID {
		return GTID{genSID().Draw(t, "sid"), rapid.Int64Range(1, 24).Draw(t, "gno")}
	})
}

func genModel() *rapid.Generator[model] {
	return rapid.Custom(func(t *rapid.T) model {
		m := model{}
		for _, g := range rapid.SliceOfN(genGTID(), 0, 60).Draw(t, "gtids") {
			m[g] = true
		}
		return m
	})
}

// check compares s with m in every way that there is to ask, and makes it go through both encodings.
func check(t *rapid.T, what string, s Set, m model) {
	t.Helper()
	if got, want := s.Ranges(), m.ranges(); !slices.Equal(got, want) {
		t.Fatalf("%s: %v, want %v", what, got, want)
	}
	if s.Count() != uint64(len(m)) || s.Empty() != (len(m) == 0) || !s.Equal(m.set()) {
		t.Fatalf("%s: count %d, empty %t, want %d: %v", what, s.Count(), s.Empty(), len(m), s)
	}
	if again, err := ParseSet(s.String()); err != nil || !again.Equal(s) {
		t.Fatalf("%s: text %q: %v, %v", what, s.String(), again, err)
	}
	b := s.AppendBinary([]byte("x"))
	if again, err := DecodeBinary(b[1:]); b[0] != 'x' || err != nil || !again.Equal(s) {
		t.Fatalf("%s: binary % x: %v, %v", what, b, again, err)
	}
}

func TestSetOperations(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a, b := genModel().Draw(t, "a"), genModel().Draw(t, "b")
		union, difference, intersection := model{}, model{}, model{}
		contains := true
		for g := range a {
			union[g] = true
			if b[g] {
				intersection[g] = true
			} else {
				difference[g] = true
			}
		}
		for g := range b {
			union[g] = true
			contains = contains && a[g]
		}
		sa, sb := a.set(), b.set()
		check(t, "union", sa.Union(sb), union)
		check(t, "difference", sa.Subtract(sb), difference)
		check(t, "intersection", sa.Intersect(sb), intersection)
		if got := sa.ContainsSet(sb); got != contains {
			t.Fatalf("ContainsSet: %t", got)
		}
		// None of these may change what they were given.
		check(t, "a", sa, a)
		check(t, "b", sb, b)
		g := genGTID().Draw(t, "member")
		if sa.Contains(g) != a[g] {
			t.Fatalf("Contains(%v)", g)
		}
	})
}

// TestSetModel changes one set step by step; a clone taken along the way must not follow.
func TestSetModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var s, clone Set
		m, clonedModel := model{}, model{}
		t.Repeat(map[string]func(*rapid.T){
			"Add": func(t *rapid.T) {
				g := genGTID().Draw(t, "gtid")
				if s.Add(g) == m[g] {
					t.Fatalf("Add(%v) is wrong about novelty", g)
				}
				m[g] = true
			},
			"AddNext": func(t *rapid.T) {
				sid := genSID().Draw(t, "sid")
				g := GTID{sid, s.Last(sid) + 1}
				if !s.Add(g) {
					t.Fatalf("Add(%v) is wrong about novelty", g)
				}
				m[g] = true
			},
			"AddRange": func(t *rapid.T) {
				g := genGTID().Draw(t, "first")
				last := g.GNO + rapid.Int64Range(0, 9).Draw(t, "more")
				s.AddRange(Range{g.SID, g.GNO, last})
				for ; g.GNO <= last; g.GNO++ {
					m[g] = true
				}
			},
			"AddSet": func(t *rapid.T) {
				other := genModel().Draw(t, "other")
				s.AddSet(other.set())
				for g := range other {
					m[g] = true
				}
			},
			"Clone": func(t *rapid.T) {
				clone, clonedModel = s.Clone(), model{}
				for g := range m {
					clonedModel[g] = true
				}
			},
			"": func(t *rapid.T) {
				check(t, "set", s, m)
				check(t, "clone", clone, clonedModel)
				checkLookups(t, s, m)
			},
		})
	})
}

// checkLookups compares SIDs, Of, Last, FirstOf and ContainsRange.
func checkLookups(t *rapid.T, s Set, m model) {
	sid := genSID().Draw(t, "looked up")
	last := int64(0)
	ofUUID := model{}
	for g := range m {
		if g.SID == sid {
			last = max(last, g.GNO)
		}
		if g.UUID == sid.UUID {
			ofUUID[g] = true
		}
	}
	if got := s.Last(sid); got != last {
		t.Fatalf("Last(%v) = %d, want %d", sid, got, last)
	}
	if slices.Contains(s.SIDs(), sid) != (last > 0) {
		t.Fatalf("SIDs() = %v, Last %d", s.SIDs(), last)
	}
	check(t, "Of", s.Of(sid.UUID), ofUUID)
	r := Range{SID: sid, First: rapid.Int64Range(1, 30).Draw(t, "first")}
	r.Last = r.First + rapid.Int64Range(0, 10).Draw(t, "more")
	want, all := int64(0), true
	for n := r.Last; n >= r.First; n-- {
		if m[GTID{sid, n}] {
			want = n
		} else {
			all = false
		}
	}
	if got := s.ContainsRange(r); got != all {
		t.Fatalf("ContainsRange(%v) = %t, want %t", r, got, all)
	}
	if got, ok := s.FirstOf(r); got != want || ok != (want > 0) {
		t.Fatalf("FirstOf(%v) = %d, %t, want %d", r, got, ok, want)
	}
}

func TestAddLimits(t *testing.T) {
	sid := SID{UUID: mustUUID(t, uuidA)}
	s := SetOf(GTID{sid, MaxGNO}, GTID{sid, 1})
	s.AddRange(Range{sid, 2, MaxGNO})
	if s.Count() != MaxGNO || len(s.Ranges()) != 1 {
		t.Error(s)
	}
	if b, err := DecodeBinary(s.AppendBinary(nil)); err != nil || !b.Equal(s) {
		t.Error(b, err)
	}
	for name, f := range map[string]func(){
		"Add 0":          func() { s.Add(GTID{sid, 0}) },
		"Add too high":   func() { s.Add(GTID{sid, MaxGNO + 1}) },
		"Range 0":        func() { s.AddRange(Range{sid, 0, 1}) },
		"Range reversed": func() { s.AddRange(Range{sid, 2, 1}) },
		"Range too high": func() { s.AddRange(Range{sid, 1, MaxGNO + 1}) },
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

func TestAddNextDoesNotAllocate(t *testing.T) {
	var s Set
	g := GTID{SID{mustUUID(t, uuidB), "tag"}, 1}
	s.Add(GTID{SID{UUID: mustUUID(t, uuidA)}, 5})
	s.Add(g)
	if n := testing.AllocsPerRun(1000, func() { g.GNO++; s.Add(g) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func TestDecodeBinaryErrors(t *testing.T) {
	u64 := func(parts ...any) []byte {
		var b []byte
		for _, p := range parts {
			switch p := p.(type) {
			case int:
				b = binary.LittleEndian.AppendUint64(b, uint64(p))
			case uint64:
				b = binary.LittleEndian.AppendUint64(b, p)
			case []byte:
				b = append(b, p...)
			}
		}
		return b
	}
	uuid := make([]byte, 16)
	tagged := uint64(1<<56 | 1<<8 | 1)
	for name, b := range map[string][]byte{
		"empty":               {},
		"short header":        make([]byte, 7),
		"no UUID":             u64(1),
		"no interval count":   u64(1, uuid),
		"cut interval":        u64(1, uuid, 1, 5),
		"huge interval count": u64(1, uuid, uint64(1<<60), 1, 2),
		"huge SID count":      u64(uint64(1<<55), uuid, 1, 1, 2),
		"empty interval":      u64(1, uuid, 1, 5, 5),
		"reversed interval":   u64(1, uuid, 1, 5, 4),
		"from zero":           u64(1, uuid, 1, 0, 4),
		"adjacent intervals":  u64(1, uuid, 2, 1, 3, 3, 4),
		"descending":          u64(1, uuid, 2, 5, 6, 1, 2),
		"too high":            u64(1, uuid, 1, 1, uint64(1<<63)),
		"trailing bytes":      u64(1, uuid, 1, 1, 2, []byte{0}),
		"format 2":            u64(uint64(2<<56 | 2)),
		"format 255":          u64(uint64(255 << 56)),
		"formats differ":      u64(uint64(1<<56 | 1<<8 | 2)),
		"tag length missing":  u64(tagged, uuid),
		"tag cut":             u64(tagged, uuid, []byte{6, 'a'}),
		"tag length of two":   u64(tagged, uuid, []byte{1, 0}),
		"tag too long":        u64(tagged, uuid, []byte{66}, bytes.Repeat([]byte{'a'}, 33), 1, 1, 2),
		"tag with a dash":     u64(tagged, uuid, []byte{4, 'a', '-'}, 1, 1, 2),
	} {
		if s, err := DecodeBinary(b); !errors.Is(err, ErrEncoding) {
			t.Errorf("%s: %v, %v", name, s, err)
		}
	}
	// The tagged form without tags, an SID without intervals, and SIDs out of order or twice are legal.
	for name, b := range map[string][]byte{
		"tagged, empty": u64(uint64(1<<56 | 1)),
		"no intervals":  u64(1, uuid, 0),
		"untagged":      u64(0),
	} {
		if s, err := DecodeBinary(b); err != nil || !s.Empty() {
			t.Errorf("%s: %v, %v", name, s, err)
		}
	}
	other := bytes.Repeat([]byte{9}, 16)
	s, err := DecodeBinary(u64(3, other, 1, 7, 9, uuid, 1, 1, 3, other, 2, 1, 3, 9, 10))
	if want := "00000000-0000-0000-0000-000000000000:1-2,\n09090909-0909-0909-0909-090909090909:1-2:7-9"; err != nil ||
		s.String() != want {
		t.Errorf("%v, %v", s, err)
	}
}

func FuzzParseSet(f *testing.F) {
	for _, s := range []string{"", uuidA + ":1-5:7:tag:1", uuidA + ":5-3", uuidA + ":a:1:b:2,\n" + uuidB +
		":9223372036854775806", "{" + uuidA + "} : 1 - 2"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		s, err := ParseSet(text)
		if err != nil {
			if !errors.Is(err, ErrSyntax) {
				t.Fatal(err)
			}
			return
		}
		again, err := ParseSet(s.String())
		if err != nil || !again.Equal(s) || again.String() != s.String() {
			t.Fatalf("%q: %q, then %q, %v", text, s, again, err)
		}
	})
}

func FuzzDecodeBinary(f *testing.F) {
	for _, s := range []string{"", uuidA + ":1-5:7", uuidA + ":1-5:7:tag:1," + uuidB + ":_:9223372036854775806"} {
		f.Add(mustSet(f, s).AppendBinary(nil))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		s, err := DecodeBinary(b)
		if err != nil {
			if !errors.Is(err, ErrEncoding) {
				t.Fatal(err)
			}
			return
		}
		again, err := DecodeBinary(s.AppendBinary(nil))
		if err != nil || !again.Equal(s) {
			t.Fatalf("% x: %v, then %v, %v", b, s, again, err)
		}
	})
}

func BenchmarkAddNext(b *testing.B) {
	var s Set
	g := GTID{SID{UUID: IncarnationUUID(1, 2, 3)}, 1}
	for i := range 100 { // earlier incarnations
		s.AddRange(Range{SID{UUID: IncarnationUUID(1, 1, uint64(i))}, 1, 1000})
	}
	b.ReportAllocs()
	for b.Loop() {
		s.Add(g)
		g.GNO++
	}
}

func BenchmarkContains(b *testing.B) {
	var s Set
	sid := SID{UUID: IncarnationUUID(1, 2, 3)}
	for i := int64(1); i < 2000; i += 2 {
		s.Add(GTID{sid, i})
	}
	b.ReportAllocs()
	for b.Loop() {
		s.Contains(GTID{sid, 1001})
	}
}

func ExampleSet_String() {
	s, _ := ParseSet("4F22AB58-71CA-11E1-9E33-C80AA9429562:7, 3e11fa47-71ca-11e1-9e33-c80aa9429562:9:2-5:1:backup:1-3")
	fmt.Println(s)
	// Output:
	// 3e11fa47-71ca-11e1-9e33-c80aa9429562:1-5:9:backup:1-3,
	// 4f22ab58-71ca-11e1-9e33-c80aa9429562:7
}
