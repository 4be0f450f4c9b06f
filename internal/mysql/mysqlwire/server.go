package mysqlwire

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
)

// ServerConfig says whom to let in and what to claim to be.
type ServerConfig struct {
	// User and Password of the one account; an empty Password lets User in without one.
	User, Password string
	// Version in the greeting. A replica decides by it what it may be sent: below 8.3 it drops tagged GTIDs.
	Version      string
	ConnectionID uint32
	// TLS, when set, is offered; a client that does not ask for it is still let in, as by mysqld.
	TLS *tls.Config
	// MaxPacket bounds a payload read, in bytes; 0 means 1 MiB, ample for any command a replica sends.
	MaxPacket int
}

const serverMaxPacket = 1 << 20

// Session is the server's side of a logged-in connection. It is for one goroutine at a time.
type Session struct {
	*Conn
	Client Response
}

// Accept runs the connection phase of a server over nc with caching_sha2_password. It owns nc: on failure nc is
// closed, after the client has been told why. ctx bounds it.
func Accept(ctx context.Context, nc net.Conn, cfg ServerConfig) (*Session, error) {
	if cfg.MaxPacket <= 0 {
		cfg.MaxPacket = serverMaxPacket
	}
	s := &Session{Conn: NewConn(nc, cfg.MaxPacket)}
	done := watch(ctx, nc)
	if err := done(s.accept(ctx, cfg)); err != nil {
		_ = s.Close()
		return nil, fmt.Errorf("accept login from %s: %w", nc.RemoteAddr(), err)
	}
	return s, nil
}

func (s *Session) accept(ctx context.Context, cfg ServerConfig) error {
	g := Greeting{
		Version: cfg.Version, ConnectionID: cfg.ConnectionID, Nonce: newNonce(),
		Capabilities: capLongPassword | capConnectWithDB | capProtocol41 | capTransactions | capSecureConnection |
			capPluginAuth | capConnectAttrs | capLenencAuthData,
		Collation: collationUTF8MB4, Status: statusAutocommit, Plugin: PluginCachingSHA2,
	}
	if cfg.TLS != nil {
		g.Capabilities |= capSSL
	}
	if err := s.WritePacket(AppendGreeting(nil, g)); err != nil {
		return err
	}
	if err := s.readResponse(ctx, cfg.TLS); err != nil {
		return err
	}
	answer := s.Client.Auth
	if s.Client.Plugin != PluginCachingSHA2 {
		var err error
		if answer, err = s.switchPlugin(g.Nonce); err != nil {
			return err
		}
	}
	return s.judge(cfg, g.Nonce, answer)
}

func (s *Session) readResponse(ctx context.Context, cfg *tls.Config) error {
	p, err := s.ReadPacket()
	if err != nil {
		return err
	}
	var wantsTLS bool
	if s.Client, wantsTLS, err = ParseResponse(p); err != nil || !wantsTLS {
		return err
	}
	if cfg == nil {
		return malformed("TLS was not offered")
	}
	tc := tls.Server(s.raw(), cfg)
	if err := tc.HandshakeContext(ctx); err != nil {
		return fmt.Errorf("TLS handshake: %w", err)
	}
	s.swap(tc)
	if p, err = s.ReadPacket(); err != nil {
		return err
	}
	if s.Client, wantsTLS, err = ParseResponse(p); err == nil && wantsTLS {
		err = malformed("second SSLRequest")
	}
	return err
}

func (s *Session) switchPlugin(nonce []byte) ([]byte, error) {
	request := AuthSwitch{Plugin: PluginCachingSHA2, Nonce: nonce}
	if err := s.WritePacket(AppendAuthSwitch(nil, request)); err != nil {
		return nil, err
	}
	p, err := s.ReadPacket()
	if err != nil {
		return nil, err
	}
	return append([]byte(nil), p...), nil
}

func (s *Session) judge(cfg ServerConfig, nonce, answer []byte) error {
	if s.Client.User != cfg.User || !checkCachingSHA2(cfg.Password, nonce, answer) {
		denied := &ServerError{Code: CodeAccessDenied, State: stateAccessDenied,
			Message: fmt.Sprintf("Access denied for user '%s'", s.Client.User)}
		if err := s.WriteERR(denied); err != nil {
			return err
		}
		return denied
	}
	// Without a password there is nothing to prove, and the client's plugin waits for OK alone.
	if cfg.Password != "" {
		if err := s.BufferPacket([]byte{markMore, cachingFastOK}); err != nil {
			return err
		}
	}
	return s.WriteOK()
}

// ReadCommand waits for the next command. The argument is valid until the next read.
func (s *Session) ReadCommand() (command byte, argument []byte, err error) {
	s.ResetSequence()
	p, err := s.ReadPacket()
	if err != nil {
		return 0, nil, err
	}
	if len(p) == 0 {
		return 0, nil, malformed("empty command")
	}
	return p[0], p[1:], nil
}

// WriteOK answers a command with an OK packet.
func (s *Session) WriteOK() error { return s.WritePacket(AppendOK(nil, OK{Status: statusAutocommit})) }

// WriteERR answers a command with an ERR packet.
func (s *Session) WriteERR(e *ServerError) error { return s.WritePacket(AppendERR(nil, e)) }

// WriteRow answers a query with a result set of one column and one row.
func (s *Session) WriteRow(column string, value Value) error {
	packets := [][]byte{
		{1},
		appendColumn(nil, Column{Name: column}),
		AppendEOF(nil, statusAutocommit),
		AppendTextRow(nil, []Value{value}),
		AppendEOF(nil, statusAutocommit),
	}
	for _, p := range packets {
		if err := s.BufferPacket(p); err != nil {
			return err
		}
	}
	return s.Flush()
}
