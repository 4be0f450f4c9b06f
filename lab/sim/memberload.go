package sim

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"time"

	"trireme/internal/mysql/gtid"
	"trireme/lab/sim/fakemysql"
)

// startClients lets clients write, on every node: that a node refuses is for mysqld to say.
func (s *sqlWorld) startClients() {
	if s.w.now >= s.w.load.until {
		return
	}
	gap := time.Duration(2+s.w.rnd.IntN(60)) * time.Millisecond
	if s.w.rnd.IntN(4) == 0 {
		gap = time.Duration(s.w.rnd.IntN(400)) * time.Microsecond
	}
	s.w.At(gap, func() {
		s.client()
		s.startClients()
	})
}

// client runs a few statements on one node.
func (s *sqlWorld) client() {
	r := s.w.rnd
	g := s.members[r.IntN(len(s.members))]
	if o := s.writable(); o != nil && r.IntN(6) > 0 {
		g = o
	}
	if g.n.lost || g.hung || g.tampered || !g.srv.Running() {
		return
	}
	if r.IntN(12) == 0 {
		s.read(g)
		return
	}
	n := 1 + r.IntN(3)
	for i := range n {
		s.execute(g, s.statement(g), i < n-1 && r.IntN(2) == 0)
	}
	s.drain(g)
	g.stream().readSoon()
	g.wakeLoop()
}

// writable is a node whose mysqld takes writes.
func (s *sqlWorld) writable() *member {
	for _, g := range s.members {
		if g.srv.Running() && !g.srv.ReadOnly() && !g.n.past() {
			return g
		}
	}
	return nil
}

// statement draws what a client does.
func (s *sqlWorld) statement(g *member) fakemysql.Stmt {
	r := s.w.rnd
	rows := func() []uint64 {
		n := 1 + r.IntN(3)
		if r.IntN(20) == 0 {
			n = 10 + r.IntN(60)
		}
		out := make([]uint64, n)
		for i := range out {
			s.nextRow++
			out[i] = s.nextRow
		}
		return out
	}
	table := func() uint32 {
		if s.nextTable == 0 || r.IntN(2) == 0 {
			return 0
		}
		return 1 + uint32(r.IntN(int(s.nextTable)))
	}
	rarely := s.rule == "S8xa"                                   // a copy is to meet XA transactions that are open
	if x := g.srv.Prepared(); len(x) > 0 && !g.srv.ReadOnly() && // GUARANTEES.md: not on a follower
		(rarely && r.IntN(16) == 0 || !rarely && r.IntN(4) > 0) {
		kind := fakemysql.XACommit
		if r.IntN(4) == 0 {
			kind = fakemysql.XARollback
		}
		return fakemysql.Stmt{Kind: kind, XID: x[r.IntN(len(x))]}
	}
	switch k := r.IntN(100); {
	case k < 65:
		return fakemysql.Stmt{Kind: fakemysql.Insert, Table: table(), Rows: rows()}
	case k < 73: // of a table that a later statement creates: if this ran again after that one, the table would be gone
		return fakemysql.Stmt{Kind: fakemysql.DropIfExists, Table: s.nextTable + 1}
	case k < 81:
		if s.nextTable < 200 {
			s.nextTable++
		}
		return fakemysql.Stmt{Kind: fakemysql.CreateTable, Table: s.nextTable}
	case k < 83:
		return fakemysql.Stmt{Kind: fakemysql.DropIfExists, Table: 1 + uint32(r.IntN(int(s.nextTable)+1))}
	case k < 91:
		return fakemysql.Stmt{Kind: fakemysql.Account, User: uint32(r.IntN(6))}
	case k < 97:
		s.nextXID++
		return fakemysql.Stmt{Kind: fakemysql.XAPrepare, XID: fmt.Sprint("x", s.nextXID), Table: 0, Rows: rows()}
	default:
		return fakemysql.Stmt{Kind: fakemysql.Analyze}
	}
}

