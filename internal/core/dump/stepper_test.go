package dump

import (
	"errors"
	"slices"
	"testing"

	"trireme/internal/core/raftlog"
	"trireme/internal/mysql/binlog"
)

// stepped drives a Stepper through events and returns the payloads.
func stepped(t *testing.T, x *Stepper, ack bool, evs ...[]byte) (out []Payload) {
	t.Helper()
	for i, ev := range evs {
		if err := x.Event(ev, ack && i == len(evs)-1); err != nil {
			t.Fatal(err)
		}
		for {
			p, ok, err := x.Next(false)
			if err != nil {
				t.Fatal(err)
			}
			if !ok {
				break
			}
			out = append(out, p)
		}
	}
	return out
}

// A Stepper cuts, resumes and refuses as a Source does.
func TestStepper(t *testing.T) {
	x := NewStepper(SourceConfig{Node: 1, Incarnation: 1, ServerUUID: fakeUUID})
	x.Attach(freshStart)
	e := &events{uuid: fakeUUID, pos: freshStart}
	if got := stepped(t, x, false, binlog.AppendArtificialRotate(nil, 1, "binlog.000001", 4), e.fde()); len(got) != 0 ||
		x.FDE() == nil {
		t.Fatalf("the opening brought %d payloads", len(got))
	}
	first := e.trx()
	one := stepped(t, x, true, first...)
	if len(one) != 1 || one[0].Meta.Start != freshStart || len(one[0].Meta.GTIDs) != 1 {
		t.Fatalf("%+v", one)
	}
	if err := x.Ack(1, raftlog.Pos{File: 1, Off: one[0].Meta.End.Off + 1}); !errors.Is(err, ErrInvariant) {
		t.Fatalf("an acknowledgement of what was never handed out: %v", err)
	}
	if err := x.Ack(1, one[0].Meta.End); err != nil || x.Acked() != one[0].Meta.End {
		t.Fatal(x.Acked(), err)
	}
	second := e.trx()
	two := stepped(t, x, true, second...)
	if len(two) != 1 || two[0].Meta.Start != one[0].Meta.End {
		t.Fatalf("%+v", two)
	}
	if from := x.Resume(); from != one[0].Meta.End {
		t.Fatalf("resumed at %v", from)
	}
	rotate := binlog.AppendArtificialRotate(nil, 1, "binlog.000001", one[0].Meta.End.Off)
	fde := (&events{}).fde()
	binlog.SetLogPos(fde, 0)
	if got := stepped(t, x, true, append([][]byte{rotate, fde}, second...)...); len(got) != 0 {
		t.Fatalf("handed out twice: %+v", got)
	}
	if got := stepped(t, x, true, e.trx()...); len(got) != 1 || got[0].Meta.Start != two[0].Meta.End {
		t.Fatalf("%+v", got)
	}
}

// TestPieceMemory: the pieces of a large transaction share the memory of one, as soon as the one before is given back,
// and only then. What is small has no Release.
func TestPieceMemory(t *testing.T) {
	x := NewStepper(SourceConfig{Node: 1, Incarnation: 1, ServerUUID: fakeUUID, ChunkBytes: 4096})
	x.Attach(freshStart)
	e := &events{uuid: fakeUUID, pos: freshStart}
	stepped(t, x, false, binlog.AppendArtificialRotate(nil, 1, "binlog.000001", 4), e.fde())
	if small := stepped(t, x, true, e.trx()...); len(small) != 1 || small[0].Release != nil {
		t.Fatalf("%+v", small)
	}
	pieces := 0
	var before []byte // of the last piece
	shared := func(p *Payload) bool { return len(before) > 0 && &before[0] == &p.Data[0] }
	for i, ev := range e.trx(slices.Repeat([]int{500}, 100)...) {
		for _, p := range stepped(t, x, i == 101, ev) {
			if p.Release == nil {
				continue
			}
			pieces++
			if given := pieces%2 == 0; shared(&p) != given {
				t.Errorf("piece %d shares the memory of the one before: %v, which was given back: %v", pieces, !given, given)
			}
			before = p.Data
			if pieces%2 == 1 {
				p.Release()
			}
		}
	}
	if pieces < 6 {
		t.Errorf("%d pieces", pieces)
	}
}
