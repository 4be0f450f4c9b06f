package transport

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"
)

// askSelf asks itself, and notes what is sent.
type askSelf struct {
	Answers
	sent []byte
	said []byte
}

func (s *askSelf) Request(ctx context.Context, to uint64, kind uint8, body []byte) (answer []byte, err error) {
	s.sent = body
	s.said, err = s.HandleRequest(ctx, to, kind, body)
	return s.said, err
}

// echoes asks for what is sent back, and compares it with what the wire should show.
func echoes[Q any](t *testing.T, q Q, wire string) {
	t.Helper()
	k := Kind[Q, Q]{Number: 7}
	s := &askSelf{Answers: Answers{k.By(func(_ context.Context, _ uint64, q Q) (Q, error) { return q, nil })}}
	a, err := k.Ask(t.Context(), s, 2, q)
	if err != nil || !reflect.DeepEqual(a, q) || string(s.sent) != wire || string(s.said) != wire {
		t.Errorf("%T %v: sent %q, answered %q, read as %v, %v", q, q, s.sent, s.said, a, err)
	}
}

type testOrder struct {
	Term uint64 `json:"term"`
}

// TestKinds: bodies and answers of all forms are what docs/format/peer.md says, and come back as they were; those of
// another form are refused, and so is what is not understood where that matters.
func TestKinds(t *testing.T) {
	echoes(t, None{}, "")
	echoes(t, "7/3", "7/3")
	echoes(t, []byte("key"), "key")
	echoes(t, uint8(1), "\x01")
	echoes(t, uint64(258), "\x02\x01\x00\x00\x00\x00\x00\x00")
	echoes(t, []uint64{1, 2}, "\x01\x00\x00\x00\x00\x00\x00\x00\x02\x00\x00\x00\x00\x00\x00\x00")
	echoes(t, []uint64{}, "")
	echoes(t, true, "true")
	echoes(t, testOrder{3}, `{"term":3}`)

	no := errors.New("no")
	as := Answers{
		After(Kind[uint64, None]{Number: 1}, func(context.Context, uint64, uint64) error { return nil }),
		After(Kind[uint8, None]{Number: 2}, func(context.Context, uint64, uint8) error { return nil }),
		After(Kind[[]uint64, None]{Number: 3}, func(context.Context, uint64, []uint64) error { return nil }),
		After(Kind[testOrder, None]{Number: 4}, func(context.Context, uint64, testOrder) error { return nil }),
		After(Kind[testOrder, None]{Number: 5, StrictBody: true},
			func(context.Context, uint64, testOrder) error { return nil }),
		Kind[None, testOrder]{Number: 6}.By(func(_ context.Context, from uint64, _ None) (testOrder, error) {
			return testOrder{from}, no
		}),
	}
	for what, c := range map[string]struct {
		kind uint8
		body string
		why  string
	}{
		"a short number":      {1, "1234567", "a number of 7 bytes"},
		"a long number":       {1, "123456789", "a number of 9 bytes"},
		"no byte":             {2, "", "a number of 0 bytes"},
		"a part of a number":  {3, "123456789", "numbers of 9 bytes"},
		"no number":           {3, "", ""},
		"no JSON":             {4, "", "unexpected end"},
		"a newer request":     {4, `{"term":1,"later":1}`, ""},
		"a newer order":       {5, `{"term":1,"later":1}`, `upgrade this node: json: unknown field "later"`},
		"what is not done":    {6, "", "no"},
		"an unknown request":  {8, "", "unknown request 8: upgrade this node"},
		"an order that is no": {5, "[]", "upgrade this node"},
	} {
		_, err := as.HandleRequest(t.Context(), 2, c.kind, []byte(c.body))
		if (err == nil) != (c.why == "") || err != nil && !strings.Contains(fmt.Sprint(err), c.why) {
			t.Errorf("%s: %v, want %q", what, err, c.why)
		}
	}
}
