package mysql_test

import (
	"crypto/tls"
	"fmt"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"trireme/internal/access/router"
	"trireme/internal/mysql/mysqlwire"
)

const comChangeUser = 0x11

// routerAnonymous: a session of the anonymous account, ”@'%', may do through every port what it may at the server
// itself, and ends no session of others.
func routerAnonymous(t *testing.T, addr, root string) {
	const password = "nobody-Pass-1"
	db := open(t, addr, root, "")
	for _, q := range []string{"CREATE DATABASE free", "CREATE TABLE free.t (i INT)",
		"CREATE USER ''@'%' IDENTIFIED BY '" + password + "'", "GRANT SELECT, INSERT ON free.* TO ''@'%'"} {
		if _, err := db.ExecContext(t.Context(), q); err != nil {
			t.Fatalf("%s: %v", q, err)
		}
	}
	t.Cleanup(func() { // as the context of the test has ended
		if _, err := db.Exec("DROP USER ''@'%'"); err != nil {
			t.Error(err)
		}
	})
	r := start(t, router.Config{Sessions: true, SplitListen: "127.0.0.1:0", TLS: testTLS(t), Reads: oneServer{},
		HoldTimeout: limit})
	epoch := 0
	move := func() {
		epoch++
		r.SetView(router.View{RW: &router.Target{Name: "n1", Addr: addr, Epoch: fmt.Sprintf("%d/1", epoch)},
			RO: []router.Target{{Name: "n2", Addr: addr, Epoch: fmt.Sprint(epoch)}}})
	}
	move()
	does := func(to, user string, moves bool) (said []string) {
		other := userClient(t, to, "root", root) // whom it may not kill
		victim := other.do("SELECT CONNECTION_ID()").rows[0]
		c, twin := userClient(t, to, user, password), userClient(t, to, user, password)
		for _, q := range []string{"SELECT CURRENT_USER(), 1", "SELECT USER()", "SHOW GRANTS",
			"INSERT INTO free.t VALUES (1)", "SELECT COUNT(*) > 0 FROM free.t", "DELETE FROM free.t", "USE free",
			"SELECT COUNT(*) > 0 FROM t", "SHOW TRIREME STATUS", "KILL QUERY " + victim, "KILL " + victim,
			"KILL QUERY " + twin.do("SELECT CONNECTION_ID()").rows[0], "move", "SELECT CURRENT_USER()",
			"INSERT INTO t VALUES (2)", "SELECT COUNT(*) > 1 FROM t", "reset", "SELECT CURRENT_USER()",
			"SELECT COUNT(*) > 1 FROM t"} {
			if q != "move" {
				said = append(said, fmt.Sprint(strings.TrimRight(q, "0123456789"), ": ", c.do(q))) // ids differ
			} else if moves {
				move()
			}
		}
		said = append(said, "KILL: "+c.do("KILL "+twin.do("SELECT CONNECTION_ID()").rows[0]).String())
		for _, to := range []struct{ user, password string }{{"root", root}, {user, password}, {"root", "wrong"}} {
			code := c.changeUser(to.user, to.password)
			if said = append(said, fmt.Sprint("as ", to.user, ": ", code)); code == 0 {
				said = append(said, c.do("SELECT CURRENT_USER()").String(), c.do("SELECT COUNT(*) > 1 FROM free.t").String(),
					c.do("DELETE FROM free.t WHERE i = 3").String())
			}
		}
		// And as another account, that becomes this one.
		c = userClient(t, to, "root", root)
		said = append(said, fmt.Sprint(c.changeUser(user, password)), c.do("SELECT CURRENT_USER()").String(),
			c.do("DELETE FROM free.t").String())
		if got := other.do("SELECT 'alive'"); !slices.Equal(got.rows, []string{"alive"}) {
			t.Errorf("%s: the other session: %s", to, got)
		}
		return said
	}
	for _, user := range []string{"", "nobody"} {
		direct := does(addr, user, false)
		for name, to := range map[string]string{"6446": r.RWAddr(), "6447": r.ROAddr(), "6450": r.SplitAddr()} {
			for i, got := range does(to, user, true) {
				if want := direct[i]; got != want {
					t.Errorf("%s as %q: %s, at the server itself %s", name, user, got, want)
				}
			}
		}
	}
}

func userClient(t *testing.T, addr, user, password string) *newest {
	t.Helper()
	c, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	conn := mysqlwire.NewConn(c, 0)
	login := mysqlwire.Response{MaxPacket: mysqlwire.MaxPayload, Collation: 255, User: user,
		Capabilities: mysqlwire.CapProtocol41 | capSecureConnection | capPluginAuth | mysqlwire.CapQueryAttributes | mysqlwire.CapDeprecateEOF}
	if _, _, err := mysqlwire.LoginAs(t.Context(), conn, login, password,
		mysqlwire.Secrecy{TLS: &tls.Config{InsecureSkipVerify: true}}); err != nil {
		t.Fatalf("%s as %q: %v", addr, user, err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	_ = conn.NetConn().SetDeadline(time.Now().Add(time.Minute))
	return &newest{t: t, conn: conn}
}

// changeUser is COM_CHANGE_USER, and says with what error it ends; 0: with none.
func (c *newest) changeUser(user, password string) (code uint16) {
	c.t.Helper()
	p := append(append([]byte{comChangeUser}, user...), 0, 0, 0, 255, 0) // no proof, no schema, utf8mb4
	c.send(append(append(p, mysqlwire.PluginCachingSHA2...), 0))
	for {
		switch p := c.read(); {
		case mysqlwire.IsERR(p):
			e, err := mysqlwire.ParseERR(p)
			if err != nil {
				c.t.Fatal(err)
			}
			return e.Code
		case p[0] == mysqlwire.AuthSwitchMark:
			s, err := mysqlwire.ParseAuthSwitch(p)
			if err != nil {
				c.t.Fatal(err)
			}
			if err := c.conn.WritePacket(mysqlwire.ScrambleCachingSHA2(password, s.Nonce)); err != nil {
				c.t.Fatal(err)
			}
		case len(p) == 2 && p[0] == mysqlwire.AuthMore && p[1] == mysqlwire.CachingFull:
			if err := c.conn.WritePacket(append([]byte(password), 0)); err != nil {
				c.t.Fatal(err)
			}
		case p[0] == 0:
			return 0
		}
	}
}
