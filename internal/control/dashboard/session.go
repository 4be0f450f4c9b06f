package dashboard

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"net/http"
	"strings"
	"sync"
	"time"

	"trireme/internal/api"
)

// Limits of sessions and logins.
const (
	sessionLife  = 12 * time.Hour
	codeLife     = 2 * time.Minute
	linkLife     = 20 * time.Second // of a code that a script takes to another node at once
	maxCodes     = 16               // that wait to be used
	maxRevoked   = 4096             // sessions that were logged out and would not be over yet
	maxSources   = 1024             // addresses whose failures are counted
	sourceTries  = 5                // failed logins of one address in loginWindow
	allTries     = 60               // of all addresses: from then on each has one try
	loginWindow  = time.Minute
	maxTokenText = 256 // bytes of a token, code or session
)

const (
	idBytes    = 16
	tokenBytes = 16 // of a token's id
	// end of life in unix seconds, big endian; random id; id of the token that began it
	payloadBytes = 8 + idBytes + tokenBytes
)

// session is who asks.
type session struct {
	id  string
	end time.Time
	who api.Principal
	raw []byte // payload
}

// sessions issues and checks them. No other node has the key, so that a former one cannot sign any, and it ends with
// the daemon. Holder is asked each time: a token may end or be removed, on all nodes at once.
type sessions struct {
	key    []byte
	holder func(token string) (api.Principal, bool) // by the token's id
	now    func() time.Time

	mu      sync.Mutex
	revoked map[string]time.Time // by id: when it would have ended
	codes   map[string]code      // by hash
}

// code logs in once.
type code struct {
	token        string    // id of the holder's
	end, session time.Time // of the code, and of the session that it begins
}

func newSessions(holder func(string) (api.Principal, bool), now func() time.Time) *sessions {
	return &sessions{key: random(sha256.Size), holder: holder, now: now, revoked: map[string]time.Time{},
		codes: map[string]code{}}
}

func (s *sessions) sign(use string, payload []byte) []byte {
	mac := hmac.New(sha256.New, s.key)
	mac.Write([]byte(use + "\x00"))
	mac.Write(payload)
	return mac.Sum(nil)
}

// issue makes the cookie text of a new session of a token's holder, which lasts until end.
func (s *sessions) issue(who api.Principal, end time.Time) string {
	payload := binary.BigEndian.AppendUint64(nil, uint64(end.Unix()))
	payload = append(append(payload, random(idBytes)...), (who.ID + strings.Repeat(" ", tokenBytes))[:tokenBytes]...)
	return base64.RawURLEncoding.EncodeToString(append(payload, s.sign("session", payload)...))
}

// check gives the session of a cookie text, or nil.
func (s *sessions) check(text string) *session {
	if len(text) > maxTokenText {
		return nil
	}
	b, err := base64.RawURLEncoding.Strict().DecodeString(text)
	if err != nil || len(b) != payloadBytes+sha256.Size {
		return nil
	}
	payload, mac := b[:payloadBytes], b[payloadBytes:]
	if !hmac.Equal(mac, s.sign("session", payload)) {
		return nil
	}
	sess := &session{id: string(payload[8 : 8+idBytes]), end: time.Unix(int64(binary.BigEndian.Uint64(payload)), 0),
		raw: payload}
	s.mu.Lock()
	_, revoked := s.revoked[sess.id]
	s.mu.Unlock()
	if revoked || !s.now().Before(sess.end) {
		return nil
	}
	var holds bool
	if sess.who, holds = s.holder(strings.TrimRight(string(payload[8+idBytes:]), " ")); !holds {
		return nil
	}
	return sess
}

// revoke ends a session on this node.
func (s *sessions) revoke(sess *session) {
	s.mu.Lock()
	defer s.mu.Unlock()
	makeRoom(s.revoked, maxRevoked, s.now(), func(t time.Time) time.Time { return t })
	s.revoked[sess.id] = sess.end
}

// actionToken is what an action of the session must bring along.
func (s *sessions) actionToken(sess *session) string {
	return base64.RawURLEncoding.EncodeToString(s.sign("action", sess.raw))
}

