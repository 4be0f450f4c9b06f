package config

import (
	"errors"
	"reflect"
	"testing"
)

// TestDeclareVoid: it is in every copy, and a version that does not know of it must not go by such settings.
func TestDeclareVoid(t *testing.T) {
	before := goldenCluster()
	if before.Needs != 0 {
		t.Fatalf("they need format %d", before.Needs)
	}
	c := before.Clone()
	c.DeclareVoid(Void{GTID: "0c21cfc5-1c03-8b32-8001-000000000004:19", Index: 99, Entry: "insert shop.t",
		Error: "3819: no", By: "me"})
	if len(before.Voids) != 0 || c.Needs != 2 || c.Needs > SettingsFormat {
		t.Errorf("%d in the copy before, needs %d", len(before.Voids), c.Needs)
	}
	c.Disbanded, c.Version = nil, c.Version+1
	b, err := c.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	got, err := ParseCluster(b)
	if err != nil || !reflect.DeepEqual(got, c) || len(got.Clone().Voids) != 1 {
		t.Errorf("%+v, %v", got, err)
	}
	got.DeclareVoid(Void{GTID: "0c21cfc5-1c03-8b32-8001-000000000004:19", Tolerant: true})
	if got.Needs != 3 || got.Voids[1].Mark() != got.Voids[0].Mark()+TolerantMark {
		t.Errorf("needs %d, %q", got.Needs, got.Voids[1].Mark())
	}
	got.Needs = SettingsFormat + 1
	if b, err = got.Marshal(); err != nil {
		t.Fatal(err)
	}
	if _, err := ParseCluster(b); !errors.Is(err, ErrNewer) {
		t.Errorf("settings of a newer format: %v", err)
	}
}
