package fakemysql

import (
	"fmt"
	"maps"
	"slices"

	"trireme/internal/mysql/gtid"
)

// FlushMode is innodb_flush_log_at_trx_commit.
type FlushMode uint8

const (
	FlushLazy  FlushMode = 0 // written and flushed once a second
	FlushEach  FlushMode = 1 // written and flushed at each commit
	FlushWrite FlushMode = 2 // written at each commit, flushed once a second
)

// unflushed is how many of the newest commit records a crash may take in any mode: with the binary log gone the engine
// has its prepare on disk, and not its commit (1 or 2 were measured).
const unflushed = 2

// record is one commit in the engine's redo log.
type record struct {
	trx    Trx
	life   int
	leader bool // logged by this server itself; else by the applier
	trace  bool // its GTID is saved with it
	effect bool // it changed something
	silent bool // a rollback of a prepared XA transaction that no log knows (AdoptXA), or plug
	plug   gtid.Set
}

// traceless reports whether this server, had it logged the statement itself, saves its GTID only at the next rotation
// or clean shutdown.
func (r *record) traceless() bool {
	k := r.trx.Stmt.Kind
	return k == Analyze || k == DropIfExists && !r.effect || k == Account && !r.effect
}

// state is what the engine's records add up to.
type state struct {
	tables   map[uint32]map[uint64]int // rows, and how often each is there
	users    map[uint32]bool
	prepared map[string]prepared
}

type prepared struct {
	table  uint32
	rows   []uint64
	record int
}

func newState() *state {
	return &state{tables: map[uint32]map[uint64]int{0: {}}, users: map[uint32]bool{}, prepared: map[string]prepared{}}
}

// Errors of MySQL's that a statement fails with.
var (
	ErrNoTable     = fmt.Errorf("error 1146: the table is not there")
	ErrTableExists = fmt.Errorf("error 1050: the table is there already")
	ErrUnknownXID  = fmt.Errorf("error 1397: XAER_NOTA")
	ErrDupXID      = fmt.Errorf("error 1440: XAER_DUPID")
)

// check says why a statement fails, or nil.
func (st *state) check(s Stmt) error {
	_, there := st.tables[s.Table]
	_, isPrepared := st.prepared[s.XID]
	switch s.Kind {
	case Insert, XAPrepare:
		if !there {
			return ErrNoTable
		}
		if s.Kind == XAPrepare && isPrepared {
			return ErrDupXID
		}
	case CreateTable:
		if there {
			return ErrTableExists
		}
	case XACommit, XARollback:
		if !isPrepared {
			return ErrUnknownXID
		}
	}
	return nil
}

// changes reports whether a statement that does not fail changes anything.
func (st *state) changes(s Stmt) bool {
	switch s.Kind {
	case DropIfExists:
		_, there := st.tables[s.Table]
		return there
	case Account:
		return !st.users[s.User]
	case Analyze:
		return false
	}
	return true
}

// apply carries out a statement; at is its record's place.
func (st *state) apply(s Stmt, at int) {
	switch s.Kind {
	case Insert:
		st.insert(s.Table, s.Rows)
	case CreateTable:
		st.tables[s.Table] = map[uint64]int{}
	case DropIfExists:
		delete(st.tables, s.Table)
	case Account:
		st.users[s.User] = true
	case XAPrepare:
		st.prepared[s.XID] = prepared{s.Table, s.Rows, at}
	case XACommit:
		st.insert(st.prepared[s.XID].table, st.prepared[s.XID].rows)
		delete(st.prepared, s.XID)
	case XARollback:
		delete(st.prepared, s.XID)
	}
}

func (st *state) insert(table uint32, rows []uint64) {
	for _, r := range rows {
		if t := st.tables[table]; t != nil {
			t[r]++
		}
	}
}

// commit adds a record, which makes its statement visible.
func (s *Server) commit(t Trx, leader bool) {
	r := record{trx: t, life: s.life, leader: leader, trace: true, effect: s.state.changes(t.Stmt)}
	s.state.apply(t.Stmt, len(s.records))
	s.records = append(s.records, r)
	s.executed.Add(t.GTID)
	if s.Flush == FlushEach {
		s.flushed = max(s.flushed, len(s.records)-unflushed)
	}
	if s.OnCommit != nil {
		s.OnCommit(t, leader)
	}
}

// Tamper adds a row that no log has, as an operator does who starts a server on the data directory. Surviving that is
// not promised, but it must be detected.
func (s *Server) Tamper(g gtid.GTID, row uint64) {
	s.records = append(s.records, record{trx: Trx{GTID: g, Stmt: Stmt{Kind: Insert, Rows: []uint64{row}}}, trace: true,
		effect: true})
	s.flushed = len(s.records)
	s.replay()
}

