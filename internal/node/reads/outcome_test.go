package reads

import (
	"context"
	"encoding/binary"
	"errors"
	"strings"
	"testing"
	"time"

	"go.etcd.io/raft/v3/raftpb"

	"trireme/internal/api"
	"trireme/internal/core/raftlog"
	"trireme/internal/core/raftlog/memfs"
	"trireme/internal/mysql/binlog"
	"trireme/internal/mysql/gtid"
)

// outcomeLog is a node's log that the test appends to: node 1 leads with incarnation 3 in term 7.
type outcomeLog struct {
	*Reads
	t    *testing.T
	rlog *raftlog.Log
	pos  raftlog.Pos
	gno  int64
}

func newOutcomeLog(t *testing.T) *outcomeLog {
	r, h := newTestReads()
	var err error
	if h.log, err = raftlog.Open(raftlog.Options{Dir: "/raft", FS: memfs.New(), SegmentBytes: 4096, Cluster: 5,
		NodeID: 2}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = h.log.Close() })
	return &outcomeLog{Reads: r, t: t, rlog: h.log, pos: raftlog.Pos{File: 1, Off: 4}}
}

func (o *outcomeLog) sid() gtid.SID { return gtid.SID{UUID: gtid.IncarnationUUID(5, 1, 3)} }

// commit adds a committed entry.
func (o *outcomeLog) commit(term uint64, m raftlog.Meta, events []byte) {
	o.t.Helper()
	index := o.ledger.Index() + 1
	data := append(raftlog.AppendMeta(nil, &m), events...)
	e := &raftpb.Entry{Index: new(index), Term: new(term), Data: data}
	if err := errors.Join(o.rlog.SetHardState(&raftpb.HardState{Term: new(term)}), o.rlog.Append([]*raftpb.Entry{e}),
		o.rlog.Sync(),
		o.rlog.SetHardState(&raftpb.HardState{Term: new(term), Commit: new(index)})); err != nil {
		o.t.Fatal(err)
	}
	if _, _, err := o.ledger.Add(index, term, data, time.Now()); err != nil {
		o.t.Fatal(err)
	}
}

func (o *outcomeLog) barrier(term uint64, node uint16, incarnation uint64) {
	o.t.Helper()
	start := raftlog.Pos{File: 1, Off: 4}
	o.commit(term, raftlog.Meta{Kind: raftlog.Barrier, Node: node, Incarnation: incarnation, Start: start, End: start},
		binlog.AppendFormatDescription(nil, binlog.Header{}, "9.7.4", 0))
}

// trx commits a transaction of a connection of the leader, and returns its GTID.
func (o *outcomeLog) trx(thread uint32) string {
	o.t.Helper()
	h := binlog.Header{Timestamp: 1, Type: binlog.TypeGTID, ServerID: 1, LogPos: 1}
	sid := o.sid()
	o.gno++
	body := append([]byte{0}, sid.UUID[:]...)
	body = append(binary.LittleEndian.AppendUint64(body, uint64(o.gno)), 2)
	ev := binlog.AppendEvent(nil, h, append(body, make([]byte, 16+7+1+4)...))
	ev = binlog.AppendQuery(ev, h, thread, "app", "BEGIN")
	h.Type = binlog.TypeXID
	ev = binlog.AppendEvent(ev, h, make([]byte, 8))
	end := raftlog.Pos{File: 1, Off: o.pos.Off + uint64(len(ev))}
	m := raftlog.Meta{Kind: raftlog.Trx, Node: 1, Incarnation: 3, Start: o.pos, End: end}
	g := gtid.GTID{SID: sid, GNO: o.gno}
	m.AddGTID(g)
	o.pos = end
	o.commit(7, m, ev)
	return g.String()
}

func (o *outcomeLog) ask(q api.OutcomeQuery, wait time.Duration) api.Outcome {
	o.t.Helper()
	ctx, cancel := context.WithTimeout(o.t.Context(), wait)
	defer cancel()
	if q.Node == "" {
		q.Node, q.Epoch = "db1", "3/7"
	}
	a, err := o.Outcome(ctx, q)
	if err != nil {
		o.t.Error(err)
	}
	return a
}

