package node

import (
	"context"
	"errors"
	"fmt"
	"time"

	"trireme/internal/binlog"
	"trireme/internal/gtid"
	"trireme/internal/ha"
	"trireme/internal/ledger"
	"trireme/internal/mysqld"
	"trireme/internal/raftlog"
	"trireme/internal/sqlkind"
)

// ownXA are the prepared XA transactions whose end this life's mysqld logs, so that they are not adopted: what a session of its own has
// prepared, and what was there when it started. (mysqld forgets at any restart what its applier has prepared.) Adopting them anyway, by XA
// ROLLBACK and a new XA PREPARE, would lose them for good if mysqld died in between: their GTIDs, unlike those of an applier's, are on disk.
type ownXA struct {
	found   map[mysqld.XID]bool // by the judgement, in XA RECOVER
	judged  gtid.Set            // what was executed then
	adopted map[mysqld.XID]gtid.GTID
}

// holds says whether the transaction that the log has prepared under a GTID is one.
func (o *ownXA) holds(life gtid.UUID, x mysqld.XID, prepare gtid.GTID) bool {
	return o.found[x] && o.judged.Contains(prepare) || o.adopted[x] == prepare || prepare.SID.UUID == life
}

// adoptXA makes the XA transactions that this mysqld's applier has prepared its own, before it leads (mysqld.Admin.AdoptXA says why).
// What is logged for it is a part of the life's prelude (see beginLead). Without prepared XA transactions, and with nothing left to
// apply that could hold one, nothing happens. It returns the transactions that are its own then.
func (n *Node) adoptXA(ctx context.Context, l *life) (map[mysqld.XID]bool, error) {
	xids, err := l.admin.XARecover(ctx)
	if err != nil {
		return nil, err
	}
	applied, err := n.readApplied(ctx, l)
	if err != nil {
		return nil, err
	}
	if at, _ := n.led.At(); len(xids) == 0 && applied >= at {
		return nil, nil
	}
	adopted, err := n.adoptApplied(ctx, l)
	if err != nil {
		return nil, fmt.Errorf("adopting prepared XA transactions: %w", err)
	}
	return adopted, nil
}

