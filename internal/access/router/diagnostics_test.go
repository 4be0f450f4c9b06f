package router

import (
	"fmt"
	"slices"
	"testing"
)

// tells has the follower say that user variables have these values, TYPE:HEX.
func (s *split) tells(names []string, values string) {
	s.followers[0].set(func(w *wireServer) { w.rows = map[string][]string{variablesQuery(names): {values}} })
}

// GET DIAGNOSTICS after a read runs where the read did, as often as it is asked, and the leader gets the variables
// before anything can use them.
func TestGetDiagnosticsAfterRead(t *testing.T) {
	const first, second = "GET DIAGNOSTICS @N = NUMBER, @r = ROW_COUNT", "GET DIAGNOSTICS CONDITION @n @p = MESSAGE_TEXT"
	s := newSplit(t, 1, Config{})
	names := []string{"@`n`", "@`r`", "@`p`"}
	s.tells(names, "UNSIGNED INTEGER:1,INTEGER:FFFFFFFFFFFFFFFF,STRING:41")
	const carried = "SET @`n` = CAST(X'01' AS UNSIGNED), @`r` = CAST(X'FFFFFFFFFFFFFFFF' AS SIGNED), @`p` = CONVERT(X'41' USING utf8mb3)"
	s.run("INSERT 1", "SELECT 1", first, "SHOW WARNINGS", second, second)
	if err := s.c.PingContext(t.Context()); err != nil {
		t.Fatal(err)
	}
	eventually(t, "it is known that a change of leaders may end it", func() bool { return s.r.Stats().Split.Tied == 1 })
	s.got([]string{"INSERT 1", "ping"}, "SELECT 1", first, "SHOW WARNINGS", second, second)
	s.run("SELECT 2", "INSERT 2", "SELECT 3")
	s.got([]string{carried, "INSERT 2"}, variablesQuery(names), "SELECT 2", "SELECT 3")
	// They are kept as what was SET, also at the next leader, until it is not known any more what they are.
	to := newWireServer(t)
	s.r.SetView(View{RW: to.target("9"), RO: []Target{*s.followers[0].target("2")}})
	s.run("INSERT 3", "SELECT @n", "SELECT 4", first)
	if got := to.statements(); !slices.Equal(got, []string{carried, "INSERT 3", "SELECT @n", "SELECT 4", first}) {
		t.Errorf("the next leader was sent %q", got)
	}
	s.got(nil)
}

// What is not about a read, or not known to set nothing but variables, is the leader's.
func TestGetDiagnosticsOfLeader(t *testing.T) {
	s := newSplit(t, 1, Config{})
	for _, q := range []string{"GET DIAGNOSTICS n = NUMBER", "GET DIAGNOSTICS @n = NUMBER; DELETE 1"} {
		s.run("SELECT 1", q)
		s.got([]string{q}, "SELECT 1")
		s.c = s.connect(s.r.SplitAddr())
	}
	s.run("SELECT 1", "INSERT 1", "GET DIAGNOSTICS @n = NUMBER", "SELECT 2")
	s.got([]string{"INSERT 1", "GET DIAGNOSTICS @n = NUMBER", "SELECT 2"}, "SELECT 1")
}

// One that fails sets nothing.
func TestGetDiagnosticsFails(t *testing.T) {
	s := newSplit(t, 1, Config{})
	s.followers[0].set(func(w *wireServer) { w.fail = map[string]uint16{"GET STACKED DIAGNOSTICS @n = NUMBER": 3004} })
	s.run("SELECT 1")
	_, err := s.c.ExecContext(t.Context(), "GET STACKED DIAGNOSTICS @n = NUMBER")
	wantError(t, err, 3004)
	s.run("SHOW WARNINGS", "INSERT 1")
	s.got([]string{"INSERT 1"}, "SELECT 1", "GET STACKED DIAGNOSTICS @n = NUMBER", "SHOW WARNINGS")
}

// Variables that are lost with the follower end the session, rather than have no value without an error.
func TestGetDiagnosticsLost(t *testing.T) {
	for name, next := range map[string]string{"a write": "INSERT 1", "a read": "SELECT 2",
		"its like": "GET DIAGNOSTICS @m = NUMBER"} {
		t.Run(name, func(t *testing.T) {
			s := newSplit(t, 2, Config{})
			s.run("SELECT 1", "GET DIAGNOSTICS @n = NUMBER")
			s.r.SetView(View{RW: s.leader.target("1")})
			_, err := s.c.ExecContext(t.Context(), next)
			wantError(t, err, 1053)
			if got := s.leader.take(); len(got) > 0 {
				t.Errorf("the leader was sent %q", got)
			}
		})
	}
}

// COM_RESET_CONNECTION takes variables away, wherever they are.
func TestGetDiagnosticsReset(t *testing.T) {
	s := newSplit(t, 1, Config{})
	c := rawClient(t, s.r.SplitAddr())
	for _, command := range []struct {
		c    byte
		text string
	}{{comQuery, "SELECT 1"}, {comQuery, "GET DIAGNOSTICS @n = NUMBER"}, {comResetConnection, ""},
		{comQuery, "INSERT 1"}} {
		if code := say(t, c, command.c, command.text); code != 0 {
			t.Fatalf("%v: %d", command, code)
		}
	}
	s.got([]string{"reset", "INSERT 1"}, "SELECT 1", "GET DIAGNOSTICS @n = NUMBER")
}

// There is an end to what only a follower has.
func TestGetDiagnosticsTooMany(t *testing.T) {
	s := newSplit(t, 1, Config{})
	var names []string
	s.run("SELECT 1")
	for i := range maxSets {
		names = append(names, fmt.Sprintf("@`n%d`", i))
		s.run(fmt.Sprintf("GET DIAGNOSTICS @n%d = NUMBER", i))
	}
	values := slices.Repeat([]byte("NULL,"), maxSets)
	s.tells(names, string(values[:len(values)-1]))
	s.followers[0].take()
	s.run("GET DIAGNOSTICS @n = NUMBER")
	s.got([]string{"GET DIAGNOSTICS @n = NUMBER"}, variablesQuery(names)) // none of them had a value
}