// execute runs one statement of a new client.
func (s *sqlWorld) execute(g *member, st fakemysql.Stmt, more bool) {
	s.nextClient++
	id, before := s.nextClient, g.srv.End()
	if err := g.srv.Execute(id, st, more); err != nil {
		s.counts.refused++
		return
	}
	s.counts.attempts++
	s.w.note(21, g.n.ID, id, uint64(st.Kind))
	s.w.Tracef("  %d: client %d: %v", g.n.ID, id, st)
	if t, _, ok := g.srv.Logged(); ok && before != g.srv.End() {
		s.clients[id] = t
	}
}

// drain takes what clients have heard.
func (s *sqlWorld) drain(g *member) {
	for _, o := range g.srv.Outcomes() {
		t, logged := s.clients[o.Client]
		delete(s.clients, o.Client)
		if !o.OK {
			s.counts.unknown++
			continue
		}
		s.counts.acked++
		_, committed := s.at[t]
		if g.n.past() {
			s.serves(g, "acknowledges a write")
			continue
		}
		if !logged || !committed && !s.local.Contains(t) {
			s.w.Violate("S4", "node %d: client %d heard OK for %v, which is not committed", g.n.ID, o.Client, t)
		}
		if o.Client == s.probe.client {
			s.probe.ok = true
		}
	}
}

// read looks at everything that a node shows.
func (s *sqlWorld) read(g *member) {
	s.counts.reads++
	if g.n.past() {
		return
	}
	var wrong []string
	for table, rows := range g.srv.Tables() {
		for row, times := range rows {
			if !s.rows[row] || times != 1 {
				wrong = append(wrong, fmt.Sprintf("row %d of table %d: %d times, committed %t", row, table, times, s.rows[row]))
			}
		}
	}
	if len(wrong) > 0 {
		slices.Sort(wrong)
		s.w.Violate("reads", "node %d shows %s", g.n.ID, wrong[0])
	}
}

// sqlFaults are those that hit mysqld, in addition to what happens to the machine and its daemon.
const (
	qKill = iota
	qHang
	qDropDump
	qRotate
	qSwitchover
	qLoseData
	qUser
	qBounce
	qPurge
	qStop
	qTamper
	qShutdown
	qApplyError
	qFull
	qRefuse
	numSQLFaults
)

var sqlFaultNames = [numSQLFaults]string{"mysqld killed", "mysqld hangs", "dump connection lost", "binary log rotated",
	"switchover", "data directory lost", "clients cut", "leadership back and forth", "logs purged", "daemon stopped politely",
	"data tampered with", "mysqld shut down by somebody",
	"applier stops", "disk nearly full", "no room in the logs"}

// fault lets something happen to a mysqld.
func (s *sqlWorld) fault(rnd *rand.Rand, d time.Duration) {
	g := s.members[rnd.IntN(len(s.members))]
	if o := s.writable(); o != nil && rnd.IntN(3) > 0 {
		g = o
	}
	kind := []int{qKill, qKill, qKill, qHang, qDropDump, qDropDump, qRotate, qRotate, qSwitchover, qSwitchover,
		qSwitchover, qLoseData, qUser, qBounce, qPurge, qPurge, qPurge, qStop, qStop, qTamper,
		qShutdown, qApplyError, qFull, qRefuse}[rnd.IntN(24)]
	if s.rule == "S8xa" { // and a node whose log begins late
		s.w.operate(fault{kind: fPurge}, rnd)
		s.w.operate(fault{kind: fChange}, rnd)
	}
	s.w.Tracef("fault: %s, node %d", sqlFaultNames[kind], g.n.ID)
	s.w.Count(sqlFaultNames[kind], 1)
	if g.n.lost {
		return
	}
	st := g.stream()
	switch kind {
	case qKill:
		g.killServer(false)
	case qHang:
		g.hang(d * 3)
	case qDropDump:
		if st != nil {
			st.conn = nil
			st.readSoon()
		}
	case qRotate:
		if g.srv.Running() {
			g.srv.Rotate()
			st.readSoon()
		}
	case qSwitchover:
		switch o := s.writable(); {
		case rnd.IntN(4) == 0:
			s.failover(rnd)
		case o != nil && o.up && !o.n.paused: // it is the leader that is asked
			o.switchover(s.wished(rnd))
		}
	case qLoseData:
		s.loseData(rnd, g, d)
	case qStop:
		if rnd.IntN(3) == 0 {
			s.alone(g)
		}
		g.stopPolitely(d)
	case qTamper:
		s.tamper(g)
	case qApplyError:
		s.stopApplier(rnd)
	case qFull, qRefuse:
		g.lackRoom(kind, d)
	case qShutdown:
		g.shutDown(rnd)
	case qBounce:
		s.bounce(rnd)
	case qPurge:
		for _, o := range s.members {
			if o.n.up && !o.n.paused {
				o.n.purge(rnd)
			}
		}
	case qUser:
		g.srv.Disconnect()
		s.drain(g)
	}
}

