package load

import (
	"encoding/binary"
	"math"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"trireme/internal/api"
	"trireme/internal/core/raftlog"
	"trireme/internal/mysql/binlog"
	"trireme/internal/mysql/gtid"
)

// entryStamped is an entry of one transaction that mysqld stamped at a time.
func entryStamped(at time.Time, end uint64) (raftlog.Meta, []byte) {
	m := raftlog.Meta{Kind: raftlog.Trx, Node: 1, Incarnation: 7, Start: raftlog.Pos{File: 1, Off: 4},
		End: raftlog.Pos{File: 1, Off: end}}
	m.AddGTID(gtid.GTID{SID: gtid.SID{UUID: gtid.UUID{1}}, GNO: int64(end)})
	body := make([]byte, 0, 64)
	body = append(body, 0)
	body = append(body, make([]byte, 16)...)
	body = binary.LittleEndian.AppendUint64(body, end) // GNO
	body = append(body, 2)
	body = append(body, make([]byte, 16)...) // logical clock
	stamp := binary.LittleEndian.AppendUint64(nil, uint64(at.UnixMicro()))
	body = append(body, stamp[:7]...)
	body = append(body, 0)          // length
	body = append(body, 0, 0, 0, 0) // version
	ev := binlog.AppendEvent(nil, binlog.Header{Type: binlog.TypeGTID}, body)
	return m, append(raftlog.AppendMeta(nil, &m), ev...)
}

// TestCommitStages: a sample is counted once it is acknowledged, with all stages or not at all.
func TestCommitStages(t *testing.T) {
	l := &Load{began: time.Now().Add(-time.Hour)}
	m, data := entryStamped(time.Now().Add(-20*time.Millisecond), 500)
	counted := func() uint64 { return l.stages[0].view().Count }
	write := func(last uint64) { l.wrote(last, time.Millisecond) }

	l.Proposing(&m, data)
	if !l.watch.busy.Load() {
		t.Fatal("no sample was begun")
	}
	other, _ := entryStamped(time.Now(), 400)
	write(8)
	l.committing(8, &other)
	l.Acknowledged(&m) // an ACK does not count before the commit
	if counted() != 0 {
		t.Fatal("counted before it was committed")
	}
	write(10) // the sample is entry 9
	write(12)
	began := time.Now().Add(-30 * time.Millisecond)
	l.watch.writes[1].at = began
	l.committing(9, &m)
	foreign := m
	foreign.Incarnation++
	l.Acknowledged(&foreign)
	l.Acknowledged(&other) // up to where it does not cover the sample
	if counted() != 0 {
		t.Fatal("counted without its acknowledgement")
	}
	later := m
	later.End.Off += 100 // an acknowledgement covers all before it
	l.Acknowledged(&later)
	if counted() != 1 || l.watch.busy.Load() {
		t.Fatalf("%d samples", counted())
	}
	if got := l.stages[0].view().SumS; got < 0.02 || got > 10 {
		t.Errorf("mysqld took %v s", got)
	}
	if got := l.stages[2].view().SumS; got < 0.03 || got > time.Since(began).Seconds() {
		t.Errorf("the majority took %v s after the write of the own log", got)
	}
	if got, parts := l.total.view().SumS, l.stages[0].view().SumS+l.stages[1].view().SumS+l.stages[2].view().
		SumS+l.stages[3].view().SumS; math.Abs(got-parts) > 1e-9 {
		t.Errorf("the stages add up to %v of %v s", parts, got)
	}
	if got := l.writes.view(); got.Count != 3 || math.Abs(got.SumS-0.003) > 1e-9 {
		t.Errorf("writes: %+v", got)
	}

	// The next one comes no sooner than the interval, and one that a majority has before this log has no time of the
	// majority's.
	l.watch.last.Store(int64(time.Since(l.began)) + int64(time.Minute))
	l.Proposing(&m, data)
	if l.watch.busy.Load() {
		t.Error("two samples within the interval")
	}
	before := l.stages[2].view().SumS
	l.watch.last.Store(0)
	l.Proposing(&m, data)
	write(8)
	l.committing(9, &m)
	write(9)
	l.Acknowledged(&m)
	if got := l.stages[2].view(); got.Count != 2 || got.SumS != before {
		t.Errorf("majority: %+v", got)
	}

	// One whose acknowledgement will never come makes room for that of the next life.
	l.watch.last.Store(0)
	l.Proposing(&m, data)
	l.CarryBegins()
	if l.watch.busy.Load() {
		t.Error("a sample outlives its mysqld")
	}

	// A commit that waits for long is not remembered with every write meanwhile.
	l.watch.last.Store(0)
	l.Proposing(&m, data)
	for i := range 10 * maxWrites {
		write(uint64(i))
	}
	if n := len(l.watch.writes); n > maxWrites {
		t.Errorf("%d writes are remembered", n)
	}
}

