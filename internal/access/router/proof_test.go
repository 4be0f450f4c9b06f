package router

import (
	"context"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/tls"
	"encoding/hex"
	"errors"
	"log/slog"
	"net"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"trireme/internal/api"
	"trireme/internal/mysql/mysqlwire"
)

func certDigest(c *tls.Config) string {
	sum := sha256.Sum256(c.Certificates[0].Certificate[0])
	return hex.EncodeToString(sum[:])
}

// thief listens at the address of a member's mysqld and wants the password of every client.
type thief struct {
	net.Listener
	tls *tls.Config // offered; nil: none

	mu     sync.Mutex
	met    int      // connections
	stolen []string // passwords
}

func newThief(t *testing.T, offered *tls.Config) *thief {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	th := &thief{Listener: l, tls: offered}
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	ctx, cancel := context.WithCancel(context.Background())
	wg.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			wg.Go(func() {
				defer c.Close()
				defer context.AfterFunc(ctx, func() { _ = c.Close() })()
				th.mu.Lock()
				th.met++
				th.mu.Unlock()
				if password, err := th.rob(ctx, mysqlwire.NewConn(c, 0), key); err == nil {
					th.mu.Lock()
					th.stolen = append(th.stolen, password)
					th.mu.Unlock()
				}
			})
		}
	})
	t.Cleanup(func() { cancel(); _ = l.Close(); wg.Wait() })
	return th
}

// rob is a login that asks for the password itself.
func (th *thief) rob(ctx context.Context, c *mysqlwire.Conn, key *rsa.PrivateKey) (string, error) {
	g := mysqlwire.Greeting{Version: "9.7.4", ConnectionID: 7, Nonce: []byte("01234567890123456789"), Collation: 255,
		Status: mysqlwire.StatusAutocommit,
		Plugin: mysqlwire.PluginCachingSHA2, Capabilities: 1 | 1<<9 | 1<<13 | 1<<15 | 1<<19 | 1<<20 | 1<<21}
	if th.tls != nil {
		g.Capabilities |= mysqlwire.CapSSL
	}
	if err := c.WritePacket(mysqlwire.AppendGreeting(nil, g)); err != nil {
		return "", err
	}
	p, err := c.ReadPacket()
	if err != nil {
		return "", err
	}
	if _, secure, err := mysqlwire.ParseResponse(p); err != nil {
		return "", err
	} else if secure {
		if err := c.ServeTLS(ctx, th.tls); err != nil {
			return "", err
		}
		if _, err = c.ReadPacket(); err != nil {
			return "", err
		}
	}
	if err := c.WritePacket([]byte{mysqlwire.AuthMore, mysqlwire.CachingFull}); err != nil {
		return "", err
	}
	if p, err = c.ReadPacket(); err != nil || len(p) != 1 || p[0] != mysqlwire.CachingKeyRequest {
		return strings.TrimSuffix(string(p), "\x00"), err
	}
	text, err := mysqlwire.PublicKeyPEM(key)
	if err != nil {
		return "", err
	}
	if err := c.WritePacket(append([]byte{mysqlwire.AuthMore}, text...)); err != nil {
		return "", err
	}
	if p, err = c.ReadPacket(); err != nil {
		return "", err
	}
	return mysqlwire.OpenPassword(key, g.Nonce, p)
}

