package ha

import "testing"

func TestStands(t *testing.T) {
	for _, c := range []struct {
		a      Action
		server ServerState
		s      Serving
		want   bool
	}{
		{Action{Kind: Promote, Term: 5}, ServerReady, Serving{}, true},
		{Action{Kind: Promote, Term: 4}, ServerReady, Serving{}, false},
		{Action{Kind: Promote, Term: 5}, ServerReady, Serving{Phase: PhaseOpen, Term: 5}, false},
		{Action{Kind: Promote, Term: 5}, ServerDying, Serving{}, false},
		{Action{Kind: Fence, Term: 4}, ServerDying, Serving{Phase: PhaseOpen, Term: 4}, true}, // never dropped
		{Action{Kind: Fence, Term: 5}, ServerReady, Serving{Phase: PhaseFencing, Term: 5}, false},
		{Action{Kind: Fence, Term: 5}, ServerReady, Serving{}, false},
		{Action{Kind: StartServer, Term: 5}, ServerOff, Serving{}, true},
		{Action{Kind: StartServer, Term: 5}, ServerStarting, Serving{}, false},
		{Action{Kind: Judge, Term: 4}, ServerUp, Serving{}, false},
		{Action{Kind: Judge, Term: 5}, ServerUp, Serving{}, true},
		{Action{Kind: Seed, Term: 5}, ServerBehind, Serving{}, true},
		{Action{Kind: Seed, Term: 5}, ServerSeeding, Serving{}, false},
		{Action{Kind: Restart, Term: 5}, ServerReady, Serving{Phase: PhasePromoting, Term: 5}, false},
		{Action{Kind: Switchover, Term: 5}, ServerReady, Serving{Phase: PhaseOpen, Term: 5}, true},
		{Action{Kind: Switchover, Term: 5}, ServerReady, Serving{Phase: PhaseOpen, Term: 4}, false},
		{Action{Kind: HandOver, Term: 5}, ServerReady, Serving{}, true},
		{Action{Kind: HandOver, Term: 4}, ServerReady, Serving{}, false},
	} {
		if got := Stands(c.a, 5, c.server, c.s, false); got != c.want {
			t.Errorf("%v, mysqld %v, %v in term %d: %t", c.a, c.server, c.s.Phase, c.s.Term, got)
		}
		leaves := c.a.Kind == Fence || c.a.Kind == HandOver || c.a.Kind == Switchover
		if got := Stands(c.a, 5, c.server, c.s, true); got != (c.want && leaves) {
			t.Errorf("%v, mysqld %v, %v in term %d, of a daemon that stops: %t", c.a, c.server, c.s.Phase, c.s.Term, got)
		}
	}
}
