package consensus

import (
	"testing"
	"time"
)

// A minority that is deaf to the leader changes nothing, and hears it again; a majority elects another one.
func TestDepose(t *testing.T) {
	g := newGroup(t)
	a, b, c := g.trio(nil)
	term := a.Status().Term
	c.Depose(1, term, true)
	eventually(t, "it has forgotten the leader", func() bool { return c.Status().Leader == 0 })
	if _, _, err := a.Propose(within(t, 20*time.Second), []byte("x")); err != nil {
		t.Fatal(err)
	}
	eventually(t, "it follows again",
		func() bool { s := c.Status(); return s.Leader == 1 && s.Term == term && s.Commit == a.Status().Commit })

	eventually(t, "another one leads", func() bool {
		s := a.Status()
		if s.Leader == 1 && s.Term == term {
			b.Depose(1, term, false) // says nothing new to one that is deaf already
			c.Depose(1, term, true)
		}
		term = max(term, s.Term)
		return s.Leader > 1
	})
}
