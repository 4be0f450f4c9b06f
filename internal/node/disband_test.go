package node

import (
	"testing"
	"time"

	"trireme/internal/ha"
)

// TestConfirmPlain: the end is committed only behind a mysqld that is as it was made ready, not one that was started or fed anew meanwhile.
func TestConfirmPlain(t *testing.T) {
	ready, other := &life{}, &life{}
	for _, c := range []struct {
		name  string
		life  *life
		until time.Duration
		ok    bool
	}{
		{"ready", ready, now() + time.Minute, true},
		{"never made ready", nil, 0, false},
		{"under way", nil, now() + time.Minute, false},
		{"another mysqld", other, now() + time.Minute, false},
		{"too long ago", ready, now() - time.Nanosecond, false},
	} {
		n := &Node{}
		n.srv.life, n.srv.state, n.plainLife, n.plainUntil = ready, ha.ServerReady, c.life, c.until
		before := n.plainUntil
		err := n.plainHere(t.Context(), plainOrder{Confirm: true})
		if (err == nil) != c.ok {
			t.Errorf("%s: %v", c.name, err)
		}
		if !c.ok && n.plainUntil != before {
			t.Errorf("%s: it has more time", c.name)
		}
	}
}
