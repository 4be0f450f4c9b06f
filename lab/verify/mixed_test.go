package verify

import (
	"context"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/go-sql-driver/mysql"
)

// scripted is a connection that acknowledges every statement but one.
type scripted struct {
	driver.Conn
	fails string // the beginning of that one
	err   error
}

func (c scripted) ExecContext(_ context.Context, query string, _ []driver.NamedValue) (driver.Result, error) {
	if c.fails != "" && strings.HasPrefix(query, c.fails) {
		return nil, c.err
	}
	return driver.RowsAffected(0), nil
}

func (scripted) Close() error { return nil }

// TestMixedObjects: what each answer to the statements of the DDL and the account sessions says about what must be on
// every node.
func TestMixedObjects(t *testing.T) {
	refused, silent := &mysql.MySQLError{Number: 1290}, errors.New("connection lost")
	for _, c := range []struct {
		name  string
		k     int
		fails string
		err   error
		want  map[string]presence
		sum   Counts
		left  presence // of what the account was granted besides
	}{
		{"all acknowledged", 1, "", nil, map[string]presence{
			"table d1": present, "row d1": present, "column d1.c": present, "user v_1": present, "grant v_1": present,
			"user v_1_2": present},
			Counts{Attempts: 17, Acked: 17}, present},
		{"and dropped", 2, "", nil, map[string]presence{
			"table d2": absent, "row d2": absent, "column d2.c": absent, "user v_2": absent, "grant v_2": absent,
			"user v_2_2": absent},
			Counts{Attempts: 19, Acked: 19}, absent},
		{"ALTER refused", 1, "ALTER TABLE", refused, map[string]presence{
			"table d1": present, "row d1": present, "column d1.c": absent, "user v_1": present, "grant v_1": present,
			"user v_1_2": present},
			Counts{Attempts: 17, Acked: 16, Failed: 1}, present},
		{"GRANT without an answer", 1, "GRANT", silent, map[string]presence{
			"table d1": present, "row d1": present, "column d1.c": present, "user v_1": present, "grant v_1": maybe},
			Counts{Attempts: 6, Acked: 5, Unknown: 1}, maybe},
		{"CREATE IF NOT EXISTS of what exists without an answer", 1, "CREATE USER IF NOT EXISTS v_1", silent,
			map[string]presence{
				"table d1": present, "row d1": present, "column d1.c": present, "user v_1": present, "grant v_1": present},
			Counts{Attempts: 8, Acked: 7, Unknown: 1}, maybe},
		{"CREATE acknowledged by an error, after which the connection is gone", 1, "CREATE TABLE d1",
			&mysql.MySQLError{Number: 3168, SQLState: committedState}, map[string]presence{
				"table d1": present, "row d1": absent, "user v_1": present, "grant v_1": present, "user v_1_2": present},
			Counts{Attempts: 15, Acked: 14, Failed: 1}, present},
		{"DROP without an answer", 2, "DROP TABLE d2", silent, map[string]presence{
			"table d2": maybe, "row d2": maybe, "column d2.c": maybe, "user v_2": absent, "grant v_2": absent,
			"user v_2_2": absent},
			Counts{Attempts: 19, Acked: 18, Unknown: 1}, absent},
	} {
		t.Run(c.name, func(t *testing.T) {
			m := newMixedPart(&Set{}, kindDDL)
			m.run = "v"
			s := func() *session {
				return &session{login: Login{}.WithDefaults(), conn: scripted{fails: c.fails, err: c.err}}
			}
			m.tables(s(), c.k)
			m.accounts(s(), c.k)
			if user := fmt.Sprintf("v_%d", c.k); c.left != maybe {
				c.want["user "+user+"_r"], c.want["granted "+user+"_r "+user+"_2"] = present, absent
				for _, what := range []string{"granted " + user + "_r", "default", "global", "dynamic", "column"} {
					c.want[what+" "+user] = c.left
				}
			}
			if !maps.Equal(m.objects, c.want) || m.sum != c.sum {
				t.Fatalf("knows %v and %+v, want %v and %+v", m.objects, m.sum, c.want, c.sum)
			}
		})
	}
}

