package mysql_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"math/big"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"

	"trireme/internal/access/router"
	"trireme/lab/testkit"
)

// limit is how long a test of the router waits for anything.
const limit = 10 * time.Second

// TestRouter has the router in front of one server: whether it passes connections on, follows sessions or splits them.
func TestRouter(t *testing.T) {
	s := testkit.StartServer(t, "--skip-name-resolve", "--local-infile=ON", "--max-allowed-packet=64M")
	const password = "router-Pass-1"
	s.Exec("CREATE USER root@'127.0.0.1' IDENTIFIED BY '" + password + "'")
	s.Exec("GRANT ALL ON *.* TO root@'127.0.0.1' WITH GRANT OPTION")
	for _, test := range []struct {
		name string
		run  func(t *testing.T, addr, password string)
	}{{"passes", routerPasses}, {"sessions", routerSessions}, {"split", routerSplit}, {"one session", routerOneSession},
		{"protocol", routerProtocol}, {"tracking", routerTracking}, {"anonymous", routerAnonymous}} {
		t.Run(test.name, func(t *testing.T) { test.run(t, s.Addr(), password) })
	}
}

func start(t *testing.T, cfg router.Config) *router.Router {
	t.Helper()
	cfg.RWListen, cfg.ROListen, cfg.Logger = "127.0.0.1:0", "127.0.0.1:0", slog.New(slog.DiscardHandler)
	r := router.New(cfg)
	if err := r.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = r.Close() })
	return r
}

func open(t *testing.T, addr, password, params string) *sql.DB {
	t.Helper()
	db, err := sql.Open("mysql",
		fmt.Sprintf("root:%s@tcp(%s)/?multiStatements=true&maxAllowedPacket=67108864&allowFallbackToPlaintext=false%s",
			password, addr, params))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	return db
}

func socketDB(t *testing.T, user, password, path string) *sql.DB {
	t.Helper()
	db, err := sql.Open("mysql", user+":"+password+"@unix("+path+")/")
	if err != nil {
		t.Fatal(err)
	}
	db.SetMaxOpenConns(1)
	t.Cleanup(func() { _ = db.Close() })
	return db
}

// testTLS is a certificate as a node would have one.
func testTLS(t testing.TB) *tls.Config {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	now := time.Now()
	cert := &x509.Certificate{SerialNumber: big.NewInt(1), NotBefore: now.Add(-time.Hour), NotAfter: now.Add(time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, cert, cert, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	return &tls.Config{Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key}}}
}

func run(t *testing.T, c *sql.Conn, statements ...string) {
	t.Helper()
	for _, q := range statements {
		if _, err := c.ExecContext(t.Context(), q); err != nil {
			t.Fatalf("%s: %v", q, err)
		}
	}
}

// eventually polls until it is so.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	deadline := time.Now().Add(limit)
	for !ok() {
		if time.Now().After(deadline) {
			t.Fatalf("not within %v: %s", limit, what)
		}
		time.Sleep(time.Millisecond)
	}
}

func wantError(t *testing.T, err error, code uint16) {
	t.Helper()
	var e *mysql.MySQLError
	if !errors.As(err, &e) || e.Number != code {
		t.Fatalf("error %v, want %d", err, code)
	}
}
