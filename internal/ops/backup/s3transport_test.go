package backup

import (
	"bytes"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
)

// watchedBody notes whether it is closed.
type watchedBody struct {
	io.Reader
	closed atomic.Bool
}

func (b *watchedBody) Close() error {
	b.closed.Store(true)
	return nil
}

// TestCalm: a service that answers before it has read the body, or that ends the connection, gets nothing more of it
// later.
func TestCalm(t *testing.T) {
	var way atomic.Pointer[func(http.ResponseWriter)]
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { (*way.Load())(w) }))
	defer s.Close()
	ways := map[string]func(http.ResponseWriter){
		"fails": func(w http.ResponseWriter) { w.WriteHeader(http.StatusInternalServerError) },
		"fails, with reasons": func(w http.ResponseWriter) {
			w.WriteHeader(http.StatusServiceUnavailable)
			_, _ = w.Write(bytes.Repeat([]byte("x"), 1<<20))
		},
		"hangs up": func(http.ResponseWriter) { panic(http.ErrAbortHandler) },
	}
	transport := &http.Transport{}
	defer transport.CloseIdleConnections()
	for name, f := range ways {
		way.Store(&f)
		for range 3 {
			body := &watchedBody{Reader: bytes.NewReader(make([]byte, 16<<20))}
			r, err := http.NewRequestWithContext(t.Context(), http.MethodPut, s.URL, body)
			check(t, err)
			answer, err := calm{transport}.RoundTrip(r)
			if err == nil {
				_ = answer.Body.Close()
			}
			if !body.closed.Load() {
				t.Fatalf("%s: the body is still in use (%v)", name, err)
			}
		}
	}
}

// TestCalmRefused: where nothing can be sent at all, the body is closed too.
func TestCalmRefused(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	check(t, err)
	check(t, l.Close())
	body := &watchedBody{Reader: bytes.NewReader(nil)}
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPut, "http://"+l.Addr().String(), body)
	check(t, err)
	var refused *net.OpError
	if _, err := (calm{&http.Transport{}}).RoundTrip(r); !errors.As(err, &refused) || !body.closed.Load() {
		t.Errorf("%v; the body is closed: %v", err, body.closed.Load())
	}
}
