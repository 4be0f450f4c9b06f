package lifecycle

import (
	"context"
	"errors"
	"time"

	"trireme/internal/core/ledger"
	"trireme/internal/core/raftlog"
	"trireme/internal/mysql/gtid"
	"trireme/internal/mysql/mysqld"
)

// xaWatch follows the prepared XA transactions of a follower's mysqld: what the log has prepared and not ended, mysqld
// has to hold.
type xaWatch struct {
	life    *Life
	scanned uint64                // the log is known up to here
	seen    uint64                // where the last look saw no transaction under way
	open    map[string]gtid.Range // xid to its XA PREPARE's GTID; zero for those that were there at the first look
	scanner ledger.Scanner
	suspect LostXA
}

// LostXA is a prepared XA transaction that mysqld does not show; zero: it shows all.
type LostXA struct {
	XID     string
	Prepare gtid.Range // the GTID of its XA PREPARE; zero: it was prepared before this life
}

// newXAWatch begins with what is prepared, all that ends it lying above an index.
func newXAWatch(l *Life, applied uint64, prepared map[string]bool) xaWatch {
	w := xaWatch{life: l, scanned: applied, seen: applied, open: map[string]gtid.Range{}}
	for xid := range prepared {
		w.open[xid] = gtid.Range{}
	}
	return w
}

// watchXA finds prepared XA transactions of a follower that were ended there and nowhere else. super_read_only does not
// stop XA COMMIT of a transaction that the applier has prepared, any session may send it, and nothing of it is logged
// (docs/mysql.md): it cannot be prevented, and the data differs from then on. executed was read before xids.
func (l *Life) watchXA(applied uint64, executed gtid.Set, xids []mysqld.XID) {
	s := l.of
	s.xaMu.Lock()
	lost := l.lookXALocked(applied, executed, xids)
	// Looked at twice: mysqld counts an XA PREPARE as executed a moment before XA RECOVER shows it (sql_xa_prepare.cc:
	// the GTID is externalized in process_xa_prepare, the state set after it).
	again := lost.XID != "" && lost == s.xa.suspect
	s.xa.suspect = lost
	s.xaMu.Unlock()
	if again {
		s.Host.LostXA(l, lost, applied, executed)
	}
}

// lookXALocked brings the watch up to date, and gives a prepared XA transaction that mysqld has lost.
func (l *Life) lookXALocked(applied uint64, executed gtid.Set, xids []mysqld.XID) (lost LostXA) {
	s := l.of
	if st := s.Status(); st.life != l || !st.Follows() {
		s.xa = xaWatch{}
		return lost
	}
	prepared := XIDKeys(xids)
	first := s.xa.life != l
	if first {
		s.xa = newXAWatch(l, applied, prepared)
		if j := l.judgedXA.Swap(nil); j != nil {
			s.xa = *j // it knows more: what the judgement found, and from where the log has to be looked at
		}
	}
	whole := s.Ledger.Whole()
	upTo, _ := s.Ledger.At()
	if !first && s.specialAt.Load() <= s.xa.scanned {
		// Nothing but rows since. What came a moment ago may not have been noted as special yet.
		s.xa.skip()
	} else if err := s.xa.scan(s.Log, upTo); err != nil {
		if problem := err.Error(); problem != s.xaProblem {
			s.xaProblem = problem
			s.Logger.Warn("prepared XA transactions could not be compared with the log", "err", err)
		}
		s.xa = xaWatch{}
		return lost
	}
	s.xaProblem = ""
	s.xa.seen = whole
	return s.xa.missing(executed, prepared)
}

// WatchesXA says whether the next look at prepared XA transactions is urgent: some are open, or may have come since.
func (s *Lives) WatchesXA() bool {
	s.xaMu.Lock()
	defer s.xaMu.Unlock()
	return s.xa.life != nil && (len(s.xa.open) > 0 || s.specialAt.Load() > s.xa.scanned)
}

// errLostXA: a copy of such data is no good either.
var errLostXA = errors.New("a session may have ended a prepared XA transaction on it, so its data is not copied")

const (
	lostXALooks = 3
	lostXAPause = 300 * time.Millisecond
)

// PreparedToCopy lists what is prepared on a life whose data another node copies. It fails
// where something else should be prepared.
func (l *Life) PreparedToCopy(ctx context.Context) (xids []mysqld.XID, err error) {
	for range lostXALooks { // what is prepared this moment is seen at the next one
		applied, err := l.ReadExecuted(ctx)
		if err != nil {
			return nil, err
		}
		executed := l.Executed() // before what is prepared
		if xids, err = l.mysql.XARecover(ctx); err != nil {
			return nil, err
		}
		l.of.xaMu.Lock()
		lost := l.lookXALocked(applied, executed, xids)
		l.of.xaMu.Unlock()
		if lost.XID == "" {
			return xids, nil
		}
		if err := l.of.exec.Sleep(ctx, lostXAPause); err != nil {
			return nil, err
		}
	}
	return nil, errLostXA
}

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

// missing is a transaction that mysqld has prepared, the log has not ended, and mysqld does not hold any more; the
// suspect first.
func (w *xaWatch) missing(executed gtid.Set, prepared map[string]bool) LostXA {
	gone := func(xid string, r gtid.Range) bool {
		return !prepared[xid] && (r.First == 0 || executed.Contains(gtid.GTID{SID: r.SID, GNO: r.First}))
	}
	if r, open := w.open[w.suspect.XID]; open && r == w.suspect.Prepare && gone(w.suspect.XID, r) {
		return w.suspect
	}
	for xid, r := range w.open {
		if gone(xid, r) {
			return LostXA{xid, r}
		}
	}
	return LostXA{}
}
