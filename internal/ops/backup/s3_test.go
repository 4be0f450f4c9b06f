package backup

import (
	"bytes"
	"context"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// noise does not compress.
func noise(n int) []byte {
	b := make([]byte, n)
	_, _ = rand.NewChaCha8([32]byte{7}).Read(b)
	return b
}

func put(s Store, name string, data []byte) error {
	return s.Put(name, func(w io.Writer) error {
		_, err := w.Write(data)
		return err
	})
}

func get(s Store, name string) ([]byte, error) {
	r, err := s.Open(name)
	if err != nil {
		return nil, err
	}
	defer r.Close()
	return io.ReadAll(r)
}

// TestS3 makes a backup in a bucket and uses it, as a directory's tests do: in a fake that can fail, and in a real
// service if there is one.
func TestS3(t *testing.T) {
	places := map[string]func(t *testing.T, prefix string) *S3{"fake": newFakeS3(t).place}
	if program := os.Getenv("VERSITYGW"); program != "" {
		places["versitygw"] = versityGW(t, program)
	}
	for name, place := range places {
		t.Run(name, func(t *testing.T) { inBucket(t, place) })
	}
}

func inBucket(t *testing.T, place func(t *testing.T, prefix string) *S3) {
	for name, key := range map[string]Key{"plain": {}, "encrypted": {noise(keyBytes)}} {
		to := place(t, name+"/of/shop")
		to.Encrypt(key)
		check(t, claim(to, testID))
		if err := claim(place(t, name+"/of/shop"), clusterID{"other", 99}); !errors.Is(err, ErrForeign) {
			t.Errorf("another cluster: %v", err)
		}
		log, err := to.Lock(lockLog)
		check(t, err)
		base, err := to.Lock(lockBase)
		check(t, err)
		s := newScript(t)
		for range 3 {
			s.some(20)
			s.archive(to)
		}
		b := testBase(t, s, to, 10, s.last())
		check(t, base.Close())
		s.same(to, s.last())

		// An object of several parts.
		large := noise(2*partBytes + 5)
		check(t, put(to, "base/large", large))
		if have, err := get(to, "base/large"); err != nil || !bytes.Equal(have, large) {
			t.Errorf("%d bytes, %v", len(have), err)
		}
		check(t, to.Remove("base/large"))
		check(t, to.Remove("base/large"))
		if _, err := get(to, "base/large"); !errors.Is(err, ErrMissing) {
			t.Errorf("what was removed: %v", err)
		}

		// Another process reads it.
		from := place(t, name+"/of/shop/")
		from.Encrypt(key)
		v, err := Verify(t.Context(), from, nil)
		check(t, err)
		if len(v.Problems) > 0 || v.Restorable[b.Name].Stretch != (Stretch{b.Last, s.last()}) {
			t.Errorf("verified: %+v", v)
		}
		// What a writer that was thought dead still sends replaces nothing.
		names, err := segmentNames(from)
		check(t, err)
		if err := put(from, names[0], []byte("late")); !errors.Is(err, ErrLocked) {
			t.Errorf("an object that is there already was put again: %v", err)
		}
		s.same(to, s.last())

		p, err := Prune(t.Context(), from, Retention{Copies: 1}, time.Now(), false)
		check(t, err)
		if p.Segments != 0 || len(p.Kept) != 1 {
			t.Errorf("pruned: %+v", p)
		}
		check(t, log.Close())
		left, err := from.List("")
		check(t, err)
		if slices.ContainsFunc(left, func(name string) bool { return strings.HasPrefix(name, leasePrefix) }) {
			t.Errorf("locks are left: %v", left)
		}
	}
	foreign := place(t, "foreign")
	check(t, put(foreign, "thesis", []byte("mine")))
	if err := claim(foreign, testID); !errors.Is(err, ErrNotOurs) {
		t.Errorf("a prefix with something in it: %v", err)
	}
}

// versityGW starts a real service over a directory.
func versityGW(t *testing.T, program string) func(*testing.T, string) *S3 {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	check(t, err)
	addr := l.Addr().String()
	check(t, l.Close())
	root := t.TempDir()
	check(t, os.Mkdir(filepath.Join(root, "kept"), 0o755))
	cmd := exec.Command(program, "--port", addr, "posix", "--sidecar", t.TempDir(), root)
	cmd.Env = append(os.Environ(), "ROOT_ACCESS_KEY=one", "ROOT_SECRET_KEY=two")
	check(t, cmd.Start())
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	for end := time.Now().Add(time.Minute); ; time.Sleep(50 * time.Millisecond) {
		if c, err := net.Dial("tcp", addr); err == nil {
			check(t, c.Close())
			break
		} else if time.Now().After(end) {
			t.Fatal(err)
		}
	}
	return func(t *testing.T, prefix string) *S3 {
		s, err := OpenS3(t.Context(), S3Options{URL: "s3://kept/" + prefix, Endpoint: "http://" + addr, PathStyle: true,
			Say: t.Logf})
		check(t, err)
		s.time = shortTimes
		return s
	}
}

// TestS3Locks: one process at a time writes, as long as it is alive, and who has lost its lock writes nothing.
func TestS3Locks(t *testing.T) {
	for name, plain := range map[string]int{"conditions": 0, "conditions are ignored": 1, "conditions are refused": 2} {
		t.Run(name, func(t *testing.T) {
			f := newFakeS3(t)
			f.plain = plain
			a, b := f.place(t, "x"), f.place(t, "x")
			la, err := a.Lock(lockLog)
			check(t, err)
			if a.conditional() != (plain == 0) {
				t.Errorf("the service knows conditions: %t", a.conditional())
			}
			if _, err := b.Lock(lockLog); !errors.Is(err, ErrLocked) {
				t.Fatalf("two have the lock: %v", err)
			}
			_, err = a.Lock(lockBase)
			check(t, err)
			check(t, put(a, "log/1", nil))
			check(t, la.Close())
			lb, err := b.Lock(lockLog)
			check(t, err)

			// b is stopped, and c takes its lock over; then b goes on.
			l := lb.(*lease)
			l.stop()
			<-l.done
			c := f.place(t, "x")
			lc, err := c.Lock(lockLog)
			check(t, err)
			l.stop = func() {}
			l.done = make(chan struct{})
			b.time.renew = 0
			go l.keep(t.Context(), "b")
			<-l.done
			if err := put(b, "log/2", nil); !errors.Is(err, ErrLocked) {
				t.Errorf("who has lost its lock writes: %v", err)
			}
			check(t, put(c, "log/3", nil))
			check(t, lb.Close())
			if _, err := b.Lock(lockLog); !errors.Is(err, ErrLocked) {
				t.Errorf("the lock of c went with that of b: %v", err)
			}
			check(t, lc.Close())
		})
	}
}

// TestS3Hold: nothing is removed while somebody reads, and a reader that was killed does not block removal forever.
func TestS3Hold(t *testing.T) {
	f := newFakeS3(t)
	reader, remover := f.place(t, "x"), f.place(t, "x")
	r, err := holdStill(reader, false)
	check(t, err)
	if _, err := holdStill(remover, true); !errors.Is(err, ErrLocked) {
		t.Fatalf("it is removed while it is read: %v", err)
	}
	check(t, r.Close())
	alone, err := holdStill(remover, true)
	check(t, err)
	began := time.Now()
	time.AfterFunc(300*time.Millisecond, func() { _ = alone.Close() })
	r, err = holdStill(reader, false)
	check(t, err)
	if time.Since(began) < 200*time.Millisecond {
		t.Error("a reader has not waited for who removes")
	}
	// It is killed.
	l := r.(*lease)
	l.stop()
	<-l.done
	for end := time.Now().Add(time.Minute); ; time.Sleep(100 * time.Millisecond) {
		if alone, err = holdStill(remover, true); err == nil {
			break
		} else if !errors.Is(err, ErrLocked) || time.Now().After(end) {
			t.Fatal(err)
		}
	}
	check(t, alone.Close())
	// Who may only read reads without a lock.
	f.set(func(w http.ResponseWriter, r *http.Request, after bool) bool {
		if r.Method == http.MethodPut && !after {
			fakeError(w, http.StatusForbidden, "AccessDenied")
			return true
		}
		return false
	})
	_, err = holdStill(reader, false)
	check(t, err)
}

// TestS3Silent: a lock that cannot be renewed carries no write, and carries them again once it could be.
func TestS3Silent(t *testing.T) {
	f := newFakeS3(t)
	s := f.place(t, "x")
	s.time.valid = 500 * time.Millisecond
	l, err := s.Lock(lockLog)
	check(t, err)
	f.set(func(w http.ResponseWriter, r *http.Request, after bool) bool {
		if strings.Contains(r.URL.Path, leasePrefix) {
			cut(w)
		}
		return false
	})
	for end := time.Now().Add(time.Minute); !errors.Is(s.mayWrite("log/x"), ErrStore); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("a lock that is not renewed lets write")
		}
	}
	if err := put(s, "log/1", nil); !errors.Is(err, ErrStore) {
		t.Errorf("it writes without a lock: %v", err)
	}
	f.set(nil)
	for end := time.Now().Add(time.Minute); ; time.Sleep(20 * time.Millisecond) {
		if err = put(s, "log/1", nil); err == nil {
			break
		} else if !errors.Is(err, ErrStore) || time.Now().After(end) {
			t.Fatalf("the lock can be renewed again: %v", err)
		}
	}
	check(t, l.Close())
}

