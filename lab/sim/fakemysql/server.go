package fakemysql

import (
	"errors"
	"fmt"

	"trireme/internal/mysql/binlog"
	"trireme/internal/mysql/gtid"
)

// Pos is a position in the binary log.
type Pos struct {
	File uint32
	Off  uint64
}

// Less orders positions.
func (p Pos) Less(q Pos) bool { return p.File < q.File || p.File == q.File && p.Off < q.Off }

func (p Pos) String() string { return fmt.Sprintf("binlog.%06d:%d", p.File, p.Off) }

// fileName is mysqld's name of a binary log file.
func fileName(n uint32) string { return fmt.Sprintf("binlog.%06d", n) }

// Outcome is what a client hears.
type Outcome struct {
	Client uint64
	OK     bool // else its connection broke: it does not know
}

// Server is one data directory, and the mysqld that runs on it or not. The settings may be changed at any time.
type Server struct {
	ServerID uint32
	Flush    FlushMode
	// AnyOrder lets the applier commit in another order than the log's (replica_preserve_commit_order=OFF).
	AnyOrder bool
	// OnCommit, when set, is told of every transaction that becomes visible; leader says that this server logged it
	// itself.
	OnCommit func(t Trx, leader bool)

	running  bool
	life     int
	uuid     gtid.UUID
	semiSync bool
	readOnly bool
	offline  bool
	closing  bool // super_read_only was asked for and waits for sessions that wait

	records  []record
	flushed  int // records that are on disk
	savedTo  int // GTIDs of records below were saved, those that leave no trace too
	state    *state
	executed gtid.Set

	log      []logged // of this incarnation
	end      Pos
	acked    Pos
	waiters  []waiter
	dead     []waiter // of the life before, whose transactions its binary log holds
	outcomes []Outcome

	relay     []Trx
	retrieved gtid.Set
	applier   applier
}

// logged is one event in the binary log.
type logged struct {
	start, end Pos
	data       []byte
	needAck    bool
	trx        *Trx // of the last event of a transaction
}

// waiter is a session in AFTER_SYNC: its transaction is prepared in the engine, logged, and not visible.
type waiter struct {
	client uint64 // 0: the client is gone
	trx    Trx
	end    Pos
}

// New is an initialised data directory; no server runs.
func New(serverID uint32) *Server { return &Server{ServerID: serverID, state: newState()} }

// Running reports whether mysqld runs, ReadOnly whether super_read_only is on, SemiSync whether commits wait for an
// acknowledgement.
func (s *Server) Running() bool  { return s.running }
func (s *Server) ReadOnly() bool { return s.readOnly }
func (s *Server) SemiSync() bool { return s.semiSync }

// UUID is the incarnation's server_uuid.
func (s *Server) UUID() gtid.UUID { return s.uuid }

// End is the end of the binary log, un-ACKed bytes included, as SHOW BINARY LOG STATUS gives it.
func (s *Server) End() Pos { return s.end }

// Start begins a life, read-only, with semi-sync off. keepLog starts it on the binary log of the life before: recovery
// commits every prepared transaction that it finds there, acknowledged or not, and counts as executed what the log
// holds, whether the engine does or not.
func (s *Server) Start(uuid gtid.UUID, keepLog bool) {
	s.replay()
	if keepLog {
		for _, w := range s.dead {
			s.commit(w.trx, true)
		}
		var claimed gtid.Set
		for _, l := range s.log {
			if l.trx != nil {
				claimed.Add(l.trx.GTID)
			}
		}
		if lost := claimed.Subtract(s.executed); !lost.Empty() {
			s.Plug(lost)
		}
	}
	s.dead, s.log = nil, nil
	s.running, s.readOnly, s.closing, s.semiSync, s.applier.err = true, true, false, false, nil
	s.offline = false
	s.life++
	s.uuid = uuid
	s.end, s.acked = Pos{1, 4}, Pos{}
	s.beginFile()
}

// beginFile writes what stands at the beginning of a binary log file.
func (s *Server) beginFile() {
	h := binlog.Header{Timestamp: 1, ServerID: s.ServerID}
	s.write(binlog.AppendFormatDescription(nil, h, "9.7.4", 0), nil)
	h.Flags = binlog.FlagIgnorable
	s.write(binlog.AppendPreviousGTIDs(nil, h, gtid.Set{}), nil)
}