// bounce moves leadership to another node and back at once, under writes.
func (s *sqlWorld) bounce(rnd *rand.Rand) {
	l := s.w.Leader()
	if l == nil || l.paused || len(l.status.Voters) < 2 {
		return
	}
	o := s.w.Node(l.status.Voters[rnd.IntN(len(l.status.Voters))])
	if o == l || !o.up || o.paused {
		return
	}
	l.Transfer(o.ID, func(error) {})
	s.w.At(time.Duration(1+rnd.IntN(20))*time.Millisecond, func() {
		if o.up && !o.paused && o.leads() {
			o.Transfer(l.ID, func(error) {})
		}
	})
}

// alone kills the mysqld of all other nodes again and again, for longer than a daemon that stops waits for one that can
// take over: it ends in the middle of the writes.
func (s *sqlWorld) alone(g *member) {
	life := g.n.life
	for at := time.Duration(0); at < 22*time.Second; at += time.Second {
		s.w.At(at, func() {
			if g.n.life != life || !g.n.up {
				return
			}
			for _, o := range s.members {
				if o != g && o.alive() {
					o.killServer(false)
				}
			}
		})
	}
}

// loseData removes a node's data directory, if all others have theirs. The daemon is started again at once or when an
// operator has looked.
func (s *sqlWorld) loseData(rnd *rand.Rand, g *member, d time.Duration) {
	if !s.spares(g) {
		return
	}
	g.killServer(false)
	g.noData()
	g.bare = true
	restart := func() { g.n.kill(); g.n.start() }
	if rnd.IntN(2) == 0 {
		restart()
	} else {
		s.w.At(d, restart)
	}
}

// tamper writes a row into a node's data directory that no log has.
func (s *sqlWorld) tamper(g *member) {
	if !s.spares(g) {
		return
	}
	g.killServer(false)
	s.nextRow++
	g.srv.Tamper(gtid.GTID{SID: gtid.SID{UUID: gtid.IncarnationUUID(clusterID+1, 1, 1)}, GNO: 1}, s.nextRow)
	g.tampered = true
}

// lackRoom has a node lack room on its disk, or in the logs when it leads, for a time.
func (g *member) lackRoom(kind int, d time.Duration) {
	of, text := &g.full, "its disk is nearly full"
	if kind == qRefuse {
		of, text = &g.refused, "no majority of the voters has room for more in its log"
	}
	*of = text
	g.w.At(d, func() { *of = "" })
}

// shutDown is SIGTERM to mysqld by somebody else than its daemon, which must have killed it before it comes to the
// sessions that wait (S4). A daemon that is stopped cannot.
func (g *member) shutDown(rnd *rand.Rand) {
	p, life := g.proc, g.n.life
	if !g.alive() {
		return
	}
	if !g.sql.broken("S4watch") {
		p.tell(p.gone)
	}
	g.w.At(time.Duration(50+rnd.IntN(100))*time.Millisecond, func() {
		if !p.dead && g.n.life == life && !g.n.paused {
			p.shutDown()
			g.sql.drain(g)
		}
	})
}

