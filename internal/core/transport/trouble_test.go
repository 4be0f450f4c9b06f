package transport

import (
	"errors"
	"fmt"
	"slices"
	"testing"
)

// TestTrouble: a peer is tried at the addresses that it has and had, in turn. Each is told with its last error, and no
// more than a few; one connection ends all of it.
func TestTrouble(t *testing.T) {
	p := &peer{}
	p.control = newLink(p, controlStream, 1)
	tr := &Transport{peers: map[uint64]*peer{2: p}}
	refused, timeout := errors.New("connection refused"), errors.New("i/o timeout")
	for range 3 {
		p.control.noteAttempt("10.0.0.2:7306", timeout)
		p.control.noteAttempt("10.0.0.9:7306", refused)
	}
	got := tr.Trouble(2)
	if want := []Attempt{{"10.0.0.2:7306", timeout}, {"10.0.0.9:7306", refused}}; !slices.Equal(got.Tried, want) ||
		got.For <= 0 {
		t.Errorf("%+v", got)
	}
	for i := range 2 * maxTried {
		p.control.noteAttempt(fmt.Sprint(i), refused)
	}
	if got := tr.Trouble(2).Tried; len(got) != maxTried || got[maxTried-1].Address != fmt.Sprint(2*maxTried-1) {
		t.Errorf("%+v", got)
	}
	p.control.noteAttempt("10.0.0.2:7306", nil)
	if got := tr.Trouble(2); len(got.Tried) != 0 || got.For != 0 {
		t.Errorf("%+v", got)
	}
	if got := tr.Trouble(3); len(got.Tried) != 0 {
		t.Errorf("a peer that is not a member: %+v", got)
	}
}
