package router

import (
	"slices"
	"testing"
)

// What a pool sends when a session comes back to it, behind a COMMIT that was acknowledged, must not be answered with SQLSTATE 40001: its client
// would repeat a transaction that is there. Nothing is open, and nothing of it commits anything: it can be sent to the next server.
func TestResetBehindCommit(t *testing.T) {
	for name, last := range map[string]struct {
		command byte
		text    string
	}{"SET": {comQuery, "SET autocommit=1"}, "ROLLBACK": {comQuery, "ROLLBACK"}, "COM_RESET_CONNECTION": {comResetConnection, ""}, "COM_PING": {comPing, ""}} {
		t.Run(name, func(t *testing.T) {
			r, from, to, c := rawSession(t, Config{})
			sent := map[byte]string{comQuery: last.text, comResetConnection: "reset", comPing: "ping"}[last.command]
			from.hang = sent
			for _, q := range []string{"SET autocommit=0", "START TRANSACTION", "INSERT 1", "COMMIT"} {
				if got := say(t, c, comQuery, q); got != 0 {
					t.Fatalf("%s: answer %d", q, got)
				}
			}
			if err := c.WriteCommand(last.command, []byte(last.text)); err != nil {
				t.Fatal(err)
			}
			eventually(t, "it is under way", func() bool { return slices.Contains(from.statements(), sent) })
			r.SetView(View{RW: to.target("2")})
			if got := hear(t, c); got != 0 {
				t.Errorf("answer %d behind a COMMIT that was acknowledged", got)
			}
			if !slices.Contains(to.statements(), sent) {
				t.Errorf("sent to the next server: %q", to.statements())
			}
		})
	}
}
