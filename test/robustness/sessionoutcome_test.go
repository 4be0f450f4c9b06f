package robustness

import (
	"errors"
	"fmt"
	"maps"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/go-sql-driver/mysql"

	"trireme/internal/ops/demo"
	"trireme/lab/verify"
)

// TestSessionOutcomes: what a client is told of a COMMIT or an autocommit statement whose leader died before
// answering is what became of it.
func TestSessionOutcomes(t *testing.T) {
	t.Parallel()
	c := leaseTagged(t)
	setup := c.session(c.healthy())
	setup.exec("CREATE DATABASE told", "CREATE TABLE told.t (name VARCHAR(40) PRIMARY KEY)")
	for _, k := range []struct {
		point, last string
		want        uint16 // 0: an OK
		there       string
	}{
		{"ack.before", "COMMIT", 0, "1"},
		{"source.before-propose", "COMMIT", 1213, "0"},
		{"ack.before", "INSERT", wasCommitted, "1"},
	} {
		t.Run(k.last+" "+k.point, func(t *testing.T) {
			sub := &cluster{Cluster: c.Cluster, t: t}
			leader := sub.healthy()
			s := sub.routed(sub.others(leader)[0], 1)[0]
			insert := fmt.Sprintf("INSERT INTO told.t VALUES ('%s %s')", k.last, k.point)
			last := insert
			// The router asks the leader, at the same time as the statements run, where its log has come to; it is
			// given the time for that.
			s.exec("DO 1", "INSERT INTO told.t VALUES ('before "+k.last+k.point+"')", "DO SLEEP(0.2)")
			if k.last == "COMMIT" {
				last = "COMMIT"
				s.exec("BEGIN", insert)
			}
			sub.command(leader, "arm "+k.point+"=kill@1")
			if got := code(s.try(last)); got != k.want {
				t.Errorf("told %d, want %d", got, k.want)
			}
			// The session goes on, and sees what became of it.
			if got := s.value(fmt.Sprintf("SELECT COUNT(*) FROM told.t WHERE name = '%s %s'", k.last, k.point)); got != k.there {
				t.Errorf("%s rows, want %s", got, k.there)
			}
			sub.start(leader)
		})
	}
	c.killUnderWriters()
}

// wasCommitted stands for error 3168 with the SQLSTATE by which it says that the statement was committed and its result
// lost.
const wasCommitted = 3169

// code of a client's error; 0: no error; 1: it is not a server's.
func code(err error) uint16 {
	var e *mysql.MySQLError
	switch {
	case err == nil:
		return 0
	case errors.As(err, &e) && e.Number == 3168 && string(e.SQLState[:]) == "HY000":
		return wasCommitted
	case errors.As(err, &e):
		return e.Number
	}
	return 1
}

// routed opens sessions through the read-write port of one node.
func (c *cluster) routed(n *demo.Node, sessions int) []*session {
	c.t.Helper()
	state := c.State()
	login := verify.Login{Addr: func() string { return net.JoinHostPort(n.Host, strconv.Itoa(n.Ports.RW)) },
		User: state.User, Password: state.Password}
	out := make([]*session, sessions)
	for i := range out {
		db, err := login.Open("")
		must(c.t, err)
		out[i] = c.pin(db)
	}
	return out
}

// killUnderWriters kills the leader while sessions commit, and compares what each was told with what is there.
func (c *cluster) killUnderWriters() {
	leader := c.healthy()
	const writers = 32
	sessions := c.routed(c.others(leader)[0], writers)
	for _, s := range sessions {
		s.exec("DO 1")
	}
	before := c.view()
	var (
		mu     sync.Mutex
		told   = map[string]uint16{} // by name of the row
		counts = map[uint16]int{}
		wg     sync.WaitGroup
		stop   = make(chan struct{})
	)
	for i, s := range sessions {
		wg.Go(func() {
			for k := 0; ; k++ {
				select {
				case <-stop:
					return
				default:
				}
				name := fmt.Sprintf("%d %d", i, k)
				err := writeNamed(s, name, (i+k)%2 == 0)
				mu.Lock()
				told[name] = code(err)
				counts[code(err)]++
				mu.Unlock()
				if err != nil && code(err) == 1 {
					c.t.Errorf("writer %d lost its session: %v", i, err)
					return
				}
			}
		})
	}
	written := func() int {
		mu.Lock()
		defer mu.Unlock()
		return len(told)
	}
	eventually(c.t, healLimit, "they write", func() error { return atLeast(written(), 10*writers) })
	c.KillDaemon(leader)
	c.failedOver(before.Term)
	more := written() + 10*writers
	eventually(c.t, healLimit, "they go on", func() error { return atLeast(written(), more) })
	close(stop)
	wg.Wait()
	c.start(leader)
	rows, err := c.session(c.healthy()).rows("SELECT name FROM told.t")
	must(c.t, err)
	there := map[string]bool{}
	for _, name := range rows {
		there[name] = true
	}
	for name, answer := range told {
		if (answer == 0 || answer == wasCommitted) && !there[name] || answer == 1213 && there[name] {
			c.t.Errorf("%q was told %d, and is there: %t", name, answer, there[name])
		}
	}
	var lines []string
	for _, k := range slices.Sorted(maps.Keys(counts)) {
		lines = append(lines, fmt.Sprintf("%d: %d", k, counts[k]))
	}
	c.t.Logf("answers to %d writers whose leader was killed, by error: %s", writers, strings.Join(lines, ", "))
}

// writeNamed writes a row, in a transaction or by itself.
func writeNamed(s *session, name string, alone bool) error {
	insert := fmt.Sprintf("INSERT INTO told.t VALUES ('%s')", name)
	if alone {
		return s.try(insert)
	}
	for _, q := range []string{"BEGIN", insert, "COMMIT"} {
		if err := s.try(q); err != nil {
			return err
		}
	}
	return nil
}