// checkAdopted is called when everything is applied: no prepared XA transaction may be there that was not adopted.
func (n *Node) checkAdopted(ctx context.Context, l *life, adopted map[mysqld.XID]bool) error {
	xids, err := l.admin.XARecover(ctx)
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

func (n *Node) adoptApplied(ctx context.Context, l *life) (map[mysqld.XID]bool, error) {
	// Everything of older terms first: an XA PREPARE that is still on its way here is to be adopted too, and an XA COMMIT must find
	// its transaction.
	index, err := n.cons.ReadIndex(ctx)
	if err != nil {
		return nil, err
	}
	if err := n.led.Await(ctx, index); err != nil {
		return nil, err
	}
	if err := n.applyAll(ctx, l, index); err != nil {
		return nil, err
	}
	xids, err := l.admin.XARecover(ctx)
	if err != nil || len(xids) == 0 {
		return nil, err
	}
	prepared, err := n.preparedXA(xids)
	if err != nil {
		return nil, err
	}
	own := make(map[mysqld.XID]bool, len(xids))
	var list []mysqld.PreparedXA
	for x, p := range prepared {
		own[x] = true
		if !l.own.holds(l.uuid, x, p.gtid) {
			list = append(list, p.PreparedXA)
		}
	}
	if len(list) == 0 {
		return own, nil
	}
	if err := n.pauseFeed(ctx); err != nil {
		return nil, err
	}
	if err := l.admin.AdoptXA(ctx, list); err != nil {
		return nil, errors.Join(err, l.proc.Kill())
	}
	for _, p := range list {
		l.own.adopted[p.XID] = prepared[p.XID].gtid
	}
	n.log.Info("adopted prepared XA transactions before leading", "count", len(list), "own", len(own)-len(list))
	return own, nil
}

// loggedXA is an XA transaction as the log has prepared it.
type loggedXA struct {
	mysqld.PreparedXA
	gtid gtid.GTID // of its XA PREPARE
}

// preparedXA finds the transactions in the log.
func (n *Node) preparedXA(xids []mysqld.XID) (map[mysqld.XID]loggedXA, error) {
	first, err := n.rlog.FirstIndex()
	if err != nil {
		return nil, err
	}
	upTo, _ := n.led.At()
	f := xaFinder{found: map[sqlkind.XID]loggedXA{}, fde: n.rlog.Boundary().Barrier.FDE}
	if err := n.rlog.Scan(first, upTo, func(m *raftlog.Meta, index, _ uint64, events []byte) error {
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

// unknownXID is mysqld's error XAER_NOTA: no transaction of that xid is prepared.
const unknownXID = 1397

// xaWatch follows the prepared XA transactions of a follower's mysqld: what the log has prepared and not ended, mysqld has to hold.
type xaWatch struct {
	life    *life
	scanned uint64                // the log is known up to here
	seen    uint64                // where the last look saw no transaction under way
	open    map[string]gtid.Range // xid to its XA PREPARE's GTID; zero for those that were there at the first look
	scanner ledger.Scanner
	suspect lostXA
}

// lostXA is a prepared XA transaction that mysqld does not show; zero: there is none.
type lostXA struct {
	xid     string
	prepare gtid.Range
}

// newXAWatch begins with what is prepared, all that ends it lying above an index.
func newXAWatch(l *life, applied uint64, prepared map[string]bool) xaWatch {
	w := xaWatch{life: l, scanned: applied, seen: applied, open: map[string]gtid.Range{}}
	for xid := range prepared {
		w.open[xid] = gtid.Range{}
	}
	return w
}

// watchXA finds prepared XA transactions of a follower that were ended there and nowhere else. super_read_only does not stop XA COMMIT of
// a transaction that the applier has prepared, any session may send it, and nothing of it is logged (docs/mysql.md): it cannot be
// prevented, and the data differs from then on. executed was read before xids.
func (n *Node) watchXA(l *life, applied uint64, executed gtid.Set, xids []mysqld.XID) {
	n.xaMu.Lock()
	lost := n.lookXALocked(l, applied, executed, xids)
	// Looked at twice: mysqld counts an XA PREPARE as executed a moment before XA RECOVER shows it (sql_xa_prepare.cc: the
	// GTID is externalized in process_xa_prepare, the state set behind it).
	again := lost.xid != "" && lost == n.xa.suspect
	n.xa.suspect = lost
	n.xaMu.Unlock()
	if again {
		n.fenceDiverged(l, n.explainLostXA(lost, applied, executed))
	}
}

// lookXALocked brings the watch up to date, and gives a prepared XA transaction that mysqld has lost.
func (n *Node) lookXALocked(l *life, applied uint64, executed gtid.Set, xids []mysqld.XID) (lost lostXA) {
	n.mu.Lock()
	follows := n.srv.life == l && n.srv.state == ha.ServerReady && n.serving.phase == ha.PhaseNone
	n.mu.Unlock()
	if !follows {
		n.xa = xaWatch{}
		return lost
	}
	prepared := xidKeys(xids)
	first := n.xa.life != l
	if first {
		n.xa = newXAWatch(l, applied, prepared)
		if j := l.judgedXA.Swap(nil); j != nil {
			n.xa = *j // it knows more: what the judgement found, and from where the log has to be looked at
		}
	}
	whole := n.led.Whole()
	upTo, _ := n.led.At()
	if !first && n.specialAt.Load() <= n.xa.scanned {
		// Nothing but rows since. What came a moment ago may not have been noted as special yet.
		n.xa.skip()
	} else {
		err := n.xa.scan(n.rlog, upTo)
		if n.warnings.isNew("xa", err) {
			n.log.Warn("prepared XA transactions could not be compared with the log", "err", err)
		}
		if err != nil {
			n.xa = xaWatch{}
			return lost
		}
	}
	n.xa.seen = whole
	return n.xa.missing(executed, prepared)
}

// watchesXA says whether the next look at prepared XA transactions is urgent: some are open, or may have come since.
func (n *Node) watchesXA() bool {
	n.xaMu.Lock()
	defer n.xaMu.Unlock()
	return n.xa.life != nil && (len(n.xa.open) > 0 || n.specialAt.Load() > n.xa.scanned)
}

// errLostXA: a copy of such data is no good either.
var errLostXA = errors.New("a session may have ended a prepared XA transaction on it, so its data is not copied")

// preparedToCopy lists what is prepared on this node. errLostXA: something else should be. look is readPrepared.
func (n *Node) preparedToCopy(ctx context.Context, l *life,
	look func(context.Context, *life) (uint64, gtid.Set, []mysqld.XID, error)) ([]mysqld.XID, error) {
	for range lostXALooks { // what is prepared this moment is seen at the next one
		applied, executed, xids, err := look(ctx, l)
		if err != nil {
			return nil, err
		}
		n.xaMu.Lock()
		lost := n.lookXALocked(l, applied, executed, xids)
		n.xaMu.Unlock()
		if lost.xid == "" {
			return xids, nil
		}
		if !pause(ctx, lostXAPause) {
			return nil, ctx.Err()
		}
	}
	return nil, errLostXA
}

// readPrepared reads what mysqld has executed, and after that what it has prepared.
func (n *Node) readPrepared(ctx context.Context, l *life) (applied uint64, executed gtid.Set, xids []mysqld.XID, err error) {
	if applied, err = n.readApplied(ctx, l); err != nil {
		return 0, executed, nil, err
	}
	executed = l.executedSet()
	xids, err = l.admin.XARecover(ctx)
	return applied, executed, xids, err
}

const (
	lostXALooks = 3
	lostXAPause = 300 * time.Millisecond
)

// skip leaves out what came before the last look.
func (w *xaWatch) skip() {
	if w.seen > w.scanned {
		w.scanned, w.scanner = w.seen, ledger.Scanner{}
	}
}

// scan takes what the log has prepared and ended, up to an index.
func (w *xaWatch) scan(log *raftlog.Log, upTo uint64) error {
	if w.scanned >= upTo {
		return nil
	}
	err := log.Scan(w.scanned+1, upTo, func(m *raftlog.Meta, index, _ uint64, events []byte) error {
		return w.scanner.Entry(m, index, events, w.take)
	})
	w.scanned = upTo
	return err
}

func (w *xaWatch) take(t ledger.Txn) error {
	switch t.Class {
	case ledger.XAPrepare:
		w.open[t.XID] = t.GTIDs
	case ledger.XAEnd:
		delete(w.open, t.XID)
	}
	return nil
}

// missing is a transaction that mysqld has prepared, the log has not ended, and mysqld does not hold any more; the suspect first.
func (w *xaWatch) missing(executed gtid.Set, prepared map[string]bool) lostXA {
	gone := func(xid string, r gtid.Range) bool {
		return !prepared[xid] && (r.First == 0 || executed.Contains(gtid.GTID{SID: r.SID, GNO: r.First}))
	}
	if r, open := w.open[w.suspect.xid]; open && r == w.suspect.prepare && gone(w.suspect.xid, r) {
		return w.suspect
	}
	for xid, r := range w.open {
		if gone(xid, r) {
			return lostXA{xid, r}
		}
	}
	return lostXA{}
}