// What is in the log was committed, and what is not was not once the next leader's barrier stands; nothing is said
// where more than one transaction could be meant.
func TestOutcome(t *testing.T) {
	o := newOutcomeLog(t)
	o.barrier(7, 1, 3) // 1
	g2 := o.trx(10)    // 2
	g3 := o.trx(11)    // 3
	g4 := o.trx(10)    // 4
	type question struct {
		name        string
		q           api.OutcomeQuery
		early, late api.Outcome // before and after the next barrier
	}
	committed := func(g string, index uint64) api.Outcome {
		return api.Outcome{Result: api.Committed, GTID: g, Index: index}
	}
	no, dunno := api.Outcome{Result: api.NotCommitted, Index: 5}, api.Outcome{Result: api.OutcomeUnknown}
	several := api.Outcome{Result: api.OutcomeUnknown, GTID: g4, Index: 4}
	questions := []question{
		{"its only one", api.OutcomeQuery{Thread: 11, Index: 1, Sole: true}, committed(g3, 3), committed(g3, 3)},
		{"an index from before the leadership", api.OutcomeQuery{Thread: 11, Sole: true}, committed(g3, 3), committed(g3, 3)},
		{"after an earlier one by index", api.OutcomeQuery{Thread: 10, Index: 2, Sole: true}, committed(g4, 4),
			committed(g4, 4)},
		{"after an earlier one by GTID", api.OutcomeQuery{Thread: 10, Index: 1, After: g2, Sole: true}, committed(g4, 4),
			committed(g4, 4)},
		{"after an earlier one below the index", api.OutcomeQuery{Thread: 10, Index: 3, After: g2, Sole: true},
			committed(g4, 4), committed(g4, 4)},
		{"an earlier one that is not told of", api.OutcomeQuery{Thread: 10, Index: 1, Sole: true}, several, several},
		{"after an earlier one that is counted", api.OutcomeQuery{Thread: 10, Index: 1, Sole: true, Others: 1},
			committed(g4, 4), committed(g4, 4)},
		{"it or the one that was answered", api.OutcomeQuery{Thread: 11, Index: 1, Sole: true, Others: 1},
			api.Outcome{Result: api.OutcomeUnknown, GTID: g3, Index: 3}, api.Outcome{Result: api.OutcomeUnknown, GTID: g3,
				Index: 3}},
		{"neither it nor what was answered", api.OutcomeQuery{Thread: 12, Index: 1, Sole: true, Others: 3}, dunno, no},
		{"part of several", api.OutcomeQuery{Thread: 11, Index: 1}, api.Outcome{Result: api.OutcomeUnknown, GTID: g3,
			Index: 3}, api.Outcome{Result: api.OutcomeUnknown, GTID: g3, Index: 3}},
		{"nothing by index", api.OutcomeQuery{Thread: 11, Index: 3, Sole: true}, dunno, no},
		{"nothing by GTID", api.OutcomeQuery{Thread: 10, Index: 1, After: g4, Sole: true}, dunno, no},
		{"nothing of several", api.OutcomeQuery{Thread: 10, Index: 4}, dunno, no},
		{"another connection", api.OutcomeQuery{Thread: 12, Index: 1, Sole: true}, dunno, no},
		{"a connection to a leader that was deposed already", api.OutcomeQuery{Thread: 12, Index: 9, Sole: true}, dunno, no},
		{"an answer that Raft does not have", api.OutcomeQuery{Thread: 10, Index: 1, After: o.sid().String() + ":99",
			Sole: true}, dunno, dunno},
		{"an incarnation that never led", api.OutcomeQuery{Node: "db1", Epoch: "2/7", Thread: 10, Sole: true}, dunno, dunno},
		{"a node that never led", api.OutcomeQuery{Node: "db2", Epoch: "3/7", Thread: 10, Sole: true}, dunno, dunno},
		{"a term to come", api.OutcomeQuery{Node: "db1", Epoch: "3/70", Thread: 10, Sole: true}, dunno, dunno},
	}
	check := func(when string, pick func(question) api.Outcome) {
		t.Helper()
		for _, c := range questions {
			got := o.ask(c.q, time.Millisecond)
			if (got.Why != "") != (got.Result == api.OutcomeUnknown) {
				t.Errorf("%s, %s: %+v", c.name, when, got)
			}
			if got.Why = ""; got != pick(c) {
				t.Errorf("%s, %s: %+v, want %+v", c.name, when, got, pick(c))
			}
		}
	}
	check("early", func(q question) api.Outcome { return q.early })
	answer := make(chan api.Outcome)
	go func() { answer <- o.ask(api.OutcomeQuery{Thread: 12, Index: 1, Sole: true}, time.Minute) }()
	o.barrier(8, 2, 1) // 5
	if got := <-answer; got != no {
		t.Errorf("who waited hears %+v", got)
	}
	check("late", func(q question) api.Outcome { return q.late })
}

