package router

import (
	"testing"

	"trireme/internal/mysql/mysqlwire"
	"trireme/internal/mysql/sqlkind"
)

// What one prepared statement has left at the server keeps a session there until it is fetched, executed or reset,
// whatever other statements do meanwhile.
func TestHangingStatements(t *testing.T) {
	s := &session{r: New(Config{})}
	st := s.state.prepared[s.state.prepare([]byte("SELECT ?"), sqlkind.Effect{Verb: sqlkind.VerbRead}, 7, 1)]
	other := s.state.prepared[s.state.prepare([]byte("SELECT 1"), sqlkind.Effect{Verb: sqlkind.VerbRead}, 8, 0)]
	did := func(want bool, command byte, st *prepared, status uint16) {
		t.Helper()
		if command == comStmtSendLong {
			if err := s.readyStatement(&job{command: command}, []byte{command, 1, 0, 0, 0, 0, 0, 'x'}); err != nil {
				t.Fatal(err)
			}
		} else {
			s.learn(&job{command: command, stmt: st}, &answer{hasStatus: true, status: status})
		}
		for range 2 {
			if got := s.state.boundary(); got != want {
				t.Errorf("after command %#x: a boundary: %t", command, got)
			}
		}
	}
	for range 2 {
		did(true, comStmtExecute, other, 0)
		did(false, comStmtExecute, st, mysqlwire.StatusCursorExists)
		did(false, comStmtExecute, other, 0)
		did(false, comStmtFetch, st, mysqlwire.StatusCursorExists)
		did(true, comStmtFetch, st, mysqlwire.StatusLastRowSent)
		did(false, comStmtSendLong, st, 0)
		did(false, comStmtExecute, other, 0)
		did(true, comStmtExecute, st, 0)
		did(false, comStmtExecute, st, mysqlwire.StatusCursorExists)
		did(true, comStmtReset, st, 0)
	}
}
