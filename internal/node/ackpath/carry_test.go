package ackpath

import (
	"context"
	"errors"
	"slices"
	"testing"

	"trireme/internal/core/consensus"
	"trireme/internal/core/dump"
)

// testStream hands out what it has, one at a time, until it is told to wait or its context ends.
type testStream struct {
	left []string
	wait bool
}

func (s *testStream) Resume() { s.wait = false }

func (s *testStream) Run(ctx context.Context, take func(dump.Payload) bool) error {
	for ; len(s.left) > 0 && !s.wait; s.left = s.left[1:] {
		s.wait = !take(dump.Payload{Data: []byte(s.left[0])})
	}
	if ctx.Err() != nil {
		return ctx.Err()
	}
	return dump.ErrClosed
}

// TestCarryStops: after a proposal that is in no log nothing is proposed any more, whether the stream has heard of the
// end or not; what follows would leave a gap in the log (S12).
func TestCarryStops(t *testing.T) {
	p, h := newTestPath()
	h.offer = func(done func(uint64, uint64, error)) bool {
		if len(h.offers) == 2 {
			done(0, 0, consensus.ErrNotLeader)
		}
		return true
	}
	ctx, cancel := context.WithCancel(t.Context())
	err := p.Carry(ctx, cancel, &testStream{left: []string{"a", "b", "c"}}, 7)
	if !errors.Is(err, consensus.ErrNotLeader) || ctx.Err() == nil || !slices.Equal(h.offers, []string{"a", "b"}) {
		t.Errorf("%v, %q", err, h.offers)
	}
}

// TestCarryWaitsForRoom: while raft has no room nothing is proposed.
func TestCarryWaitsForRoom(t *testing.T) {
	p, h := newTestPath()
	h.offer = func(func(uint64, uint64, error)) bool { return len(h.offers) > 1 }
	s := &testStream{left: []string{"a", "b"}}
	err := p.Carry(t.Context(), func() {}, s, 7)
	if err != dump.ErrClosed || !s.wait || !slices.Equal(h.offers, []string{"a"}) {
		t.Errorf("%v, %q", err, h.offers)
	}
	if h.room(); s.wait {
		t.Error("the stream waits although there is room")
	}
	err = p.Carry(t.Context(), func() {}, s, 7)
	if err != dump.ErrClosed || !slices.Equal(h.offers, []string{"a", "b"}) {
		t.Errorf("%v, %q", err, h.offers)
	}
}
