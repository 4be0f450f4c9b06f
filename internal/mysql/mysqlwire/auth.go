package mysqlwire

import (
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha1"
	"crypto/sha256"
	"crypto/subtle"
	"crypto/x509"
	"encoding/pem"
	"fmt"
)

// Authentication plugins spoken here.
const (
	PluginCachingSHA2 = "caching_sha2_password"
	PluginNative      = "mysql_native_password"
)

const (
	nonceLen = 20

	cachingFastOK        = 0x03
	cachingFull          = 0x04
	cachingKeyRequest    = 0x02
	nativeScrambleLength = sha1.Size
)

// ScrambleCachingSHA2 answers a caching_sha2_password challenge:
// SHA256(password) XOR SHA256(SHA256(SHA256(password)) | nonce). An empty password answers with nothing.
// Source: sql/auth/sha2_password_common.cc, Generate_scramble.
func ScrambleCachingSHA2(password string, nonce []byte) []byte {
	if password == "" {
		return nil
	}
	stage1 := sha256.Sum256([]byte(password))
	stage2 := sha256.Sum256(stage1[:])
	h := sha256.New()
	h.Write(stage2[:])
	h.Write(nonce)
	out := h.Sum(nil)
	subtle.XORBytes(out, out, stage1[:])
	return out
}

// ScrambleNative answers a mysql_native_password challenge: SHA1(password) XOR SHA1(nonce | SHA1(SHA1(password))).
// An empty password answers with nothing. Source: sql/auth/password.cc, scramble.
func ScrambleNative(password string, nonce []byte) []byte {
	if password == "" {
		return nil
	}
	stage1 := sha1.Sum([]byte(password))
	stage2 := sha1.Sum(stage1[:])
	h := sha1.New()
	h.Write(nonce)
	h.Write(stage2[:])
	out := h.Sum(nil)
	subtle.XORBytes(out, out, stage1[:])
	return out
}

// scramble answers nonce for plugin.
func scramble(plugin, password string, nonce []byte) ([]byte, error) {
	switch plugin {
	case PluginCachingSHA2:
		return ScrambleCachingSHA2(password, nonce), nil
	case PluginNative:
		return ScrambleNative(password, nonce), nil
	default:
		return nil, fmt.Errorf("%q: %w", plugin, ErrAuthPlugin)
	}
}

// checkCachingSHA2 compares an answer in constant time. A client without a password answers with nothing or with one
// zero byte.
func checkCachingSHA2(password string, nonce, answer []byte) bool {
	if password == "" {
		return len(answer) == 0 || len(answer) == 1 && answer[0] == 0
	}
	return subtle.ConstantTimeCompare(ScrambleCachingSHA2(password, nonce), answer) == 1
}

// encryptPassword prepares full authentication without TLS: (password | 0) XOR nonce, RSA-OAEP with SHA-1 under the
// server's public key. Source: sql-common/client_authentication.cc.
func encryptPassword(password string, nonce, publicKeyPEM []byte) ([]byte, error) {
	block, _ := pem.Decode(publicKeyPEM)
	if block == nil {
		return nil, malformed("server public key: no PEM block")
	}
	parsed, err := x509.ParsePKIXPublicKey(block.Bytes)
	if err != nil {
		return nil, fmt.Errorf("parse server public key: %w", err)
	}
	key, ok := parsed.(*rsa.PublicKey)
	if !ok {
		return nil, malformed("server public key is not RSA")
	}
	if len(nonce) == 0 {
		return nil, malformed("empty nonce")
	}
	plain := append([]byte(password), 0)
	for i := range plain {
		plain[i] ^= nonce[i%len(nonce)]
	}
	out, err := rsa.EncryptOAEP(sha1.New(), rand.Reader, key, plain, nil)
	if err != nil {
		return nil, fmt.Errorf("encrypt password: %w", err)
	}
	return out, nil
}

// newNonce makes a challenge of printable bytes: clients treat it as a zero-terminated string.
func newNonce() []byte {
	b := make([]byte, nonceLen)
	_, _ = rand.Read(b) // never fails: crypto/rand aborts the process instead
	for i := range b {
		b[i] = b[i]&0x3F + 0x21
	}
	return b
}
