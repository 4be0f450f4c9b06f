package adopt

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"time"

	"trireme/internal/base/config"
	"trireme/internal/base/poll"
	"trireme/internal/mysql/gtid"
	"trireme/internal/mysql/mysqld"
	"trireme/internal/ops/setup"
)

// Result says what was made.
type Result struct {
	ConfigFile     string
	CredentialFile string   // of a new cluster
	Members        []string // of a cluster that was joined
	Base           string   // gtid_executed with which the server was stopped
	Closed         time.Time
	Left           []string // logs that lie on another file system and stayed where they were
}

// steps remembers how to take back what was done.
type steps struct{ back []step }

type step struct {
	on   *server // that it is done on; nil: none
	back func(context.Context) error
}

func (s *steps) done(on *server, back func(context.Context) error) {
	s.back = append(s.back, step{on, back})
}

// gone: a server has ended, nothing can be taken back there.
func (s *steps) gone(on *server) {
	s.back = slices.DeleteFunc(s.back, func(x step) bool { return x.on == on })
}

// takeBack undoes everything, the last first; it goes on after an error.
func (s *steps) takeBack() error {
	ctx, cancel := context.WithTimeout(context.Background(), stepLimit)
	defer cancel()
	var errs []error
	for _, x := range slices.Backward(s.back) {
		errs = append(errs, x.back(ctx))
	}
	s.back = nil
	return errors.Join(errs...)
}

// failed takes back what was done, and adds what went wrong with that.
func (p *Plan) failed(st *steps, err error) error {
	if len(st.back) > 0 {
		p.opts.Say("taking everything back")
	}
	return errors.Join(err, st.takeBack())
}

// Run adopts the server of a plan.
func (p *Plan) Run(ctx context.Context) (Result, error) {
	if !p.OK() {
		return Result{}, ErrChecks
	}
	// Held by the connection: it ends with it.
	if free, err := p.server.value(ctx, "SELECT COALESCE(GET_LOCK('trireme.adopt', 0), 0) AS v"); err != nil ||
		free != "1" {
		return Result{}, errors.Join(err, errors.New("another `trireme adopt` is under way on this server"))
	}
	if p.opts.Token != "" {
		return p.join(ctx)
	}
	return p.newCluster(ctx)
}

// newCluster makes the source the first node of a new cluster.
func (p *Plan) newCluster(ctx context.Context) (res Result, err error) {
	draft, err := setup.Begin(setup.InitOptions{Node: p.node, CredentialDir: p.opts.CredentialDir})
	if err != nil {
		return res, err
	}
	st := &steps{}
	st.done(nil, func(context.Context) error { draft.Undo(); return nil })
	defer func() {
		if err != nil {
			err = p.failed(st, err)
		}
	}()
	cfg := mysqldConfig(p.node, draft.Secrets(), p.facts.Binary)
	if err := p.makeAccounts(ctx, st, cfg); err != nil {
		return res, err
	}
	for _, r := range p.reps {
		set, err := p.server.executed(ctx)
		if err != nil {
			return res, err
		}
		if err := r.awaitExecuted(ctx, set, catchUp*p.opts.Outage); err != nil {
			return res, err
		}
	}
	p.awaitTransactions(ctx)
	res.Closed = time.Now()
	base, err := p.closeWrites(ctx, st)
	if err != nil {
		return res, err
	}
	if err := p.stopReplicas(ctx, st, base, res.Closed.Add(p.opts.Outage)); err != nil {
		return res, err
	}
	res.Base = line(base)
	if res.Left, err = p.bring(ctx, st, cfg, base); err != nil {
		return res, err
	}
	made, err := draft.Finish(res.Base)
	if err != nil {
		return res, p.giveBack(err)
	}
	res.ConfigFile, res.CredentialFile = made.ConfigFile, made.CredentialFile
	return res, nil
}

// makeAccounts makes Trireme's accounts on the source and locks those of its replicas. Connections that are open go on.
func (p *Plan) makeAccounts(ctx context.Context, st *steps, cfg mysqld.Config) error {
	p.opts.Say("making Trireme's accounts; they reach the replicas by replication")
	st.done(p.server, func(ctx context.Context) error { return p.server.exec(ctx, changeLimit, cfg.DropStatements()...) })
	if err := p.server.exec(ctx, changeLimit, cfg.AdoptStatements()...); err != nil {
		return err
	}
	for _, who := range p.facts.Dumpers {
		st.done(p.server, func(ctx context.Context) error {
			return p.server.exec(ctx, changeLimit, "ALTER USER IF EXISTS "+who+" ACCOUNT UNLOCK")
		})
		if err := p.server.exec(ctx, changeLimit, "ALTER USER "+who+" ACCOUNT LOCK"); err != nil {
			return err
		}
	}
	return nil
}

