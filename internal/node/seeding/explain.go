package seeding

import (
	"context"
	"errors"

	"trireme/internal/api"
	"trireme/internal/core/ledger"
	"trireme/internal/core/raftlog"
	"trireme/internal/mysql/binlog"
	"trireme/internal/mysql/gtid"
	"trireme/internal/mysql/mysqld"
	"trireme/internal/node/lifecycle"
)

// explain decodes what could not be applied.
func (s *Seeding) explain(ctx context.Context, l *lifecycle.Life, e mysqld.ApplyError) api.ApplyErrorView {
	v := api.ApplyErrorView{Number: e.Number, Error: e.Text, Trx: e.GTID, Resources: e.OfResources()}
	if _, err := l.ReadExecuted(ctx); err != nil {
		return v
	}
	if err := s.findEntry(&v, l.Executed()); err != nil {
		s.log.Warn("what the applier stopped at could not be read from the log", "gtid", e.GTID, "err", err)
	}
	return v
}

// errFound ends a scan.
var errFound = errors.New("found")

// findEntry finds the transaction that v.Trx names in the log, or else the first that is not executed, and says what it
// does.
func (s *Seeding) findEntry(v *api.ApplyErrorView, executed gtid.Set) error {
	upTo, _ := s.ledger.At()
	from, _, err := s.host.Log().SeekGTID(executed, upTo)
	if err != nil || from > upTo {
		return err
	}
	wanted, err := gtid.ParseGTID(v.Trx)
	named := err == nil
	var (
		w   = ledger.Walker{Plain: true}
		sum binlog.Summary
		is  bool // the transaction under way is the one
	)
	err = s.host.Log().Scan(from, upTo, func(m *raftlog.Meta, index, _ uint64, events []byte) error {
		return w.Walk(m, index, events, func(b binlog.Boundary, h binlog.Header, ev []byte) error {
			if h.Type.StartsTransaction() {
				g := w.Asm.Trx().GTID
				is = named && g == wanted || !named && !executed.Contains(g)
			}
			if !is {
				return nil
			}
			if err := sum.Add(ev); err != nil {
				return err
			}
			if b == binlog.End {
				trx := w.Asm.Trx()
				v.GTID, v.Index, v.Node = trx.GTID.String(), index, s.name(uint64(m.Node))
				v.XA = (trx.Kind == binlog.XAPrepare || trx.Kind == binlog.XACommit || trx.Kind == binlog.XARollback) &&
					!trx.OnePhase
				return errFound
			}
			return nil
		})
	})
	if !errors.Is(err, errFound) {
		return err
	}
	v.Entry, v.Statement = sum.String(), sum.Statement
	for _, c := range sum.Changes() {
		v.Changes = append(v.Changes, api.ChangeView{Table: c.Table, Operation: c.Op, Events: c.Events})
	}
	return nil
}

// unknownXID is mysqld's error XAER_NOTA: no transaction of that xid is prepared.
const unknownXID = 1397

// LostXA is told that a session on a follower has ended a prepared XA transaction.
func (s *Seeding) LostXA(l *lifecycle.Life, lost lifecycle.LostXA, applied uint64, executed gtid.Set) {
	s.fenceDiverged(l, s.explainLostXA(lost, applied, executed))
}

// explainLostXA says what a session on this node has ended.
func (s *Seeding) explainLostXA(lost lifecycle.LostXA, applied uint64, executed gtid.Set) api.ApplyErrorView {
	v := api.ApplyErrorView{Number: unknownXID, Diverged: true, Index: applied,
		Error: "a session on this node, and not on the leader, has committed or rolled back the prepared XA transaction " +
			lost.XID}
	if lost.Prepare.First == 0 {
		return v // it was prepared before this life of mysqld
	}
	v.Trx = gtid.GTID{SID: lost.Prepare.SID, GNO: lost.Prepare.First}.String()
	var prepare gtid.Set
	prepare.AddRange(lost.Prepare)
	if err := s.findEntry(&v, executed.Subtract(prepare)); err != nil {
		s.log.Warn("an XA transaction that was ended here could not be read from the log", "gtid", v.Trx, "err", err)
	}
	return v
}

// WatchLeftOut takes a follower out of service whose applier has left a transaction out.
func (s *Seeding) WatchLeftOut(ctx context.Context, l *lifecycle.Life) {
	if what, index, executed := l.LeftOut(ctx); index != 0 {
		s.fenceDiverged(l, s.explainLeftOut(what, index, executed))
	}
}

// explainLeftOut says what is missing.
func (s *Seeding) explainLeftOut(what gtid.GTID, index uint64, executed gtid.Set) api.ApplyErrorView {
	v := api.ApplyErrorView{Trx: what.String(), GTID: what.String(), Index: index, Diverged: true,
		Error: "mysqld's applier has left a transaction out: it is not executed, later ones are, and no worker applies it"}
	if err := s.findEntry(&v, executed); err != nil {
		s.log.Warn("what the applier has left out could not be read from the log", "gtid", v.Trx, "err", err)
	}
	return v
}
