package router

import (
	"io"
	"slices"
	"testing"

	"trireme/internal/mysql/mysqlwire"
)

// What is too short for its command gets mysqld's error and ends its session: nothing of it reaches the server, and so
// no answer is taken for another command's.
func TestShortCommands(t *testing.T) {
	for command, length := range shortest {
		for n := range length - 1 {
			_, from, _, c := rawSession(t, Config{Cluster: &fakeCluster{}})
			from.set(func(w *wireServer) { w.rows = answers("GRANT USAGE ON *.* TO `app`@`%`") })
			if err := c.WriteCommand(command, make([]byte, n)); err != nil {
				t.Fatal(err)
			}
			if code := hear(t, c); code != codeMalformed {
				t.Errorf("command %#x with %d bytes: %d", command, n, code)
			}
			if p, err := c.ReadPacket(); err == nil {
				t.Errorf("command %#x with %d bytes: then %q", command, n, p)
			}
			if sent := from.statements(); len(sent) > 0 {
				t.Errorf("command %#x with %d bytes: the server was sent %q", command, n, sent)
			}
		}
	}
}

// A server that answers parameters sent ahead, as mysqld does those beyond max_allowed_packet, ends the session: its
// next command would get that answer.
func TestAnswerToSilentCommand(t *testing.T) {
	_, from, _, c := rawSession(t, Config{})
	if err := c.WriteCommand(comStmtPrepare, []byte("SELECT ?")); err != nil {
		t.Fatal(err)
	}
	for range 3 { // the statement, its parameter, EOF
		if _, err := c.ReadPacket(); err != nil {
			t.Fatal(err)
		}
	}
	from.set(func(w *wireServer) { w.answersLong = true })
	long := mysqlwire.AppendPacket(nil, 0, append([]byte{comStmtSendLong, 1, 0, 0, 0, 0, 0}, make([]byte, 2000)...))
	both := append(long, mysqlwire.AppendPacket(nil, 0, []byte("\x03INSERT 1"))...)
	if _, err := c.NetConn().Write(both); err != nil {
		t.Fatal(err)
	}
	if p, err := readAny(c.NetConn()); err != nil || !mysqlwire.IsERR(p) {
		t.Errorf("answer %q, %v", p, err)
	}
	if p, err := readAny(c.NetConn()); err == nil {
		t.Errorf("then %q", p)
	}
	if sent := from.statements(); slices.Contains(sent, "INSERT 1") {
		t.Errorf("the server was sent %q", sent)
	}
}

// readAny reads a packet, whatever its number.
func readAny(c io.Reader) ([]byte, error) {
	var head [mysqlwire.HeaderLen]byte
	if _, err := io.ReadFull(c, head[:]); err != nil {
		return nil, err
	}
	length, _ := mysqlwire.ParseHeader(head[:])
	p := make([]byte, length)
	_, err := io.ReadFull(c, p)
	return p, err
}
