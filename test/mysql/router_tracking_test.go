package mysql_test

import (
	"bytes"
	"crypto/tls"
	"fmt"
	"net"
	"regexp"
	"strings"
	"testing"
	"time"

	"trireme/internal/access/router"
	"trireme/internal/mysql/mysqlwire"
)

// grow makes the session's state so many bytes longer.
const grow = "SET SESSION session_track_system_variables = CONCAT('time_zone,session_track_system_variables', REPEAT(' ', %d))"

// exchange is what a client sends.
type exchange struct {
	command byte
	text    string
}

// routerTracking: with session tracking a client gets, packet by packet and byte by byte, what it gets of the server
// itself, however much there is to tell and after whatever error. Not among the commands is what docs/router.md names:
// on 6450 a READ ONLY transaction that is committed implicitly.
func routerTracking(t *testing.T, addr, root string) {
	db := open(t, addr, root, "")
	// What changes a session and then fails: the next answer that can, tells of it.
	for _, q := range []string{"CREATE DATABASE followed", "CREATE TABLE followed.t (i INT)",
		"CREATE PROCEDURE followed.p(n INT) BEGIN " + strings.Replace(grow, "%d", "n", 1) + "; SELECT * FROM missing; END",
		"CREATE PROCEDURE followed.q() BEGIN SELECT 1; INSERT INTO t VALUES (NULL); SET SESSION time_zone = '+03:00'; SELECT 2; " +
			"SIGNAL SQLSTATE '45000'; END"} {
		if _, err := db.ExecContext(t.Context(), q); err != nil {
			t.Fatalf("%s: %v", q, err)
		}
	}
	for i := range 1100 { // the numbers of GTIDs and statements keep their length
		q := "DO 1"
		if i < 100 {
			q = "INSERT INTO followed.t VALUES (NULL)"
		}
		if _, err := db.ExecContext(t.Context(), q); err != nil {
			t.Fatal(err)
		}
	}
	r := start(t, router.Config{Sessions: true, SplitListen: "127.0.0.1:0", TLS: testTLS(t), Reads: oneServer{},
		HoldTimeout: limit})
	r.SetView(router.View{RW: &router.Target{Name: "n1", Addr: addr, Epoch: "1"},
		RO: []router.Target{{Name: "n2", Addr: addr, Epoch: "1"}}})
	commands := []exchange{
		{comQuery, "SET SESSION session_track_system_variables = '*', session_track_state_change = ON"},
		{comQuery, "SET SESSION session_track_gtids = 'OWN_GTID', session_track_transaction_info = 'CHARACTERISTICS'"},
		{comQuery, "USE followed"}, {comInitDB, "mysql"}, {comInitDB, "followed"}, {comQuery, "SELECT 1"},
		{comQuery, "INSERT INTO t VALUES (NULL)"}, {comQuery, "BEGIN"}, {comQuery, "INSERT INTO t VALUES (NULL)"},
		{comQuery, "CREATE TABLE t (i INT)"}, {comQuery, "SELECT 0"}, {comQuery, "BEGIN"},
		{comQuery, "INSERT INTO t VALUES (NULL)"}, {comQuery, "CREATE TABLE t (i INT)"}, {comQuery, "SELECT 0"},
		{comQuery, "SELECT 0"}, {comQuery, "CREATE TABLE t (i INT)"}, {comQuery, "SELECT 0"},
		{comQuery, "START TRANSACTION READ ONLY"}, {comQuery, "SELECT COUNT(*) > 1 FROM t"},
		{comQuery, "SELECT * FROM missing"}, {comQuery, "COMMIT"}, {comQuery, "SELECT 0"}, {comQuery, "BEGIN"},
		{comQuery, "INSERT INTO t VALUES (NULL)"}, {comQuery, "CREATE TABLE t (i INT)"}, {comQuery, "DO 1"},
		{comQuery, "BEGIN"}, {comQuery, "INSERT INTO t VALUES (1)"}, {comPing, ""}, {comQuery, "SELECT 2"},
		{comQuery, "ROLLBACK"}, {comQuery, "SET SESSION time_zone = '+01:00', sql_mode = 'none'"},
		{comQuery, "SELECT * FROM missing"}, {comPing, ""}, {comQuery, "SET SESSION time_zone = '+02:00'; SELECT 3; SELEC"},
		{comQuery, "SELECT i FROM t WHERE i = 1"}, {comQuery, "CALL q()"}, {comQuery, "DO 1"}, {comQuery, "CALL q()"},
		{comPing, ""}, {comQuery, "SELECT 4"},
	}
	for _, n := range []int{900, 1100, 70 << 10} {
		set, call := fmt.Sprintf(grow, n), fmt.Sprintf("CALL p(%d)", n)
		commands = append(commands, exchange{comQuery, set}, exchange{comQuery, "SELECT 5"},
			exchange{comQuery, set + ", sql_mode = 'none'"}, exchange{comQuery, "CREATE TABLE t (i INT)"}, exchange{comPing, ""},
			exchange{comQuery, call}, exchange{comPing, ""}, exchange{comQuery, call}, exchange{comQuery, "SELEC"},
			exchange{comInitDB, "followed"}, exchange{comQuery, call}, exchange{comQuery, "SELECT 6"})
	}
	commands = append(commands, exchange{comResetConnection, ""}, exchange{comQuery, "SELECT 7"}, exchange{comPing, ""},
		commands[0], commands[1], exchange{comQuery, "SELECT CAST('x' AS SIGNED)"},
		exchange{comQuery, "GET DIAGNOSTICS @n = NUMBER"},
		exchange{comQuery, "GET DIAGNOSTICS CONDITION @n @p = MESSAGE_TEXT"}, exchange{comPing, ""},
		exchange{comQuery, "SELECT @n, @p"})
	equal := func(flags uint32, commands []exchange) (direct [][]byte) {
		direct = exchanges(t, addr, root, flags, commands)
		for name, to := range map[string]string{"6446": r.RWAddr(), "6447": r.ROAddr(), "6450": r.SplitAddr()} {
			answers := exchanges(t, to, root, flags, commands)
			if len(answers) != len(commands) || len(direct) != len(commands) {
				t.Errorf("%s, flags %x: %d answers, of the server itself %d, to %d commands", name, flags, len(answers),
					len(direct), len(commands))
			}
			for i, got := range answers[:min(len(answers), len(direct))] {
				if want := direct[i]; !bytes.Equal(got, want) {
					t.Errorf("%s, flags %x, %s: %d bytes\n%.300q, of the server itself %d\n%.300q", name, flags, commands[i].text,
						len(got), got, len(want), want)
				}
			}
		}
		return direct
	}
	equal(0, commands)
	equal(mysqlwire.CapDeprecateEOF, commands)
	// The most that mysqld tells is one packet; beyond it ends the session, and says nothing (9.7.4).
	const most = mysqlwire.MaxPayload - 200
	direct := equal(mysqlwire.CapDeprecateEOF, []exchange{{comQuery, fmt.Sprintf(grow, most)},
		{comQuery, fmt.Sprintf("CALL followed.p(%d)", most)}, {comQuery, "SELECT 8"},
		{comQuery, fmt.Sprintf(grow, mysqlwire.MaxPayload)}})
	if len(direct[0]) < most || len(direct[2]) < most || len(direct[3]) > 0 {
		t.Errorf("the server itself tells %d, %d and %d bytes", len(direct[0]), len(direct[2]), len(direct[3]))
	}
}