// awaitTransactions lets the transactions that are open now end by themselves, for a time.
func (p *Plan) awaitTransactions(ctx context.Context) {
	deadline := time.Now().Add(p.opts.TrxWait)
	open, err := p.server.column(ctx, openTransactions)
	for err == nil && len(open) > 0 && time.Now().Before(deadline) {
		if poll.Pause(ctx, 25*time.Millisecond) != nil {
			return
		}
		var later []string
		later, err = p.server.column(ctx, openTransactions)
		open = intersect(open, later)
	}
}

// openTransactions names each transaction by its thread and number.
const openTransactions = "SELECT CONCAT(THREAD_ID, '.', EVENT_ID) AS v FROM performance_schema.events_transactions_current" +
	" WHERE STATE = 'ACTIVE' AND THREAD_ID <> PS_CURRENT_THREAD_ID()"

func intersect(a, b []string) []string {
	in := map[string]bool{}
	for _, x := range b {
		in[x] = true
	}
	var both []string
	for _, x := range a {
		if in[x] {
			both = append(both, x)
		}
	}
	return both
}

// closeWrites ends writing and returns what the server holds from then on.
func (p *Plan) closeWrites(ctx context.Context, st *steps) (gtid.Set, error) {
	p.opts.Say("closing writes")
	if err := p.readOnly(ctx, st, p.server); err != nil {
		return gtid.Set{}, err
	}
	// Their open transactions are rolled back. One that had begun to commit is through: read_only waited for it.
	if err := p.server.killAll(ctx, false); err != nil {
		return gtid.Set{}, err
	}
	if x, err := p.server.rows(ctx, "XA RECOVER"); err != nil || len(x) > 0 {
		return gtid.Set{},
			errors.Join(err, fmt.Errorf("%d XA transactions have been prepared meanwhile: end them and try again", len(x)))
	}
	return p.server.executed(ctx)
}

// readOnly closes a server for writes, the rights of SUPER included.
func (p *Plan) readOnly(ctx context.Context, st *steps, s *server) error {
	was, err := s.value(ctx, "SELECT CONCAT(@@GLOBAL.read_only, @@GLOBAL.super_read_only) AS v")
	if err != nil {
		return err
	}
	st.done(s, func(ctx context.Context) error {
		return s.exec(ctx, changeLimit, "SET GLOBAL super_read_only = "+was[1:], "SET GLOBAL read_only = "+was[:1])
	})
	// With lock_wait_timeout: a statement that runs for long makes it fail, and everything is taken back.
	if err := s.exec(ctx, p.opts.Outage, "SET GLOBAL super_read_only = ON"); err != nil {
		return fmt.Errorf("writes could not be closed within %v; a long statement or LOCK TABLES holds them: %w",
			p.opts.Outage, err)
	}
	return nil
}

// stopReplicas waits until every replica holds exactly what the source holds, and ends replication there.
func (p *Plan) stopReplicas(ctx context.Context, st *steps, base gtid.Set, deadline time.Time) error {
	for _, r := range p.reps {
		if err := r.awaitExecuted(ctx, base, max(time.Until(deadline), time.Millisecond)); err != nil {
			return fmt.Errorf("%w; writes would have stayed closed for more than %v (--outage)", err, p.opts.Outage)
		}
		st.done(r, func(ctx context.Context) error { return r.exec(ctx, changeLimit, "START REPLICA") })
		if err := r.exec(ctx, changeLimit, "STOP REPLICA"); err != nil {
			return err
		}
		if err := p.readOnly(ctx, st, r); err != nil {
			return err
		}
		has, err := r.executed(ctx)
		if err != nil {
			return err
		}
		if errant := has.Subtract(base); !errant.Empty() {
			return fmt.Errorf("%s has executed what the source has not: %s", r.login.addr(), line(errant))
		}
		p.opts.Say("%s holds all of it and has stopped", r.login.addr())
	}
	return nil
}

