package api

import (
	"slices"
	"testing"
)

// TestForceQuorumIsDoneBySource: it needs the token and no leader, any node passes it to the survivor with the newest
// log, once, and says when that one cannot be reached.
func TestForceQuorumIsDoneBySource(t *testing.T) {
	c := newCluster(t)
	b1, b2 := &backend{source: Leader{Name: "n1", Self: true}}, &backend{}
	s1, s2 := c.start(1, "n1", b1), c.start(2, "n2", b2)
	source := func(l Leader) {
		b2.mu.Lock()
		defer b2.mu.Unlock()
		b2.source = l
	}
	source(Leader{Name: "n1", API: s1.Addr()})
	cl := c.client(s2.Addr(), operatorToken)
	if _, err := ForceQuorum.Ask(t.Context(), c.client(s2.Addr(), ""), ForceRequest{}); KindOf(err) != KindUnauthorized {
		t.Errorf("without a token: %v", err)
	}
	if _, err := ForceQuorum.Ask(t.Context(), c.client(s2.Addr(), "the token of another cluster"),
		ForceRequest{Confirm: 3}); KindOf(err) != KindUnauthorized {
		t.Errorf("with another cluster's token: %v", err)
	}
	if rep, err := ForceQuorum.Ask(t.Context(), cl, ForceRequest{Confirm: 3}); err != nil || !rep.Done {
		t.Errorf("%+v, %v", rep, err)
	}
	if got := [][]string{b1.calls(), b2.calls()}; len(got[0]) != 1 || !slices.Equal(got[0], got[1]) {
		t.Errorf("asked: %q", got)
	}
	b1.mu.Lock()
	b1.err = Errorf(KindConflict, "nothing is changed: the term is 4, not 3")
	b1.mu.Unlock()
	if _, err := ForceQuorum.Ask(t.Context(), cl, ForceRequest{Confirm: 3}); KindOf(err) != KindConflict ||
		ExitCode(err) != 1 {
		t.Errorf("what the source says: %v", err)
	}
	source(Leader{Name: "n1", API: "127.0.0.1:1"})
	if _, err := ForceQuorum.Ask(t.Context(), cl, ForceRequest{Confirm: 3}); KindOf(err) != KindUnreachable ||
		ExitCode(err) != 3 {
		t.Errorf("a dead source: %v", err)
	}
	b1.mu.Lock()
	b1.source = Leader{Name: "n2", API: s2.Addr()}
	b1.err = nil
	b1.mu.Unlock()
	source(Leader{Name: "n1", API: s1.Addr()})
	if _, err := ForceQuorum.Ask(t.Context(), cl, ForceRequest{Confirm: 3}); KindOf(err) != KindConflict {
		t.Errorf("each names the other: %v", err)
	}
}
