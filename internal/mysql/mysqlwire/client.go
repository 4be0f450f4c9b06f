package mysqlwire

import (
	"context"
	"crypto/tls"
	"encoding/binary"
	"fmt"
	"net"
)

// Commands sent or served by the product.
const (
	ComQuit           = 0x01
	ComQuery          = 0x03
	ComPing           = 0x0E
	ComBinlogDump     = 0x12
	ComRegisterSlave  = 0x15
	ComBinlogDumpGTID = 0x1E
)

// ClientConfig says how to log in.
type ClientConfig struct {
	User, Password string
	// TLS, when set, is required of the server: a login never falls back to clear text.
	TLS *tls.Config
	// Attributes are shown in performance_schema.session_connect_attrs, to tell the product's sessions from others.
	Attributes []Attribute
	// MaxPacket bounds a payload read, in bytes; 0 means DefaultMaxPacket.
	MaxPacket int
}

// Client is a logged-in connection in the command phase. It is for one goroutine at a time. After an error other than
// a *ServerError it must be closed: the two sides may no longer agree on where they are.
type Client struct {
	*Conn
	// Server is the greeting it sent.
	Server Greeting
}

// Login runs the connection phase over nc. It owns nc: on failure nc is closed. ctx bounds it; a login can hang for as
// long as an account statement waits inside the server, so callers must give a limit.
// It fails with a *ServerError (1045 for a wrong password), ErrAuthPlugin, ErrMalformed or the connection's error.
func Login(ctx context.Context, nc net.Conn, cfg ClientConfig) (*Client, error) {
	c := &Client{Conn: NewConn(nc, cfg.MaxPacket)}
	done := watch(ctx, nc)
	if err := done(c.login(ctx, cfg)); err != nil {
		_ = c.Close()
		return nil, fmt.Errorf("log in as %q: %w", cfg.User, err)
	}
	return c, nil
}

func (c *Client) login(ctx context.Context, cfg ClientConfig) error {
	p, err := c.ReadPacket()
	if err != nil {
		return err
	}
	if c.Server, err = ParseGreeting(p); err != nil {
		return err
	}
	resp := Response{
		Capabilities: capLongPassword | capProtocol41 | capTransactions | capSecureConnection | capPluginAuth | capConnectAttrs,
		MaxPacket:    DefaultMaxPacket, Collation: collationUTF8MB4, User: cfg.User, Attributes: cfg.Attributes,
	}
	secure := c.NetConn().RemoteAddr().Network() == "unix"
	if cfg.TLS != nil {
		if c.Server.Capabilities&capSSL == 0 {
			return fmt.Errorf("server %s offers no TLS", c.Server.Version)
		}
		resp.Capabilities |= capSSL
		if err := c.BeginTLS(ctx, resp, cfg.TLS); err != nil {
			return err
		}
		secure = true
	}
	a := authentication{password: cfg.Password, nonce: c.Server.Nonce, secure: secure}
	// A default plugin that is not spoken here is no obstacle: the account's own may be; the server will switch to it.
	if a.plugin = c.Server.Plugin; a.plugin != PluginNative {
		a.plugin = PluginCachingSHA2
	}
	if resp.Auth, err = scramble(a.plugin, a.password, a.nonce); err != nil {
		return err
	}
	resp.Plugin = a.plugin
	if err := c.WritePacket(AppendResponse(nil, resp)); err != nil {
		return err
	}
	return c.authenticate(&a)
}

// authentication is where the exchange stands.
type authentication struct {
	plugin   string
	password string
	nonce    []byte
	secure   bool                      // a password in clear cannot be overheard: TLS or a unix socket
	key      func(digest string) error // as in Secrecy
}

// maxAuthRounds bounds the exchange; the longest legal one (switch, key request, key, OK) has five packets.
const maxAuthRounds = 8

func (c *Client) authenticate(a *authentication) error {
	for range maxAuthRounds {
		p, err := c.ReadPacket()
		if err != nil {
			return err
		}
		switch {
		case IsOK(p):
			return nil
		case IsERR(p):
			return responseError(p)
		case len(p) > 1 && p[0] == markEOF:
			err = c.switchPlugin(a, p)
		case len(p) >= 2 && p[0] == markMore && a.plugin == PluginCachingSHA2:
			err = c.moreCachingSHA2(a, p[1:])
		default:
			err = unexpected("authenticate", p)
		}
		if err != nil {
			return err
		}
	}
	return malformed("authentication does not end")
}

func (c *Client) switchPlugin(a *authentication, p []byte) error {
	s, err := ParseAuthSwitch(p)
	if err != nil {
		return err
	}
	a.plugin, a.nonce = s.Plugin, s.Nonce
	answer, err := scramble(a.plugin, a.password, a.nonce)
	if err != nil {
		return err
	}
	return c.WritePacket(answer)
}

