package router

import (
	"context"
	"crypto/rand"
	"crypto/rsa"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"slices"
	"sync"
	"time"

	"trireme/internal/mysql/mysqlwire"
)

// Limits of a login, which bound what a client that has not proved anything can hold.
// Config.LoginTimeout is the third.
const (
	loginMaxPacket = 256 << 10
	loginMaxRounds = 16
)

// unportable capabilities frame or shape the bytes in ways that are not followed here.
const unportable = mysqlwire.CapCompress | mysqlwire.CapZstd | mysqlwire.CapOptionalMetadata

// login is the connection phase: it passes everything on between the client and the server, and learns what is needed
// to log in again.
type login struct {
	client, server *mysqlwire.Conn
	backend        *backend    // who the server has to be
	tls            *tls.Config // shown to clients; nil: a client that asks for TLS gets the server's
	strict         bool        // offer nothing that keeps a session from being followed
	local          bool        // the client came through a unix socket
	brief          bool        // the session ends with its server: its password need not be known
	spoke          func()      // called when the client has answered the greeting
	greeting       mysqlwire.Greeting
	response       mysqlwire.Response
	// the client's bytes come over TLS that ends here, or a unix socket; those to the server go over TLS
	secure   bool
	sni      string // the server's name in the client's TLS handshake
	plugin   string
	nonce    []byte
	answer   []byte // to the nonce, by caching_sha2_password
	password string
	known    bool // password is the one that the server took
	status   uint16
}

var errLoggedOut = errors.New("the login ended")

// run relays until the server has let the client in. through is true when the rest of the connection has to be passed
// on as bytes before the login is over.
func (l *login) run(ctx context.Context) (through bool, err error) {
	p, err := l.server.ReadPacket()
	if err != nil {
		return false, err
	}
	if mysqlwire.IsERR(p) {
		return false, errors.Join(l.client.WritePacket(p), errLoggedOut)
	}
	if l.greeting, err = mysqlwire.ParseGreeting(p); err != nil {
		return false, err
	}
	if err := l.backend.greets(l.greeting); err != nil {
		return false,
			errors.Join(err,
				l.client.WritePacket(mysqlwire.AppendEarlyERR(nil, mysqlwire.CodeHandshake, "Trireme: "+err.Error())))
	}
	l.plugin, l.nonce = l.greeting.Plugin, l.greeting.Nonce
	shown := l.greeting
	if l.strict {
		shown.Capabilities &^= unportable
		if l.tls == nil {
			shown.Capabilities &^= mysqlwire.CapSSL
		}
	}
	if err := l.client.WritePacket(mysqlwire.AppendGreeting(nil, shown)); err != nil {
		return false, err
	}
	if p, err = l.client.ReadPacket(); err != nil {
		return false, err
	}
	l.spoke()
	var wantsTLS bool
	if l.response, wantsTLS, err = mysqlwire.ParseResponse(p); err != nil {
		return false,
			errors.Join(err, l.client.WritePacket(mysqlwire.AppendERR(nil, &mysqlwire.ServerError{Code: mysqlwire.CodeHandshake,
				State: "08S01", Message: "Bad handshake"})))
	}
	if wantsTLS {
		if l.tls == nil {
			return true, l.server.WritePacket(p)
		}
		if p, err = l.startTLS(ctx); err != nil {
			return false, err
		}
	}
	p = append([]byte(nil), p...)
	if l.local && !l.secure {
		if err := l.hide(ctx, p); err != nil {
			return false, err
		}
	}
	if l.response.Plugin != "" {
		l.plugin = l.response.Plugin
	}
	l.answer = l.response.Auth
	if err := l.server.WritePacket(p); err != nil {
		return false, err
	}
	return false, l.relay()
}

func (l *login) startTLS(ctx context.Context) (p []byte, err error) {
	request := l.response
	if err := l.client.ServeTLS(ctx, l.tls); err != nil {
		return nil, err
	}
	if p, err = l.client.ReadPacket(); err != nil {
		return nil, err
	}
	var again bool
	if l.response, again, err = mysqlwire.ParseResponse(p); err != nil || again {
		return nil, errors.Join(err, errors.New("no response after the TLS handshake"))
	}
	l.secure = true
	if over, ok := l.client.NetConn().(*tls.Conn); ok {
		l.sni = over.ConnectionState().ServerName
	}
	return p, l.deny(l.server.BeginTLS(ctx, request, l.backend.tls(l.sni)))
}

// deny tells a client that has answered the greeting that the server is not the node's. That server has not been told a
// password yet.
func (l *login) deny(err error) error {
	if !errors.Is(err, errImpostor) {
		return err
	}
	refused := &mysqlwire.ServerError{Code: mysqlwire.CodeHandshake, State: "08S01", Message: "Trireme: " + err.Error()}
	return errors.Join(err, l.client.WritePacket(mysqlwire.AppendERR(nil, refused)))
}

