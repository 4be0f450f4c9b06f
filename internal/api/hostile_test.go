package api

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"runtime"
	"strings"
	"testing"
	"time"
)

// raw sends text to a server as it is, and returns the status of the answer; 0: the connection was closed without one.
func raw(t *testing.T, s *Server, text string) int {
	t.Helper()
	conn, err := net.Dial("tcp", s.Addr())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(20 * time.Second))
	go func() { _, _ = io.WriteString(conn, text) }() // the answer may come before all is sent
	res, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		return 0
	}
	defer res.Body.Close()
	_, _ = io.Copy(io.Discard, io.LimitReader(res.Body, 1<<20))
	return res.StatusCode
}

func TestMalformedRequests(t *testing.T) {
	b := &backend{leader: Leader{Self: true}}
	c := newCluster(t)
	s := c.start(1, "n1", b)
	auth := "Authorization: Bearer " + operatorToken + "\r\n"
	for name, test := range map[string]struct {
		text string
		want int
	}{
		"giant header": {"GET /cluster HTTP/1.1\r\nHost: x\r\nX: " + strings.Repeat("x", 1<<20) + "\r\n\r\n", 431},
		"many headers": {"GET /cluster HTTP/1.1\r\nHost: x\r\n" + strings.Repeat("X: y\r\n", 1<<16) + "\r\n", 431},
		"giant path":   {"GET /" + strings.Repeat("a", 1<<20) + " HTTP/1.1\r\nHost: x\r\n\r\n", 431},
		"no HTTP":      {"HELO x\r\n\r\n", 400},
		"two lengths": {"POST /switchover HTTP/1.1\r\nHost: x\r\n" + auth +
			"Content-Length: 2\r\nContent-Length: 3\r\n\r\n{}", 400},
		"length and chunks": {"POST /switchover HTTP/1.1\r\nHost: x\r\n" + auth +
			"Content-Length: 2\r\nTransfer-Encoding: chunked, x\r\n\r\n{}", 501},
		"negative length": {"POST /switchover HTTP/1.1\r\nHost: x\r\n" + auth + "Content-Length: -1\r\n\r\n", 400},
		"body too large": {"POST /switchover HTTP/1.1\r\nHost: x\r\n" + auth +
			fmt.Sprintf("Content-Length: %d\r\n\r\n{\"to\":\"", 4<<20) + strings.Repeat("x", 4<<20), 400},
		"a tunnel":               {"CONNECT db1:3306 HTTP/1.1\r\nHost: db1:3306\r\n\r\n", 404},
		"another host":           {"GET http://elsewhere/cluster HTTP/1.1\r\nHost: elsewhere\r\n\r\n", 200},
		"a path that goes up":    {"POST /x/../switchover HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\n{}", 307},
		"an encoded path":        {"POST /%2e%2e/switchover HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\n{}", 404},
		"a doubled slash":        {"POST //switchover HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\n{}", 307},
		"a verb by GET":          {"GET /switchover HTTP/1.1\r\nHost: x\r\n" + auth + "\r\n", 405},
		"a verb by DELETE":       {"DELETE /remove HTTP/1.1\r\nHost: x\r\n" + auth + "\r\n", 405},
		"a view by POST":         {"POST /cluster HTTP/1.1\r\nHost: x\r\n" + auth + "Content-Length: 0\r\n\r\n", 405},
		"a verb without a token": {"POST /switchover HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\n{}", 401},
		"a token of another kind": {"POST /switchover HTTP/1.1\r\nHost: x\r\nAuthorization: Basic " + operatorToken +
			"\r\nContent-Length: 2\r\n\r\n{}", 401},
		"half a token": {"POST /switchover HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer " + operatorToken[:5] +
			"\r\nContent-Length: 2\r\n\r\n{}", 401},
		"an upgrade": {"GET /cluster HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n",
			200},
	} {
		t.Run(name, func(t *testing.T) {
			if got := raw(t, s, test.text); got != test.want {
				t.Errorf("status %d, want %d", got, test.want)
			}
			if asked := b.calls(); len(asked) != 0 {
				t.Errorf("done: %q", asked)
			}
		})
	}
	if _, err := c.client("http://"+s.Addr(), "").Cluster(t.Context()); err != nil {
		t.Errorf("afterwards: %v", err)
	}
}

