package sim

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"trireme/internal/core/ha"
	"trireme/internal/core/ledger"
	"trireme/internal/mysql/gtid"
	"trireme/internal/node/lifecycle"
	"trireme/lab/sim/fakemysql"
)

// keepDurable is node.keepDurable.
func (g *glue) keepDurable() {
	g.n.After(durableEvery, g.keepDurable)
	if s := g.lives.Status(); s.Life() != nil && s.State() == ha.ServerReady {
		g.spawn("durable", func(k *task) {
			if err := s.Life().KeepDurable(k.within(durablePatience), g.applied); err != nil {
				g.w.Tracef("%d: the durable index was not written down: %v", g.n.ID, err)
			}
		})
	}
}

// ready reports whether mysqld is judged and fed, or leads.
func (g *glue) ready() bool {
	s := g.lives.Status()
	return s.State() == ha.ServerReady
}

// PurgeBelow implements Top: node.purge's figures.
func (g *glue) PurgeBelow() uint64 {
	st := g.n.Status()
	m := ledger.Membership{st.Voters}
	if len(st.Outgoing) > 0 {
		m = append(m, st.Outgoing)
	}
	var all []ledger.LogRetainer
	for _, id := range members(&st) {
		k := ledger.LogRetainer{ID: id, Data: !g.sql.isLogger(id)}
		if p := g.peers[id]; id == g.n.ID {
			k.Live, k.Ready, k.Keep = true, g.fit(), g.lives.KeepFrom()
			if g.logger {
				k.Keep = st.Commit
			}
		} else if p != nil && g.fresh(p) {
			k.Live, k.Ready, k.Keep = true, p.status.ready, p.status.keep
		}
		all = append(all, k)
	}
	safe, _ := ledger.PurgePoint(st.Commit, m, all)
	if g.sql.broken("S8") {
		safe = st.Commit
	}
	g.sql.purging(g, m, safe)
	return safe
}

// MayChange implements Top: what membership.nextStep and membership.reconcileOnce ask before votes are given and taken.
func (g *glue) MayChange(in, out []uint64) bool {
	st, begin := g.n.Status(), g.n.Log().Boundary()
	c := ledger.Census{Nodes: map[uint64]ledger.CensusNode{}, Whole: begin.Index == 0 && begin.GTIDs.Empty()}
	for _, id := range members(&st) {
		s := ledger.CensusNode{Voter: slices.Contains(st.Voters, id), Data: !g.sql.isLogger(id)}
		if p := g.peers[id]; id == g.n.ID {
			s.Live, s.Ready = true, g.fit()
		} else if p != nil && g.fresh(p) {
			s.Live, s.Ready = true, p.status.ready
		}
		c.Nodes[id] = s
	}
	for _, id := range in { // node.standing.caughtUp
		if s := c.Nodes[id]; !s.Live || s.Data && !s.Ready {
			return false
		}
	}
	return c.Leave(in, out) == ledger.MayLeave
}

// donation is seeding.donate: what a copy of this node's data would be.
type donation struct {
	incarnation, applied uint64
	own                  gtid.Set
	prepared             []string
	from                 *glue
}

func (g *glue) donation() (donation, bool) {
	l := g.lives.Life()
	if !g.ready() || l == nil || !g.alive() {
		return donation{}, false
	}
	_, committed := g.led.Snapshot()
	b := g.led.Applied(g.srv.Executed())
	var prepared []string
	for _, x := range g.srv.Prepared() {
		prepared = append(prepared, fakemysql.XIDKey(x))
	}
	return donation{incarnation: l.Incarnation, applied: b.Applied, own: g.srv.Executed().Subtract(committed),
		prepared: prepared, from: g}, true
}

// seedServer is seeding.Seed: the data is replaced by a copy of another node's.
func (g *glue) seedServer(k *task) {
	err := g.seed(k)
	g.said = true
	if err == nil {
		g.lives.Change((*lifecycle.Status).Seeded)
		return
	}
	g.w.Tracef("%d: seeding failed: %v", g.n.ID, err)
	g.lives.Change(func(s *lifecycle.Status) { s.SeedFailed(err) })
}

