package sim

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"trireme/internal/base/mutant"
	"trireme/internal/core/ha"
	"trireme/internal/core/ledger"
	"trireme/internal/core/raftlog"
	"trireme/internal/mysql/binlog"
	"trireme/internal/mysql/gtid"
	"trireme/internal/node/gossip"
	"trireme/internal/node/lifecycle"
	"trireme/lab/sim/fakemysql"
)

// sqlWorld is what the members of one run share: the clients, and what is true. It knows every committed transaction,
// in log order, from whichever node hears of it first, and keeps a server of its own that has run exactly those.
type sqlWorld struct {
	w       *World
	members []*member
	rule    string // the rule that the member breaks on purpose; "": none
	mode    struct{ leader, follower fakemysql.FlushMode }
	chunk   int
	// logger is the raft id of a node without mysqld; 0: no logger.
	logger uint64

	truth
	local    gtid.Set // of statements that were never meant for Raft
	served   map[gtid.UUID]uint64
	adopting bool

	clients    map[uint64]gtid.GTID
	applying   map[uint64]bool
	nextClient uint64
	nextRow    uint64
	nextTable  uint32
	nextXID    int
	probe      struct { // the write that shows whether the cluster takes any
		client uint64
		ok     bool
	}
	counts sqlCounts
	holds  holds
	force  force
}

// truth is what is committed.
type truth struct {
	taken    []takenEntry // all of it, to begin again when an operator cuts it
	next     uint64       // index of the next committed entry to be taken
	at       map[gtid.GTID]uint64
	executed gtid.Set // all of at
	order    []gtid.GTID
	asm      trxAssembler
	ref      *fakemysql.Server
	rows     map[uint64]bool // ever committed
	xaRows   map[string][]uint64
	openXA   map[string]uint64 // xid to the index of its XA PREPARE
}

type takenEntry struct {
	index, term uint64
	meta        *raftlog.Meta
	events      []byte
}

func newTruth() truth {
	t := truth{next: 1, at: map[gtid.GTID]uint64{}, rows: map[uint64]bool{}, xaRows: map[string][]uint64{},
		openXA: map[string]uint64{}, ref: fakemysql.New(0)}
	t.ref.Start(gtid.IncarnationUUID(clusterID, 0, 1), false)
	return t
}

// sqlCounts are written once, by the first to finish.
type sqlCounts struct {
	attempts, refused, acked, unknown, reads int64 // of clients
	opens, retires, seeds, guards            int64
	switched, forced                         int64 // as an operator has asked
	plugged, refed                           int64 // transactions, by judgements
	givenUp                                  int64 // nodes, by logs at their bounds
	ruled, rulesOff, slowed                  int64 // looks at commits under a rule, suspensions, slowings
}

// SQLTop makes the Tops of a cluster of data nodes: the daemon's work above consensus, with a model of mysqld. rule
// breaks one of the rules on purpose, to show that this is noticed; "" breaks none.
func SQLTop(rule string) func(*Node) Top {
	return func(n *Node) Top {
		if n.w.sql == nil {
			n.w.sql = newSQLWorld(n.w, rule)
		}
		return newMember(n, n.w.sql)
	}
}

func newSQLWorld(w *World, rule string) *sqlWorld {
	s := &sqlWorld{w: w, rule: rule, truth: newTruth(), served: map[gtid.UUID]uint64{}, clients: map[uint64]gtid.GTID{},
		applying: map[uint64]bool{}}
	r := w.rnd
	switch r.IntN(3) {
	case 0:
		s.mode.leader, s.mode.follower = fakemysql.FlushEach, fakemysql.FlushEach
	case 1:
		s.mode.leader, s.mode.follower = fakemysql.FlushWrite, fakemysql.FlushLazy
	default:
		s.mode.leader, s.mode.follower = fakemysql.FlushWrite, fakemysql.FlushWrite
	}
	s.chunk = 250 + r.IntN(2000)
	if n := w.plan.nodes; n >= 3 && r.IntN(4) == 0 && !w.plan.has(fForce) {
		s.logger = 1 + uint64(r.IntN(n))
	}
	w.At(quiet/2, s.startClients)
	s.holds.init(w)
	s.force.init(s)
	return s
}

// broken says whether the member breaks a rule on purpose: because a test asked for it, or because the program was
// built so (package mutant) and the code that it breaks is not simulated: that of mysqld's files.
func (s *sqlWorld) broken(rule string) bool {
	return s.rule == rule || rule == "S5" && mutant.S5
}

