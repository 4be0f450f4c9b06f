package lifecycle

import (
	"context"
	"errors"
	"fmt"

	"trireme/internal/core/ledger"
	"trireme/internal/core/raftlog"
	"trireme/internal/mysql/binlog"
	"trireme/internal/mysql/gtid"
	"trireme/internal/mysql/mysqld"
	"trireme/internal/mysql/sqlkind"
)

// ownXA are the prepared XA transactions whose end this life's mysqld logs, so that they are not adopted: what a
// session of its own has prepared, and what was there when it started. (mysqld forgets at any restart what its applier
// has prepared.) Adopting them anyway, by XA ROLLBACK and a new XA PREPARE, would lose them permanently if mysqld died
// in between: their GTIDs, unlike those of an applier's, are on disk.
type ownXA struct {
	found   map[mysqld.XID]bool // by the judgement, in XA RECOVER
	judged  gtid.Set            // what was executed then
	adopted map[mysqld.XID]gtid.GTID
}

// holds says whether the transaction that the log has prepared under a GTID is one.
func (o *ownXA) holds(life gtid.UUID, x mysqld.XID, prepare gtid.GTID) bool {
	return o.found[x] && o.judged.Contains(prepare) || o.adopted[x] == prepare || prepare.SID.UUID == life
}

// AdoptXA makes the XA transactions that this mysqld's applier has prepared its own, before it leads
// (mysqld.Admin.AdoptXA says why). What is logged for it is a part of the life's prelude (see BeginLead). Without
// prepared XA transactions, and with nothing left to apply that could hold one, nothing happens. It returns the
// transactions that are its own then.
func (l *Life) AdoptXA(ctx context.Context) (map[mysqld.XID]bool, error) {
	xids, err := l.mysql.XARecover(ctx)
	if err != nil {
		return nil, err
	}
	applied, err := l.ReadExecuted(ctx)
	if err != nil {
		return nil, err
	}
	if at, _ := l.of.Ledger.At(); len(xids) == 0 && applied >= at {
		return nil, nil
	}
	return l.adoptApplied(ctx)
}

// CheckAdopted is called when everything is applied: no prepared XA transaction may be there that was not adopted.
func (l *Life) CheckAdopted(ctx context.Context, adopted map[mysqld.XID]bool) error {
	xids, err := l.mysql.XARecover(ctx)
	if err != nil {
		return err
	}
	for _, x := range xids {
		if !adopted[x] {
			return fmt.Errorf("XA transaction %s was prepared by the applier during the promotion", x)
		}
	}
	return nil
}

func (l *Life) adoptApplied(ctx context.Context) (map[mysqld.XID]bool, error) {
	// Everything of older terms first: an XA PREPARE that is still on its way here has to be adopted too, and an XA
	// COMMIT must find its transaction.
	index, err := l.of.Host.Raft().ReadIndex(ctx)
	if err != nil {
		return nil, err
	}
	if err := l.of.awaitCommitted(ctx, index); err != nil {
		return nil, err
	}
	if err := l.ApplyAll(ctx, index); err != nil {
		return nil, err
	}
	xids, err := l.mysql.XARecover(ctx)
	if err != nil || len(xids) == 0 {
		return nil, err
	}
	prepared, err := l.of.preparedXA(xids)
	if err != nil {
		return nil, err
	}
	own := make(map[mysqld.XID]bool, len(xids))
	var list []mysqld.PreparedXA
	for _, x := range xids {
		p := prepared[x]
		own[x] = true
		if !l.own.holds(l.UUID, x, p.gtid) {
			list = append(list, p.PreparedXA)
		}
	}
	if len(list) == 0 {
		return own, nil
	}
	if err := l.of.Feed.Pause(ctx); err != nil {
		return nil, err
	}
	if err := l.mysql.AdoptXA(ctx, list); err != nil {
		return nil, errors.Join(err, l.proc.Kill())
	}
	// What an earlier life of this term has proposed may be committed only now: ApplyAll waits for it, and CheckAdopted
	// sees an XA PREPARE that it holds.
	l.resumeFeed()
	for _, p := range list {
		l.own.adopted[p.XID] = prepared[p.XID].gtid
	}
	l.of.Logger.Info("adopted prepared XA transactions before leading", "count", len(list), "own", len(own)-len(list))
	return own, nil
}

// loggedXA is an XA transaction as the log has prepared it.
type loggedXA struct {
	mysqld.PreparedXA
	gtid gtid.GTID // of its XA PREPARE
}

// preparedXA finds the transactions in the log.
func (s *Lives) preparedXA(xids []mysqld.XID) (map[mysqld.XID]loggedXA, error) {
	first, err := s.Log.FirstIndex()
	if err != nil {
		return nil, err
	}
	upTo, _ := s.Ledger.At()
	f := xaFinder{found: map[sqlkind.XID]loggedXA{}, fde: s.Log.Boundary().Barrier.FDE}
	if err := s.Log.Scan(first, upTo, func(m *raftlog.Meta, index, _ uint64, events []byte) error {
		return f.entry(m, index, events)
	}); err != nil {
		return nil, err
	}
	out := make(map[mysqld.XID]loggedXA, len(xids))
	for _, x := range xids {
		p, ok := f.found[sqlkind.XID{FormatID: uint32(x.FormatID), GTRID: x.Gtrid, BQual: x.Bqual}]
		if !ok {
			return nil, fmt.Errorf("the prepared XA transaction %s is not in the log", x)
		}
		p.XID = x
		out[x] = p
	}
	return out, nil
}

// maxStatementBytes bounds one BINLOG statement, which holds whole row statements.
const maxStatementBytes = 4 << 20

// xaFinder collects XA transactions that the log has prepared and not ended.
type xaFinder struct {
	ledger.Walker
	fde   []byte
	found map[sqlkind.XID]loggedXA
	now   mysqld.PreparedXA
	piece []byte
}

func (f *xaFinder) entry(m *raftlog.Meta, index uint64, events []byte) error {
	if m.Kind == raftlog.Barrier {
		f.fde = append([]byte(nil), events...)
	}
	return f.Walk(m, index, events, func(b binlog.Boundary, h binlog.Header, ev []byte) error {
		f.event(b, h, ev)
		return nil
	})
}

func (f *xaFinder) event(b binlog.Boundary, h binlog.Header, ev []byte) {
	switch b {
	case binlog.Start:
		f.now, f.piece = mysqld.PreparedXA{FDE: f.fde}, nil
	case binlog.Inside:
		if h.Type != binlog.TypeQuery {
			f.piece = append(f.piece, ev...)
			if len(f.piece) >= maxStatementBytes && endsStatement(h, ev) {
				f.cut()
			}
		}
	case binlog.End:
		f.cut()
		switch t := f.Asm.Trx(); t.Kind {
		case binlog.XAPrepare:
			f.found[t.XID] = loggedXA{f.now, t.GTID}
		case binlog.XACommit, binlog.XARollback:
			delete(f.found, t.XID)
		}
	}
}

func (f *xaFinder) cut() {
	if len(f.piece) > 0 {
		f.now.Statements = append(f.now.Statements, f.piece)
	}
	f.piece = nil
}

// endsStatement: the flags of a row event follow the header and a table id of 6 bytes; the lowest is STMT_END_F.
func endsStatement(h binlog.Header, ev []byte) bool {
	switch h.Type {
	case binlog.TypeWriteRows, binlog.TypeUpdateRows, binlog.TypeDeleteRows, binlog.TypePartialUpdateRows:
		return len(ev) > binlog.HeaderLen+6 && ev[binlog.HeaderLen+6]&1 != 0
	}
	return false
}
