package node

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"time"

	"trireme/internal/api"
	"trireme/internal/base/config"
	"trireme/internal/base/failpoint"
	"trireme/internal/base/poll"
	"trireme/internal/core/ha"
	"trireme/internal/core/transport"
	"trireme/internal/mysql/gtid"
	"trireme/internal/mysql/mysqld"
	"trireme/internal/node/gossip"
	"trireme/internal/node/leadership"
	"trireme/internal/node/lifecycle"
)

// How a cluster ends (`trireme leave`), on its leader:
//
//	account of the replicas -> close writes, drain -> everybody has applied everything
//	  -> what each holds, together -> each data node: replication stopped, holes plugged, channel to the source, my.cnf-plain; asked once more
//	  -> settings: Disbanded -> each daemon: mysqld stopped, exec mysqld --defaults-file=my.cnf-plain
//
// Up to the settings everything can be taken back: the nodes are judged and fed again, writes open. With them the end
// is committed, and each node does the rest by itself.

// Requests between daemons, of an end of the cluster.
var (
	// reqHoldings is answered with gtid_executed, once the index is applied.
	reqHoldings = transport.Kind[leadership.Applied, string]{Number: 48}
	// reqPlain is answered when the server is ready to be a plain one.
	reqPlain = transport.Kind[plainOrder, transport.None]{Number: 49, StrictBody: true}
	// reqCancelLeave: the cluster goes on.
	reqCancelLeave = transport.Kind[transport.None, transport.None]{Number: 50}
)

// Limits of an end of the cluster.
const (
	plainPatience    = 10 * time.Second // for one node to get ready
	plainLimit       = 30 * time.Second // for the end to be committed; then a node that is ready goes back to its work
	disbandLimit     = 60 * time.Second
	dispersePatience = 5 * time.Second // for everybody to know that it is the end
)

const plainAccount = "plain_repl" // user of the replicas

// plainOrder tells a node what to become.
type plainOrder struct {
	Source  string         `json:"source"` // name
	Host    string         `json:"host"`
	Port    int            `json:"port"`
	Account mysqld.Account `json:"account"`
	// Executed is everything that any node has executed, local statements of dead incarnations included: with all of it
	// everywhere, no replica asks its source for what that no longer has.
	Executed string `json:"executed"`
	// Confirm asks whether the server is ready as it was left, and gives it another plainLimit: just before the end is
	// committed.
	Confirm bool `json:"confirm,omitempty"`
}

// errDisbanded ends the daemon: its server goes on without it.
var errDisbanded = errors.New("the cluster has ended")

// disbandedError is why no daemon starts on a directory any more.
func (n *Node) disbandedError(d *config.Disbanded) error {
	what := "It was a logger: nothing is left to run here"
	if n.id.Role != config.RoleLogger {
		mc := n.mysqldConfig()
		what = fmt.Sprintf("Its MySQL server is a plain one now, the source of the others, and is started by: %s",
			strings.Join(mc.PlainCommand(), " "))
		if d.Source != n.id.Name {
			what = fmt.Sprintf("Its MySQL server is a plain replica of %s now, and is started by: %s", d.Source,
				strings.Join(mc.PlainCommand(), " "))
		}
	}
	return fmt.Errorf("cluster %q was ended by `trireme leave` on %s. %s", n.id.Cluster, d.At.UTC().
		Format("2006-01-02 15:04:05 UTC"), what)
}

// plainPlan is who becomes what.
type plainPlan struct {
	res   api.LeaveResult
	peers []uint64 // data nodes but this one
}