// write appends an event to the binary log.
func (s *Server) write(ev []byte, trx *Trx) {
	start := s.end
	s.end.Off += uint64(len(ev))
	binlog.SetLogPos(ev, uint32(s.end.Off))
	s.log = append(s.log, logged{start: start, end: s.end, data: ev, trx: trx})
}

// Errors of statements.
var (
	ErrDown     = errors.New("error 2013: the server is not there")
	ErrReadOnly = errors.New("error 1290: the server is read-only")
	ErrBlocked  = errors.New("the statement waits for super_read_only, which waits for a commit")
)

// Execute runs a client's statement as far as it gets: an error, or committed, or waiting for its acknowledgement. The
// client's outcome comes from Outcomes; client 0 does not ask. more says that the next commit belongs to the same flush
// group, so that mysqld asks for one acknowledgement after both.
func (s *Server) Execute(client uint64, st Stmt, more bool) error {
	switch {
	case !s.running, s.offline && client != 0:
		return ErrDown
	case s.closing && st.Kind != Analyze:
		return ErrBlocked
	case s.readOnly && st.Kind != Analyze:
		return ErrReadOnly
	}
	if err := s.conflict(st); err != nil {
		return err
	}
	if st.Kind == XACommit || st.Kind == XARollback {
		// The applier's: its XA PREPARE is not in this binary log, so neither is its end (mysqld.Admin.AdoptXA).
		if p := s.state.prepared[st.XID]; !s.records[p.record].leader {
			s.silently(st)
			s.tell(client, true)
			return nil
		}
	}
	t := Trx{GTID: s.nextGTID(), Stmt: st}
	t.HasXID = st.Kind == Account || st.Kind == CreateTable || st.Kind == DropIfExists && s.state.changes(st)
	evs := t.events(s.ServerID)
	for i, ev := range evs {
		var last *Trx
		if i == len(evs)-1 {
			last = &t
		}
		s.write(ev, last)
	}
	s.log[len(s.log)-1].needAck = s.semiSync && !more
	if s.semiSync && s.acked.Less(s.end) {
		s.waiters = append(s.waiters, waiter{client: client, trx: t, end: s.end})
		return nil
	}
	s.commit(t, true)
	s.tell(client, true)
	return nil
}

// conflict is what a statement fails with; one that touches what a waiting one has locked fails as if it had timed out.
func (s *Server) conflict(st Stmt) error {
	if err := s.state.check(st); err != nil {
		return err
	}
	for _, w := range s.waiters {
		o := w.trx.Stmt
		table := o.Kind == CreateTable || o.Kind == DropIfExists || st.Kind == CreateTable || st.Kind == DropIfExists
		if table && o.Table == st.Table || o.XID != "" && o.XID == st.XID || o.Kind == Account && st.Kind == Account {
			return errors.New("error 1205: lock wait timeout")
		}
	}
	return nil
}

// nextGTID is the lowest free number of the server's uuid.
func (s *Server) nextGTID() gtid.GTID {
	g := gtid.GTID{SID: gtid.SID{UUID: s.uuid}, GNO: 1}
	owned := func() bool {
		for _, w := range s.waiters {
			if w.trx.GTID == g {
				return true
			}
		}
		return false
	}
	for s.executed.Contains(g) || owned() {
		g.GNO++
	}
	return g
}

func (s *Server) tell(client uint64, ok bool) {
	if client != 0 {
		s.outcomes = append(s.outcomes, Outcome{client, ok})
	}
}

// Logged is the newest transaction in the binary log; ok is false if the log has no transaction.
func (s *Server) Logged() (g gtid.GTID, end Pos, ok bool) {
	for i := len(s.log) - 1; i >= 0; i-- {
		if t := s.log[i].trx; t != nil {
			return t.GTID, s.log[i].end, true
		}
	}
	return g, end, false
}

// LoggedGTIDs are those in the binary log.
func (s *Server) LoggedGTIDs() (set gtid.Set) {
	for _, l := range s.log {
		if l.trx != nil {
			set.Add(l.trx.GTID)
		}
	}
	return set
}

// OnlyControlEvents says whether the binary log holds nothing between two positions but the events that begin and end
// its files.
func (s *Server) OnlyControlEvents(from, to Pos) bool {
	for _, l := range s.log {
		if l.start.Less(from) || !l.start.Less(to) {
			continue
		}
		h, err := binlog.ParseHeader(l.data)
		if err != nil {
			return false
		}
		switch h.Type {
		case binlog.TypeFormatDescription, binlog.TypePreviousGTIDs, binlog.TypeRotate:
		default:
			return false
		}
	}
	return true
}

