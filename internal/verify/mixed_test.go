package verify

import (
	"context"
	"database/sql/driver"
	"errors"
	"maps"
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

// TestMixedObjects: what each answer to the statements of the DDL and the account sessions says about what must be on every node.
func TestMixedObjects(t *testing.T) {
	refused, silent := &mysql.MySQLError{Number: 1290}, errors.New("connection lost")
	for _, c := range []struct {
		name  string
		k     int
		fails string
		err   error
		want  map[string]presence
		sum   Counts
	}{
		{"all acknowledged", 1, "", nil, map[string]presence{
			"table d1": present, "row d1": present, "column d1.c": present, "user v_1": present, "grant v_1": present, "user v_1_2": present},
			Counts{Attempts: 9, Acked: 9}},
		{"and dropped", 2, "", nil, map[string]presence{
			"table d2": absent, "row d2": absent, "column d2.c": absent, "user v_2": absent, "grant v_2": absent, "user v_2_2": absent},
			Counts{Attempts: 11, Acked: 11}},
		{"ALTER refused", 1, "ALTER", refused, map[string]presence{
			"table d1": present, "row d1": present, "column d1.c": absent, "user v_1": present, "grant v_1": present, "user v_1_2": present},
			Counts{Attempts: 9, Acked: 8, Failed: 1}},
		{"GRANT without an answer", 1, "GRANT", silent, map[string]presence{
			"table d1": present, "row d1": present, "column d1.c": present, "user v_1": present, "grant v_1": maybe},
			Counts{Attempts: 6, Acked: 5, Unknown: 1}},
		{"CREATE IF NOT EXISTS of what exists without an answer", 1, "CREATE USER IF NOT EXISTS v_1", silent, map[string]presence{
			"table d1": present, "row d1": present, "column d1.c": present, "user v_1": present, "grant v_1": present},
			Counts{Attempts: 8, Acked: 7, Unknown: 1}},
		{"DROP without an answer", 2, "DROP TABLE d2", silent, map[string]presence{
			"table d2": maybe, "row d2": maybe, "column d2.c": maybe, "user v_2": absent, "grant v_2": absent, "user v_2_2": absent},
			Counts{Attempts: 11, Acked: 10, Unknown: 1}},
	} {
		t.Run(c.name, func(t *testing.T) {
			m := newMixedState(kindDDL, kindACL)
			m.run = "v"
			s := func() *session {
				return &session{login: Login{}.withDefaults(), conn: scripted{fails: c.fails, err: c.err}}
			}
			m.tables(s(), c.k)
			m.accounts(s(), c.k, "db")
			if !maps.Equal(m.objects, c.want) || m.sum != c.sum {
				t.Fatalf("knows %v and %+v, want %v and %+v", m.objects, m.sum, c.want, c.sum)
			}
		})
	}
}