// Leave implements api.Backend (leader only).
func (n *Node) Leave(ctx context.Context, req api.LeaveRequest) (api.LeaveResult, error) {
	if err := n.members.CheckTerm(req.IfTerm); err != nil {
		return api.LeaveResult{}, err
	}
	p, err := n.planLeave()
	p.res.DryRun = req.DryRun
	if e, ok := errors.AsType[*api.Error](err); ok && req.DryRun && e.Kind.Refused() {
		p.res.Problem, p.res.ProblemKind = e.Message, e.Kind
		return p.res, nil
	}
	if err != nil {
		return p.res, err
	}
	wait := api.DefaultTrxWait
	if req.OpenTrxWait != nil {
		wait = *req.OpenTrxWait
	}
	if wait < 0 || wait > api.MaxTrxWait {
		return p.res, api.Errorf(api.KindInvalid, "open transactions can be waited for up to %v, not %v", api.MaxTrxWait,
			wait)
	}
	n.mu.Lock()
	s := n.lives.Status()
	l, term := s.Life(), s.Term()
	if n.leadership.Asked() || s.Phase() != ha.PhaseOpen || l == nil {
		n.mu.Unlock()
		return p.res, leadership.UnderWay()
	}
	if req.DryRun {
		n.mu.Unlock()
		xids, err := l.Admin().XARecover(ctx)
		if err != nil {
			return p.res, err
		}
		if err := nonePrepared(xids); err != nil {
			p.res.Problem, p.res.ProblemKind = err.Error(), api.KindNotReady
			return p.res, nil
		}
		open, err := l.Admin().OpenTransactions(ctx, true)
		p.res.OpenTransactions, p.res.OpenCount = openTransactions(open), len(open)
		return p.res, err
	}
	n.lives.Change((*lifecycle.Status).HandOver)
	outcome := make(chan leadership.Moved, 1)
	asker := api.AskedBy(ctx)
	n.control.ServeLocked(func(ctx context.Context) {
		outcome <- n.disband(api.AskedAs(ctx, asker), l, term, p, wait)
	})
	n.mu.Unlock()
	m := <-outcome // it has limits of its own
	p.res.OpenTransactions, p.res.OpenCount = openTransactions(m.Open), len(m.Open)
	if m.Err != nil {
		return p.res, api.Errorf(api.KindNotReady, "the cluster was not left: %v", m.Err).
			With("the cluster continues; see `trireme status`, then try again")
	}
	return p.res, nil
}

// planLeave says who would become what, or why it cannot be: everybody has to be there and well.
func (n *Node) planLeave() (plainPlan, error) {
	v, c := n.control.View(), n.Settings()
	p := plainPlan{res: api.LeaveResult{Cluster: n.id.Cluster, Term: v.Raft.Term, Account: plainAccount,
		Replicas: []api.PlainServer{}, Loggers: []string{},
		OpenTransactions: []api.OpenTransaction{}}}
	var ill []string
	for _, m := range c.Members {
		s := api.PlainServer{Name: m.Name, Addr: net.JoinHostPort(m.MySQLHost, strconv.Itoa(m.MySQLPort))}
		peer := n.gossip.Peers()[m.ID]
		switch {
		case m.ID == n.id.ID:
			p.res.Source = s
			continue
		case m.Pending || m.Removing:
			ill = append(ill, m.Name+" is just joining or leaving")
		case !peer.Fresh():
			ill = append(ill, m.Name+" does not answer")
		case m.Delay() > 0:
			ill = append(ill, m.Name+" is a delayed learner (take the delay away, or take it out with `trireme remove`)")
		case m.Role != config.RoleLogger && !peer.Ready:
			ill = append(ill, m.Name+" is "+peer.Member.State)
		}
		if m.Role == config.RoleLogger {
			p.res.Loggers = append(p.res.Loggers, m.Name)
			continue
		}
		p.res.Replicas = append(p.res.Replicas, s)
		p.peers = append(p.peers, m.ID)
	}
	switch {
	case c.Disbanded != nil:
		return p, api.Errorf(api.KindAlready, "the cluster has been left already")
	case v.Serving.Phase != ha.PhaseOpen:
		return p, api.Errorf(api.KindNoLeader, "%s is not a leader with open writes", n.id.Name).
			With("wait until `trireme status` shows a healthy leader")
	case len(ill) > 0:
		return p, api.Errorf(api.KindNotReady, "not every node can be made a plain server: %s", strings.Join(ill, "; ")).
			With("bring it back, or remove it: trireme remove NODE")
	}
	return p, nil
}

