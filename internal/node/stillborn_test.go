package node

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"trireme/internal/ha"
	"trireme/internal/mysqld"
)

// A mysqld that dies at every start is not waited for in silence: status and why-not name the way out, once it is clear that it does not come up.
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

	n := listener(t, as(2))
	n.startFailedLocked(died)
	n.startFailedLocked(died)
	n.startFailedLocked(errors.New("the port is in use"))
	for range stillbornLimit - 1 {
		n.startFailedLocked(died)
	}
	if n.srv.died != stillbornLimit-1 || n.srv.fails != stillbornLimit+2 {
		t.Fatalf("%d deaths in a row of %d failures", n.srv.died, n.srv.fails)
	}
	n.startFailedLocked(died)
	r, ok := ha.Unready(n.serverViewLocked(), "", false, now())
	if ok || !strings.Contains(r.Text, "`trireme reinit db2`") {
		t.Errorf("why-not says: %s", r.Text)
	}
}
