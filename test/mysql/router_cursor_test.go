package mysql_test

import (
	"bytes"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"testing"
	"time"

	"trireme/internal/access/router"
	"trireme/internal/mysql/mysqlwire"
	"trireme/lab/testkit"
)

// TestCursors: what mysqld answers to commands about cursors reaches the client packet by packet, and the next command
// gets its own answer. An execution without a cursor, of a statement that had one, is answered as if the statement had
// just been prepared: mysqld itself gives definitions and an OK packet then, and leaves its client waiting for rows.
func TestCursors(t *testing.T) {
	server := testkit.StartServer(t, "--skip-name-resolve")
	for _, q := range []string{"CREATE DATABASE d", "CREATE TABLE d.t (i INT)", "INSERT INTO d.t VALUES (1), (2), (3)",
		"CREATE PROCEDURE d.p() SELECT * FROM d.t", "CREATE USER app IDENTIFIED BY '" + pairsPassword + "'",
		"GRANT ALL ON d.* TO app"} {
		server.Exec(q)
	}
	r := start(t, router.Config{Sessions: true, SplitListen: "127.0.0.1:0", TLS: testTLS(t), Reads: oneServer{},
		HoldTimeout: limit, DialTimeout: limit})
	r.SetView(router.View{RW: &router.Target{Name: "n1", Addr: server.Addr(), Epoch: "1"},
		RO: []router.Target{{Name: "n2", Addr: server.Addr(), Epoch: "1"}}})
	for _, text := range []string{"SELECT * FROM d.t", "SELECT * FROM d.t WHERE FALSE", "SELECT 1", "DO 1", "CALL d.p()",
		"SHOW TABLES FROM d", "SELECT * FROM d.t FOR UPDATE", "UPDATE d.t SET i = i"} {
		for _, c := range []cursorClient{{deprecateEOF: false}, {deprecateEOF: true}} {
			c.t, c.reprepare = t, true
			want := c.answers(server.Addr(), text)
			c.reprepare = false
			for _, addr := range []string{r.RWAddr(), r.SplitAddr(), r.ROAddr()} {
				if got := c.answers(addr, text); got != want {
					t.Errorf("%s through %s, deprecateEOF %v:\n%s\nwanted:\n%s", text, addr, c.deprecateEOF, got, want)
				}
			}
		}
	}
}

// cursorClient executes a statement with and without a cursor.
type cursorClient struct {
	t            *testing.T
	deprecateEOF bool
	reprepare    bool // the statement is prepared again before each execution without a cursor
}

// answers are all packets that were sent for commands about one statement.
func (c cursorClient) answers(addr, text string) string {
	c.t.Helper()
	nc, err := net.Dial("tcp", addr)
	if err != nil {
		c.t.Fatal(err)
	}
	defer nc.Close()
	login := mysqlwire.Response{MaxPacket: mysqlwire.MaxPayload, Collation: 255, User: "app",
		Capabilities: mysqlwire.CapProtocol41 | capSecureConnection | capPluginAuth | capMultiResults | capPSMultiResults}
	if c.deprecateEOF {
		login.Capabilities |= mysqlwire.CapDeprecateEOF
	}
	conn := mysqlwire.NewConn(nc, 0)
	if _, _, err := mysqlwire.LoginAs(c.t.Context(), conn, login, pairsPassword,
		mysqlwire.Secrecy{TLS: &tls.Config{InsecureSkipVerify: true}}); err != nil {
		c.t.Fatal(err)
	}
	id, out := byte(0), bytes.Buffer{}
	prepare := append([]byte{comStmtPrepare}, text...)
	for i, name := range []string{"prepare", "execute", "fetch 1", "cursor", "fetch 1", "execute", "fetch 1", "execute",
		"reset", "cursor", "cursor", "fetch 1", "execute", "execute", "fetch 9", "cursor", "fetch 9", "execute", "cursor",
		"execute", "cursor", "fetch 2", "reset", "fetch 1", "execute"} {
		command := map[string][]byte{
			"prepare": prepare,
			"execute": {comStmtExecute, id, 0, 0, 0, 0, 1, 0, 0, 0},
			"cursor":  {comStmtExecute, id, 0, 0, 0, 1, 1, 0, 0, 0},
			"fetch 1": {0x1c, id, 0, 0, 0, 1, 0, 0, 0},
			"fetch 2": {0x1c, id, 0, 0, 0, 2, 0, 0, 0},
			"fetch 9": {0x1c, id, 0, 0, 0, 9, 0, 0, 0},
			"reset":   {0x1a, id, 0, 0, 0},
		}[name]
		if name == "prepare" {
			id++
		}
		if name == "execute" && c.reprepare {
			c.pair(conn.NetConn(), prepare, "prepared", io.Discard)
			id++
			command[1] = id
		}
		fmt.Fprintf(&out, "  %s:\n", name)
		if !c.pair(conn.NetConn(), command, fmt.Sprintf("mark-%d", i), &out) {
			break
		}
	}
	return out.String()
}

// pair sends a command and one more, and writes down the packets up to that one's row.
func (c cursorClient) pair(nc net.Conn, command []byte, mark string, out io.Writer) bool {
	c.t.Helper()
	_ = nc.SetDeadline(time.Now().Add(limit))
	for _, p := range [][]byte{command, []byte("\x03SELECT '" + mark + "'")} {
		if _, err := nc.Write(mysqlwire.AppendPacket(nil, 0, p)); err != nil {
			fmt.Fprintf(out, "    %v\n", err)
			return false
		}
	}
	for row := append([]byte{byte(len(mark))}, mark...); ; {
		p, err := readAny(nc)
		if err != nil {
			fmt.Fprintf(out, "    %v\n", err)
			return false
		}
		if bytes.Equal(p, row) {
			_, err := readAny(nc) // the end of the rows
			return err == nil
		}
		if bytes.HasPrefix(p, []byte("\xff\x8d\x05")) { // 1421 names the statement
			p = p[:9]
		}
		fmt.Fprintf(out, "    %q\n", p)
	}
}
