package fakemysql

import (
	"fmt"

	"trireme/internal/mysql/gtid"
)

// Receive takes one whole transaction from the feed into the relay log. What is executed or there already is skipped by
// its GTID.
func (s *Server) Receive(events []byte) error {
	if !s.running {
		return ErrDown
	}
	t, err := Decode(events)
	if err != nil {
		return err
	}
	if !s.executed.Contains(t.GTID) && s.retrieved.Add(t.GTID) {
		s.relay = append(s.relay, t)
	}
	return nil
}

// Held is what a receiver tells its source that it has: executed and retrieved.
func (s *Server) Held() gtid.Set { return s.executed.Union(s.retrieved) }

// Backlog is how many transactions wait to be applied.
func (s *Server) Backlog() int { return len(s.relay) }

// ApplyError is why the applier has stopped, or nil.
func (s *Server) ApplyError() error { return s.applier.err }

// applier is why it has stopped, and what keeps this data from taking a transaction.
type applier struct {
	err    error
	number int // MySQL's error
	times  int // that the transaction fails with it; 0: it does not
	at     gtid.GTID
}

// ApplyFault is the error of a transaction that this data does not take, because FailApply said so.
type ApplyFault struct {
	Number int
	GTID   gtid.GTID
}

// Error implements error.
func (e *ApplyFault) Error() string { return fmt.Sprintf("error %d at %v", e.Number, e.GTID) }

// FailApply has the next transaction that is applied fail, so many times, with an error of MySQL's.
func (s *Server) FailApply(number, times int) {
	s.applier.number, s.applier.times, s.applier.at = number, times, gtid.GTID{}
}

// StartApplier starts it again after such an error.
func (s *Server) StartApplier() {
	if _, is := s.applier.err.(*ApplyFault); is {
		s.applier.err = nil
	}
}

// Apply applies the i-th transaction of the relay log. With replica_preserve_commit_order=ON only the first one can
// commit. The applier does not wait for an acknowledgement, whatever semi-sync says.
func (s *Server) Apply(i int) bool {
	if !s.running || s.applier.err != nil || i >= len(s.relay) {
		return false
	}
	if !s.AnyOrder {
		i = 0
	}
	t := s.relay[i]
	if !s.executed.Contains(t.GTID) {
		if f := &s.applier; f.times > 0 && (f.at == t.GTID || f.at == gtid.GTID{}) {
			f.at = t.GTID
			f.times--
			f.err = &ApplyFault{f.number, t.GTID}
			return false
		}
		if err := s.state.check(t.Stmt); err != nil {
			s.applier.err = fmt.Errorf("%v: %v: %w", t.GTID, t.Stmt, err)
			return false
		}
		s.commit(t, false)
	}
	s.relay = append(s.relay[:i:i], s.relay[i+1:]...)
	return true
}

// Clone makes an empty directory a copy of a donor's: its commits, all of them on disk, and its gtid_executed as
// gtid_purged. What the donor's applier has prepared under XA does not come with it. It waits for a donor that has
// waiters: false.
func (s *Server) Clone(donor *Server) bool {
	if !donor.running || len(donor.waiters) > 0 {
		return false
	}
	*s = Server{ServerID: s.ServerID, Flush: s.Flush, AnyOrder: s.AnyOrder, OnCommit: s.OnCommit, life: s.life + 1}
	executed := donor.executed.Clone()
	for i, r := range donor.records {
		if r.life == donor.life && !r.leader && r.trx.Stmt.Kind == XAPrepare {
			executed = executed.Subtract(gtid.SetOf(r.trx.GTID))
			if p, open := donor.state.prepared[r.trx.Stmt.XID]; open && p.record == i {
				continue
			}
		}
		r.life, r.trace = 0, false
		s.records = append(s.records, r)
	}
	s.Plug(executed)
	s.FlushEngineLogs()
	s.savedTo = len(s.records)
	s.replay()
	return true
}