// applyTime is how long a few transactions take the applier.
func (s *sqlWorld) applyTime() time.Duration {
	r := s.w.rnd
	if r.IntN(60) == 0 {
		return time.Duration(r.IntN(300)) * time.Millisecond
	}
	return time.Duration(100+r.IntN(2000)) * time.Microsecond
}

// trxAssembler puts the transactions of a log together, of which several lie in an entry or one in several.
type trxAssembler struct {
	asm  binlog.Assembler
	trx  []byte // of the transaction that is not whole yet
	inc  uint64
	term uint64
}

// entry takes the next entry and calls f for every transaction that ends in it.
func (a *trxAssembler) entry(term uint64, m *raftlog.Meta, events []byte, f func(g gtid.GTID, trx []byte) error) error {
	switch m.Kind {
	case raftlog.Barrier:
		if len(a.trx) > 0 && (a.inc != m.Incarnation || a.term < term) {
			a.trx = nil
			a.asm.Reset()
		}
		return nil
	case raftlog.Trx:
	default:
		return nil
	}
	if cont := m.Flags&raftlog.FlagContinues != 0; cont != (len(a.trx) > 0) {
		return fmt.Errorf("continues a transaction: %t, one is unfinished: %t", cont, len(a.trx) > 0)
	}
	a.inc, a.term = m.Incarnation, term
	for len(events) > 0 {
		h, ev, rest, err := binlog.Cut(events)
		if err != nil {
			return err
		}
		events = rest
		b, err := a.asm.Feed(h, ev)
		if err != nil {
			return err
		}
		a.trx = append(a.trx, ev...)
		if b == binlog.End {
			if err := f(a.asm.Trx().GTID, a.trx); err != nil {
				return err
			}
			a.trx = nil
		}
	}
	return nil
}

// learn takes committed entries up to an index from a node's log, if they are news.
func (s *sqlWorld) learn(log *raftlog.Log, upTo uint64) {
	r := log.NewReader(s.next)
	for s.next <= upTo {
		es, err := r.Next(upTo, 1<<20)
		if err != nil || len(es) == 0 {
			s.w.Violate("simulation", "entry %d is not to be had: %v", s.next, err)
			return
		}
		for _, e := range es {
			data := e.GetData()
			if e.GetType() != 0 || len(data) == 0 {
				s.next++
				continue
			}
			m, events, err := raftlog.DecodeMeta(data)
			if err != nil {
				s.w.Violate("simulation", "entry %d: %v", s.next, err)
				return
			}
			s.committed(e.GetIndex(), e.GetTerm(), &m, events)
		}
	}
}

// committed takes a committed entry; the first node that has it is believed, since the log below is checked to be the
// same everywhere.
func (s *sqlWorld) committed(index, term uint64, m *raftlog.Meta, events []byte) {
	if index != s.next {
		return
	}
	s.next++
	s.taken = append(s.taken, takenEntry{index, term, m, events})
	err := s.asm.entry(term, m, events, func(g gtid.GTID, trx []byte) error { return s.take(index, g, trx) })
	if err != nil {
		s.w.Violate("S12", "committed entry %d: %v", index, err)
	}
}

// take runs a committed transaction on the reference.
func (s *sqlWorld) take(index uint64, g gtid.GTID, trx []byte) error {
	if at, twice := s.at[g]; twice {
		return fmt.Errorf("%v is in entry %d already", g, at)
	}
	s.at[g] = index
	s.order = append(s.order, g)
	s.executed.Add(g)
	t, err := fakemysql.Decode(trx)
	if err != nil {
		return err
	}
	switch st := t.Stmt; st.Kind {
	case fakemysql.Insert:
		s.note(st.Rows)
	case fakemysql.XAPrepare:
		s.xaRows[st.XID], s.openXA[st.XID] = st.Rows, index
	case fakemysql.XACommit:
		s.note(s.xaRows[st.XID])
		delete(s.openXA, st.XID)
	case fakemysql.XARollback:
		delete(s.openXA, st.XID)
	}
	if err := s.ref.Receive(trx); err != nil {
		return err
	}
	s.ref.Apply(0)
	return s.ref.ApplyError()
}

func (s *sqlWorld) note(rows []uint64) {
	for _, r := range rows {
		s.rows[r] = true
	}
}