// silently carries out a statement that no log knows.
func (s *Server) silently(st Stmt) {
	s.records = append(s.records, record{trx: Trx{Stmt: st}, life: s.life, leader: true, silent: true, effect: true})
	s.state.apply(st, len(s.records)-1)
}

// Durable are the transactions that ran here, or are plugged, and are on disk, whatever gtid_executed says of them.
func (s *Server) Durable() gtid.Set {
	var set gtid.Set
	for i := range s.records[:s.flushed] {
		if r := &s.records[i]; !r.silent {
			set.Add(r.trx.GTID)
		}
		set.AddSet(s.records[i].plug)
	}
	return set
}

// replay makes state and gtid_executed from the records, as a start does.
func (s *Server) replay() {
	s.state, s.executed = newState(), gtid.Set{}
	for i := range s.records {
		r := &s.records[i]
		s.state.apply(r.trx.Stmt, i)
		s.executed.AddSet(r.plug)
		if r.trace && !r.silent {
			s.executed.Add(r.trx.GTID)
		}
	}
}

// CrashFloor is how many commit records a crash keeps at least. A kill leaves the page cache, a power loss what was
// flushed.
func (s *Server) CrashFloor(power bool) int {
	if power || s.Flush == FlushLazy {
		return s.flushed
	}
	return max(s.flushed, len(s.records)-unflushed)
}

// Records is how many commit records there are; Crash keeps between CrashFloor and all of them.
func (s *Server) Records() int { return len(s.records) }

// FlushEngineLogs is FLUSH LOCAL ENGINE LOGS: everything committed is on disk. It leaves no GTID.
func (s *Server) FlushEngineLogs() { s.flushed = len(s.records) }

// Crash ends this life silently: SIGKILL or a power loss. keep is how many commit records survive; saved says of each
// GTID that leaves no trace whether the server happened to save it before. Sessions are gone; prepared transactions of
// waiting sessions roll back, unless the next start finds them in a binary log.
func (s *Server) Crash(keep int, saved func() bool) {
	if !s.running {
		return
	}
	keep = max(s.flushed, min(keep, len(s.records)))
	s.records = s.records[:keep]
	s.flushed = keep // what is read back at the start is on disk from then on
	s.stop(saved)
}

// stop ends a life. Whether clean or not, what the applier of this life has prepared under XA is lost with it, and so
// are the GTIDs of its XA PREPAREs (log_replica_updates=OFF).
func (s *Server) stop(saved func() bool) {
	s.replay()
	kept := s.records[:0:0]
	for i, r := range s.records {
		switch {
		case r.life != s.life:
		case r.leader && r.traceless() && i >= s.savedTo && !saved():
			r.trace = false
		case !r.leader && r.trx.Stmt.Kind == XAPrepare:
			if p, open := s.state.prepared[r.trx.Stmt.XID]; open && p.record == i {
				continue
			}
			r.trace = false
		}
		kept = append(kept, r)
	}
	s.records, s.flushed, s.savedTo = kept, len(kept), len(kept)
	s.replay()
	s.Disconnect()
	s.dead = s.waiters
	s.running, s.waiters, s.relay, s.retrieved = false, nil, nil, gtid.Set{}
}

// Prepared are the xids of XA RECOVER.
func (s *Server) Prepared() []string { return slices.Sorted(maps.Keys(s.state.prepared)) }

// Executed is gtid_executed; it is not to be changed.
func (s *Server) Executed() gtid.Set { return s.executed }

// Row says how often a row is there, and whether its table is.
func (s *Server) Row(table uint32, row uint64) (times int, there bool) {
	t, there := s.state.tables[table]
	return t[row], there
}

// Tables gives what a client sees: each table's rows, and how often they are there. It is not to be changed.
func (s *Server) Tables() map[uint32]map[uint64]int { return s.state.tables }

// Users are the accounts.
func (s *Server) Users() []uint32 { return slices.Sorted(maps.Keys(s.state.users)) }

// Fingerprint is equal for servers with the same data.
func (s *Server) Fingerprint() string {
	var out []byte
	for _, t := range slices.Sorted(maps.Keys(s.state.tables)) {
		out = fmt.Appendf(out, "t%d:", t)
		for _, r := range slices.Sorted(maps.Keys(s.state.tables[t])) {
			out = fmt.Appendf(out, " %dx%d", r, s.state.tables[t][r])
		}
		out = append(out, '\n')
	}
	return string(fmt.Appendf(out, "users %v\nprepared %v\n", s.Users(), s.Prepared()))
}

// Plug is SET GLOBAL gtid_purged='+…': the GTIDs count as executed. It is a commit like any other.
func (s *Server) Plug(set gtid.Set) {
	s.records = append(s.records, record{life: s.life, silent: true, plug: set.Clone()})
	s.executed.AddSet(set)
}
