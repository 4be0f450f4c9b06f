package router

import (
	"bytes"
	"context"
	"crypto/tls"
	"net"
	"strings"
	"sync"
	"testing"

	"trireme/internal/mysql/mysqlwire"
)

// nativeServer is a server whose account has mysql_native_password, which servers of 8.0 and 8.4 may have and those of
// 9 have no longer. It answers every command with OK.
type nativeServer struct {
	net.Listener
	wg     sync.WaitGroup
	plugin string // that its greeting names: it switches to mysql_native_password if that is another one
	tls    *tls.Config

	mu   sync.Mutex
	sent []string
}

func newNativeServer(t *testing.T, plugin string) *nativeServer {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &nativeServer{Listener: l, plugin: plugin, tls: testTLS(t)}
	ctx, cancel := context.WithCancel(context.Background())
	s.wg.Go(func() {
		for {
			nc, err := l.Accept()
			if err != nil {
				return
			}
			s.wg.Go(func() {
				defer context.AfterFunc(ctx, func() { _ = nc.Close() })()
				defer nc.Close()
				_ = s.session(ctx, mysqlwire.NewConn(nc, 0))
			})
		}
	})
	t.Cleanup(func() { cancel(); _ = l.Close(); s.wg.Wait() })
	return s
}

func (s *nativeServer) session(ctx context.Context, c *mysqlwire.Conn) error {
	nonce := bytes.Repeat([]byte("abcdefghij"), 2)
	greeting := mysqlwire.Greeting{Version: "8.4.6", ConnectionID: 7, Nonce: nonce, Collation: 255,
		Status: mysqlwire.StatusAutocommit, Plugin: s.plugin,
		Capabilities: mysqlwire.CapProtocol41 | mysqlwire.CapSSL | capSecureConnection | capPluginAuth}
	if err := c.WritePacket(mysqlwire.AppendGreeting(nil, greeting)); err != nil {
		return err
	}
	response, err := s.response(ctx, c)
	if err != nil {
		return err
	}
	answer := response.Auth
	if response.Plugin != mysqlwire.PluginNative {
		nonce = bytes.Repeat([]byte("ABCDEFGHIJ"), 2)
		if err := c.WritePacket(mysqlwire.AppendAuthSwitch(nil, mysqlwire.AuthSwitch{Plugin: mysqlwire.PluginNative,
			Nonce: nonce})); err != nil {
			return err
		}
		if answer, err = c.ReadPacket(); err != nil {
			return err
		}
	}
	if !bytes.Equal(answer, mysqlwire.ScrambleNative(wirePassword, nonce)) {
		return c.WritePacket(mysqlwire.AppendERR(nil, &mysqlwire.ServerError{Code: mysqlwire.CodeAccessDenied, State: "28000",
			Message: "Access denied for user 'app'"}))
	}
	for ok := mysqlwire.AppendOK(nil, mysqlwire.OK{Status: mysqlwire.StatusAutocommit}); ; {
		if err := c.WritePacket(ok); err != nil {
			return err
		}
		c.ResetSequence()
		p, err := c.ReadPacket()
		if err != nil {
			return err
		}
		s.mu.Lock()
		s.sent = append(s.sent, string(p[1:]))
		s.mu.Unlock()
	}
}

// response reads the client's, over TLS if it asks for that.
func (s *nativeServer) response(ctx context.Context, c *mysqlwire.Conn) (mysqlwire.Response, error) {
	for {
		p, err := c.ReadPacket()
		if err != nil {
			return mysqlwire.Response{}, err
		}
		r, wantsTLS, err := mysqlwire.ParseResponse(p)
		if err != nil || !wantsTLS {
			return r, err
		}
		if err := c.ServeTLS(ctx, s.tls); err != nil {
			return r, err
		}
	}
}

// Capabilities of servers that the router does not look at.
const (
	capSecureConnection = 1 << 15
	capPluginAuth       = 1 << 19
)

// An account with mysql_native_password logs in through every port, whether its server's greeting names that plugin or
// another one, and a wrong password is refused. On ports where sessions are followed, its session is not: it ends with
// its server's role, and if a level must be kept it is refused.
func TestNativePassword(t *testing.T) {
	for _, plugin := range []string{mysqlwire.PluginNative, mysqlwire.PluginCachingSHA2} {
		s := newNativeServer(t, plugin)
		v := View{RW: &Target{Name: "n1", Addr: s.Addr().String(), Epoch: "1"}}
		follows := start(t, Config{Sessions: true, SplitListen: "127.0.0.1:0", TLS: testTLS(t), HoldTimeout: limit})
		passes := start(t, Config{HoldTimeout: limit})
		level := start(t, Config{Sessions: true, TLS: testTLS(t), Reads: oneServer{}, Consistency: Before,
			HoldTimeout: limit})
		for _, r := range []*Router{follows, passes, level} {
			r.SetView(v)
		}
		for name, addr := range map[string]string{"followed 6446": follows.RWAddr(), "followed 6447": follows.ROAddr(),
			"6450":        follows.SplitAddr(),
			"passed 6446": passes.RWAddr(), "passed 6447": passes.ROAddr(), "at BEFORE": level.RWAddr()} {
			for secure, config := range map[string]*tls.Config{"": nil, ", over TLS": {InsecureSkipVerify: true}} {
				t.Run(plugin+", "+name+secure, func(t *testing.T) {
					login := func(password string) (*mysqlwire.Client, error) {
						return mysqlwire.Login(t.Context(), dial(t, addr), mysqlwire.ClientConfig{User: "app", Password: password,
							TLS: config})
					}
					if _, err := login("wrong"); !mysqlwire.IsServerCode(err, mysqlwire.CodeAccessDenied) {
						t.Errorf("a wrong password: %v", err)
					}
					c, err := login(wirePassword)
					if err != nil {
						t.Fatal(err)
					}
					defer c.Close()
					_, err = c.Exec(t.Context(), "INSERT "+t.Name())
					if name == "at BEFORE" {
						if !mysqlwire.IsServerCode(err, codeNoLevel) || s.heard(t.Name()) {
							t.Errorf("a level that cannot be kept: %v", err)
						}
						return
					}
					if err != nil || !s.heard(t.Name()) {
						t.Errorf("%v", err)
					}
					if strings.HasPrefix(name, "passed") {
						return
					}
					if st := follows.Stats(); st.RW.Followed+st.RO.Followed+st.Split.Followed != 0 || st.RW.Tied+st.RO.Tied+
						st.Split.Tied == 0 {
						t.Errorf("%+v", st)
					}
				})
			}
		}
		c, err := mysqlwire.Login(t.Context(), dial(t, follows.RWAddr()),
			mysqlwire.ClientConfig{User: "app", Password: wirePassword})
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		v.RW.Epoch = "2"
		follows.SetView(v)
		if err := c.Ping(t.Context()); err == nil {
			t.Error("a session that is not followed goes on without its server's role")
		}
	}
}

func (s *nativeServer) heard(part string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return strings.Contains(strings.Join(s.sent, "\n"), part)
}
