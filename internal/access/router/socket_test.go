package router

import (
	"database/sql"
	"errors"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// socketDB is a client that comes through a unix socket.
func socketDB(t *testing.T, user, password, path string) *sql.DB {
	t.Helper()
	db, err := sql.Open("mysql", user+":"+password+"@unix("+path+")/")
	if err != nil {
		t.Fatal(err)
	}
	db.SetMaxOpenConns(1)
	t.Cleanup(func() { _ = db.Close() })
	return db
}

// Who comes through a unix socket gives its password in clear: so it goes on to the server over TLS, whatever the
// router's ports do. The session is followed, and goes on at the next leader.
func TestUnixSockets(t *testing.T) {
	dir := t.TempDir()
	cfg := Config{RWSocket: filepath.Join(dir, "rw"), ROSocket: filepath.Join(dir, "ro"),
		SplitSocket: filepath.Join(dir, "split")}
	for _, name := range []string{"rw", "ro", "split"} { // a process that is gone has left one
		l, err := net.Listen("unix", filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		l.(*net.UnixListener).SetUnlinkOnClose(false)
		_ = l.Close()
	}
	first, second, follower := newWireServer(t), newWireServer(t), newWireServer(t)
	for _, s := range []*wireServer{first, second, follower} {
		s.offer(testTLS(t))
	}
	r := start(t, cfg)
	if st, err := os.Stat(cfg.RWSocket); err != nil || st.Mode().Perm() != 0o777 {
		t.Error(st, err)
	}
	r.SetView(View{RW: first.target("1"), RO: []Target{*follower.target("2")}})
	rw, ro := socketDB(t, "app", wirePassword, cfg.RWSocket), socketDB(t, "app", wirePassword, cfg.ROSocket)
	for _, db := range []*sql.DB{rw, ro} {
		if _, err := db.ExecContext(t.Context(), "SELECT 1"); err != nil {
			t.Fatal(err)
		}
	}
	if got := r.Stats(); got.RW.Followed != 1 || got.RO.Followed != 1 {
		t.Errorf("followed: %+v", got)
	}
	r.SetView(View{RW: second.target("3"), RO: []Target{*follower.target("2")}})
	if _, err := rw.ExecContext(t.Context(), "SELECT 2"); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		s    *wireServer
		want []string
	}{"first": {first, []string{"SELECT 1"}}, "second": {second, []string{"SELECT 2"}},
		"follower": {follower, []string{"SELECT 1"}}} {
		c.s.mu.Lock()
		if c.s.safe == 0 || !slices.Equal(c.s.sent, c.want) {
			t.Errorf("%s: %d logins over TLS, was sent %q", name, c.s.safe, c.s.sent)
		}
		c.s.mu.Unlock()
	}
	if _, err := socketDB(t, "app", "wrong", cfg.RWSocket).ExecContext(t.Context(), "SELECT 3"); err == nil ||
		!strings.Contains(err.Error(), "Access denied") {
		t.Errorf("error %v", err)
	}
	_ = r.Close()
	if _, err := os.Stat(cfg.RWSocket); !os.IsNotExist(err) {
		t.Errorf("the socket is left: %v", err)
	}
}

// A server without TLS would get the password in clear over the network.
func TestUnixSocketWithoutTLS(t *testing.T) {
	s, path := newWireServer(t), filepath.Join(t.TempDir(), "rw")
	r := start(t, Config{RWSocket: path})
	r.SetView(View{RW: s.target("1")})
	if _, err := socketDB(t, "app", wirePassword, path).ExecContext(t.Context(), "SELECT 1"); err == nil ||
		!strings.Contains(err.Error(), "offers no TLS") {
		t.Errorf("error %v", err)
	}
	if got := s.take(); len(got) > 0 {
		t.Errorf("sent %q", got)
	}
}

func TestSocketIsNotTaken(t *testing.T) {
	dir := t.TempDir()
	file, used := filepath.Join(dir, "file"), filepath.Join(dir, "used")
	if err := os.WriteFile(file, []byte("data"), 0o600); err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("unix", used)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	for path, want := range map[string]string{file: "no socket", used: "somebody listens",
		filepath.Join(dir, "no/such"): "no such file"} {
		r := New(Config{RWListen: "127.0.0.1:0", ROListen: "127.0.0.1:0", RWSocket: path})
		if err := r.Start(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", path, err)
		}
		_ = r.Close()
	}
	if b, err := os.ReadFile(file); err != nil || string(b) != "data" {
		t.Errorf("%q, %v", b, err)
	}
}

// The folder's owner may put a link in the socket's place as soon as it is there: what the link leads to is not opened
// to everybody.
func TestSocketsPlaceIsTaken(t *testing.T) {
	dir := t.TempDir()
	path, secret := filepath.Join(dir, "socket"), filepath.Join(dir, "secret")
	if err := errors.Join(os.WriteFile(secret, nil, 0o600), os.Symlink(secret, path)); err != nil {
		t.Fatal(err)
	}
	for _, at := range []string{path, secret} {
		if err := openToAll(at); err == nil {
			t.Errorf("%s is taken for the socket", at)
		}
	}
	if st, err := os.Stat(secret); err != nil || st.Mode().Perm() != 0o600 {
		t.Error(st, err)
	}
}