// disband carries it out. Unless the end is committed, or may be, writes open again.
func (n *Node) disband(ctx context.Context, l *lifecycle.Life, term uint64, p plainPlan,
	wait time.Duration) (m leadership.Moved) {
	limited, cancel := context.WithTimeout(ctx, disbandLimit+wait)
	defer cancel()
	order := plainOrder{Source: n.id.Name, Host: n.cfg.MySQLHost(), Port: n.cfg.MySQL.Port,
		Account: mysqld.Account{User: plainAccount, Password: config.NewToken()}}
	n.log.Warn("the cluster is left, on an operator's request", "term", term)
	if m.Err = l.Admin().MakeReplAccount(limited, order.Account); m.Err == nil {
		m = n.prepareAll(limited, l, term, p, order, wait)
	}
	if m.Err == nil {
		var unsure bool
		if unsure, m.Err = n.commitEnd(limited, term); m.Err == nil {
			n.history.add(n.askedEvent(ctx, "leave", 0, "the cluster is left: "+n.id.Name+
				"'s server is the source of the others"))
			return m
		}
		// It may come into force still: then nothing may have been written after it.
		if unsure {
			n.control.LeaderHost().Fence("whether the cluster has ended is not known: "+m.Err.Error(),
				func(s *lifecycle.Status) bool { return s.HandsOver(l) })
			return m
		}
	}
	n.log.Warn("the cluster is not left", "term", term, "err", m.Err)
	n.history.add(n.askedEvent(ctx, "no-leave", 0, "the cluster was not left: "+m.Err.Error()))
	for _, id := range p.peers {
		n.task(func(ctx context.Context) {
			sctx, cancel := context.WithTimeout(ctx, plainPatience)
			defer cancel()
			_, _ = reqCancelLeave.Ask(sctx, n.tr, id, transport.None{}) // one that does not hear it goes back by itself
		})
	}
	_ = n.control.Leader(l, term).Reopen(ctx) // else this node is fenced, and the cluster goes on with another leader
	n.task(func(ctx context.Context) {
		if err := l.Admin().DropReplAccount(ctx, plainAccount); err != nil {
			n.log.Warn("the account of plain replicas is left", "user", plainAccount, "err", err)
		}
	})
	return m
}

// prepareAll closes writes and makes every server ready to be a plain one.
func (n *Node) prepareAll(ctx context.Context, l *lifecycle.Life, term uint64, p plainPlan, order plainOrder,
	wait time.Duration) (m leadership.Moved) {
	if m.Err = n.checkNonePrepared(ctx, l); m.Err != nil {
		return m
	}
	m = n.leadership.Close(ctx, n.control.Leader(l, term), term, gossip.Leave{Cause: "the cluster is left"}, wait)
	if m.Err == nil {
		m.Err = n.prepareClosed(ctx, l, term, p, order)
	}
	return m
}

// prepareClosed is the part with writes closed.
func (n *Node) prepareClosed(ctx context.Context, l *lifecycle.Life, term uint64, p plainPlan,
	order plainOrder) error {
	if err := n.checkNonePrepared(ctx, l); err != nil {
		return err
	}
	all, err := n.holdings(ctx, l, term, p.peers)
	if err != nil {
		return err
	}
	order.Executed = all.String()
	if err := n.orderAll(ctx, p.peers, order); err != nil {
		return err
	}
	if err := n.becomePlain(ctx, l, order); err != nil {
		return err
	}
	// The first of many may have returned to its work meanwhile, or have another mysqld.
	order.Confirm = true
	if err := n.orderAll(ctx, p.peers, order); err != nil {
		return err
	}
	failpoint.Hit("leave.prepared")
	// A local statement meanwhile would be in no binary log of the plain source.
	if _, err := l.ReadExecuted(ctx); err != nil {
		return err
	}
	if more := l.Executed().Subtract(all); !more.Empty() {
		return fmt.Errorf("somebody has run a statement that is not replicated meanwhile: %s", more)
	}
	return nil
}

// orderAll has each data node become ready.
func (n *Node) orderAll(ctx context.Context, peers []uint64, order plainOrder) error {
	for _, id := range peers {
		rctx, cancel := context.WithTimeout(ctx, plainPatience)
		_, err := reqPlain.Ask(rctx, n.tr, id, order)
		cancel()
		if err != nil {
			return fmt.Errorf("%s: %w", n.memberName(id), err)
		}
	}
	return nil
}