// TestNoStageOfWhatCannotBeTimed: pieces of a transaction, entries that are no transaction, and stamps of a clock that
// was set.
func TestNoStageOfWhatCannotBeTimed(t *testing.T) {
	for name, change := range map[string]func(*raftlog.Meta, []byte) []byte{
		"a piece":          func(m *raftlog.Meta, b []byte) []byte { m.Flags = raftlog.FlagUnfinished; return b },
		"a later piece":    func(m *raftlog.Meta, b []byte) []byte { m.Flags = raftlog.FlagContinues; return b },
		"no events":        func(m *raftlog.Meta, _ []byte) []byte { return raftlog.AppendMeta(nil, m) },
		"nothing":          func(*raftlog.Meta, []byte) []byte { return nil },
		"an event cut off": func(_ *raftlog.Meta, b []byte) []byte { return b[:len(b)-10] },
		"the future": func(*raftlog.Meta, []byte) []byte {
			_, b := entryStamped(time.Now().Add(time.Hour), 500)
			return b
		},
		"the past": func(*raftlog.Meta, []byte) []byte {
			_, b := entryStamped(time.Now().Add(-time.Hour), 500)
			return b
		},
	} {
		l := &Load{began: time.Now().Add(-time.Hour)}
		m, data := entryStamped(time.Now(), 500)
		data = change(&m, data)
		l.Proposing(&m, data)
		if l.watch.busy.Load() {
			t.Errorf("%s: timed", name)
		}
	}
}

// TestLoadCounts: transactions are counted where they end, and what is under way is told.
func TestLoadCounts(t *testing.T) {
	var l Load
	l.Start()
	whole, _ := entryStamped(time.Now(), 500)
	piece := raftlog.Meta{Kind: raftlog.Trx, Flags: raftlog.FlagUnfinished}
	l.Committed(1, &whole, 100, nil)
	l.Committed(2, &raftlog.Meta{Kind: raftlog.Settings}, 100, nil)
	l.Committed(3, &piece, 1000, nil)
	piece.Flags |= raftlog.FlagContinues
	l.Committed(4, &piece, 1000, nil)
	v := l.View(0)
	if v.Transactions != 1 || v.Bytes != 2100 || v.Large == nil || v.Large.Bytes != 2000 {
		t.Errorf("%+v, large %+v", v, v.Large)
	}
	l.Committed(5, &raftlog.Meta{Kind: raftlog.Barrier}, 100, nil)
	if v = l.View(0); v.Large != nil {
		t.Errorf("after a barrier: %+v", v.Large)
	}
	l.writes.add(3 * time.Millisecond)
	l.writes.add(time.Minute)
	l.CountWarned()
	l.CountRefused(3)

	r := prometheus.NewPedanticRegistry()
	r.MustRegister(&l)
	families, err := r.Gather()
	if err != nil || len(families) != 8 {
		t.Fatal(len(families), err)
	}
	for _, f := range families {
		switch m := f.GetMetric()[0]; f.GetName() {
		case "trireme_transactions_total":
			if m.GetCounter().GetValue() != 1 {
				t.Error(m)
			}
		case "trireme_large_transactions_total":
			if m.GetCounter().GetValue() != 1 {
				t.Error(m)
			}
		case "trireme_refused_transactions_total":
			if m.GetCounter().GetValue() != 3 {
				t.Error(m)
			}
		case "trireme_commit_stage_seconds":
			if len(f.GetMetric()) != len(api.Stages) {
				t.Error(f)
			}
		case "trireme_raft_log_write_seconds":
			if h := m.GetHistogram(); h.GetSampleCount() != 2 || h.GetBucket()[len(api.LatencyBounds)-1].GetCumulativeCount() !=
				1 {
				t.Error(m)
			}
		}
	}
	if got := l.writes.view(); got.Count != 2 || got.Buckets[len(got.Buckets)-1] != 1 || got.Quantile(0.25) <= 2e-3 ||
		got.Quantile(0.25) > 3.5e-3 {
		t.Errorf("%+v", got)
	}
}
