package ledger

import (
	"slices"
	"testing"

	"trireme/internal/core/raftlog"
	"trireme/internal/mysql/binlog"
	"trireme/internal/mysql/sqlkind"
)

// A scan that begins after the first piece of a large transaction misses that transaction, but nothing after it in the
// same entry.
func TestScannerBeginsAnywhere(t *testing.T) {
	big, small := xaPrepareEvents(sqlkind.XID{FormatID: 1, GTRID: "big"}),
		xaPrepareEvents(sqlkind.XID{FormatID: 1, GTRID: "small"})
	h, err := binlog.ParseHeader(big)
	if err != nil {
		t.Fatal(err)
	}
	first, rest := big[:h.EventSize], slices.Concat(big[h.EventSize:], small)
	piece, tail := trxStep(at(4), at(100), raftlog.FlagUnfinished, 0, 0).meta,
		trxStep(at(100), at(500), raftlog.FlagContinues|raftlog.FlagSpecial, 1, 2).meta
	for _, c := range []struct {
		name string
		all  bool
		want []string
	}{
		{"from the beginning", true, []string{"big", "small"}},
		{"in the middle", false, []string{"small"}},
	} {
		var s Scanner
		var got []string
		take := func(x Txn) error {
			got = append(got, x.XID)
			return nil
		}
		if c.all {
			if err := s.Entry(&piece, 1, first, take); err != nil {
				t.Fatal(err)
			}
		}
		if err := s.Entry(&tail, 2, rest, take); err != nil {
			t.Fatalf("%s: %v", c.name, err)
		}
		var want []string
		for _, name := range c.want {
			want = append(want, sqlkind.XID{FormatID: 1, GTRID: name}.String())
		}
		if !slices.Equal(got, want) {
			t.Errorf("%s: %v, want %v", c.name, got, want)
		}
	}
}