// exchanges carries commands out in a session of its own, up to its end, and returns the bytes of each one's answer.
// What differs from session to session, the numbers of statements, GTIDs and rows, is made alike.
func exchanges(t *testing.T, addr, password string, flags uint32, commands []exchange) (answers [][]byte) {
	t.Helper()
	nc, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	conn := mysqlwire.NewConn(nc, 0)
	login := mysqlwire.Response{MaxPacket: mysqlwire.MaxPayload, Collation: 255, User: "root", Capabilities: flags |
		mysqlwire.CapProtocol41 | capSecureConnection | capPluginAuth | mysqlwire.CapSessionTrack | mysqlwire.CapMultiStatements | capMultiResults}
	if _, _, err := mysqlwire.LoginAs(t.Context(), conn, login, password,
		mysqlwire.Secrecy{TLS: &tls.Config{InsecureSkipVerify: true}}); err != nil {
		t.Fatal(err)
	}
	plain, rest, err := conn.Detach()
	if err != nil || len(rest) > 0 {
		t.Fatal(rest, err)
	}
	_ = plain.SetDeadline(time.Now().Add(2 * time.Minute))
	for _, c := range commands {
		if _, err := plain.Write(mysqlwire.AppendPacket(nil, 0, append([]byte{c.command}, c.text...))); err != nil {
			t.Fatal(err)
		}
		var all []byte
		b := make([]byte, 1<<16)
		for over := false; !over; {
			n, err := plain.Read(b)
			if all = append(all, b[:n]...); err != nil {
				return append(answers, all)
			}
			over = ends(all, flags&mysqlwire.CapDeprecateEOF != 0)
		}
		if len(all) < 1<<20 {
			all = varies.ReplaceAll(all, []byte("$1#"))
		}
		answers = append(answers, all)
	}
	return answers
}

var varies = regexp.MustCompile(`(statement_id.|[0-9a-f]{12}:)[0-9]+`)

// ends says whether an answer is there as a whole.
func ends(all []byte, deprecateEOF bool) bool {
	columns, first := 0, true
	for len(all) >= 4 {
		p := all[4:]
		for more := true; more; {
			if len(all) < 4 {
				return false
			}
			n, _ := mysqlwire.ParseHeader(all)
			if len(all) < 4+n {
				return false
			}
			all = all[4+n:]
			more = n == mysqlwire.MaxPayload
		}
		switch {
		case p[0] == 0xff:
			return len(all) == 0
		case columns > 0:
			columns--
			if columns == 0 && !deprecateEOF {
				columns = -1
			}
		case columns == -1: // the EOF after them
			columns = 0
		case first && p[0] != 0:
			columns, first = int(p[0]), false
		case first || p[0] == 0xfe:
			status, err := mysqlwire.Status(p, deprecateEOF || p[0] == 0)
			if err == nil && status&mysqlwire.StatusMoreResults == 0 {
				return len(all) == 0
			}
			first = true
		}
	}
	return false
}