// twoPhaseServer is a connection to a server that holds prepared transactions, and that says nothing to some statements
// it has carried out.
type twoPhaseServer struct {
	driver.Conn
	prepared *[]string
	mute     string // the beginning of those
}

func (c twoPhaseServer) ExecContext(_ context.Context, query string, _ []driver.NamedValue) (driver.Result, error) {
	verb, xid, _ := strings.Cut(strings.TrimSuffix(query, "'"), " '")
	switch verb {
	case "XA PREPARE":
		*c.prepared = append(*c.prepared, xid)
	case "XA COMMIT", "XA ROLLBACK":
		if c.mute == verb+" without effect" {
			return nil, errors.New("connection lost")
		}
		*c.prepared = slices.DeleteFunc(*c.prepared, func(x string) bool { return x == xid })
	}
	if verb == c.mute {
		return nil, errors.New("connection lost")
	}
	return driver.RowsAffected(0), nil
}

func (c twoPhaseServer) QueryContext(context.Context, string, []driver.NamedValue) (driver.Rows, error) {
	return &recovered{left: slices.Clone(*c.prepared)}, nil
}

func (twoPhaseServer) Close() error { return nil }

// recovered is the answer to XA RECOVER.
type recovered struct{ left []string }

func (*recovered) Columns() []string {
	return []string{"formatID", "gtrid_length", "bqual_length", "data"}
}
func (*recovered) Close() error { return nil }
func (r *recovered) Next(row []driver.Value) error {
	if len(r.left) == 0 {
		return io.EOF
	}
	row[0], row[1], row[2], row[3] = int64(1), int64(len(r.left[0])), int64(0), []byte(r.left[0])
	r.left = r.left[1:]
	return nil
}

// TestMixedEndsXA: a transaction whose PREPARE or whose decision was not answered is ended by the next step, and
// nothing is left prepared forever: a node that was replaced waits for prepared transactions that its log does not
// hold.
func TestMixedEndsXA(t *testing.T) {
	for _, mute := range []string{"", "XA PREPARE", "XA COMMIT without effect", "XA ROLLBACK without effect",
		"XA COMMIT"} {
		t.Run(mute, func(t *testing.T) {
			m := newMixedPart(&Set{}, kindXA)
			m.run = "v"
			var prepared []string
			step := func(k int, mute string) {
				m.twoPhase(&session{login: Login{}.WithDefaults(), conn: twoPhaseServer{prepared: &prepared, mute: mute}}, k)
			}
			last := 0
			for _, k := range []int{3, 4} { // decided at once: to be committed, to be rolled back
				step(k, mute)
				last = k
			}
			if step(last+1, ""); !slices.Equal(prepared, []string{"v_5"}) { // which stays on purpose
				t.Errorf("after the next step, %q are prepared", prepared)
			}
			for k := last + 2; k <= last+18; k++ {
				step(k, "")
			}
			for _, xid := range prepared {
				if m.xa[xid].step <= 5 {
					t.Errorf("%s is still prepared", xid)
				}
			}
			for xid, x := range m.xa {
				if x.Gone {
					t.Errorf("%s counts as gone", xid)
				}
			}
			if p := judgeXA("n1", mixedView{XARows: xaRows(m)}, m.xa); len(p) > 0 {
				t.Error(fmt.Sprint(p))
			}
		})
	}
}

// xaRows are the rows that a server has which lost nothing.
func xaRows(m *mixedPart) map[string]bool {
	rows := map[string]bool{}
	for xid, x := range m.xa {
		if x.Commit && x.Prepared != Failed {
			rows[xid] = true
		}
	}
	return rows
}
