package mysqlwire

import (
	"bufio"
	"bytes"
	"context"
	"crypto/rsa"
	"crypto/sha1"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/binary"
	"encoding/hex"
	"encoding/pem"
	"fmt"
	"io"
)

// Capability flags by which who stands between a client and a server must know what both will send.
const (
	CapConnectWithDB      = capConnectWithDB
	CapCompress           = 1 << 5
	CapProtocol41         = capProtocol41
	CapSSL                = capSSL
	CapMultiStatements    = 1 << 16
	CapSessionTrack       = 1 << 23
	CapDeprecateEOF       = 1 << 24
	CapOptionalMetadata   = 1 << 25
	CapZstd               = 1 << 26
	CapQueryAttributes    = 1 << 27
	StatusInTransaction   = 0x0001
	StatusAutocommit      = statusAutocommit
	StatusMoreResults     = 0x0008
	StatusCursorExists    = 0x0040
	StatusLastRowSent     = 0x0080
	CodeDeadlock          = 1213 // ER_LOCK_DEADLOCK: clients repeat the transaction
	CodeServerUnavailable = 3168 // ER_SERVER_ISNT_AVAILABLE
)

// What follows the mark of an AuthMoreData of caching_sha2_password, and a client's request for the server's key.
const (
	AuthMore          = markMore
	AuthSwitchMark    = markEOF
	CachingFastOK     = cachingFastOK
	CachingFull       = cachingFull
	CachingKeyRequest = cachingKeyRequest
)

// Unread puts bytes that were read from the connection before it was framed in front of the rest. It is called once,
// before any read.
func (c *Conn) Unread(b []byte) {
	c.r = bufio.NewReaderSize(io.MultiReader(bytes.NewReader(b), c.nc), ioBufferBytes)
}

// ServeTLS makes the client's side of the connection TLS, after its SSLRequest.
func (c *Conn) ServeTLS(ctx context.Context, cfg *tls.Config) error {
	tc := tls.Server(c.raw(), cfg)
	if err := tc.HandshakeContext(ctx); err != nil {
		return fmt.Errorf("TLS handshake: %w", err)
	}
	c.swap(tc)
	return nil
}

// BeginTLS sends an SSLRequest made of resp and makes the connection to the server TLS.
func (c *Conn) BeginTLS(ctx context.Context, resp Response, cfg *tls.Config) error {
	if err := c.WritePacket(AppendSSLRequest(nil, resp)); err != nil {
		return err
	}
	tc := tls.Client(c.raw(), cfg)
	if err := tc.HandshakeContext(ctx); err != nil {
		return fmt.Errorf("TLS handshake: %w", err)
	}
	c.swap(tc)
	return nil
}

// Secrecy is how a password gets to a server.
type Secrecy struct {
	TLS *tls.Config // nil: the connection stays in clear and the password is sealed with the server's key
	// Key refuses a key (KeyDigest) that is not the server's; nil: any is taken.
	Key func(digest string) error
}

// LoginAs is a connection phase with everything in resp as another client said it, except for the proof of its
// password. Attributes, capabilities and character set are the session's.
func LoginAs(ctx context.Context, conn *Conn, resp Response, password string, how Secrecy) (Greeting, OK, error) {
	done := watch(ctx, conn.NetConn())
	g, ok, err := loginAs(ctx, conn, resp, password, how)
	return g, ok, done(err)
}

func loginAs(ctx context.Context, conn *Conn, resp Response, password string, how Secrecy) (Greeting, OK, error) {
	cfg := how.TLS
	p, err := conn.ReadPacket()
	if err != nil {
		return Greeting{}, OK{}, err
	}
	g, err := ParseGreeting(p)
	if err != nil {
		return Greeting{}, OK{}, err
	}
	resp.Capabilities &^= capSSL
	if cfg != nil {
		resp.Capabilities |= capSSL
		if err := conn.BeginTLS(ctx, resp, cfg); err != nil {
			return g, OK{}, err
		}
	}
	resp.Capabilities |= capPluginAuth | capSecureConnection
	resp.Plugin, resp.Auth = PluginCachingSHA2, ScrambleCachingSHA2(password, g.Nonce)
	if err := conn.WritePacket(AppendResponse(nil, resp)); err != nil {
		return g, OK{}, err
	}
	c := &Client{Conn: conn, Server: g}
	if err := c.authenticate(&authentication{plugin: PluginCachingSHA2, password: password, nonce: g.Nonce,
		secure: cfg != nil, key: how.Key}); err != nil {
		return g, OK{}, err
	}
	ok, err := ParseOK(conn.payload)
	return g, ok, err
}

