package lifecycle

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"trireme/internal/core/ha"
	"trireme/internal/mysql/mysqld"
)

// A mysqld that dies at every start is not waited for in silence: status and why-not name the way out, once it is clear
// that it does not come up.
func TestStillbornServer(t *testing.T) {
	died := fmt.Errorf("start: %w: mysqld: killed by signal 6", mysqld.ErrExited)
	for _, c := range []struct {
		died int
		want bool
	}{{0, false}, {stillbornLimit - 1, false}, {stillbornLimit, true}, {10, true}} {
		text := startProblem(died, c.died, "db2")
		if !strings.Contains(text, died.Error()) || strings.Contains(text, "`trireme reinit db2`") != c.want {
			t.Errorf("%d deaths: %s", c.died, text)
		}
	}

	var s Server
	s.StartFailed(died, "db2")
	s.StartFailed(died, "db2")
	s.StartFailed(errors.New("the port is in use"), "db2")
	for range stillbornLimit - 1 {
		s.StartFailed(died, "db2")
	}
	if s.died != stillbornLimit-1 || s.Fails() != stillbornLimit+2 {
		t.Fatalf("%d deaths in a row of %d failures", s.died, s.Fails())
	}
	s.StartFailed(died, "db2")
	r, ok := ha.Unready(s.View(), "", false, 0)
	if ok || !strings.Contains(r.Text, "`trireme reinit db2`") {
		t.Errorf("why-not says: %s", r.Text)
	}
}

// TestServer: what stands in the way of a life goes with it, and a seeding that fails still says why the data is
// replaced.
func TestServer(t *testing.T) {
	var s Server
	l := &Life{Incarnation: 7}
	s.Started(l)
	s.Unjudged("no leader")
	s.Ready()
	l.Stall("its binary log cannot be read")
	if !s.Probed(Stuck{"it does not answer", 3}, Stuck{}) || s.Probed(Stuck{"it does not answer", 4}, Stuck{}) ||
		!s.Probed(Stuck{"it does not answer", 4}, Stuck{"the disk hangs", 5}) {
		t.Error("a reason is new once")
	}
	if why, since := s.Stuck(); why != "its binary log cannot be read" || since != 0 || s.Problem() != "" {
		t.Errorf("%q since %v; %q", why, since, s.Problem())
	}
	l.Stall("")
	if why, since := s.Stuck(); why != "it does not answer" || since != 4 {
		t.Errorf("%q since %v", why, since)
	}
	s.Dying()
	if why, _ := s.Stuck(); why != "" || s.State() != ha.ServerDying || s.Life() != l {
		t.Errorf("%q while it dies; %v", why, s.State())
	}
	s.EndedBecause("the guard killed it")
	s.Dead()
	if s.State() != ha.ServerOff || s.Life() != nil || s.LogStuck() == "" || s.View().Ended != "the guard killed it" {
		t.Errorf("%v; the raft log: %q", s.View(), s.LogStuck())
	}
	if s.Started(l); s.LogStuck() == "" || s.View().Ended != "" {
		t.Error("another life has the raft log continue, or has ended")
	}
	s.Dead()
	s.Behind("the log begins at 9")
	s.Seeding()
	s.SeedFailed(errors.New("no donor"))
	if s.State() != ha.ServerBehind || s.Problem() != "no donor; the log begins at 9" || s.View().RetryAt == 0 {
		t.Errorf("%+v", s.View())
	}
	if s.Seeded(); s.State() != ha.ServerOff || s.Problem() != "" || s.View().RetryAt != 0 {
		t.Errorf("%+v", s.View())
	}
}
