package dump

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"testing"
	"time"

	"trireme/internal/mysql/mysqlwire"
)

// Every way of logging in, against a real server. Full authentication happens once per account: the server then
// remembers it and takes the fast path, until FLUSH PRIVILEGES.
func TestLoginToMysqld(t *testing.T) {
	s := newServer(t, 1)
	s.start(fakeUUID)
	s.Exec("CREATE USER '" + testUser + "'@'%' IDENTIFIED BY '" + testPassword + "'")
	tcp := func() (net.Conn, error) { return net.Dial("tcp", s.Addr()) }
	unix := func() (net.Conn, error) { return s.dial(context.Background()) }
	insecure := &tls.Config{InsecureSkipVerify: true} // the server's own certificate; its name is not what is tested
	for _, test := range []struct {
		name     string
		dial     func() (net.Conn, error)
		tls      *tls.Config
		password string
		forget   bool // the server has to ask for full authentication
		denied   bool
	}{
		{"unix, full", unix, nil, testPassword, true, false},
		{"unix, fast", unix, nil, testPassword, false, false},
		{"tcp with the server's key, full", tcp, nil, testPassword, true, false},
		{"tcp, fast", tcp, nil, testPassword, false, false},
		{"tls, full", tcp, insecure, testPassword, true, false},
		{"tls, fast", tcp, insecure, testPassword, false, false},
		{"wrong password, fast", unix, nil, "x" + testPassword, false, true},
		{"wrong password, full", tcp, nil, "x" + testPassword, true, true},
		{"no password", unix, nil, "", false, true},
	} {
		t.Run(test.name, func(t *testing.T) {
			if test.forget {
				s.Exec("FLUSH PRIVILEGES")
			}
			nc, err := test.dial()
			if err != nil {
				t.Fatal(err)
			}
			c, err := mysqlwire.Login(limit(t, 10*time.Second), nc,
				mysqlwire.ClientConfig{User: testUser, Password: test.password, TLS: test.tls})
			if test.denied {
				if !mysqlwire.IsServerCode(err, mysqlwire.CodeAccessDenied) {
					t.Fatalf("got %v, want 1045", err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			size := 100
			if test.name == "unix, fast" {
				size = 17000000 // of two packets
			}
			row, err := c.QueryRow(limit(t, 10*time.Second), fmt.Sprintf("SELECT USER(), NULL, REPEAT('x', %d)", size))
			if err != nil || !row[1].Null || len(row[2].Text) != size {
				t.Fatal(err)
			}
			if err := c.Ping(limit(t, 10*time.Second)); err != nil {
				t.Fatal(err)
			}
		})
	}
}