// MatchesCachingSHA2 reports whether answer is what a client with this password answers to nonce.
func MatchesCachingSHA2(password string, nonce, answer []byte) bool {
	return checkCachingSHA2(password, nonce, answer)
}

// SealPassword prepares full authentication for a server that has sent its public key.
func SealPassword(password string, nonce, publicKeyPEM []byte) ([]byte, error) {
	return encryptPassword(password, nonce, publicKeyPEM)
}

// KeyDigest is the SHA-256, in hexadecimal, of a public key in PEM.
func KeyDigest(publicKeyPEM []byte) (string, error) {
	block, _ := pem.Decode(publicKeyPEM)
	if block == nil {
		return "", malformed("server public key: no PEM block")
	}
	return Digest(block.Bytes), nil
}

// Digest is how keys and certificates in DER are told apart: their SHA-256, in hexadecimal.
func Digest(der []byte) string {
	sum := sha256.Sum256(der)
	return hex.EncodeToString(sum[:])
}

// PublicKeyPEM is what a client that asks for the key is sent.
func PublicKeyPEM(key *rsa.PrivateKey) ([]byte, error) {
	der, err := x509.MarshalPKIXPublicKey(&key.PublicKey)
	if err != nil {
		return nil, err
	}
	return pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der}), nil
}

// OpenPassword undoes SealPassword.
func OpenPassword(key *rsa.PrivateKey, nonce, sealed []byte) (string, error) {
	plain, err := rsa.DecryptOAEP(sha1.New(), nil, key, sealed, nil)
	if err != nil || len(plain) == 0 || len(nonce) == 0 {
		return "", malformed("sealed password")
	}
	for i := range plain {
		plain[i] ^= nonce[i%len(nonce)]
	}
	if plain[len(plain)-1] != 0 {
		return "", malformed("sealed password")
	}
	return string(plain[:len(plain)-1]), nil
}

// Status reads SERVER_STATUS_* from an OK packet, from what replaces it at the end of rows (0xFE), or from an EOF
// packet. p may be cut off after its first 23 bytes.
func Status(p []byte, deprecateEOF bool) (uint16, error) {
	if len(p) == 0 {
		return 0, malformed("status")
	}
	c := cursor{b: p[1:]}
	if p[0] == markEOF && !deprecateEOF {
		c.u16() // warnings
		status := c.u16()
		if c.bad {
			return 0, malformed("EOF packet")
		}
		return status, nil
	}
	_, null1 := c.lenenc()
	_, null2 := c.lenenc()
	status := c.u16()
	if c.bad || null1 || null2 {
		return 0, malformed("OK packet")
	}
	return status, nil
}

// Lenenc reads a length-encoded integer and returns what comes after it; ok is false if p does not begin with one.
func Lenenc(p []byte) (v uint64, rest []byte, ok bool) {
	c := cursor{b: p}
	v, null := c.lenenc()
	return v, c.b, !c.bad && !null
}

// AppendPacket frames a payload of less than MaxPayload bytes.
func AppendPacket(b []byte, seq byte, payload []byte) []byte {
	b = binary.LittleEndian.AppendUint32(b, uint32(len(payload))|uint32(seq)<<24)
	return append(b, payload...)
}

// AppendRow is AppendRows of one column and one row.
func AppendRow(b []byte, seq byte, column, value string, status uint16, deprecateEOF bool) []byte {
	return AppendRows(b, seq, []Column{{Name: column}}, [][]Value{{{Text: value}}}, status, deprecateEOF)
}

// AppendRows appends the packets of a result set with sequence numbers from seq. Each row is shorter than MaxPayload.
func AppendRows(b []byte, seq byte, columns []Column, rows [][]Value, status uint16, deprecateEOF bool) []byte {
	add := func(p []byte) {
		b = AppendPacket(b, seq, p)
		seq++
	}
	add(appendLenenc(nil, uint64(len(columns))))
	for _, c := range columns {
		add(appendColumn(nil, c))
	}
	end := AppendEOF(nil, status)
	if !deprecateEOF {
		add(end)
	} else {
		end = AppendOK(nil, OK{Status: status})
		end[0] = markEOF
	}
	for _, row := range rows {
		add(AppendTextRow(nil, row))
	}
	add(end)
	return b
}