// TestS3Fails: a service that fails half-way, at any request and in any way, leaves nothing that counts as whole and is
// not, and what was begun goes on.
func TestS3Fails(t *testing.T) {
	ways := map[string]func(w http.ResponseWriter, r *http.Request, after bool) bool{
		"500": func(w http.ResponseWriter, _ *http.Request, after bool) bool {
			fakeError(w, http.StatusInternalServerError, "InternalError")
			return true
		},
		"503": func(w http.ResponseWriter, _ *http.Request, after bool) bool {
			fakeError(w, 503, "SlowDown")
			return true
		},
		"cut":            func(w http.ResponseWriter, _ *http.Request, after bool) bool { cut(w); return true },
		"half an answer": halfAnswer,
		"wrong ETag": func(w http.ResponseWriter, r *http.Request, after bool) bool {
			if r.Method != http.MethodPut || !after {
				return false
			}
			w.Header().Set("ETag", `"0123"`)
			return true
		},
		"slow": func(w http.ResponseWriter, r *http.Request, after bool) bool {
			if after {
				return false
			}
			select {
			case <-r.Context().Done():
			case <-time.After(200 * time.Millisecond):
			}
			return false
		},
	}
	for name, way := range ways {
		t.Run(name, func(t *testing.T) { failing(t, newFakeS3(t), way) })
	}
}

