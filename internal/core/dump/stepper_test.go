package dump

import (
	"errors"
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
	if _, err := x.Ack(1, raftlog.Pos{File: 1, Off: one[0].Meta.End.Off + 1}); !errors.Is(err, ErrInvariant) {
		t.Fatalf("an acknowledgement of what was never handed out: %v", err)
	}
	if send, err := x.Ack(1, one[0].Meta.End); err != nil || !send {
		t.Fatal(send, err)
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