// allows says whether an action brought the token of its session.
func (s *sessions) allows(sess *session, token string) bool {
	return hmac.Equal([]byte(token), []byte(s.actionToken(sess)))
}

// codePrefix tells a code from a token.
const codePrefix = "trd1."

// LoginLink is where a browser logs in with a code, at the node at an address that has given it ("https://host:port").
// Browsers do not send what follows the #; the login form takes the code from there (live.js).
func LoginLink(at string, c api.LoginCode) string { return at + "/ui/login#" + c.Code }

// newCode makes a text that logs in once, at this node, within its life, as a token's holder. The session ends when
// sessionLeft is over, from now.
func (s *sessions) newCode(who api.Principal, life, sessionLeft time.Duration) string {
	text := codePrefix + base64.RawURLEncoding.EncodeToString(random(idBytes))
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.now()
	makeRoom(s.codes, maxCodes, now, func(c code) time.Time { return c.end })
	s.codes[hashOf(text)] = code{who.ID, now.Add(min(life, sessionLeft)), now.Add(sessionLeft)}
	return text
}

// useCode says whose code that is and when the session ends that it begins, if the code is good, and takes it.
func (s *sessions) useCode(text string) (who api.Principal, end time.Time, ok bool) {
	if !strings.HasPrefix(text, codePrefix) || len(text) > maxTokenText {
		return who, end, false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	h := hashOf(text) // looked up by its hash, so that the time it takes tells nothing
	c, known := s.codes[h]
	delete(s.codes, h)
	if !known || !s.now().Before(c.end) {
		return who, end, false
	}
	who, ok = s.holder(c.token)
	return who, c.session, ok
}

func hashOf(text string) string { h := sha256.Sum256([]byte(text)); return string(h[:]) }

// makeRoom drops what is over, and of a map that is full the entry that ends first.
func makeRoom[V any](m map[string]V, limit int, now time.Time, endOf func(V) time.Time) {
	first, end := "", time.Time{}
	for k, v := range m {
		if t := endOf(v); !now.Before(t) {
			delete(m, k)
		} else if first == "" || t.Before(end) {
			first, end = k, t
		}
	}
	if len(m) >= limit {
		delete(m, first)
	}
}

func random(n int) []byte {
	b := make([]byte, n)
	rand.Read(b) // never fails (crypto/rand)
	return b
}

// cookieName of a cluster: a browser that looks at two clusters under one host name keeps both sessions.
func cookieName(cluster string) string {
	h := sha256.Sum256([]byte(cluster))
	return "__Host-trireme-" + base64.RawURLEncoding.EncodeToString(h[:6])
}

func cookie(name, value string, life time.Duration) *http.Cookie {
	c := &http.Cookie{Name: name, Value: value, Path: "/", Secure: true, HttpOnly: true, SameSite: http.SameSiteStrictMode,
		MaxAge: int(life.Seconds())}
	if life <= 0 {
		c.MaxAge = -1
	}
	return c
}

// attempts limits failed logins: of one address in a window, and more strictly once there are many in all. Failures
// of others keep no address out: each has a try.
type attempts struct {
	now func() time.Time

	mu    sync.Mutex
	began time.Time // of the window
	all   int
	by    map[string]int
}

// begin counts a try as a failure; if the address may not try now it says how long it has to wait.
func (a *attempts) begin(source string) (ok bool, wait time.Duration) {
	a.mu.Lock()
	defer a.mu.Unlock()
	left := loginWindow - a.now().Sub(a.began)
	if left <= 0 || left > loginWindow {
		a.began, a.all, a.by, left = a.now(), 0, map[string]int{}, loginWindow
	}
	tries := sourceTries
	if a.all >= allTries {
		tries = 1
	}
	if a.by[source] >= tries {
		return false, left
	}
	a.all++
	if _, known := a.by[source]; known || len(a.by) < maxSources {
		a.by[source]++
	}
	return true, 0
}

// succeeded takes a try back that was none.
func (a *attempts) succeeded(source string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.all = max(a.all-1, 0)
	if a.by[source] > 0 {
		a.by[source]--
	}
}
