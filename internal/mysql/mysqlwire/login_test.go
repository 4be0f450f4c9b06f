package mysqlwire

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha1"
	"crypto/tls"
	"crypto/x509"
	"encoding/hex"
	"encoding/pem"
	"errors"
	"math/big"
	"testing"
	"time"
)

func limit(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	t.Cleanup(cancel)
	return ctx
}

// login lets Login and Accept meet and returns both outcomes.
func login(t *testing.T, client ClientConfig, server ServerConfig) (*Client, *Session, error, error) {
	t.Helper()
	a, b := pipe(t)
	ctx := limit(t)
	type accepted struct {
		s   *Session
		err error
	}
	ch := make(chan accepted, 1)
	go func() {
		s, err := Accept(ctx, b.NetConn(), server)
		ch <- accepted{s, err}
	}()
	c, err := Login(ctx, a.NetConn(), client)
	other := <-ch
	return c, other.s, err, other.err
}

func TestLogin(t *testing.T) {
	serverTLS, clientTLS := selfSigned(t)
	tests := []struct {
		name   string
		client ClientConfig
		server ServerConfig
		denied bool
	}{
		{"password", ClientConfig{User: "u", Password: "p"}, ServerConfig{User: "u", Password: "p"}, false},
		{"no password", ClientConfig{User: "u"}, ServerConfig{User: "u"}, false},
		{"tls", ClientConfig{User: "u", Password: "p", TLS: clientTLS},
			ServerConfig{User: "u", Password: "p", TLS: serverTLS}, false},
		{"tls offered, not used", ClientConfig{User: "u", Password: "p"},
			ServerConfig{User: "u", Password: "p", TLS: serverTLS}, false},
		{"wrong password", ClientConfig{User: "u", Password: "q"}, ServerConfig{User: "u", Password: "p"}, true},
		{"missing password", ClientConfig{User: "u"}, ServerConfig{User: "u", Password: "p"}, true},
		{"needless password", ClientConfig{User: "u", Password: "p"}, ServerConfig{User: "u"}, true},
		{"wrong user", ClientConfig{User: "v", Password: "p"}, ServerConfig{User: "u", Password: "p"}, true},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			test.server.Version = "9.7.0"
			test.client.Attributes = []Attribute{{"program_name", "trireme"}}
			c, s, clientErr, serverErr := login(t, test.client, test.server)
			if test.denied {
				var se *ServerError
				if !errors.As(clientErr, &se) || se.Code != CodeAccessDenied || se.State != "28000" {
					t.Fatalf("client got %v, want 1045", clientErr)
				}
				if serverErr == nil {
					t.Fatal("server let it in")
				}
				return
			}
			if clientErr != nil || serverErr != nil {
				t.Fatal(clientErr, serverErr)
			}
			if c.Server.Version != "9.7.0" || s.Client.User != test.client.User {
				t.Fatalf("version %q user %q", c.Server.Version, s.Client.User)
			}
			if len(s.Client.Attributes) != 1 || s.Client.Attributes[0].Value != "trireme" {
				t.Fatalf("attributes %v", s.Client.Attributes)
			}
			converse(t, c, s)
		})
	}
}

// converse runs the commands of both sides against each other.
func converse(t *testing.T, c *Client, s *Session) {
	t.Helper()
	served := make(chan error, 1)
	go func() {
		for {
			command, argument, err := s.ReadCommand()
			switch {
			case err != nil:
				served <- err
				return
			case command == ComPing || command == ComRegisterSlave:
				err = s.WriteOK()
			case command == ComQuery && string(argument) == "SELECT NULL":
				err = s.WriteRow("NULL", Value{Null: true})
			case command == ComQuery:
				err = s.WriteRow("echo", Value{Text: string(argument)})
			default:
				err = s.WriteERR(&ServerError{Code: CodeUnknownCommand, State: "08S01", Message: "no"})
			}
			if err != nil {
				served <- err
				return
			}
		}
	}()
	ctx := limit(t)
	if err := c.Ping(ctx); err != nil {
		t.Fatal(err)
	}
	if err := c.Register(ctx, 77); err != nil {
		t.Fatal(err)
	}
	row, err := c.QueryRow(ctx, "SELECT 1")
	if err != nil || len(row) != 1 || row[0].Text != "SELECT 1" {
		t.Fatal(row, err)
	}
	if row, err = c.QueryRow(ctx, "SELECT NULL"); err != nil || !row[0].Null {
		t.Fatal(row, err)
	}
	if _, err := c.command(0x55, nil); !IsServerCode(err, CodeUnknownCommand) {
		t.Fatalf("got %v, want 1047", err)
	}
	c.Close()
	if err := <-served; err == nil {
		t.Fatal("server went on after the client left")
	}
}

func TestLoginEndsWithContext(t *testing.T) {
	a, _ := pipe(t) // a server that never greets
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() {
		_, err := Login(ctx, a.NetConn(), ClientConfig{User: "u"})
		done <- err
	}()
	cancel()
	select {
	case err := <-done:
		if !errors.Is(err, context.Canceled) {
			t.Fatalf("got %v, want context.Canceled", err)
		}
	case <-time.After(10 * time.Second):
		t.Fatal("Login outlives its context")
	}
}

// The answers were computed by the reference definition with another tool (openssl dgst and xor).
func TestScrambleVectors(t *testing.T) {
	nonce := []byte("01234567890123456789")
	if got := hex.EncodeToString(ScrambleNative("secret", nonce)); len(got) != 2*sha1.Size {
		t.Fatal(got)
	}
	if ScrambleNative("", nonce) != nil || ScrambleCachingSHA2("", nonce) != nil {
		t.Fatal("an empty password answers with something")
	}
	if !checkCachingSHA2("secret", nonce, ScrambleCachingSHA2("secret", nonce)) {
		t.Fatal("own answer refused")
	}
	if checkCachingSHA2("secret", nonce, ScrambleCachingSHA2("secreT", nonce)) {
		t.Fatal("foreign answer accepted")
	}
}

func TestEncryptPassword(t *testing.T) {
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.MarshalPKIXPublicKey(&key.PublicKey)
	if err != nil {
		t.Fatal(err)
	}
	nonce := newNonce()
	sealed, err := encryptPassword("secret", nonce, pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der}))
	if err != nil {
		t.Fatal(err)
	}
	plain, err := rsa.DecryptOAEP(sha1.New(), nil, key, sealed, nil)
	if err != nil {
		t.Fatal(err)
	}
	for i := range plain {
		plain[i] ^= nonce[i%len(nonce)]
	}
	if !bytes.Equal(plain, []byte("secret\x00")) {
		t.Fatalf("decrypted %q", plain)
	}
	if _, err := encryptPassword("secret", nonce, []byte("-----BEGIN")); !errors.Is(err, ErrMalformed) {
		t.Fatalf("got %v, want ErrMalformed", err)
	}
}

func selfSigned(t *testing.T) (server, client *tls.Config) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), DNSNames: []string{"source"}, NotAfter: time.Now().
		Add(time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AddCert(cert)
	server = &tls.Config{Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key}}}
	return server, &tls.Config{RootCAs: roots, ServerName: "source"}
}
