package node

import (
	"maps"
	"testing"
)

func TestVanished(t *testing.T) {
	set := func(xids ...string) map[string]bool {
		m := map[string]bool{}
		for _, x := range xids {
			m[x] = true
		}
		return m
	}
	if got := vanished(set("a", "b", "c"), set("b", "d")); !maps.Equal(got, set("a", "c")) {
		t.Errorf("%v", got)
	}
	if got := vanished(nil, set("a")); len(got) != 0 {
		t.Errorf("%v", got)
	}
}
