package pki

import (
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"net"
	"strconv"
	"strings"
	"time"
)

// secretBytes is the length of every secret made here: 256 random bits.
const secretBytes = 32

// apiTokenPrefix lets secret scanners recognise a leaked token.
const apiTokenPrefix = "trt1."

// NewAPIToken makes a token for the HTTP API and the hash to keep of it.
func NewAPIToken() (token, hash string) {
	token = apiTokenPrefix + newSecret()
	return token, HashToken(token)
}

// HashToken is the SHA-256 of a token in hexadecimal. Tokens are random, so no salt or slow hash is needed.
func HashToken(token string) string {
	sum := sha256.Sum256([]byte(token))
	return hex.EncodeToString(sum[:])
}

// TokenMatches compares a presented token with a kept hash, in constant time. An empty hash matches nothing.
func TokenMatches(presented, hash string) bool {
	return hash != "" && subtle.ConstantTimeCompare([]byte(HashToken(presented)), []byte(hash)) == 1
}

// JoinToken is what a new node is given: trj1.<host:port>.<id>.<secret>.<ca sha256>. It is used once.
type JoinToken struct {
	Address  string // host:port of a node's HTTP API
	ID       string // names the record that the cluster keeps
	CADigest string // SHA-256 of the CA certificate, hexadecimal
	secret   string
}

// JoinRecord is what the cluster keeps of a join token.
type JoinRecord struct {
	ID      string    `json:"id"`
	Hash    string    `json:"sha256"` // of the secret
	Expires time.Time `json:"expires"`
	Used    bool      `json:"used"`
}

const joinPrefix = "trj1."

// NewJoinToken makes a token that is good until now + life, and the record to keep of it.
func NewJoinToken(address, caDigest string, now time.Time, life time.Duration) (JoinToken, JoinRecord, error) {
	if err := checkAddress(address); err != nil {
		return JoinToken{}, JoinRecord{}, err
	}
	if !isDigest(caDigest) {
		return JoinToken{}, JoinRecord{}, fmt.Errorf("make a join token: the CA digest must be a SHA-256 in hexadecimal")
	}
	var id [8]byte
	rand.Read(id[:]) // never fails (crypto/rand)
	t := JoinToken{Address: address, ID: hex.EncodeToString(id[:]), CADigest: caDigest, secret: newSecret()}
	return t, JoinRecord{ID: t.ID, Hash: HashToken(t.secret), Expires: now.Add(life)}, nil
}

// Encode is the text to hand over; it is secret.
func (t JoinToken) Encode() string {
	return joinPrefix + strings.Join([]string{t.Address, t.ID, t.secret, t.CADigest}, ".")
}

// String leaves the secret out, so that a token may be logged.
func (t JoinToken) String() string { return joinPrefix + t.Address + "." + t.ID + ".(secret)" }

// GoString is String: %#v must not show the secret either.
func (t JoinToken) GoString() string { return t.String() }

// Secret is what the joining node sends to the cluster, over JoinTLS only.
func (t JoinToken) Secret() string { return t.secret }

// ParseJoinToken reads what Encode wrote. The error does not repeat the text.
func ParseJoinToken(s string) (JoinToken, error) {
	bad := func(what string) (JoinToken, error) {
		return JoinToken{}, fmt.Errorf("join token: %w: %s", ErrBadToken, what)
	}
	rest, ok := strings.CutPrefix(strings.TrimSpace(s), joinPrefix)
	if !ok {
		return bad("it does not begin with " + joinPrefix)
	}
	var part [3]string // from the right; the address may contain dots
	for i := range part {
		at := strings.LastIndexByte(rest, '.')
		if at < 0 {
			return bad("it is cut short")
		}
		part[i], rest = rest[at+1:], rest[:at]
	}
	t := JoinToken{Address: rest, ID: part[2], secret: part[1], CADigest: part[0]}
	if err := checkAddress(t.Address); err != nil {
		return bad("its address is not host:port")
	}
	if id, err := hex.DecodeString(t.ID); err != nil || len(id) != 8 {
		return bad("its id is damaged")
	}
	if raw, err := base64.RawURLEncoding.Strict().DecodeString(t.secret); err != nil || len(raw) != secretBytes {
		return bad("its secret is damaged")
	}
	if !isDigest(t.CADigest) {
		return bad("its CA digest is damaged")
	}
	return t, nil
}

// Verify checks a presented secret. ErrBadToken or ErrTokenExpired. The caller marks the record used in the same step
// of the replicated log that lets the node in, so that a token lets in one node only.
func (r JoinRecord) Verify(secret string, now time.Time) error {
	// The comparison comes first, so that the answer about expiry is only for those who have the secret.
	if !TokenMatches(secret, r.Hash) {
		return fmt.Errorf("join token %s: %w", r.ID, ErrBadToken)
	}
	if r.Used {
		return fmt.Errorf("join token %s: %w: it has been used", r.ID, ErrBadToken)
	}
	if !now.Before(r.Expires) {
		return fmt.Errorf("join token %s: %w at %s", r.ID, ErrTokenExpired, r.Expires.UTC().Format(time.RFC3339))
	}
	return nil
}

func newSecret() string {
	var b [secretBytes]byte
	rand.Read(b[:]) // never fails (crypto/rand)
	return base64.RawURLEncoding.EncodeToString(b[:])
}

func isDigest(s string) bool {
	b, err := hex.DecodeString(s)
	return err == nil && len(b) == sha256.Size && strings.ToLower(s) == s
}

func checkAddress(a string) error {
	host, port, err := net.SplitHostPort(a)
	if err != nil || host == "" {
		return fmt.Errorf("address %q is not host:port", a)
	}
	if p, err := strconv.ParseUint(port, 10, 16); err != nil || p == 0 {
		return fmt.Errorf("address %q: bad port", a)
	}
	if net.ParseIP(host) == nil && !isHostName(host) {
		return fmt.Errorf("address %q: bad host", a)
	}
	return nil
}