// checkNonePrepared fails if XA transactions are prepared: those of a replica do not outlive its restart, and its
// source's new binary log does not bring them again.
func (n *Node) checkNonePrepared(ctx context.Context, l *lifecycle.Life) error {
	xids, err := l.Admin().XARecover(ctx)
	if err != nil {
		return err
	}
	return nonePrepared(xids)
}

func nonePrepared(xids []mysqld.XID) error {
	if len(xids) == 0 {
		return nil
	}
	return fmt.Errorf(
		"%d XA transactions are prepared, the first is %s: end each with XA COMMIT or XA ROLLBACK (see XA RECOVER)",
		len(xids), xids[0])
}

// holdings is what all data nodes together have executed, once each has applied everything.
func (n *Node) holdings(ctx context.Context, l *lifecycle.Life, term uint64, peers []uint64) (gtid.Set, error) {
	if _, err := l.ReadExecuted(ctx); err != nil {
		return gtid.Set{}, err
	}
	all := l.Executed().Clone()
	index, _ := n.led.At()
	for _, id := range peers {
		rctx, cancel := context.WithTimeout(ctx, plainPatience)
		text, err := reqHoldings.Ask(rctx, n.tr, id,
			leadership.Applied{Index: index, Patience: leadership.TargetPatience, Term: term})
		cancel()
		if err != nil {
			return gtid.Set{}, fmt.Errorf("%s: %w", n.memberName(id), err)
		}
		set, err := gtid.ParseSet(text)
		if err != nil {
			return gtid.Set{}, err
		}
		all.AddSet(set)
	}
	return all, nil
}

// holdingsHere answers reqHoldings.
func (n *Node) holdingsHere(ctx context.Context, from uint64, r leadership.Applied) (string, error) {
	if err := n.awaitAppliedHere(ctx, from, r); err != nil {
		return "", err
	}
	l := n.lives.Life()
	if l == nil {
		return "", lifecycle.ErrDead
	}
	if _, err := l.ReadExecuted(ctx); err != nil {
		return "", err
	}
	// What another leader has committed meanwhile would be plugged where it is not applied yet.
	if err := n.stillTerm(r.Term); err != nil {
		return "", err
	}
	return l.Executed().String(), nil
}

// stillTerm refuses what was begun in an older term (S7).
func (n *Node) stillTerm(term uint64) error {
	if now := n.cons.Status().Term; now != term {
		return fmt.Errorf("leadership has moved meanwhile: it is term %d, not %d", now, term)
	}
	return nil
}

// plainHere answers reqPlain: this follower's mysqld is made ready. When the end does not come, or the leader is lost,
// it is judged, and fed, again.
func (n *Node) plainHere(ctx context.Context, _ uint64, o plainOrder) error {
	n.mu.Lock()
	s := n.lives.Status()
	l := s.Life()
	if l == nil || o.Confirm && !s.HasLeft() || !o.Confirm && !s.Follows() {
		n.mu.Unlock()
		return fmt.Errorf("its mysqld is %s", s.State())
	}
	n.lives.Change(func(s *lifecycle.Status) { s.Leave(plainLimit) })
	n.gossip.Publish()
	n.mu.Unlock()
	if o.Confirm {
		return nil
	}
	err := l.LeaveFeed(ctx, mysqld.Channel{Host: o.Host, Port: o.Port, Account: o.Account})
	if err == nil {
		err = n.becomePlain(ctx, l, o)
	}
	if err == nil {
		err = n.awaitSaved(ctx, l)
	}
	if err != nil {
		n.stay()
	}
	return err
}

// savedPatience is for InnoDB to note in mysql.gtid_executed what was committed.
const savedPatience = 5 * time.Second

