package lifecycle

import (
	"errors"
	"testing"

	"trireme/internal/core/ledger"
	"trireme/internal/mysql/gtid"
	"trireme/internal/mysql/mysqld"
)

// What the log has prepared and not ended has to be prepared in mysqld, as soon as it is executed there.
func TestXAWatch(t *testing.T) {
	u := gtid.IncarnationUUID(1, 1, 1)
	at := func(n int64) gtid.Range { return gtid.Range{SID: gtid.SID{UUID: u}, First: n, Last: n} }
	w := xaWatch{open: map[string]gtid.Range{"old": {}}}
	for _, x := range []ledger.Txn{
		{Class: ledger.XAPrepare, XID: "a", GTIDs: at(1)},
		{Class: ledger.XAPrepare, XID: "b", GTIDs: at(2)},
		{Class: ledger.Traceless, GTIDs: at(3)},
		{Class: ledger.XAEnd, XID: "a", GTIDs: at(4)},
		{Class: ledger.XAPrepare, XID: "c", GTIDs: at(9)},
	} {
		if err := w.take(x); err != nil {
			t.Fatal(err)
		}
	}
	executed := gtid.Set{}
	executed.AddRange(gtid.Range{SID: gtid.SID{UUID: u}, First: 1, Last: 8})
	for _, c := range []struct {
		prepared []string
		want     string
	}{
		{[]string{"old", "b"}, ""},
		{[]string{"old", "a", "b"}, ""}, // its end is not applied yet
		{[]string{"old", "b", "c"}, ""}, // applied a moment ago
		{[]string{"b"}, "old"},
		{[]string{"old"}, "b"},
	} {
		set := map[string]bool{}
		for _, x := range c.prepared {
			set[x] = true
		}
		if got := w.missing(executed, set); got.XID != c.want {
			t.Errorf("prepared %v: %q is missing, want %q", c.prepared, got.XID, c.want)
		}
	}
}

// A suspect stays the one that is looked at until it is cleared, whatever else is missing.
func TestXASuspect(t *testing.T) {
	w := xaWatch{open: map[string]gtid.Range{}}
	for _, xid := range []string{"a", "b", "c", "d"} {
		w.open[xid] = gtid.Range{}
	}
	w.suspect = w.missing(gtid.Set{}, nil)
	for range 20 {
		if got := w.missing(gtid.Set{}, nil); got != w.suspect {
			t.Fatalf("%q was seen, then %q", w.suspect.XID, got.XID)
		}
	}
	was := w.suspect
	if got := w.missing(gtid.Set{}, map[string]bool{was.XID: true}); got == was || got.XID == "" {
		t.Errorf("%q is prepared again, and %q is missing", was.XID, got.XID)
	}
}

// TestLostXAIsNotCopied: as long as a prepared XA transaction is missing, this node's data is not copied, and the watch
// over it is left as it was.
func TestLostXAIsNotCopied(t *testing.T) {
	prepare := gtid.GTID{SID: gtid.SID{UUID: gtid.IncarnationUUID(1, 1, 1)}, GNO: 7}
	x := mysqld.XID{FormatID: 1, Gtrid: "x"}
	key := ""
	for key = range XIDKeys([]mysqld.XID{x}) {
	}
	m := newMember(t)
	l := m.life(7)
	m.mysql.executed = gtid.SetOf(prepare).String()
	m.lives.xa = xaWatch{life: l, scanned: 1 << 40,
		open: map[string]gtid.Range{key: {SID: prepare.SID, First: 7, Last: 7}}}
	if !m.lives.WatchesXA() {
		t.Error("one is open, and the next look is not urgent")
	}
	for _, c := range []struct {
		looks []bool // whether it is shown, the last for good
		want  error
	}{{[]bool{true}, nil}, {[]bool{false, true}, nil}, {[]bool{false}, errLostXA}} {
		m.mysql.prepared = func() (xids []mysqld.XID) {
			if c.looks[0] {
				xids = []mysqld.XID{x}
			}
			c.looks = c.looks[min(1, len(c.looks)-1):]
			return xids
		}
		xids, err := l.PreparedToCopy(t.Context())
		if !errors.Is(err, c.want) || err == nil && len(xids) != 1 {
			t.Errorf("%v: %v, %v", c.looks, xids, err)
		}
	}
	if m.lives.xa.suspect.XID != "" || m.lost != 0 {
		t.Error("the watch looks twice itself")
	}
}
