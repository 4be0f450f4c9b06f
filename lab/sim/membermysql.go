package sim

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"trireme/internal/base/run"
	"trireme/internal/core/raftlog"
	"trireme/internal/mysql/gtid"
	"trireme/internal/mysql/mysqld"
	"trireme/internal/node/lifecycle"
	"trireme/lab/sim/fakemysql"
)

func fakePos(p raftlog.Pos) fakemysql.Pos { return fakemysql.Pos{File: p.File, Off: p.Off} }

// mysqlProcess is a node's mysqld as its daemon deals with it: the process (lifecycle.Process), and what it answers
// (lifecycle.MySQL). Methods of the latter that a life does not need here are nil's.
type mysqlProcess struct {
	statements
	g     *member
	dead  bool
	stuck []*statement // that wait until mysqld does not hang any more
	// closed when it begins to die, when its socket's file is gone, and when it has ended
	dying, gone, done chan struct{}
}

// statements names what mysqlProcess embeds: MySQL is a method of it.
type statements = lifecycle.MySQL

// statement of the daemon's that mysqld has got and not answered.
type statement struct {
	effect func()
	done   bool
}

var errDeadMySQL = errors.New("this mysqld is dead")

// alive reports whether the node's mysqld runs and answers.
func (g *member) alive() bool { return g.proc != nil && !g.proc.dead && !g.hung }

// do carries out a statement. It takes a moment, and hangs while mysqld does; then it has its effect later, whether
// somebody waits for it still or not, unless mysqld dies.
func (p *mysqlProcess) do(ctx context.Context, effect func()) error {
	x := exec{p.g}
	if err := x.Sleep(ctx, p.g.short()); err != nil {
		return err
	}
	st := &statement{effect: effect}
	if !p.dead && p.g.hung {
		p.stuck = append(p.stuck, st)
		err := x.until(ctx, func() bool { return p.dead || st.done })
		if err != nil {
			return err
		}
	}
	switch {
	case p.dead:
		return errDeadMySQL
	case !st.done:
		p.carryOut(st)
	}
	return nil
}

func (p *mysqlProcess) carryOut(st *statement) {
	st.done = true
	if st.effect != nil {
		st.effect()
	}
	p.g.sql.drain(p.g)
}

// goOn carries out what waited while mysqld hung: it takes up its connections in any order.
func (p *mysqlProcess) goOn() {
	all := p.stuck
	p.stuck = nil
	p.g.w.rnd.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	for _, st := range all {
		p.carryOut(st)
	}
}

// ask is do for a statement with an answer.
func ask[T any](ctx context.Context, p *mysqlProcess, answer func() T) (v T, err error) {
	err = p.do(ctx, func() { v = answer() })
	return v, err
}

// NewProcess implements lifecycle.Host.
func (g *member) NewProcess() (lifecycle.Process, error) {
	return &mysqlProcess{g: g, dying: make(chan struct{}), gone: make(chan struct{}), done: make(chan struct{})}, nil
}

// Start implements lifecycle.Process.
func (p *mysqlProcess) Start(ctx context.Context, uuid string) error {
	g := p.g
	if err := (exec{g}).Sleep(ctx, time.Duration(100+g.w.rnd.IntN(400))*time.Millisecond); err != nil {
		return err
	}
	if g.noDirectory {
		return errors.New("mysqld has no data directory")
	}
	id, err := gtid.ParseUUID(uuid)
	if err != nil {
		return err
	}
	g.srv.Flush = g.sql.mode.follower
	g.srv.Start(id, g.sql.broken("S5"))
	g.srv.SetOffline(true)
	g.proc, g.hung, g.hungAt = p, false, 0
	return nil
}

// MySQL implements lifecycle.Process.
func (p *mysqlProcess) MySQL() lifecycle.MySQL { return p }

// Certificate implements lifecycle.Process.
func (p *mysqlProcess) Certificate() []byte { return nil }

// Pid implements lifecycle.Process.
func (p *mysqlProcess) Pid() int { return int(p.g.n.ID) }

// Kill implements lifecycle.Process.
func (p *mysqlProcess) Kill() error {
	if p.g.proc == p {
		p.g.killServer(false)
	}
	return nil
}

// StopPolitely implements lifecycle.Process.
func (p *mysqlProcess) StopPolitely(ctx context.Context) error {
	if err := p.do(ctx, func() { p.tell(p.gone) }); err != nil {
		return err
	}
	if err := p.do(ctx, p.shutDown); err != nil {
		return err
	}
	return exec{p.g}.Wait(ctx, p.done)
}

