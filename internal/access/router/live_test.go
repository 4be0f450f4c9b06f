package router

import (
	"testing"
	"time"

	"trireme/internal/api"
)

// What a router was told counts from when it asked, for as long as was said, and the answer to the later question
// counts.
func TestTold(t *testing.T) {
	var told liveTold
	if _, ok, again := told.holds(time.Hour, ""); ok || !again {
		t.Error("no node has told anything")
	}
	told.take(time.Minute, api.ReadIndexView{Index: 7, Live: []string{"n1", "n3"}})
	told.take(time.Minute-1, api.ReadIndexView{Index: 6, Live: []string{"n2"}})
	for _, c := range []struct {
		at   time.Duration
		node string
		want bool
	}{{time.Minute, "n3", true}, {time.Minute + api.LiveFor - 1, "n1", true}, {time.Minute + api.LiveFor, "n1", false},
		{time.Minute, "n2", false}, {time.Minute + liveAgain, "n2", false}} {
		if index, ok, again := told.holds(c.at, c.node); ok != c.want || index != 7 ||
			again != (c.at >= time.Minute+liveAgain) {
			t.Errorf("%v: %s may be read: %t, at %d; asked again: %t", c.at, c.node, ok, index, again)
		}
	}
}
