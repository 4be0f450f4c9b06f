package ledger

import (
	"fmt"

	"trireme/internal/core/raftlog"
	"trireme/internal/mysql/binlog"
	"trireme/internal/mysql/gtid"
)

// Walker feeds the events of log entries to an assembler. Entries of plain row data alone are left out, unless Plain
// says otherwise. It may begin anywhere in a log: the rest of a transaction whose beginning it has not seen is passed
// over.
type Walker struct {
	Asm   binlog.Assembler
	Plain bool // entries of plain row data are walked, too
	knows bool // whether a transaction is under way
}

// IsPlain reports whether an entry holds whole transactions of plain row data only.
func IsPlain(m *raftlog.Meta) bool {
	return m.Flags&(raftlog.FlagSpecial|raftlog.FlagContinues|raftlog.FlagUnfinished) == 0
}

// Walk calls f for each event of an entry. Only a barrier ends a transaction that is under way: settings may stand
// between its pieces.
func (w *Walker) Walk(m *raftlog.Meta, index uint64, events []byte, f func(b binlog.Boundary, h binlog.Header,
	ev []byte) error) error {
	if m.Kind == raftlog.Barrier || m.Kind == raftlog.Trx && m.Flags&raftlog.FlagContinues == 0 {
		w.Asm.Reset()
		w.knows = true
	}
	if m.Kind != raftlog.Trx || IsPlain(m) && !w.Plain {
		return nil
	}
	for len(events) > 0 {
		h, ev, rest, err := binlog.Cut(events)
		if err != nil {
			return fmt.Errorf("entry %d: bad event: %w", index, err)
		}
		events = rest
		if w.knows = w.knows || h.Type == binlog.TypeGTID || h.Type == binlog.TypeGTIDTagged; !w.knows {
			continue
		}
		b, err := w.Asm.Feed(h, ev)
		if err != nil {
			return fmt.Errorf("entry %d: %w", index, err)
		}
		if err := f(b, h, ev); err != nil {
			return err
		}
	}
	return nil
}

// Scanner finds the transactions of log entries, decoding only what is not plain row data.
type Scanner struct {
	Walker
}

// Entry calls f for each transaction that ends in an entry, and for each run of plain ones.
func (s *Scanner) Entry(m *raftlog.Meta, index uint64, events []byte, f func(Txn) error) error {
	if m.Kind == raftlog.Trx && IsPlain(m) {
		s.knows = true
		for i, r := range m.GTIDs {
			x := Txn{Index: index, GTIDs: r}
			if i == len(m.GTIDs)-1 {
				x.Bytes = int64(len(events)) // of all runs; the last is the first to be missing
			}
			if err := f(x); err != nil {
				return err
			}
		}
		return nil
	}
	large := m.Flags&raftlog.FlagContinues != 0
	return s.Walk(m, index, events, func(b binlog.Boundary, h binlog.Header, ev []byte) error {
		if b != binlog.End {
			return nil
		}
		x := classify(s.Asm.Trx(), index)
		x.Bytes = int64(s.Asm.Trx().Bytes)
		if large {
			x.Heavy.Bytes, large = int64(s.Asm.Trx().TransactionLength), false
		}
		if h.Type == binlog.TypeQuery {
			x.Heavy.DDL = statementTime(ev)
		}
		return f(x)
	})
}

// classify says what S5 has to know of a transaction.
func classify(t *binlog.TrxInfo, index uint64) Txn {
	g := t.GTID
	x := Txn{Index: index, GTIDs: gtid.Range{SID: g.SID, First: g.GNO, Last: g.GNO}}
	switch {
	case t.Kind == binlog.XAPrepare:
		x.Class, x.XID = XAPrepare, t.XID.String()
	case t.Kind == binlog.XACommit || t.Kind == binlog.XARollback:
		x.Class, x.XID = XAEnd, t.XID.String()
	case t.Kind == binlog.QueryNoXID || t.Kind == binlog.RowsRollback || t.Account:
		x.Class = Traceless
	}
	return x
}
