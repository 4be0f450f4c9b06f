package ledger

import (
	"encoding/binary"
	"errors"
	"slices"
	"testing"

	"go.etcd.io/raft/v3/raftpb"

	"trireme/internal/core/raftlog"
	"trireme/internal/core/raftlog/memfs"
	"trireme/internal/mysql/binlog"
	"trireme/internal/mysql/sqlkind"
)

// xaPrepareEvents is a transaction that XA PREPARE ends.
func xaPrepareEvents(x sqlkind.XID) []byte {
	h := binlog.Header{Timestamp: 1, Type: binlog.TypeGTID, ServerID: 1, LogPos: 1}
	sid := testSID(1, 1)
	body := append([]byte{0}, sid.UUID[:]...)
	body = append(binary.LittleEndian.AppendUint64(body, 1), 2)
	body = append(body, make([]byte, 16+7+1+4)...)
	ev := binlog.AppendEvent(nil, h, body)
	for _, sql := range []string{"XA START ", "XA END "} {
		ev = binlog.AppendQuery(ev, h, 1, "", sql+x.String())
	}
	h.Type = binlog.TypeXAPrepare
	body = binary.LittleEndian.AppendUint32([]byte{0}, x.FormatID)
	body = binary.LittleEndian.AppendUint32(body, uint32(len(x.GTRID)))
	return binlog.AppendEvent(ev, h, append(binary.LittleEndian.AppendUint32(body, 0), x.GTRID...))
}

// An open XA transaction is held by a log only if its XA PREPARE is in it.
func TestNotHeld(t *testing.T) {
	log, err := raftlog.Open(raftlog.Options{Dir: "/raft", FS: memfs.New(), Cluster: 7, NodeID: 1})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = log.Close() }()
	x := sqlkind.XID{FormatID: 1, GTRID: "x"}
	fde := binlog.AppendFormatDescription(nil, binlog.Header{}, "9.7.4", 0)
	begin, trx := barrierStep(1, 1, 1, at(4)).meta, trxStep(at(4), at(500), raftlog.FlagSpecial, 1, 1).meta
	term, one, two := uint64(1), uint64(1), uint64(2)
	entries := []*raftpb.Entry{{Index: &one, Term: &term, Data: append(raftlog.AppendMeta(nil, &begin), fde...)},
		{Index: &two, Term: &term, Data: append(raftlog.AppendMeta(nil, &trx), xaPrepareEvents(x)...)}}
	if err := log.SetHardState(&raftpb.HardState{Term: &term}); err != nil {
		t.Fatal(err)
	}
	if err := log.Append(entries); err != nil {
		t.Fatal(err)
	}
	if err := log.Sync(); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		open []string
		upTo uint64
		want []string
	}{
		{nil, 2, nil},
		{[]string{x.String()}, 2, nil},
		{[]string{x.String(), "X'79',X'',1"}, 2, []string{"X'79',X'',1"}},
		{[]string{x.String()}, 1, []string{x.String()}},
		{[]string{x.String()}, 0, []string{x.String()}},
	} {
		got, err := NotHeld(t.Context(), c.open, 0, log, c.upTo)
		if err != nil || !slices.Equal(got, c.want) {
			t.Errorf("%v up to entry %d: %v, %v", c.open, c.upTo, got, err)
		}
	}
}

// An xid may be used again: whether the one that is prepared on a node came before the log or is in it, shows what that
// node has applied.
func TestNotHeldOfTheSameName(t *testing.T) {
	log, err := raftlog.Open(raftlog.Options{Dir: "/raft", FS: memfs.New(), Cluster: 7, NodeID: 1})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = log.Close() }()
	x := sqlkind.XID{FormatID: 1, GTRID: "x"}
	h := binlog.Header{Timestamp: 1, Type: binlog.TypeGTID, ServerID: 1, LogPos: 1}
	prepare := xaPrepareEvents(x)
	first, err := binlog.ParseHeader(prepare)
	if err != nil {
		t.Fatal(err)
	}
	end := binlog.AppendQuery(slices.Clone(prepare[:first.EventSize]), h, 1, "", "XA COMMIT "+x.String())
	fde := binlog.AppendFormatDescription(nil, binlog.Header{}, "9.7.4", 0)
	begin := barrierStep(1, 1, 1, at(4)).meta
	ends, again := trxStep(at(4), at(500), raftlog.FlagSpecial, 1, 1).meta, trxStep(at(500), at(900), raftlog.FlagSpecial,
		2, 2).meta
	term := uint64(1)
	if err := log.SetHardState(&raftpb.HardState{Term: &term}); err != nil {
		t.Fatal(err)
	}
	var entries []*raftpb.Entry
	for i, data := range [][]byte{append(raftlog.AppendMeta(nil, &begin), fde...),
		append(raftlog.AppendMeta(nil, &ends), end...), append(raftlog.AppendMeta(nil, &again), prepare...)} {
		entries = append(entries, &raftpb.Entry{Index: new(uint64(i + 1)), Term: &term, Data: data})
	}
	if err := errors.Join(log.Append(entries), log.Sync()); err != nil {
		t.Fatal(err)
	}
	for applied, held := range map[uint64]bool{1: false, 2: true, 3: true} {
		left, err := NotHeld(t.Context(), []string{x.String()}, applied, log, 3)
		if err != nil || (len(left) == 0) != held {
			t.Errorf("prepared on a node that has applied up to %d: %v, %v", applied, left, err)
		}
	}
}