// halfAnswer promises more than it sends.
func halfAnswer(w http.ResponseWriter, _ *http.Request, _ bool) bool {
	w.Header().Set("Content-Length", "1000000")
	w.WriteHeader(http.StatusOK)
	_, _ = w.Write([]byte("<Half"))
	cut(w)
	return true
}

func failing(t *testing.T, f *fakeS3, way func(w http.ResponseWriter, r *http.Request, after bool) bool) {
	to := f.place(t, "x")
	check(t, claim(to, testID))
	s := newScript(t)
	a := s.archiver(to)
	check(t, a.resume(t.Context(), 1))
	var n atomic.Int64
	f.set(func(w http.ResponseWriter, r *http.Request, after bool) bool {
		// Fails about every third request, before or after its effect.
		if i := n.Add(1); i%5 != 0 && i%7 != 0 {
			return false
		}
		return way(w, r, after)
	})
	for range 5 {
		s.some(10)
		_ = a.step(t.Context(), true) // what fails is tried again
	}
	large := noise(partBytes + 10)
	large[3] = byte(n.Load())
	stored := put(to, "base/large", large) == nil
	f.set(nil)
	check(t, a.step(t.Context(), true))
	s.same(to, s.last())
	have, err := get(to, "base/large")
	switch {
	case err == nil && !bytes.Equal(have, large):
		t.Errorf("a part of an object counts as whole: %d bytes of %d", len(have), len(large))
	case stored && err != nil:
		t.Errorf("what was stored cannot be read: %v", err)
	case !stored && err != nil && !errors.Is(err, ErrMissing):
		t.Error(err)
	}
	v, err := Verify(t.Context(), f.place(t, "x"), nil)
	check(t, err)
	if len(v.Problems) > 0 {
		t.Errorf("%+v", v.Problems)
	}
}