// awaitSaved waits until a restart will find executed all that is. XA PREPAREs of the applier are not found, however
// long ago they were ended: here the next start plugs them (S5), but a plain replica would ask its source for them,
// which does not have them any more.
func (n *Node) awaitSaved(ctx context.Context, l *lifecycle.Life) error {
	// A polite stop saves what is in this life's own binary log.
	executed := l.Executed()
	executed = executed.Subtract(executed.Of(l.UUID))
	for end := now() + savedPatience; ; {
		text, err := l.Admin().SavedGTIDs(ctx)
		if err != nil {
			return err
		}
		saved, err := gtid.ParseSet(text)
		if err != nil {
			return fmt.Errorf("mysql.gtid_executed: %w", err)
		}
		lost := executed.Subtract(saved)
		switch {
		case lost.Empty():
			return nil
		case now() > end:
			return fmt.Errorf(
				"a restart would forget that %d transactions were executed, XA PREPAREs as a rule: restart its daemon, "+
					"which records them permanently, and try again", lost.Count())
		}
		if err := poll.Pause(ctx, 50*time.Millisecond); err != nil {
			return err
		}
	}
}

// becomePlain is what source and replicas have in common: all that anybody has executed counts as executed, on disk,
// and the option file is written.
func (n *Node) becomePlain(ctx context.Context, l *lifecycle.Life, o plainOrder) error {
	all, err := gtid.ParseSet(o.Executed)
	if err != nil {
		return err
	}
	if _, err := l.ReadExecuted(ctx); err != nil {
		return err
	}
	if holes := all.Subtract(l.Executed()); !holes.Empty() {
		// If the cluster goes on, they are no business of Raft's here either (S5).
		err := n.local.update(func(s *localState) {
			known, err := gtid.ParseSet(s.Inherited)
			if err == nil {
				s.Inherited = known.Union(holes).String()
			}
		})
		if err != nil {
			return err
		}
		if err := l.Admin().PlugGTIDs(ctx, holes.String()); err != nil {
			return err
		}
	}
	if err := l.Admin().FlushEngineLogs(ctx); err != nil {
		return err
	}
	return n.mysqldConfig().WritePlain(o.Source == n.id.Name)
}

// stay takes a follower's preparation back.
func (n *Node) stay() {
	n.mu.Lock()
	n.stayLocked()
	n.mu.Unlock()
	n.wakeLoop()
}

// stayLocked: if the end is committed all the same, the judgement learns of it, and the feed does not begin (lifeFeed).
func (n *Node) stayLocked() {
	n.lives.Change((*lifecycle.Status).Stay)
	n.gossip.Publish()
}

// commitEnd makes the end the last entry of the log, in the term in which writes were closed: in a later one somebody
// else may have taken some between, which this node's server does not hold. After an error, unsure says whether it may
// come into force still.
func (n *Node) commitEnd(ctx context.Context, term uint64) (unsure bool, err error) {
	_, err = n.members.Change(ctx, term, func(c *config.Cluster) error {
		c.Disbanded = &config.Disbanded{At: time.Now(), Source: n.id.Name}
		unsure = true // from here on it may be proposed
		return nil
	})
	return unsure && err != nil && api.KindOf(err) != api.KindNoLeader, err
}

// shutDownAfterLeave ends this daemon once the others know of the end, or will hear of it from somebody else: the
// source first, so that it is back first.
func (n *Node) shutDownAfterLeave(d *config.Disbanded, version uint64) {
	n.mu.Lock()
	n.lives.Change((*lifecycle.Status).BeginStop) // this node does not lead any more
	n.gossip.Publish()
	n.mu.Unlock()
	n.wakeLoop()
	n.log.Warn("the cluster has ended: mysqld continues as a plain server", "source", d.Source)
	if l := n.lives.Life(); l != nil && d.Source == n.id.Name { // it is not fed any more
		if err := l.Admin().ForgetSource(n.ctx); err != nil {
			n.log.Warn("the source keeps a replication channel that leads nowhere: RESET REPLICA ALL removes it", "err", err)
		}
	}
	deadline := now() + dispersePatience
	for now() < deadline && !n.mayDisperse(d, version) {
		if poll.Pause(n.ctx, 5*time.Millisecond) != nil {
			return
		}
	}
	n.fail(errDisbanded)
}

func (n *Node) mayDisperse(d *config.Disbanded, version uint64) bool {
	if d.Source == n.id.Name {
		return !slices.ContainsFunc(n.Settings().Members, func(m config.Member) bool {
			p := n.gossip.Peers()[m.ID]
			return p.Fresh() && p.Settings < version
		})
	}
	m, _ := n.Settings().Member(d.Source)
	return !n.gossip.Peers()[m.ID].Fresh()
}
