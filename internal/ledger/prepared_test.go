package ledger

import (
	"encoding/binary"
	"slices"
	"testing"

	"go.etcd.io/raft/v3/raftpb"

	"trireme/internal/binlog"
	"trireme/internal/raftlog"
	"trireme/internal/raftlog/memfs"
	"trireme/internal/sqlkind"
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
		got, err := NotHeld(c.open, log, c.upTo)
		if err != nil || !slices.Equal(got, c.want) {
			t.Errorf("%v up to entry %d: %v, %v", c.open, c.upTo, got, err)
		}
	}
}