// holdsPrepared is node.holdsPrepared.
func (g *glue) holdsPrepared(d donation) error {
	left, err := ledger.NotHeld(context.Background(), d.prepared, d.applied, g.n.Log(), g.led.Index())
	if err == nil && len(left) > 0 && !g.sql.broken("S8xa") {
		err = fmt.Errorf("XA transactions were prepared before the log here begins: %v", left)
	}
	return err
}

func (g *glue) seed(k *task) error {
	first, err := g.n.Log().FirstIndex()
	if err != nil {
		return err
	}
	st := g.n.Status()
	var donors []uint64
	for _, id := range members(&st) {
		if p := g.peers[id]; id != g.n.ID && p != nil && g.fresh(p) && p.status.ready {
			donors = append(donors, id)
		}
	}
	if len(donors) == 0 {
		return errors.New("no donor")
	}
	id := donors[g.w.rnd.IntN(len(donors))]
	x, err := g.ask(k.within(2*time.Second), id, donate{})
	if err != nil {
		return err
	}
	d := x.(donation)
	if d.applied+1 < first { // seeding.findDonor
		return fmt.Errorf("the donor has applied up to entry %d, the log here begins at %d", d.applied, first)
	}
	if err := g.holdsPrepared(d); err != nil {
		return err
	}
	g.lives.GiveUpLife()
	g.killServer(false)
	g.saved.Durable = 0
	g.newData() // the old directory goes first
	if err := k.sleep(time.Duration(200+g.w.rnd.IntN(1500)) * time.Millisecond); err != nil {
		return err
	}
	fresh := fakemysql.New(uint32(g.n.ID))
	copied := func() bool {
		l := d.from.lives.Life()
		return l != nil && l.Incarnation == d.incarnation && d.from.alive() && !g.w.net.cut(id, g.n.ID) &&
			fresh.Clone(d.from.srv)
	}
	if err := k.until(3*time.Second, "copying", copied); err != nil {
		return err
	}
	if x, err = g.ask(k.within(2*time.Second), id, donate{}); err != nil {
		return err
	}
	end := x.(donation)
	if now, err := g.n.Log().FirstIndex(); err != nil || now > first {
		if err := errors.Join(err, g.holdsPrepared(end)); err != nil {
			return err
		}
	}
	if end.incarnation != d.incarnation {
		return errors.New("the donor's mysqld was restarted meanwhile")
	}
	fresh.Flush, fresh.OnCommit = g.srv.Flush, g.srv.OnCommit
	g.saved.Durable, g.saved.Inherited = d.applied, end.own.String()
	g.srv = fresh
	g.sql.counts.seeds++
	return nil
}

// guardTimer is the guard process: it kills mysqld at a moment of its clock that the daemon has not moved ahead.
type guardTimer struct {
	until time.Duration // 0: mysqld serves nothing
	asked bool
}

// Guard implements lifecycle.Host.
func (g *glue) Guard(until time.Duration) { g.guard.set(g, until) }

// set is guard.Until.
func (t *guardTimer) set(g *glue, until time.Duration) {
	t.until = until
	if until != 0 && !t.asked {
		t.wait(g)
	}
}

// wait acts some time after the moment that it was told, as a process does that has to wake up first. A lease that
// comes in between comes too late.
func (t *guardTimer) wait(g *glue) {
	t.asked = true
	g.w.At(g.n.clock.true(max(t.until-g.now(), 0)), func() {
		held := g.n.HoldsLease()
		g.w.At(time.Millisecond, func() { t.act(g, held) })
	})
}

func (t *guardTimer) act(g *glue, held bool) {
	t.asked = false
	switch {
	case t.until == 0 || g.proc == nil || g.proc.dead:
	case t.until > g.now():
		t.wait(g)
	default:
		t.until = 0
		g.w.Tracef("%d: the guard kills mysqld", g.n.ID)
		g.sql.counts.guards++
		s := g.lives.Status()
		_, told := s.GuardUntil(g.now(), time.Duration(g.n.LeaseUntil()))
		if told && !g.n.paused && held && g.n.HoldsLease() {
			g.w.Violate("S10", "node %d runs and holds a lease, and its guard kills mysqld", g.n.ID)
		}
		g.killServer(false)
		g.noticeDeath()
	}
}

// Finish implements Top.
func (g *glue) Finish() { g.sql.finish(g) }