// Who asks for a transaction that is committed a moment later hears of it, without another barrier.
func TestOutcomeWaits(t *testing.T) {
	o := newOutcomeLog(t)
	o.barrier(7, 1, 3)
	answer := make(chan api.Outcome)
	go func() { answer <- o.ask(api.OutcomeQuery{Thread: 10, Index: 1, Sole: true}, time.Minute) }()
	o.trx(11)
	g := o.trx(10)
	if got := <-answer; got.Result != api.Committed || got.GTID != g {
		t.Errorf("%+v", got)
	}
}

// What was purged cannot be told, what was read before the purge can.
func TestOutcomePurged(t *testing.T) {
	o := newOutcomeLog(t)
	o.barrier(7, 1, 3)
	var all []string
	for len(all) < 100 {
		all = append(all, o.trx(uint32(10+len(all))))
	}
	o.barrier(8, 2, 1)
	first, err := o.rlog.Purge(60, 0)
	if err != nil || first < 10 {
		t.Fatalf("the log begins at %d, %v", first, err)
	}
	q := api.OutcomeQuery{Thread: 10, Index: 1, Sole: true}
	if got := o.ask(q, time.Millisecond); got.Result != api.OutcomeUnknown || !strings.Contains(got.Why, "purged") {
		t.Errorf("%+v", got)
	}
	q = api.OutcomeQuery{Thread: 109, Index: first - 1, Sole: true}
	if got := o.ask(q, time.Millisecond); got.Result != api.Committed || got.GTID != all[99] {
		t.Errorf("%+v", got)
	}
	if _, err := o.rlog.Purge(100, 0); err != nil {
		t.Fatal(err)
	}
	if got := o.ask(q, time.Millisecond); got.Result != api.Committed || got.GTID != all[99] {
		t.Errorf("after a purge: %+v", got)
	}
}

// A long log is read piece by piece: each question goes on where the one before it had to stop, and none of them waits
// for another one for long.
func TestOutcomeLongLog(t *testing.T) {
	o := newOutcomeLog(t)
	o.barrier(7, 1, 3)
	for range 50 {
		o.trx(11)
	}
	g := o.trx(10)
	o.outcomes.patience = 1 // ns
	q := api.OutcomeQuery{Thread: 10, Index: 1, Sole: true}
	if got := o.ask(q, time.Millisecond); got.Result != api.OutcomeUnknown || got.Why != errReading.Error() {
		t.Errorf("%+v", got)
	}
	o.outcomes.mu.Lock() // as while another question has the log read
	if got := o.ask(q, time.Minute); got.Result != api.OutcomeUnknown || got.Why != errReading.Error() {
		t.Errorf("%+v", got)
	}
	read := o.outcomes.tail
	o.outcomes.mu.Unlock()
	o.outcomes.patience = 0
	if got := o.ask(q, time.Millisecond); got.Result != api.Committed || got.GTID != g {
		t.Errorf("%+v", got)
	}
	if o.outcomes.tail != read {
		t.Error("read from the beginning again")
	}
}

func TestOutcomeInvalid(t *testing.T) {
	o := newOutcomeLog(t)
	for name, q := range map[string]api.OutcomeQuery{
		"no node":     {Node: "n9", Epoch: "3/7", Thread: 1},
		"no term":     {Node: "db1", Epoch: "3", Thread: 1},
		"no number":   {Node: "db1", Epoch: "x/7", Thread: 1},
		"term 0":      {Node: "db1", Epoch: "3/0", Thread: 1},
		"no thread":   {Node: "db1", Epoch: "3/7"},
		"others":      {Node: "db1", Epoch: "3/7", Thread: 1, Sole: true, Others: -1},
		"after a set": {Node: "db1", Epoch: "3/7", Thread: 1, After: "x"},
	} {
		if a, err := o.Outcome(t.Context(), q); err == nil {
			t.Errorf("%s: %+v", name, a)
		}
	}
}