// TestS3HalfWritten: an object whose content fails is not there, and neither are its parts.
func TestS3HalfWritten(t *testing.T) {
	f := newFakeS3(t)
	s := f.place(t, "x")
	broken := errors.New("disk error")
	err := s.Put("base/large", func(w io.Writer) error {
		if _, err := w.Write(noise(2*partBytes + 1)); err != nil {
			return err
		}
		return broken
	})
	if !errors.Is(err, broken) || errors.Is(err, ErrStore) {
		t.Errorf("%v", err)
	}
	if len(f.names()) > 0 || len(f.uploads) > 0 {
		t.Errorf("left: %v, %d uploads", f.names(), len(f.uploads))
	}
	// Parts that a killed process has left go with the next lock.
	u := &upload{s: s, name: "base/large"}
	check(t, u.part())
	if len(f.uploads) != 1 {
		t.Fatalf("%d uploads", len(f.uploads))
	}
	_, err = s.Lock(lockBase)
	check(t, err)
	if len(f.uploads) > 0 {
		t.Error("parts of a killed process are left")
	}
}

// TestS3BrokenReads: an object that does not come is no damaged one.
func TestS3BrokenReads(t *testing.T) {
	f := newFakeS3(t)
	to := f.place(t, "x")
	check(t, claim(to, testID))
	s := newScript(t)
	s.some(50)
	s.archive(to)
	testBase(t, s, to, 10, s.last())
	data := noise(1 << 20)
	check(t, put(to, "base/part", data))

	// Each answer brings a part of the remaining bytes; the next request continues after it.
	partial := func(keep int) func(http.ResponseWriter, *http.Request, bool) bool {
		return func(w http.ResponseWriter, r *http.Request, after bool) bool {
			key := strings.TrimPrefix(r.URL.Path, "/kept/")
			if r.Method != http.MethodGet || key == "" || !after {
				return false
			}
			o := f.objects[key]
			from := 0
			if rng := r.Header.Get("Range"); rng != "" {
				_, _ = fmt.Sscanf(rng, "bytes=%d-", &from)
				w.Header().Set("Content-Range", fmt.Sprintf("bytes %d-%d/%d", from, len(o.data)-1, len(o.data)))
			}
			w.Header().Set("ETag", o.etag)
			w.Header().Set("Last-Modified", began.Format(http.TimeFormat))
			w.Header().Set("Content-Length", fmt.Sprint(len(o.data)-from))
			if from > 0 {
				w.WriteHeader(http.StatusPartialContent)
			}
			_, _ = w.Write(o.data[from:min(len(o.data), from+keep)])
			if from+keep < len(o.data) {
				cut(w)
			}
			return true
		}
	}
	f.set(partial(300 << 10))
	if have, err := get(to, "base/part"); err != nil || !bytes.Equal(have, data) {
		t.Errorf("%d bytes, %v", len(have), err)
	}
	f.set(nil)
	check(t, to.Remove("base/part"))
	f.set(func(w http.ResponseWriter, r *http.Request, after bool) bool {
		return strings.Contains(r.URL.Path, "/data/") && partial(0)(w, r, after)
	})
	v, err := Verify(t.Context(), to, nil)
	if !errors.Is(err, ErrStore) || errors.Is(err, ErrCorrupt) {
		t.Errorf("a service that breaks off: %+v, %v", v, err)
	}
	f.set(nil)
	v, err = Verify(t.Context(), to, nil)
	check(t, err)
	if len(v.Problems) > 0 {
		t.Errorf("%+v", v)
	}

	// It is replaced while it is read.
	check(t, put(to, reachedName, data))
	r, err := to.Open(reachedName)
	check(t, err)
	defer r.Close()
	f.set(partial(10))
	_, err = io.ReadFull(r, make([]byte, 10))
	check(t, err)
	f.set(nil)
	check(t, put(to, reachedName, noise(2<<20)))
	r.(*s3Reader).stop()
	if _, err := io.ReadAll(r); !errors.Is(err, ErrStore) || !strings.Contains(err.Error(), "replaced") {
		t.Errorf("%v", err)
	}
}

