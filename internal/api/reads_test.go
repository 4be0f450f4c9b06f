package api

import (
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"
)

// The questions of routers come to the node as they were asked, and a wait that is over is a timeout.
func TestReadQuestions(t *testing.T) {
	b := &backend{}
	srv := httptest.NewServer(NewServer(Options{Name: "n1", Backend: b, Answers: b.answers()}).handler())
	defer srv.Close()
	c := NewClient(srv.URL, "", nil)
	defer c.Close()
	ctx := t.Context()
	q := OutcomeQuery{Node: "n1", Epoch: "3/7", Thread: 1 << 31, Index: 1 << 60, After: "a:1,b", Sole: true}
	if o, err := c.Outcome(ctx, q, time.Second); err != nil || o.Result != Committed || o.GTID != q.After ||
		o.Index != q.Index {
		t.Errorf("%+v, %v", o, err)
	}
	if v, err := c.ReadIndex(ctx, ReadIndexQuery{GTIDs: true}); err != nil || v.Index != 7 || v.GTIDs == "" {
		t.Errorf("%+v, %v", v, err)
	}
	if v, err := c.ReadIndex(ctx, ReadIndexQuery{Live: true}); err != nil || v.Index != 6 ||
		!slices.Equal(v.Live, []string{"n1", "n3"}) {
		t.Errorf("%+v, %v", v, err)
	}
	if v, err := c.Applied(ctx, AppliedQuery{Index: 8, GTIDs: "a:1-7", Everywhere: true}, time.Second); err != nil ||
		v.Index != 8 {
		t.Errorf("%+v, %v", v, err)
	}
	if _, err := c.Applied(ctx, AppliedQuery{Index: 101}, time.Millisecond); KindOf(err) != KindTimeout {
		t.Errorf("a wait that is over: %v", err)
	}
	want :=
		[]string{"outcome {Node:n1 Epoch:3/7 Thread:2147483648 Index:1152921504606846976 After:a:1,b Sole:true Others:0}",
			"read-index", "live", "applied {Index:8 GTIDs:a:1-7 Everywhere:true}"}
	if got := b.calls(); !slices.Equal(got, want) {
		t.Errorf("asked %q, want %q", got, want)
	}
}

func TestBadReadQuestions(t *testing.T) {
	h := NewServer(Options{Name: "n1", Backend: &backend{}}).handler()
	for _, path := range []string{"/outcome", "/outcome?thread=1", "/outcome?thread=4294967296&index=1",
		"/outcome?thread=1&index=-1", "/outcome?thread=1&index=1&wait=11s",
		"/outcome?thread=1&index=1&wait=x", "/applied", "/applied?index=x", "/applied?index=1&wait=-1s",
		"/applied?gtids=a:1&index=", "/read-index?wait=1h"} {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, path, nil))
		if w.Code != http.StatusBadRequest || !strings.Contains(w.Body.String(), string(KindInvalid)) {
			t.Errorf("%s: status %d, %s", path, w.Code, w.Body)
		}
	}
	for _, path := range []string{"/outcome?thread=1&index=1", "/applied?index=1", "/read-index"} {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest(http.MethodPost, path, nil))
		if w.Code != http.StatusMethodNotAllowed {
			t.Errorf("POST %s: status %d", path, w.Code)
		}
	}
}