// distrusted says that the client ended the TLS handshake, as it does when it knows neither the router's certificate
// nor who issued that.
func (l *login) distrusted(err error) bool {
	refused, ok := errors.AsType[*net.OpError](err)
	return ok && refused.Op == "remote error" && !l.secure && l.response.Capabilities&mysqlwire.CapSSL != 0
}

// hide makes the way to the server TLS for a client that believes that the connection cannot be overheard; p is its
// response.
func (l *login) hide(ctx context.Context, p []byte) error {
	if l.greeting.Capabilities&mysqlwire.CapSSL == 0 {
		return errors.Join(errors.New("the server offers no TLS"),
			l.client.WritePacket(mysqlwire.AppendERR(nil, &mysqlwire.ServerError{Code: mysqlwire.CodeHandshake,
				State: "08S01", Message: "Trireme: the server offers no TLS, which a login through the unix socket needs"})))
	}
	l.response.Capabilities |= mysqlwire.CapSSL
	if err := l.server.BeginTLS(ctx, l.response, l.backend.tls(l.sni)); err != nil {
		return l.deny(err)
	}
	binary.LittleEndian.PutUint32(p, uint32(l.response.Capabilities)) // the response begins with them
	l.secure = true
	return nil
}

// relay passes packets of the exchange on until OK or ERR.
func (l *login) relay() error {
	for range loginMaxRounds {
		p, err := l.server.ReadPacket()
		if err != nil {
			return err
		}
		switch {
		case len(p) == 0:
			return fmt.Errorf("the server's part of the login: %w", mysqlwire.ErrMalformed)
		case mysqlwire.IsERR(p):
			return errors.Join(l.client.WritePacket(l.explained(p)), errLoggedOut)
		case mysqlwire.IsOK(p):
			return l.welcome(p)
		case len(p) == 2 && p[0] == mysqlwire.AuthMore && l.plugin == mysqlwire.PluginCachingSHA2 &&
			p[1] == mysqlwire.CachingFastOK:
			err = l.fast(p)
		case len(p) == 2 && p[0] == mysqlwire.AuthMore && l.plugin == mysqlwire.PluginCachingSHA2 &&
			p[1] == mysqlwire.CachingFull:
			err = l.full(p)
		default:
			err = l.pass(p)
		}
		if err != nil {
			return err
		}
	}
	return errors.New("the login does not end")
}

// explained is a server's refusal of a login, with what that server cannot know: it does not see the client's
// certificate.
func (l *login) explained(p []byte) []byte {
	secure, _ := l.client.NetConn().(*tls.Conn)
	if secure == nil || len(secure.ConnectionState().PeerCertificates) == 0 {
		return p
	}
	e, err := mysqlwire.ParseERR(p)
	if err != nil || e.Code != mysqlwire.CodeAccessDenied {
		return p
	}
	e.Message += "; Trireme: TLS ends at this router, so the server does not see the client's certificate, and REQUIRE X509, SUBJECT and ISSUER cannot be met here: set router.sessions = \"pass\", or connect to mysqld itself"
	return mysqlwire.AppendERR(nil, e)
}

func (l *login) welcome(p []byte) error {
	var err error
	if l.status, err = mysqlwire.Status(p, false); err != nil {
		return err
	}
	// Nothing was asked of a client without a password.
	if !l.known && l.plugin == mysqlwire.PluginCachingSHA2 && mysqlwire.MatchesCachingSHA2("", l.nonce, l.answer) {
		l.known = true
	}
	return l.client.WritePacket(p)
}

// pass sends one packet to the client and its answer to the server.
func (l *login) pass(p []byte) error {
	if p[0] == mysqlwire.AuthSwitchMark {
		s, err := mysqlwire.ParseAuthSwitch(p)
		if err != nil {
			return err
		}
		l.plugin, l.nonce, l.known = s.Plugin, s.Nonce, false
	} else {
		l.plugin, l.known = "", false // another factor, or a plugin's own talk
	}
	if err := l.client.WritePacket(p); err != nil {
		return err
	}
	answer, err := l.client.ReadPacket()
	if err != nil {
		return err
	}
	l.answer = append([]byte(nil), answer...)
	return l.server.WritePacket(l.answer)
}

// fast is the server's word that it knows the answer from its cache. The password itself is asked for instead: it is
// what another server, whose cache is empty, will want. A client without TLS is asked only if it is known to seal its
// password by itself when it has to, where others would give up.
func (l *login) fast(p []byte) error {
	if l.brief || !l.secure && !l.sealsByItself() {
		return l.client.WritePacket(p)
	}
	password, given, err := l.ask()
	if err != nil || given == nil {
		return err
	}
	if l.known = mysqlwire.MatchesCachingSHA2(password, l.nonce, l.answer); l.known {
		l.password = password
	}
	return nil
}