// Outcomes returns what clients have heard since the last call.
func (s *Server) Outcomes() []Outcome {
	out := s.outcomes
	s.outcomes = nil
	return out
}

// Waiting are the GTIDs of the sessions that wait for an acknowledgement.
func (s *Server) Waiting() []gtid.GTID {
	var out []gtid.GTID
	for _, w := range s.waiters {
		out = append(out, w.trx.GTID)
	}
	return out
}

// release commits the waiters up to a position, in order.
func (s *Server) release(to Pos) {
	n := 0
	for n < len(s.waiters) && !to.Less(s.waiters[n].end) {
		s.commit(s.waiters[n].trx, true)
		s.tell(s.waiters[n].client, true)
		n++
	}
	s.waiters = s.waiters[n:]
	if len(s.waiters) == 0 && s.closing {
		s.readOnly, s.closing = true, false
	}
}

// Ack is the semi-sync replica's: everything up to pos is released. A position that was never sent is believed, and
// what is logged below it later does not wait.
func (s *Server) Ack(pos Pos) {
	if s.running && s.semiSync && s.acked.Less(pos) {
		s.acked = pos
		s.release(pos)
	}
}

// SetSemiSync switches the plugin. Off releases everybody who waits.
func (s *Server) SetSemiSync(on bool) {
	s.semiSync = on
	if !on {
		s.release(s.end)
	}
}

// SetReadOnly sets super_read_only. Setting it waits for sessions that wait, and new writes wait for it; then it
// returns false.
func (s *Server) SetReadOnly(on bool) bool {
	switch {
	case !on:
		s.readOnly, s.closing = false, false
	case len(s.waiters) > 0:
		s.closing = true
		return false
	default:
		s.readOnly = true
	}
	return true
}

// Disconnect cuts all clients: those who wait do not learn what became of their commits, which go on waiting.
func (s *Server) Disconnect() {
	for i := range s.waiters {
		s.tell(s.waiters[i].client, false)
		s.waiters[i].client = 0
	}
}

// SetOffline is offline_mode, with which a server starts: clients are turned away.
func (s *Server) SetOffline(on bool) {
	if s.offline = on; on {
		s.Disconnect()
	}
}

// LoginsHang: an account statement that waits holds the ACL cache lock, and every new login hangs. Sessions that are
// open go on.
func (s *Server) LoginsHang() bool {
	for _, w := range s.waiters {
		if w.trx.Stmt.Kind == Account {
			return true
		}
	}
	return false
}

// Rotate begins the next binary log file. It waits until no transaction with an XID is waiting (false), and saves the
// GTIDs that leave no trace.
func (s *Server) Rotate() bool {
	for _, w := range s.waiters {
		if k := w.trx.Stmt.Kind; k != XACommit && k != XARollback && (k == Insert || k == XAPrepare || w.trx.HasXID) {
			return false
		}
	}
	s.savedTo = len(s.records)
	next := s.end.File + 1
	s.write(binlog.AppendRotate(nil, binlog.Header{Timestamp: 1, ServerID: s.ServerID}, fileName(next), 4), nil)
	s.end = Pos{next, 4}
	s.beginFile()
	return true
}

// Shutdown is SIGTERM or SHUTDOWN: waiting sessions are released, and everything is flushed and saved.
func (s *Server) Shutdown() {
	if !s.running {
		return
	}
	s.release(s.end)
	s.FlushEngineLogs()
	s.savedTo = len(s.records)
	s.stop(func() bool { return true })
}

// AdoptXA makes prepared XA transactions of the applier this server's own: each is rolled back without a trace and
// prepared again by a session that logs. Semi-sync must be off.
func (s *Server) AdoptXA(xids []string) error {
	if s.semiSync {
		return errors.New("semi-sync is on while XA transactions are adopted")
	}
	for _, xid := range xids {
		p, there := s.state.prepared[xid]
		if !there {
			return ErrUnknownXID
		}
		if s.records[p.record].leader {
			return fmt.Errorf("XA transaction %s is this server's own already", xid)
		}
		back := Stmt{Kind: XARollback, XID: xid}
		s.silently(back)
		was := s.readOnly
		s.readOnly = false
		err := s.Execute(0, Stmt{Kind: XAPrepare, Table: p.table, Rows: p.rows, XID: xid}, false)
		s.readOnly = was
		if err != nil {
			return err
		}
	}
	return nil
}
