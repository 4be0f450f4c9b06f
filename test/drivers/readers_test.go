package drivers

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"
)

// reader reads one row through a router's read-only port, over and over.
type reader struct {
	name    string
	follows bool // its router does: it keeps one session, which goes on; otherwise it has a pool
	prepare bool

	mu     sync.Mutex
	phase  string
	reads  int
	failed []answer
	wrong  []string
}

// readers begins to read through the read-only ports of all routers until the test ends.
func (c *cluster) readers(t *testing.T) (all []*reader) {
	t.Helper()
	c.sql("CREATE TABLE IF NOT EXISTS drivers.kept (id INT PRIMARY KEY, v INT)", "REPLACE INTO drivers.kept VALUES (1, 7)")
	c.everywhere()
	ctx, stop := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	t.Cleanup(func() { stop(); wg.Wait() })
	must(t, mysql.SetLogger(quiet{}))
	s := settings{User: c.State().User, Password: c.State().Password}
	for _, n := range c.Nodes() {
		for _, prepare := range []bool{false, true} {
			r := &reader{name: fmt.Sprintf("a reader through %s (prepared %t)", n.Name, prepare),
				follows: slices.Contains(c.carriers(), n), prepare: prepare, phase: quietPhase}
			db := s.openGo(door{Host: n.Host, Port: n.Ports.RO}, s.User, "preferred")
			t.Cleanup(func() { _ = db.Close() })
			var from interface {
				QueryRowContext(context.Context, string, ...any) *sql.Row
			} = db
			if r.follows {
				conn, err := db.Conn(t.Context())
				must(t, err)
				t.Cleanup(func() { _ = conn.Close() })
				from = conn
			}
			wg.Go(func() {
				for ctx.Err() == nil {
					var v int
					q, args := "SELECT v FROM drivers.kept WHERE NOT SLEEP(0.05)", []any{} // mostly under way
					if r.prepare {
						q, args = "SELECT v FROM drivers.kept WHERE id = ?", []any{1}
					}
					err := from.QueryRowContext(ctx, q, args...).Scan(&v)
					if ctx.Err() == nil {
						r.hear(v, err)
					}
					<-time.After(20 * time.Millisecond)
				}
			})
			all = append(all, r)
		}
	}
	return all
}

func (r *reader) hear(v int, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if err == nil {
		if r.reads++; v != 7 {
			r.wrong = append(r.wrong, fmt.Sprintf("it reads %d", v))
		}
		return
	}
	a := answer{step: "read", state: "-", text: err.Error(), phase: r.phase}
	if e, ok := errors.AsType[*mysql.MySQLError](err); ok {
		a.code, a.state = int(e.Number), string(e.SQLState[:])
	}
	r.failed = append(r.failed, a)
	if !r.allows(a) {
		r.wrong = append(r.wrong, fmt.Sprintf("in the phase %q: %v", a.phase, a))
	}
}

// allows says whether docs/router.md names an answer to a read on 6447. Where sessions are followed it is 1213 for what
// was under way at a server that ended, or that was made the leader; where they are not, the connection ends with its
// server's role.
func (r *reader) allows(a answer) bool {
	switch {
	case a.phase == quietPhase:
		return false
	case r.follows:
		return a.code == 1213 && a.state == "40001"
	}
	return a.code == 0
}

func (r *reader) enter(phase string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.phase = phase
}

func (r *reader) count() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.reads
}

func (r *reader) answers() []answer {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.failed)
}

// readOn waits until each of them has read some more.
func readOn(t *testing.T, all []*reader, when string) {
	t.Helper()
	before := make([]int, len(all))
	for i, r := range all {
		before[i] = r.count()
	}
	for i, r := range all {
		eventually(t, healLimit, when+": "+r.name+" goes on", func() error {
			if n := r.count(); n < before[i]+3 {
				return fmt.Errorf("%d reads, %d at first; answers %v", n, before[i], r.answers())
			}
			return nil
		})
	}
}

func (r *reader) judge(t *testing.T) {
	t.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, w := range r.wrong {
		t.Errorf("%s: %s", r.name, w)
	}
	t.Logf("%s: %d reads, answers %v", r.name, r.reads, r.failed)
}
