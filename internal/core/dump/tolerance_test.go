package dump

import (
	"context"
	"errors"
	"slices"
	"testing"

	"trireme/internal/mysql/binlog"
	"trireme/internal/mysql/gtid"
)

// replica is what Tend is told of, and tells.
type replica struct {
	t     *testing.T
	tol   *Tolerance
	has   gtid.Set
	modes []bool // that were set
	fails error
}

func (r *replica) executed(context.Context) (string, error) { return r.has.String(), nil }

func (r *replica) set(_ context.Context, tolerant bool) error {
	if r.fails != nil {
		return r.fails
	}
	r.modes = append(r.modes, tolerant)
	return nil
}

// tend wants these modes to be set by it.
func (r *replica) tend(want ...bool) {
	r.t.Helper()
	r.modes = nil
	if err := r.tol.Tend(r.t.Context(), r.executed, r.set); !errors.Is(err, r.fails) {
		r.t.Fatal(err)
	}
	if !slices.Equal(r.modes, want) {
		r.t.Fatalf("modes %v, want %v", r.modes, want)
	}
}

// passes asks for a transaction.
func (r *replica) passes(g gtid.GTID, want bool) {
	r.t.Helper()
	if wait, _ := r.tol.Pass(&binlog.TrxInfo{GTIDEvent: binlog.GTIDEvent{GTID: g}}); (wait <= 0) != want {
		r.t.Fatalf("%s passes: %t", g, !want)
	}
}

// TestTolerance: the mode holds for one transaction. All before it is applied when the mode is set, all after it waits
// until the mode is taken back.
func TestTolerance(t *testing.T) {
	at := func(gno int64) gtid.GTID {
		return gtid.GTID{SID: gtid.SID{UUID: gtid.IncarnationUUID(testCluster, 1, 1)}, GNO: gno}
	}
	r := &replica{t: t, tol: NewTolerance(func(g gtid.GTID) bool { return g == at(3) })}
	fed := gtid.SetOf(at(1)) // relayed, and not executed yet
	r.tol.Begin(fed)
	r.passes(at(2), true)
	r.tend()
	r.passes(at(3), false)
	r.has = gtid.SetOf(at(2))
	r.tend() // at(1) is missing
	r.has = gtid.SetOf(at(1))
	r.tend() // at(2) is
	r.has.Add(at(2))
	r.fails = errors.New("no")
	r.tend()
	r.passes(at(3), false)
	r.fails = nil
	r.tend(true)
	r.passes(at(4), false)
	r.passes(at(3), true)
	r.passes(at(4), false)
	r.tend()

	r.tol.Begin(gtid.SetOf(at(1), at(2), at(3))) // a connection that was lost
	r.passes(at(4), false)
	r.has.Add(at(3))
	r.tend(false)
	r.passes(at(4), true)
	r.tend()

	r.has = gtid.SetOf(at(1), at(2))
	r.tol.Begin(r.has)
	r.passes(at(3), false)
	r.tend(true)
	r.tol.Reset() // another mysqld, without the mode
	r.tol.Begin(r.has)
	r.passes(at(3), false)
	r.tend(true)
	r.passes(at(3), true)
}

// TestWalkTolerantly: such a transaction is sent as separate events, in one piece or in several, once its mode is set.
func TestWalkTolerantly(t *testing.T) {
	s := newScript(1)
	s.entry(1, 0, append(s.e.trx(), append(s.e.trx(), s.e.trx()...)...)...)
	r := &replica{t: t, tol: NewTolerance(func(g gtid.GTID) bool { return g == s.gtid(2) })}
	r.has = gtid.SetOf(s.gtid(1))
	ended := make(chan [][]byte)
	go func() {
		defer close(ended)
		evs, err := walkWith(t, &dumpServer{log: s.log, serverID: 9, stats: &counters{}, gates: []Gate{r.tol},
			tolerance: r.tol}, gtid.Set{})
		if err != nil {
			t.Error(err)
		}
		ended <- evs
	}()
	var evs [][]byte
	for evs == nil {
		select {
		case evs = <-ended:
		default:
			r.tol.mu.Lock()
			sent := r.tol.last == s.gtid(2)
			r.tol.mu.Unlock()
			if sent {
				r.has.Add(s.gtid(2))
			}
			if err := r.tol.Tend(t.Context(), r.executed, r.set); err != nil {
				t.Fatal(err)
			}
		}
	}
	if got := outline(t, evs); got != "R(trireme-1-1.000001) F 1:1 1:2 1:3" {
		t.Fatalf("got %s", got)
	}
	var kinds []binlog.Kind
	for _, trx := range transactions(t, evs) {
		kinds = append(kinds, trx.Kind)
	}
	if !slices.Equal(kinds, []binlog.Kind{binlog.Payload, binlog.RowsXID, binlog.Payload}) ||
		!slices.Equal(r.modes, []bool{true, false}) {
		t.Errorf("kinds %v, modes %v", kinds, r.modes)
	}
}