// TestAnswersToBrowsers: another site's page can neither read an answer nor use a browser's own rights, because there
// do not count: cookies are not looked at, and a request without a token is refused, wherever it comes from.
func TestAnswersToBrowsers(t *testing.T) {
	b := &backend{leader: Leader{Self: true}}
	s := NewServer(Options{Name: "n1", Backend: b, Answers: b.answers()})
	for _, path := range []string{"/cluster", "/nothing", "/switchover", "/health", "/metrics", "/tokens"} {
		for _, method := range []string{"GET", "POST", "OPTIONS"} {
			r := httptest.NewRequest(method, path, strings.NewReader("{}"))
			r.Header.Set("Content-Type", "application/json")
			r.RemoteAddr = "127.0.0.1:1"
			r.Header.Set("Origin", "https://evil.example")
			r.Header.Set("Cookie", "__Host-trireme-x=y; token="+operatorToken)
			r.Header.Set("Access-Control-Request-Method", "POST")
			w := httptest.NewRecorder()
			s.handler().ServeHTTP(w, r)
			if h := w.Header(); h.Get("X-Content-Type-Options") != "nosniff" || h.Get("Access-Control-Allow-Origin") != "" ||
				h.Get("Set-Cookie") != "" {
				t.Errorf("%s %s: headers %v", method, path, h)
			}
		}
	}
	if asked := b.calls(); len(asked) != 0 {
		t.Errorf("done: %q", asked)
	}
}

// A header or body that comes byte by byte ends with its limit, whatever the sender; meanwhile others are served, and
// places are given back.
func TestSlowRequests(t *testing.T) {
	c := newCluster(t)
	s := c.start(1, "n1", &backend{leader: Leader{Self: true}}, func(s *Server) {
		if h := s.http; h.ReadHeaderTimeout != headerTimeout || h.ReadTimeout != readTimeout {
			t.Errorf("the limits are %v and %v", h.ReadHeaderTimeout, h.ReadTimeout)
		}
		s.http.ReadHeaderTimeout, s.http.ReadTimeout = 2*time.Second, 3*time.Second
	})
	const slow = 10
	ends := make(chan error, 2*slow)
	for i := range 2 * slow {
		conn, err := net.Dial("tcp", s.Addr())
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		begin := "GET /cluster HTTP/1.1\r\nHost: x\r\nX: "
		if i%2 == 1 {
			begin = "POST /join HTTP/1.1\r\nHost: x\r\nContent-Length: 100000\r\n\r\n\""
		}
		if i == 0 {
			begin = "" // not even a first byte
		}
		_, _ = io.WriteString(conn, begin)
		go func() {
			tick := time.NewTicker(100 * time.Millisecond)
			defer tick.Stop()
			_ = conn.SetReadDeadline(time.Now().Add(time.Minute))
			ended := make(chan error)
			go func() {
				_, err := io.Copy(io.Discard, conn)
				ended <- err
			}()
			for {
				select {
				case err := <-ended:
					ends <- err
					return
				case <-tick.C:
					if begin != "" {
						_, _ = conn.Write([]byte("x"))
					}
				}
			}
		}()
		if i == slow { // half of the places are taken
			if _, err := c.client("http://"+s.Addr(), "").Cluster(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
	}
	for range 2 * slow {
		if err := <-ends; errors.Is(err, os.ErrDeadlineExceeded) {
			t.Error("a slow request goes on")
		}
	}
	within(t, "no place is given back", func() bool {
		_, err := c.client("http://"+s.Addr(), "").Cluster(t.Context())
		return err == nil
	})
}

// A body is read to its limit and no further, however it is announced.
func TestBodiesTakeLittle(t *testing.T) {
	s := NewServer(Options{Answers: new(backend).answers(), Backend: &backend{leader: Leader{Self: true}},
		NodeToken: "node"})
	endless := &counted{}
	r := httptest.NewRequest("POST", "/switchover", io.MultiReader(strings.NewReader(`{"to":"`), endless))
	r.Header.Set("Content-Type", "application/json")
	r.RemoteAddr = "127.0.0.1:1"
	r.Header.Set("Authorization", "Bearer "+operatorToken)
	w := httptest.NewRecorder()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	s.handler().ServeHTTP(w, r)
	runtime.ReadMemStats(&after)
	if w.Code != 400 || endless.n > 2*maxBody {
		t.Errorf("status %d after %d bytes", w.Code, endless.n)
	}
	if took := after.TotalAlloc - before.TotalAlloc; took > 16*maxBody {
		t.Errorf("%d bytes were allocated", took)
	}
}

// counted is an endless text.
type counted struct{ n int }

func (c *counted) Read(p []byte) (int, error) {
	c.n += len(p)
	return copy(p, bytes.Repeat([]byte("x"), len(p))), nil
}