// sealers are the client libraries that ask for a public key whenever they need one. MySQL's own does so only when told
// to (--get-server-public-key).
var sealers = []string{"Go-MySQL-Driver", "pymysql", "Node-MySQL-2", "libmariadb"}

// sealsByItself reports whether the client asks for a public key without being told to.
func (l *login) sealsByItself() bool {
	for _, a := range l.response.Attributes {
		if a.Name == "_client_name" {
			return slices.Contains(sealers, a.Value)
		}
	}
	return false
}

// full is the server's wish for the password.
func (l *login) full([]byte) error {
	password, given, err := l.ask()
	if err != nil {
		return err
	}
	if given == nil { // sealed for the server, with a key that the client had before
		return l.server.WritePacket(l.answer)
	}
	l.password, l.known = password, true // the server will tell if it is not
	if l.secure {
		return l.server.WritePacket(given)
	}
	if err := l.server.WritePacket([]byte{mysqlwire.CachingKeyRequest}); err != nil {
		return err
	}
	key, err := l.server.ReadPacket()
	if err != nil {
		return err
	}
	if len(key) < 2 || key[0] != mysqlwire.AuthMore {
		return fmt.Errorf("server's public key: %w", mysqlwire.ErrMalformed)
	}
	digest, err := mysqlwire.KeyDigest(key[1:])
	if err != nil {
		return err
	}
	if err := l.backend.key(digest); err != nil {
		return l.deny(err)
	}
	sealed, err := mysqlwire.SealPassword(password, l.nonce, key[1:])
	if err != nil {
		return err
	}
	return l.server.WritePacket(sealed)
}

// ask gets the password from the client: as it is over TLS, sealed with this router's key otherwise. given is the
// packet as the server expects it over TLS; it is nil, and the client's packet in l.answer, when the password cannot be
// read here.
func (l *login) ask() (password string, given []byte, err error) {
	if err := l.client.WritePacket([]byte{mysqlwire.AuthMore, mysqlwire.CachingFull}); err != nil {
		return "", nil, err
	}
	p, err := l.client.ReadPacket()
	if err != nil {
		return "", nil, err
	}
	if !l.secure {
		if len(p) != 1 || p[0] != mysqlwire.CachingKeyRequest {
			l.answer, l.plugin = append([]byte(nil), p...), ""
			return "", nil, nil
		}
		if password, err = l.unseal(); err != nil {
			return "", nil, err
		}
		return password, append([]byte(password), 0), nil
	}
	if len(p) == 0 || p[len(p)-1] != 0 {
		return "", nil, fmt.Errorf("password: %w", mysqlwire.ErrMalformed)
	}
	return string(p[:len(p)-1]), append([]byte(nil), p...), nil
}

// keyAfter is how long a router runs until it makes its pair of keys. That takes some 0.15 s of CPU, which neither the
// start of a node nor a login at a switchover should wait for. A client that needs the pair earlier makes it.
const keyAfter = time.Minute

// routerKey is the pair by which clients without TLS seal their passwords; of this process.
var routerKey = sync.OnceValues(func() (*rsa.PrivateKey, error) { return rsa.GenerateKey(rand.Reader, 2048) })

func (l *login) unseal() (string, error) {
	key, err := routerKey()
	if err != nil {
		return "", err
	}
	pem, err := mysqlwire.PublicKeyPEM(key)
	if err != nil {
		return "", err
	}
	if err := l.client.WritePacket(append([]byte{mysqlwire.AuthMore}, pem...)); err != nil {
		return "", err
	}
	sealed, err := l.client.ReadPacket()
	if err != nil {
		return "", err
	}
	return mysqlwire.OpenPassword(key, l.nonce, sealed)
}

// portable reports whether this session could log in elsewhere.
func (l *login) portable() bool { return l.ties() == "" }

// ties says why a session that begins so cannot log in elsewhere; empty: it can.
func (l *login) ties() string {
	switch {
	case l.response.Capabilities&unportable != 0:
		return "compression, or result sets without metadata"
	case unsafeCollation(l.response.Collation):
		return unsafeCharset
	case !l.known:
		return "a login whose password the router does not have"
	}
	return ""
}

// unsafeCollation says that a collation's character set is one of unsafeCharsets.
func unsafeCollation(id byte) bool {
	switch id {
	case 1, 84, 13, 88, 28, 87, 95, 96, 248, 249, 250: // big5, sjis, gbk, cp932, gb18030
		return true
	}
	return false
}

// tap looks at what the client says from now on.
func (l *login) tap() *tap { return loggedInTap(l.response.Capabilities & l.greeting.Capabilities) }