// TestS3Refuses: what is wrong is said with what to do, and nothing is written.
func TestS3Refuses(t *testing.T) {
	f := newFakeS3(t)
	ask := func(url string, o S3Options) error {
		o.URL, o.PathStyle = url, true
		if o.Endpoint == "" {
			o.Endpoint = f.URL
		}
		s, err := OpenS3(t.Context(), o)
		if err != nil {
			return err
		}
		s.time = shortTimes
		return claim(s, testID)
	}
	refuse := func(what string, err, want error, says string) {
		t.Helper()
		if !errors.Is(err, want) || !strings.Contains(fmt.Sprint(err), says) {
			t.Errorf("%s: %v", what, err)
		}
		if err != nil && strings.Contains(err.Error(), "two") {
			t.Errorf("%s: the secret is in the error: %v", what, err)
		}
	}
	refuse("a wrong bucket", ask("s3://other/x", S3Options{}), ErrNone, `no bucket "other"`)
	refuse("no bucket", ask("s3://", S3Options{}), ErrNone, "names no bucket")
	refuse("a query", ask("s3://kept/x?y", S3Options{}), ErrNone, "is not s3://")
	refuse("a way out", ask("s3://kept/x/../y", S3Options{}), ErrNone, "no plain path")
	refuse("credentials in the place", ask("s3://one:two@kept/x", S3Options{}), ErrDenied, "do not belong")
	for _, bad := range []string{"http://192.0.2.1:9000", "ftp://localhost", "localhost:9000", "http://one:two@localhost",
		"https://localhost/path"} {
		if err := ask("s3://kept/x", S3Options{Endpoint: bad}); err == nil || !strings.Contains(err.Error(), "endpoint") {
			t.Errorf("the endpoint %s: %v", bad, err)
		}
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	check(t, err)
	check(t, l.Close())
	refuse("no server there", ask("s3://kept/x", S3Options{Endpoint: "http://" + l.Addr().String()}), ErrStore,
		"no answer")

	// Credentials.
	dir := t.TempDir()
	file := filepath.Join(dir, "credentials")
	check(t, os.WriteFile(file, []byte("[default]\naws_access_key_id = one\naws_secret_access_key = two\n"), 0o644))
	refuse("a file that others can read", ask("s3://kept/x", S3Options{Credentials: file}), ErrDenied, "chmod 600")
	check(t, os.Chmod(file, 0o600))
	t.Setenv("AWS_ACCESS_KEY_ID", "wrong")
	refuse("a wrong key", ask("s3://kept/x", S3Options{}), ErrDenied, "does not accept the credentials")
	if names := f.names(); len(names) > 0 {
		t.Errorf("written all the same: %v", names)
	}
	check(t, ask("s3://kept/x", S3Options{Credentials: file})) // the file that is named counts
	t.Setenv("AWS_PROFILE", "none")
	refuse("no such profile", ask("s3://kept/x", S3Options{Credentials: file}), ErrDenied, "AWS_PROFILE")
	t.Setenv("AWS_ACCESS_KEY_ID", "")
	refuse("half of them", ask("s3://kept/x", S3Options{}), ErrDenied, "and not the other")
	t.Setenv("AWS_SECRET_ACCESS_KEY", "")
	t.Setenv("HOME", dir)
	refuse("none", ask("s3://kept/x", S3Options{}), ErrDenied, "no credentials")
	t.Setenv("AWS_ACCESS_KEY_ID", "one")
	t.Setenv("AWS_SECRET_ACCESS_KEY", "two")

	// What the service says of an object.
	for code, c := range map[string]struct {
		status int
		want   error
		says   string
	}{
		"AccessDenied":                 {403, ErrDenied, "may not read backup.json"},
		"AuthorizationHeaderMalformed": {400, ErrDenied, "--s3-region"},
		"XMinioStorageFull":            {507, ErrNoSpace, "make room"},
	} {
		f.set(func(w http.ResponseWriter, r *http.Request, after bool) bool {
			fakeError(w, c.status, code)
			return true
		})
		refuse(code, ask("s3://kept/y", S3Options{}), c.want, c.says)
	}
	f.set(nil)

	// TLS.
	secure := httptest.NewTLSServer(f)
	t.Cleanup(secure.Close)
	refuse("an unknown authority", ask("s3://kept/tls", S3Options{Endpoint: secure.URL}), ErrStore, "--s3-ca")
	if err := ask("s3://kept/tls", S3Options{Endpoint: secure.URL, CAFile: file}); err == nil ||
		!strings.Contains(err.Error(), "no certificate") {
		t.Errorf("a CA file without a certificate: %v", err)
	}
	ca := filepath.Join(dir, "ca.pem")
	check(t, os.WriteFile(ca, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: secure.Certificate().Raw}), 0o644))
	check(t, ask("s3://kept/tls", S3Options{Endpoint: secure.URL, CAFile: ca}))

	// A command that is interrupted waits for nothing.
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	s, err := OpenS3(ctx, S3Options{URL: "s3://kept/x", Endpoint: f.URL, PathStyle: true})
	check(t, err)
	if _, err := Read(s); err == nil {
		t.Error("an interrupted command reads")
	}
}
