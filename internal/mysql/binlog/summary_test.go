package binlog

import (
	"bytes"
	"errors"
	"slices"
	"testing"
)

// rowEvents are a TABLE_MAP event of table app.NAME under an id, and one row event of each type.
func rowEvents(id byte, name string, types ...EventType) [][]byte {
	body := append([]byte{id, 0, 0, 0, 0, 0, 1, 0, 3}, "app\x00"...)
	body = append(append(append(body, byte(len(name))), name...), 0, 1, 3, 0, 0)
	all := [][]byte{AppendEvent(nil, Header{Type: TypeTableMap}, body)}
	for _, t := range types {
		all = append(all,
			AppendEvent(nil, Header{Type: t}, append([]byte{id, 0, 0, 0, 0, 0, 1, 0, 2, 0}, bytes.Repeat([]byte{7}, 5000)...)))
	}
	return all
}

func TestSummary(t *testing.T) {
	begin := AppendQuery(nil, Header{Type: TypeQuery}, 1, "app", "BEGIN")
	rows := slices.Concat([][]byte{begin}, rowEvents(5, "parent", TypeUpdateRows, TypeUpdateRows),
		rowEvents(6, "child", TypeDeleteRows, TypeWriteRows))
	want := []Change{{"app.child", "delete", 1}, {"app.child", "insert", 1}, {"app.parent", "update", 2}}
	for name, events := range map[string][][]byte{
		"plain":        rows,
		"uncompressed": {payloadEvent(t, CompressionNone, rows...)},
		"compressed":   {payloadEvent(t, CompressionZSTD, rows...)},
	} {
		var s Summary
		for _, ev := range events {
			if err := s.Add(ev); err != nil {
				t.Fatalf("%s: %v", name, err)
			}
		}
		if got := s.Changes(); !slices.Equal(got, want) || s.Statement != "" {
			t.Errorf("%s: %+v %q", name, got, s.Statement)
		}
		if got := s.String(); got != "delete app.child, insert app.child, update app.parent" {
			t.Errorf("%s: %s", name, got)
		}
	}
	var s Summary
	if err := s.Add(AppendQuery(nil, Header{Type: TypeQuery}, 1, "app", "DROP TABLE t")); err != nil ||
		s.String() != "DROP TABLE t (schema app)" {
		t.Error(err, s.String())
	}
	if err := s.Add(AppendQuery(nil, Header{Type: TypeQuery}, 1, "",
		"CREATE USER 'a'@'%' IDENTIFIED WITH 'x' AS 'secret'")); err != nil || s.Statement != "CREATE USER …" {
		t.Error(err, s.String())
	}
	for _, bad := range [][]byte{nil, AppendEvent(nil, Header{Type: TypeTableMap}, []byte{1, 2}),
		AppendEvent(nil, Header{Type: TypeWriteRows}, []byte{1})} {
		if err := s.Add(bad); !errors.Is(err, ErrMalformed) && !errors.Is(err, ErrShort) {
			t.Errorf("%x: %v", bad, err)
		}
	}
}