func (c *Client) moreCachingSHA2(a *authentication, data []byte) error {
	switch {
	case len(data) == 1 && data[0] == cachingFastOK:
		return nil
	case len(data) == 1 && data[0] == cachingFull && a.secure:
		return c.WritePacket(append([]byte(a.password), 0))
	case len(data) == 1 && data[0] == cachingFull:
		return c.WritePacket([]byte{cachingKeyRequest})
	case data[0] == '-': // the public key, in PEM
		if a.key != nil {
			digest, err := KeyDigest(data)
			if err == nil {
				err = a.key(digest)
			}
			if err != nil {
				return err
			}
		}
		sealed, err := encryptPassword(a.password, a.nonce, data)
		if err != nil {
			return err
		}
		return c.WritePacket(sealed)
	}
	return malformed("caching_sha2_password exchange")
}

// WriteCommand sends a command with its argument and does not wait for an answer.
func (c *Client) WriteCommand(command byte, argument []byte) error {
	c.ResetSequence()
	return c.WritePacket(append([]byte{command}, argument...))
}

// Exec runs a statement that yields no rows.
func (c *Client) Exec(ctx context.Context, sql string) (OK, error) {
	done := watch(ctx, c.NetConn())
	ok, err := c.command(ComQuery, []byte(sql))
	if err = done(err); err != nil {
		return OK{}, fmt.Errorf("%.80s: %w", sql, err)
	}
	return ok, nil
}

// Ping checks that the session is alive.
func (c *Client) Ping(ctx context.Context) error {
	done := watch(ctx, c.NetConn())
	_, err := c.command(ComPing, nil)
	if err = done(err); err != nil {
		return fmt.Errorf("ping: %w", err)
	}
	return nil
}

// Register announces this connection as a replica (COM_REGISTER_SLAVE): seen in SHOW REPLICAS.
func (c *Client) Register(ctx context.Context, serverID uint32) error {
	b := binary.LittleEndian.AppendUint32(nil, serverID)
	b = append(b, 0, 0, 0)                // host, user and password reported: none
	b = append(b, 0, 0)                   // port
	b = append(b, 0, 0, 0, 0, 0, 0, 0, 0) // rank and source id, both unused by the server
	done := watch(ctx, c.NetConn())
	_, err := c.command(ComRegisterSlave, b)
	if err = done(err); err != nil {
		return fmt.Errorf("register as replica %d: %w", serverID, err)
	}
	return nil
}

func (c *Client) command(command byte, argument []byte) (OK, error) {
	if err := c.WriteCommand(command, argument); err != nil {
		return OK{}, err
	}
	p, err := c.ReadPacket()
	if err != nil {
		return OK{}, err
	}
	if err := responseError(p); err != nil {
		return OK{}, err
	}
	return ParseOK(p)
}

// QueryRow runs a query that yields exactly one row, and fails with ErrNoRow otherwise.
func (c *Client) QueryRow(ctx context.Context, sql string) ([]Value, error) {
	done := watch(ctx, c.NetConn())
	row, rows, err := c.query(sql)
	if err = done(err); err != nil {
		return nil, fmt.Errorf("%.80s: %w", sql, err)
	}
	if rows != 1 {
		return nil, fmt.Errorf("%.80s: %d rows: %w", sql, rows, ErrNoRow)
	}
	return row, nil
}

// query reads a whole result set, so that the session stays usable, and keeps its last row.
func (c *Client) query(sql string) (last []Value, rows int, err error) {
	if err := c.WriteCommand(ComQuery, []byte(sql)); err != nil {
		return nil, 0, err
	}
	p, err := c.ReadPacket()
	if err != nil {
		return nil, 0, err
	}
	if err := responseError(p); err != nil {
		return nil, 0, err
	}
	if IsOK(p) {
		return nil, 0, nil
	}
	columns, err := ParseColumnCount(p)
	if err != nil {
		return nil, 0, err
	}
	if err := c.skipColumns(columns); err != nil {
		return nil, 0, err
	}
	for {
		if p, err = c.ReadPacket(); err != nil {
			return nil, 0, err
		}
		if err := responseError(p); err != nil {
			return nil, 0, err
		}
		if IsEOF(p) {
			return last, rows, nil
		}
		if last, err = ParseRow(p, columns); err != nil {
			return nil, 0, err
		}
		rows++
	}
}

// skipColumns reads n column definitions and the EOF after them.
func (c *Client) skipColumns(n int) error {
	for range n {
		if _, err := c.ReadPacket(); err != nil {
			return err
		}
	}
	p, err := c.ReadPacket()
	if err != nil {
		return err
	}
	if !IsEOF(p) {
		return unexpected("read column definitions", p)
	}
	return nil
}