// committedHere is called when a transaction becomes visible on a server: it must be committed (S1, S3, S4).
func (s *sqlWorld) committedHere(g *member, t fakemysql.Trx, leader bool) {
	if at, ok := s.at[t.GTID]; ok {
		if leader && g.srv.SemiSync() {
			s.okGiven(g, at)
		}
		return
	}
	switch {
	case g.n.past():
	case leader && (s.adopting || t.Stmt.Kind == fakemysql.Analyze && !g.srv.SemiSync()):
		s.local.Add(t.GTID)
	case leader && g.srv.Running():
		s.w.Violate("S4", "node %d shows %v (%v), which waited and is not committed", g.n.ID, t.GTID, t.Stmt)
	case leader:
		s.w.Violate("S5", "node %d shows %v (%v) after a start, which is not committed", g.n.ID, t.GTID, t.Stmt)
	default:
		s.w.Violate("S3", "node %d has applied %v (%v), which is not committed", g.n.ID, t.GTID, t.Stmt)
	}
}

// fed is called for each transaction that a feed hands out: committed ones only, in log order (S3).
func (s *sqlWorld) fed(g *member, t gtid.GTID) {
	at, ok := s.at[t]
	if g.n.past() {
		return
	}
	if !ok {
		s.w.Violate("S3", "node %d is fed %v, which is not committed", g.n.ID, t)
	}
	if at < g.feed.last {
		s.w.Violate("S3", "node %d is fed entry %d after entry %d", g.n.ID, at, g.feed.last)
	}
	g.feed.last = at
}

// ready is called when a mysqld has been judged good: it holds nothing that Raft has not committed (S5, S11).
func (s *sqlWorld) ready(g *member) {
	if g.bare { // the others' purges may rest on what it said of itself before, for as long as they believe that
		s.w.At(2*gossip.Lifetime, func() { g.bare = false })
	}
	if g.n.past() {
		return
	}
	if errant := g.srv.Executed().Subtract(s.executed).Subtract(s.local); !errant.Empty() {
		s.w.Violate("S5", "node %d is found good and has executed %v, which is not committed", g.n.ID, &errant)
	}
}

// opened is called when writes open: everything below the barrier is applied (S6), and no incarnation serves in two
// terms (S7).
func (s *sqlWorld) opened(g *member, l *lifecycle.Life, term uint64) {
	s.counts.opens++
	if g.n.past() {
		s.serves(g, "opens writes")
		return
	}
	b := g.led.NewestBarrier()
	if b.Incarnation != l.Incarnation || uint64(b.Node) != g.n.ID || b.Term != term {
		s.w.Violate("S6", "node %d opens writes in term %d and the newest barrier is %+v", g.n.ID, term, b)
	}
	for _, t := range s.order {
		if s.at[t] >= b.Index {
			break
		}
		if !g.srv.Executed().Contains(t) {
			s.w.Violate("S6", "node %d opens writes after the barrier %d and has not executed %v of entry %d", g.n.ID, b.Index,
				t, s.at[t])
			return
		}
	}
	if was, ok := s.served[l.UUID]; ok && was != term {
		s.w.Violate("S7", "incarnation %d of node %d serves term %d and has served term %d", l.Incarnation, g.n.ID, term, was)
	}
	s.served[l.UUID] = term
	if !g.srv.SemiSync() {
		s.w.Violate("S4", "node %d opens writes without semi-sync", g.n.ID)
	}
}

// retired is called when a drained leader continues as a follower: no session waits, and everything that it wrote is
// committed (S4, S7).
func (s *sqlWorld) retired(g *member, l *lifecycle.Life) {
	s.counts.retires++
	delete(s.served, l.UUID)
	if g.n.past() {
		return
	}
	own := g.srv.Executed().Of(l.UUID).Subtract(s.executed).Subtract(s.local)
	if n := len(g.srv.Waiting()); n > 0 || !own.Empty() {
		s.w.Violate("S4", "node %d goes on as a follower with %d sessions waiting and %v not committed", g.n.ID, n, &own)
	}
}

// purging is called with the index up to which a node may purge its log: every data voter that it does not give up has
// all of that on disk, so has one of each majority, and no XA transaction that was prepared there is open (S8).
func (s *sqlWorld) purging(g *member, m ledger.Membership, upTo uint64, given []string) {
	if upTo == 0 || g.n.past() {
		return
	}
	s.counts.givenUp += int64(len(given))
	lacks := map[uint64]bool{s.logger: true}
	for _, d := range s.members {
		if st := d.lives.Status(); !m.Votes(d.n.ID) || d.n.lost || d.logger || d.bare || d.tampered ||
			st.State() == ha.ServerBehind || st.State() == ha.ServerSeeding {
			continue
		}
		durable := d.srv.Durable()
		for _, t := range s.order {
			if s.at[t] > upTo {
				break
			}
			switch {
			case durable.Contains(t):
			case slices.Contains(given, name(d.n.ID)):
				lacks[d.n.ID] = true
			default:
				s.w.Violate("S8", "node %d may purge its log up to entry %d, and node %d does not have %v of entry %d on disk",
					g.n.ID, upTo, d.n.ID, t, s.at[t])
				return
			}
		}
	}
	if len(given) > 0 && !m.Holds(func(id uint64) bool { return !lacks[id] }) {
		s.w.Violate("S8", "node %d may purge its log up to entry %d, which a majority does not have", g.n.ID, upTo)
	}
	for _, xid := range slices.Sorted(maps.Keys(s.openXA)) {
		if at := s.openXA[xid]; at <= upTo {
			s.w.Violate("S8", "node %d may purge its log up to entry %d, where the XA transaction %s was prepared that is open",
				g.n.ID, upTo, xid)
		}
	}
}

