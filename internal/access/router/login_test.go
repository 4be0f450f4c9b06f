package router

import (
	"crypto/tls"
	"errors"
	"log/slog"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"trireme/internal/mysql/mysqlwire"
)

// A password that is only one of two factors does not let the router log in elsewhere.
func TestSecondFactorIsNotPortable(t *testing.T) {
	ends := make([]net.Conn, 4)
	ends[0], ends[1] = net.Pipe()
	ends[2], ends[3] = net.Pipe()
	for _, c := range ends {
		defer c.Close()
	}
	l := &login{client: mysqlwire.NewConn(ends[0], 0), server: mysqlwire.NewConn(ends[2], 0),
		plugin: mysqlwire.PluginCachingSHA2, known: true}
	client, server := mysqlwire.NewConn(ends[1], 0), mysqlwire.NewConn(ends[3], 0)
	done := make(chan error, 1)
	go func() { done <- l.pass([]byte("\x02authentication_ldap_simple\x00")) }()
	if _, err := client.ReadPacket(); err != nil {
		t.Fatal(err)
	}
	if err := client.WritePacket([]byte("second")); err != nil {
		t.Fatal(err)
	}
	if _, err := server.ReadPacket(); err != nil {
		t.Fatal(err)
	}
	if err := <-done; err != nil || l.portable() {
		t.Errorf("%v, portable %t", err, l.portable())
	}
}

// The certificate that a client shows ends at the router: who is refused with one hears so.
func TestRefusedWithCertificate(t *testing.T) {
	s := newWireServer(t)
	s.offer(testTLS(t))
	r := start(t, Config{Sessions: true, TLS: testTLS(t)})
	r.SetView(View{RW: s.target("1")})
	for name, c := range map[string]struct {
		certs    []tls.Certificate
		password string
		explains bool
	}{
		"with one":                      {testTLS(t).Certificates, "wrong", true},
		"without one":                   {nil, "wrong", false},
		"with one, which is not wanted": {testTLS(t).Certificates, wirePassword, false},
	} {
		_, err := mysqlwire.Login(t.Context(), dial(t, r.RWAddr()), mysqlwire.ClientConfig{User: "app", Password: c.password,
			TLS: &tls.Config{InsecureSkipVerify: true, Certificates: c.certs}})
		if c.password == wirePassword && err != nil {
			t.Errorf("%s: %v", name, err)
		}
		refused, ok := errors.AsType[*mysqlwire.ServerError](err)
		if c.password != wirePassword &&
			(!ok || refused.Code != 1045 || strings.Contains(refused.Message, "REQUIRE X509") != c.explains ||
				!strings.HasPrefix(refused.Message, "Access denied")) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// A client that does not know the router's certificate says nothing to anybody but its user: the router's log does,
// once.
func TestDistrustedCertificate(t *testing.T) {
	s := newWireServer(t)
	s.offer(testTLS(t))
	var log lines
	r := start(t, Config{Sessions: true, TLS: testTLS(t), Logger: slog.New(slog.NewTextHandler(&log, nil))})
	r.SetView(View{RW: s.target("1")})
	for range 2 {
		if _, err := mysqlwire.Login(t.Context(), dial(t, r.RWAddr()),
			mysqlwire.ClientConfig{User: "app", Password: wirePassword, TLS: &tls.Config{ServerName: "db"}}); err == nil {
			t.Fatal("the client trusts any server")
		}
		eventually(t, "the log says so", func() bool { return log.count("router.tls_cert") == 1 })
	}
	eventually(t, "nothing is left", func() bool { return r.Stats().RW.Open == 0 })
	if n := log.count("router.tls_cert"); n != 1 {
		t.Errorf("told %d times", n)
	}
}

// TLS ends at the router, which passes on the name that the client has for its server, at the first login and at those
// that follow; the client resumes its TLS session there.
func TestServerNameAndResumption(t *testing.T) {
	from, to := newWireServer(t), newWireServer(t)
	names := make(chan string, 8)
	for _, s := range []*wireServer{from, to} {
		offered := testTLS(t)
		offered.GetConfigForClient = func(hello *tls.ClientHelloInfo) (*tls.Config, error) {
			names <- hello.ServerName
			return nil, nil
		}
		s.offer(offered)
	}
	r := start(t, Config{Sessions: true, TLS: testTLS(t)})
	r.SetView(View{RW: from.target("1")})
	kept := tls.NewLRUClientSessionCache(1)
	login := func(name string) *mysqlwire.Client {
		cfg := mysqlwire.ClientConfig{User: "app", Password: wirePassword,
			TLS: &tls.Config{InsecureSkipVerify: true, ServerName: name, ClientSessionCache: kept}}
		c, err := mysqlwire.Login(t.Context(), dial(t, r.RWAddr()), cfg)
		if err != nil {
			t.Fatal(err)
		}
		_ = c.NetConn().SetDeadline(time.Now().Add(limit))
		if got := <-names; got != name {
			t.Errorf("the server was named %q, not %q", got, name)
		}
		return c
	}
	for i, name := range []string{"db.example", "db.example", ""} {
		c := login(name)
		over, ok := c.NetConn().(*tls.Conn)
		if !ok {
			t.Fatal("no TLS")
		}
		if resumed := over.ConnectionState().DidResume; resumed != (i == 1) {
			t.Errorf("login %d: resumed %t", i, resumed)
		}
		_ = c.Close()
	}
	c := login("other.example")
	defer c.Close()
	if code := say(t, c, comQuery, "SELECT 1"); code != 0 {
		t.Fatalf("error %d", code)
	}
	r.SetView(View{RW: to.target("2")})
	c.ResetSequence()
	if code := say(t, c, comQuery, "INSERT 1"); code != 0 {
		t.Fatalf("error %d", code)
	}
	if got := <-names; got != "other.example" {
		t.Errorf("the next server was named %q", got)
	}
}

// lines is a log.
type lines struct {
	mu   sync.Mutex
	text strings.Builder
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *lines) count(part string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Count(l.text.String(), part)
}

// In some character sets the last byte of a letter is that of a backslash, and where a string ends cannot be told.
func TestUnsafeCharacterSets(t *testing.T) {
	for collation, want := range map[byte]bool{255: true, 8: true, 28: false, 87: false, 13: false, 95: false, 248: false,
		84: false} {
		l := &login{known: true, response: mysqlwire.Response{Collation: collation}}
		if l.portable() != want {
			t.Errorf("collation %d: portable %t", collation, !want)
		}
	}
	for text, want := range map[string]bool{"SET NAMES 'GBK'": true, "SET character_set_client = sjis": true,
		"SET NAMES utf8mb4": false} {
		var s state
		if s.set([]byte(text), false); (s.reason != "") != want {
			t.Errorf("%s: %q", text, s.reason)
		}
	}
}