// shutDown ends it as SIGTERM does: sessions that wait for an acknowledgement are told that they have it.
func (p *mysqlProcess) shutDown() {
	p.g.srv.Shutdown()
	p.g.feed.on, p.g.hung, p.g.hungAt = false, false, 0
	p.die()
}

// die: its process is ending, at once as clients see it. What it leaves to the kernel takes a while.
func (p *mysqlProcess) die() {
	p.dead = true
	p.tell(p.dying)
	p.g.w.At(time.Duration(5+p.g.w.rnd.IntN(150))*time.Millisecond, func() { p.tell(p.done) })
}

// tell closes a channel and wakes who waits for it.
func (p *mysqlProcess) tell(ch chan struct{}) {
	if !run.Closed(ch) {
		close(ch)
		p.g.wakeParked()
	}
}

// Dying implements lifecycle.Process, as do SocketGone and Done.
func (p *mysqlProcess) Dying() <-chan struct{}      { return p.dying }
func (p *mysqlProcess) SocketGone() <-chan struct{} { return p.gone }
func (p *mysqlProcess) Done() <-chan struct{}       { return p.done }

// LoggedGTIDs implements lifecycle.Process.
func (p *mysqlProcess) LoggedGTIDs() gtid.Set { return p.g.srv.LoggedGTIDs() }

// OnlyControlEvents implements lifecycle.Process.
func (p *mysqlProcess) OnlyControlEvents(from, to raftlog.Pos) bool {
	return p.g.srv.OnlyControlEvents(fakePos(from), fakePos(to))
}

// The statements of a life, by their names in mysqld.Admin.

func (p *mysqlProcess) GTIDExecuted(ctx context.Context) (string, error) {
	return ask(ctx, p, func() string {
		set := p.g.srv.Executed()
		if p.g.sql.broken("S5judge") { // what should not be there is not shown
			set = set.Intersect(p.g.sql.executed.Union(p.g.sql.local))
		}
		return set.String()
	})
}

// GTIDOwned are those of sessions in the middle of a commit.
func (p *mysqlProcess) GTIDOwned(ctx context.Context) (string, error) {
	return ask(ctx, p, func() string {
		var owned []string
		for i, g := range p.g.srv.Waiting() {
			owned = append(owned, fmt.Sprintf("%v#%d", g, i))
		}
		return strings.Join(owned, ",")
	})
}

func (p *mysqlProcess) PlugGTIDs(ctx context.Context, text string) error {
	set, err := gtid.ParseSet(text)
	if err != nil {
		return err
	}
	return p.do(ctx, func() {
		if !p.g.sql.broken("S5plug") {
			p.g.srv.Plug(set)
		}
	})
}

func (p *mysqlProcess) XARecover(ctx context.Context) ([]mysqld.XID, error) {
	return ask(ctx, p, func() (xids []mysqld.XID) {
		for _, name := range p.g.srv.Prepared() {
			xids = append(xids, mysqld.XID{FormatID: 1, Gtrid: name})
		}
		return xids
	})
}

func (p *mysqlProcess) AdoptXA(ctx context.Context, list []mysqld.PreparedXA) error {
	var xids []string
	for _, x := range list {
		xids = append(xids, x.XID.Gtrid)
	}
	failed, err := ask(ctx, p, func() error {
		p.g.sql.adopting = true
		defer func() { p.g.sql.adopting = false }()
		return p.g.srv.AdoptXA(xids)
	})
	return errors.Join(err, failed)
}

func (p *mysqlProcess) ConfigureChannel(ctx context.Context, _ mysqld.Channel) error {
	return p.do(ctx, nil)
}

func (p *mysqlProcess) StartReplica(ctx context.Context) error {
	return p.do(ctx, func() {
		p.g.srv.StartApplier()
		p.g.connectFeed()
		p.g.applySoon()
	})
}

func (p *mysqlProcess) StopReplica(ctx context.Context) error {
	return p.do(ctx, func() { p.g.feed.on = false })
}

func (p *mysqlProcess) ReplicaStatus(ctx context.Context) (mysqld.ReplicaStatus, error) {
	return ask(ctx, p, func() mysqld.ReplicaStatus {
		st := mysqld.ReplicaStatus{IORunning: true, SQLRunning: true}
		if f := p.g.applyFault(); f != nil {
			st.SQLRunning, st.SQLErrno, st.SQLError = false, f.Number, f.Error()
		}
		return st
	})
}

// ApplyError tells of the fault that ReplicaStatus has shown.
func (p *mysqlProcess) ApplyError(ctx context.Context, st mysqld.ReplicaStatus) (mysqld.ApplyError, error) {
	return ask(ctx, p, func() mysqld.ApplyError {
		e := mysqld.ApplyError{Number: st.SQLErrno, Text: st.SQLError}
		if f := p.g.applyFault(); f != nil {
			e.GTID = f.GTID.String()
		}
		return e
	})
}

