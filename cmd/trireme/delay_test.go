package main

import (
	"strings"
	"testing"

	"trireme/internal/api"
)

// TestDelayTextNamesTheNext: where a delayed learner has stopped, one wants to know which transaction waits there.
func TestDelayTextNamesTheNext(t *testing.T) {
	const next, before = "3e11fa47-71ca-11e1-9e33-c80aa9429562:8", "3e11fa47-71ca-11e1-9e33-c80aa9429562:7"
	for what, c := range map[string]struct {
		v    api.DelayView
		want bool
	}{
		"held":                    {api.DelayView{Stopped: true, Order: api.OrderStopAfter, Next: next}, true},
		"stopped after another":   {api.DelayView{Stopped: true, Order: api.OrderStopAfter, GTID: before, Next: next}, true},
		"stopped, nothing waits":  {api.DelayView{Stopped: true, Order: api.OrderStopAfter, GTID: before}, false},
		"on its way to the order": {api.DelayView{Order: api.OrderStopAfter, GTID: before, Next: next}, false},
	} {
		if text := delayText("late1", c.v); strings.Contains(text, next) != c.want {
			t.Errorf("%s: %s", what, text)
		}
	}
	if text := delayText("late1", api.DelayView{Stopped: true, Order: api.OrderStopBefore, GTID: next, Next: next}); strings.
		Count(text, next) != 1 {
		t.Error(text)
	}
}
