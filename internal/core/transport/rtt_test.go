package transport

import (
	"testing"
	"time"
)

func TestRTT(t *testing.T) {
	var r rtts
	if got := r.get(); got != (RTT{}) {
		t.Fatalf("of nothing: %+v", got)
	}
	r.add(0) // a clock that did not move says nothing
	for i := range 100 {
		r.add(time.Duration(i+1) * time.Millisecond)
	}
	if got, want := r.get(), (RTT{100, 51 * time.Millisecond, 100 * time.Millisecond}); got != want {
		t.Fatalf("%+v, want %+v", got, want)
	}
	for range rttSamples { // the old ones are forgotten
		r.add(time.Millisecond)
	}
	if got, want := r.get(), (RTT{rttSamples, time.Millisecond, time.Millisecond}); got != want {
		t.Fatalf("%+v, want %+v", got, want)
	}
}