// Errors of appliers: resources lack for a while, or the data does not take a row.
const (
	errLockWait = 1205
	errNoRow    = 1032
)

// stopApplier has the next transaction that a node applies fail: for a while, or until the node has another's data.
func (s *sqlWorld) stopApplier(rnd *rand.Rand) {
	g := s.members[rnd.IntN(len(s.members))]
	switch {
	case g.n.lost || g.logger || g.stuck || g.memory == nil:
	case len(g.memory.Notes().Heals) > 0: // a second time it would wait for a minute
	case rnd.IntN(2) == 0:
		g.srv.FailApply(errLockWait, 1+rnd.IntN(3))
	case rnd.IntN(2) == 0:
		g.srv.FailApply(errNoRow, 1)
	case s.spares(g) && !s.force.pending:
		s.w.Count("data that cannot go on", 1)
		s.w.Tracef("%d: its data cannot go on", g.n.ID)
		g.stuck = true
		g.srv.FailApply(errNoRow, math.MaxInt)
	}
}

// someStuck says whether there is a node whose data cannot go on: others are needed to copy from.
func (s *sqlWorld) someStuck() bool {
	return slices.ContainsFunc(s.members, func(o *member) bool { return o.stuck && !o.n.lost })
}

// spares reports whether the cluster can do without a node's data: all other data nodes are well, and two of them vote.
func (s *sqlWorld) spares(g *member) bool {
	well, voters := 0, s.voters()
	for _, o := range s.members {
		switch {
		case !o.n.lost && (o.bare || o.tampered || o.stuck):
			return false
		case o == g || o.n.lost || o.logger:
		case !o.ready() || o.n.off || o.n.past():
			return false
		case slices.Contains(voters, o.n.ID):
			well++
		}
	}
	return well > 1 && !g.logger
}

// keepsData says whether the data survives without a node, which may be out of reach for good: with a logger, the rest
// can be a majority and have none. Another voter must have data that the logs of the rest still continue.
func (s *sqlWorld) keepsData(without *Node) bool {
	voters := s.voters()
	return s.logger == 0 || slices.ContainsFunc(s.members, func(g *member) bool {
		return g.n != without && slices.Contains(voters, g.n.ID) && g.hasData() && s.continued(g, without)
	})
}

// voters of the newest membership that is committed.
func (s *sqlWorld) voters() []uint64 {
	if c := s.w.check.confs; len(c) > 0 {
		return c[len(c)-1].voters
	}
	return nil
}

// hasData says whether the cluster can count on a member's data, perhaps after a start.
func (g *member) hasData() bool {
	return !g.n.lost && !g.logger && !g.bare && !g.tampered && !g.stuck && !g.noDirectory && !g.rots()
}

// continued says whether the log of each node, but for one, goes on where a member's data ends.
func (s *sqlWorld) continued(g *member, without *Node) bool {
	durable := g.srv.Durable()
	for _, t := range s.order {
		if !durable.Contains(t) {
			return !slices.ContainsFunc(s.w.nodes, func(n *Node) bool {
				return n != without && !n.lost && s.w.check.log(n).base >= s.at[t]
			})
		}
	}
	return true
}

// hang makes mysqld answer no request for a time.
func (g *member) hang(d time.Duration) {
	p := g.proc
	if !g.alive() {
		return
	}
	g.hung = true
	g.n.in(g.short(), func() {
		if g.proc == p && g.hung {
			g.hungAt = g.now()
		}
	})
	g.w.At(d, func() {
		if g.proc != p || !g.hung {
			return
		}
		g.hung, g.hungAt = false, 0
		p.goOn()
		if st := g.stream(); st != nil {
			if st.ackDue.File != 0 {
				st.sendAck()
			}
			st.readSoon()
		}
		g.feedSoon()
		g.applySoon()
		g.wakeLoop()
	})
}