// bring stops the server and makes its data the node's. When it fails, the data is where it was.
func (p *Plan) bring(ctx context.Context, st *steps, cfg mysqld.Config, base gtid.Set) (left []string, err error) {
	f := p.facts
	j := &journal{DataDir: filepath.Clean(f.Vars["datadir"]), Command: f.Process.Args, Unit: f.Process.Unit,
		Base: line(base), UID: f.Process.UID}
	if p.opts.Token == "" {
		j.Locked = f.Dumpers
	}
	j.Moves, left = planMoves(f, p.node.Dir, cfg.DataDir())
	if err := j.save(p.node.Dir); err != nil {
		return nil, err
	}
	if err := p.shutDown(ctx, st, base); err != nil {
		return nil, errors.Join(err, j.discard(p.node.Dir))
	}
	if err := mysqld.TakeOver(cfg, func(string) error { return p.moveData(j) }); err != nil {
		return nil, errors.Join(stopped(err, j), j.discard(p.node.Dir))
	}
	return left, nil
}

// shutDown ends the server in the normal way, and waits until its process is gone. It must hold base still: what else
// it has executed would be errant in the cluster, and super_read_only does not stop REPAIR TABLE, FLUSH and the like.
func (p *Plan) shutDown(ctx context.Context, st *steps, base gtid.Set) error {
	p.opts.Say("stopping the old server (process %d)", p.facts.Process.Pid)
	// Connections that are open would be waited for, 10 s long.
	if err := p.server.killAll(ctx, true); err != nil {
		return err
	}
	has, err := p.server.executed(ctx)
	if err != nil {
		return err
	}
	if !has.Equal(base) {
		return fmt.Errorf("%s has executed something since writes were closed: %s", p.server.login.addr(),
			line(has.Subtract(base)))
	}
	if err := p.server.exec(ctx, changeLimit, "SHUTDOWN"); err != nil {
		return err
	}
	st.gone(p.server)
	// Not ended by the caller's context: the server stops now in any case.
	sctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopLimit)
	defer cancel()
	return p.facts.Process.AwaitEnd(sctx)
}

// moveData renames the old server's files into the node's directory. A server that somebody has started on them again
// meanwhile has the folder open under its new name.
func (p *Plan) moveData(j *journal) error {
	if err := j.carryOut(); err != nil {
		return err
	}
	to := j.Moves[len(j.Moves)-1].To
	again, runs, err := mysqld.OnData(to)
	if err == nil && !runs {
		return nil
	}
	if err == nil {
		who := "something"
		if p.facts.Process.Unit != "" {
			who = p.facts.Process.Unit
		}
		err = fmt.Errorf("%s has started the old server again (process %d): disable it first, then run adopt again", who,
			again.Pid)
	}
	return errors.Join(err, j.takeBack())
}

// giveBack undoes what bring did, after a later failure.
func (p *Plan) giveBack(err error) error {
	u, uerr := Undo(p.node.Dir)
	if uerr != nil {
		return errors.Join(err, uerr)
	}
	return fmt.Errorf("%w\nThe old server is stopped and its data is back in %s. %s", err, u.DataDir, u.Again)
}

// stopped says how to continue after a failure that came after SHUTDOWN.
func stopped(err error, j *journal) error {
	return fmt.Errorf("%w\nThe old server is stopped and its data is in %s, as it was. %s", err, j.DataDir, j.again())
}

// join makes the server a member of a cluster that was adopted before.
func (p *Plan) join(ctx context.Context) (res Result, err error) {
	st := &steps{}
	defer func() {
		if err != nil {
			err = p.failed(st, err)
		}
	}()
	res.Closed = time.Now()
	for _, c := range p.facts.Channels {
		if !c.running() {
			continue
		}
		st.done(p.server, func(ctx context.Context) error { return p.server.exec(ctx, changeLimit, "START REPLICA") })
		if err := p.server.exec(ctx, changeLimit, "STOP REPLICA"); err != nil {
			return res, err
		}
	}
	base, err := p.closeWrites(ctx, st)
	if err != nil {
		return res, err
	}
	res.Base = line(base)
	made, err := setup.Join(ctx, setup.JoinOptions{Token: p.opts.Token, Node: p.node, Role: p.opts.Role,
		Executed: &res.Base,
		Bring: func(s config.Secrets) (err error) {
			p.opts.Say("the cluster takes this server with its data")
			res.Left, err = p.bring(ctx, st, mysqldConfig(p.node, s, p.facts.Binary), base)
			return err
		}})
	res.ConfigFile, res.Members = made.ConfigFile, made.Members
	if err != nil && fileExists(filepath.Join(p.node.Dir, setup.BeforeAdopt)) {
		return res, p.giveBack(err)
	}
	return res, err
}