// A server at the address of a member's mysqld without its certificate is told no password: not over TLS, not if it
// offers none, not by a key of its own, not through a unix socket. The client learns the reason, and the log says it.
func TestNoPasswordForAnImpostor(t *testing.T) {
	own := testTLS(t)
	insecure := &tls.Config{InsecureSkipVerify: true}
	member := api.MySQLProof{Certificates: []string{certDigest(own), strings.Repeat("0", 64)},
		Key: strings.Repeat("a", 64)}
	for name, c := range map[string]struct {
		offered *tls.Config // by the impostor
		client  *tls.Config // of the client
		socket  bool
		proof   api.MySQLProof
		want    string
	}{
		"another certificate":         {testTLS(t), insecure, false, member, "shows a certificate"},
		"no TLS":                      {nil, insecure, false, member, "offers no TLS"},
		"no TLS, to a client without": {nil, nil, false, member, "offers no TLS"},
		"a key of its own":            {testTLS(t), nil, false, member, "another key"},
		"a key of its own, and the node has no TLS": {nil, nil, false,
			api.MySQLProof{Certificates: []string{}, Key: member.Key}, "another key"},
		"through a socket": {testTLS(t), nil, true, member, "shows a certificate"},
		"nothing is known of the server yet": {testTLS(t), insecure, false, api.MySQLProof{Certificates: []string{}},
			"shows a certificate"},
	} {
		t.Run(name, func(t *testing.T) {
			th := newThief(t, c.offered)
			var log lines
			cfg := Config{Sessions: true, TLS: testTLS(t), RWSocket: filepath.Join(t.TempDir(), "rw"),
				Logger: slog.New(slog.NewTextHandler(&log, nil))}
			r := start(t, cfg)
			r.SetProofs(map[string]api.MySQLProof{"n1": c.proof})
			r.SetView(View{RW: &Target{Name: "n1", Addr: th.Addr().String(), Epoch: "1"}})
			network, addr := "tcp", r.RWAddr()
			if c.socket {
				network, addr = "unix", cfg.RWSocket
			}
			nc, err := net.Dial(network, addr)
			if err != nil {
				t.Fatal(err)
			}
			_, err = mysqlwire.Login(t.Context(), nc, mysqlwire.ClientConfig{User: "app", Password: wirePassword, TLS: c.client})
			if refused, ok := errors.AsType[*mysqlwire.ServerError](err); !ok || !strings.Contains(refused.Message, c.want) {
				t.Errorf("the client hears %v", err)
			} else if early := c.want == "offers no TLS"; early != (refused.State == "HY000") {
				t.Errorf("SQLSTATE %s: an error in the greeting's place has no state, where clients show it as text", refused.State)
			}
			eventually(t, "nothing is left", func() bool { return r.Stats().RW.Open == 0 })
			th.mu.Lock()
			defer th.mu.Unlock()
			if th.met == 0 || len(th.stolen) != 0 {
				t.Errorf("met %d, stolen %v", th.met, th.stolen)
			}
			if log.count("sends no password to n1") != 1 {
				t.Error("the log does not say it")
			}
		})
	}
}

// A session that is carried to the next leader gives its password to no impostor there either, and goes on once the
// right one answers.
func TestCarriedToNoImpostor(t *testing.T) {
	first, next, own := newWireServer(t), newWireServer(t), testTLS(t)
	first.offer(testTLS(t))
	next.offer(own)
	th := newThief(t, testTLS(t))
	r := start(t, Config{Sessions: true, TLS: testTLS(t), HoldTimeout: limit})
	first.mu.Lock()
	shown := certDigest(first.tls)
	first.mu.Unlock()
	r.SetProofs(map[string]api.MySQLProof{"n1": {Certificates: []string{shown}},
		"n2": {Certificates: []string{certDigest(own)}}})
	r.SetView(View{RW: &Target{Name: "n1", Addr: first.Addr().String(), Epoch: "1"}})
	c, err := mysqlwire.Login(t.Context(), dial(t, r.RWAddr()), mysqlwire.ClientConfig{User: "app", Password: wirePassword,
		TLS: &tls.Config{InsecureSkipVerify: true}})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	eventually(t, "the session is followed", func() bool { return r.Stats().RW.Followed == 1 })
	r.SetView(View{RW: &Target{Name: "n2", Addr: th.Addr().String(), Epoch: "2"}})
	done := make(chan error, 1)
	go func() { _, err := c.Exec(t.Context(), "DO 1"); done <- err }()
	eventually(t, "the impostor is met", func() bool { th.mu.Lock(); defer th.mu.Unlock(); return th.met > 0 })
	r.SetView(View{RW: &Target{Name: "n2", Addr: next.Addr().String(), Epoch: "2"}})
	if err := <-done; err != nil {
		t.Error(err)
	}
	th.mu.Lock()
	defer th.mu.Unlock()
	if len(th.stolen) != 0 {
		t.Errorf("stolen: %v", th.stolen)
	}
}

// A member of an older version does not say how its mysqld is known: its sessions go on, and the log says what is not
// verified, once.
func TestOlderMemberIsNotVerified(t *testing.T) {
	s := newWireServer(t)
	s.offer(testTLS(t))
	var log lines
	r := start(t, Config{Sessions: true, TLS: testTLS(t), Logger: slog.New(slog.NewTextHandler(&log, nil))})
	r.SetProofs(map[string]api.MySQLProof{"another": {}})
	r.SetView(View{RW: s.target("1")})
	for range 2 {
		c, err := mysqlwire.Login(t.Context(), dial(t, r.RWAddr()),
			mysqlwire.ClientConfig{User: "app", Password: wirePassword, TLS: &tls.Config{InsecureSkipVerify: true}})
		if err != nil {
			t.Fatal(err)
		}
		_ = c.Close()
	}
	if n := log.count("does not verify the mysqld of n-1"); n != 1 {
		t.Errorf("told %d times", n)
	}
}