// illness says why the cluster is not well, "" when it is: writes are open, a new one is acknowledged, and every member
// has everything.
func (s *sqlWorld) illness() string {
	o := s.writable()
	if o == nil {
		return "no node takes writes"
	}
	if !s.probe.ok {
		s.execute(o, fakemysql.Stmt{Kind: fakemysql.Insert, Rows: []uint64{s.freshRow()}}, false)
		s.probe.client = s.nextClient
		o.stream().readSoon()
		return "a write was not acknowledged yet"
	}
	for _, g := range s.members {
		if g.n.up && g.n.past() && g.told != 0 {
			return fmt.Sprintf("node %d was told of a newer generation and runs", g.n.ID)
		}
	}
	l := s.w.Leader()
	for _, id := range memberIDs(&l.status) {
		g := s.member(id)
		switch {
		case g == nil || g.n.lost || g.logger || g.rots():
		case !g.ready():
			s.endXA(o)
			st := g.lives.Status()
			return fmt.Sprintf("node %d is %v: %s", id, st.State(), st.Problem())
		case !g.srv.Executed().ContainsSet(s.executed):
			if late := s.w.now > s.w.load.until+int64(s.w.patience()/2); late && g.stuck && g.ready() &&
				len(g.memory.Notes().Heals) > 0 {
				s.w.Count("reinit of what waits to be healed again", 1) // as an operator is told, or to wait
				g.giveUp()
			}
			return fmt.Sprintf("node %d has not applied everything", id)
		}
	}
	return ""
}

// endXA ends what is prepared: a node that has to be seeded may have to wait for that.
func (s *sqlWorld) endXA(o *member) {
	for _, x := range o.srv.Prepared() {
		s.execute(o, fakemysql.Stmt{Kind: fakemysql.XACommit, XID: x}, false)
	}
	o.stream().readSoon()
}

func (s *sqlWorld) freshRow() uint64 { s.nextRow++; return s.nextRow }

func (s *sqlWorld) isLogger(id uint64) bool { return id == s.logger }

func (s *sqlWorld) member(id uint64) *member {
	for _, g := range s.members {
		if g.n.ID == id {
			return g
		}
	}
	return nil
}

// rots reports whether bits of the node's log were flipped: what it cannot read any more it cannot be judged by, and it
// has to join again (S2).
func (g *member) rots() bool { return g.n.rotten != "" }

// finish compares a node with the reference: everything committed exactly once, nothing else.
func (s *sqlWorld) finish(g *member) {
	for name, n := range map[string]int64{"attempts": s.counts.attempts, "acked": s.counts.acked,
		"unknown": s.counts.unknown, "refused": s.counts.refused, "sql_reads": s.counts.reads, "seeds": s.counts.seeds,
		"guard_kills": s.counts.guards, "opens": s.counts.opens, "retires": s.counts.retires, "switched": s.counts.switched, "forced": s.counts.forced, "plugged": s.counts.plugged,
		"refed": s.counts.refed, "ruled": s.counts.ruled, "rules_off": s.counts.rulesOff, "slowed": s.counts.slowed,
		"given_up": s.counts.givenUp, "heals": int64(g.seeding.Heals())} {
		s.w.Count(name, n)
	}
	clear(s.clients)
	s.counts = sqlCounts{}
	if g.generation.IDOf() != s.force.now.IDOf() {
		s.w.Violate("generations", "node %d has the settings of generation %d at the end, it is generation %d", g.n.ID,
			g.generation.NumberOf(), s.force.now.NumberOf())
	}
	if g.rots() || g.logger {
		return
	}
	if got, want := g.srv.Fingerprint(), s.ref.Fingerprint(); got != want {
		s.w.Violate("equal data", "node %d holds\n%sand what is committed makes\n%s", g.n.ID, got, want)
	}
}