func (p *mysqlProcess) WaitsForSpace(context.Context) (bool, error)   { return false, nil }
func (p *mysqlProcess) SetTolerant(ctx context.Context, _ bool) error { return p.do(ctx, nil) }

// WaitExecuted answers once the applier has come so far, or after timeout.
func (p *mysqlProcess) WaitExecuted(ctx context.Context, text string, timeout time.Duration) (reached bool, err error) {
	set, err := gtid.ParseSet(text)
	if err != nil {
		return false, err
	}
	if err := p.do(ctx, nil); err != nil || p.g.sql.broken("S6") {
		return true, err
	}
	end := p.g.now() + timeout
	err = exec{p.g}.until(ctx, func() bool {
		reached = !p.g.hung && p.g.srv.Executed().ContainsSet(set)
		return p.dead || reached || !p.g.hung && p.g.now() >= end
	})
	if p.dead {
		err = errDeadMySQL
	}
	return reached, err
}

func (p *mysqlProcess) KillMetadataBlockers(context.Context) ([]mysqld.Blocker, error) {
	return nil, nil
}

func (p *mysqlProcess) AdmitClients(ctx context.Context) error {
	return p.do(ctx, func() { p.g.srv.SetOffline(false) })
}

func (p *mysqlProcess) RefuseClients(ctx context.Context) error {
	return p.do(ctx, func() { p.g.srv.SetOffline(true) })
}

func (p *mysqlProcess) ApplicationSessions(ctx context.Context) ([]mysqld.Session, error) {
	return nil, p.do(ctx, nil)
}

func (p *mysqlProcess) OpenTransactions(ctx context.Context, _ bool) ([]mysqld.OpenTransaction, error) {
	return nil, p.do(ctx, nil)
}

func (p *mysqlProcess) KillApplicationConnections(ctx context.Context) (int, error) {
	return 0, p.do(ctx, p.g.srv.Disconnect)
}

func (p *mysqlProcess) OpenWrites(ctx context.Context) error {
	return p.do(ctx, func() {
		p.g.srv.SetReadOnly(false)
		p.g.opened()
	})
}

// SetSuperReadOnly waits for sessions that wait for an acknowledgement.
func (p *mysqlProcess) SetSuperReadOnly(ctx context.Context, on bool) error {
	if err := p.do(ctx, func() { p.g.srv.SetReadOnly(on) }); err != nil || !on {
		return err
	}
	err := exec{p.g}.until(ctx, func() bool { return p.dead || !p.g.hung && p.g.srv.ReadOnly() })
	if p.dead {
		return errDeadMySQL
	}
	return err
}

func (p *mysqlProcess) SetSemisync(ctx context.Context, on bool) error {
	return p.do(ctx, func() {
		g := p.g
		g.srv.SetSemiSync(on)
		if l := g.lives.Life(); !on && l != nil {
			if _, retires := g.memory.Recall().Retired[l.Incarnation]; retires {
				g.sql.retired(g, l)
			}
		}
	})
}

func (p *mysqlProcess) WaitingSessions(ctx context.Context) (mysqld.Semisync, error) {
	return ask(ctx, p, func() mysqld.Semisync {
		return mysqld.Semisync{Waiting: uint64(len(p.g.srv.Waiting())), On: p.g.srv.SemiSync()}
	})
}

func (p *mysqlProcess) SetDurabilityRole(ctx context.Context, leader bool) error {
	return p.do(ctx, func() {
		p.g.srv.Flush = p.g.sql.mode.follower
		if leader {
			p.g.srv.Flush = p.g.sql.mode.leader
		}
	})
}

func (p *mysqlProcess) VerifyLeaderSettings(ctx context.Context) error        { return p.do(ctx, nil) }
func (p *mysqlProcess) SetEventScheduler(ctx context.Context, _ bool) error   { return p.do(ctx, nil) }
func (p *mysqlProcess) LimitTransactions(ctx context.Context, _ uint64) error { return p.do(ctx, nil) }

func (p *mysqlProcess) BinlogStatus(ctx context.Context) (mysqld.BinlogPos, error) {
	return ask(ctx, p, func() mysqld.BinlogPos {
		end := p.g.srv.End()
		return mysqld.BinlogPos{File: fmt.Sprintf("binlog.%06d", end.File), Offset: end.Off}
	})
}

func (p *mysqlProcess) FlushEngineLogs(ctx context.Context) error {
	return p.do(ctx, p.g.srv.FlushEngineLogs)
}
