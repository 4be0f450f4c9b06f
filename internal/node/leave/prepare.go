package leave

import (
	"context"
	"fmt"
	"time"

	"trireme/internal/api"
	"trireme/internal/base/config"
	"trireme/internal/base/failpoint"
	"trireme/internal/base/poll"
	"trireme/internal/core/transport"
	"trireme/internal/mysql/gtid"
	"trireme/internal/mysql/mysqld"
	"trireme/internal/node/gossip"
	"trireme/internal/node/leadership"
	"trireme/internal/node/lifecycle"
)

// Limits of the preparation.
const (
	plainPatience = 10 * time.Second // for one node to get ready
	plainLimit    = 30 * time.Second // for the end to be committed; then a node that is ready goes back to its work
	savedPatience = 5 * time.Second  // for InnoDB to note in mysql.gtid_executed what was committed
)

// prepareAll closes writes and makes every server ready to be a plain one.
func (a *attempt) prepareAll(ctx context.Context) (m leadership.Moved) {
	if m.Err = checkNonePrepared(ctx, a.life); m.Err != nil {
		return m
	}
	m = a.Leadership.Close(ctx, a.Control.Leader(a.life, a.term), a.term, gossip.Leave{Cause: "the cluster is left"},
		a.wait)
	if m.Err == nil {
		m.Err = a.prepareClosed(ctx)
	}
	return m
}

// prepareClosed is the part with writes closed.
func (a *attempt) prepareClosed(ctx context.Context) error {
	if err := checkNonePrepared(ctx, a.life); err != nil {
		return err
	}
	all, err := a.holdings(ctx)
	if err != nil {
		return err
	}
	a.order.Executed = all.String()
	if err := a.orderAll(ctx); err != nil {
		return err
	}
	if err := a.becomePlain(ctx, a.life, a.order); err != nil {
		return err
	}
	// The first of many may have returned to its work meanwhile, or have another mysqld.
	a.order.Confirm = true
	if err := a.orderAll(ctx); err != nil {
		return err
	}
	failpoint.Hit("leave.prepared")
	// A local statement meanwhile would be in no binary log of the plain source.
	if _, err := a.life.ReadExecuted(ctx); err != nil {
		return err
	}
	if more := a.life.Executed().Subtract(all); !more.Empty() {
		return fmt.Errorf("somebody has run a statement that is not replicated meanwhile: %s", more)
	}
	return nil
}

// checkNonePrepared fails if XA transactions are prepared: those of a replica do not outlive its restart, and its
// source's new binary log does not bring them again.
func checkNonePrepared(ctx context.Context, l *lifecycle.Life) error {
	xids, err := l.Admin().XARecover(ctx)
	if err != nil || len(xids) == 0 {
		return err
	}
	return api.Errorf(api.KindNotReady,
		"%d XA transactions are prepared, the first is %s: end each with XA COMMIT or XA ROLLBACK (see XA RECOVER)",
		len(xids), xids[0])
}

// ask puts a request to a data node, and gives it plainPatience. An error says which node.
func ask[Q, A any](ctx context.Context, h Host, k transport.Kind[Q, A], to config.Member, q Q) (answer A, err error) {
	ctx, cancel := context.WithTimeout(ctx, plainPatience)
	defer cancel()
	if answer, err = k.Ask(ctx, h, to.ID, q); err != nil {
		err = fmt.Errorf("%s: %w", to.Name, err)
	}
	return answer, err
}

// orderAll has each data node become ready.
func (a *attempt) orderAll(ctx context.Context) error {
	for _, p := range a.peers {
		if _, err := ask(ctx, a.Host, ReqPlain, p, a.order); err != nil {
			return err
		}
	}
	return nil
}

// holdings is what all data nodes together have executed, once each has applied everything.
func (a *attempt) holdings(ctx context.Context) (gtid.Set, error) {
	if _, err := a.life.ReadExecuted(ctx); err != nil {
		return gtid.Set{}, err
	}
	all := a.life.Executed().Clone()
	index, _ := a.Ledger.At()
	for _, p := range a.peers {
		text, err := ask(ctx, a.Host, ReqHoldings, p,
			leadership.Applied{Index: index, Patience: leadership.TargetPatience, Term: a.term})
		if err != nil {
			return gtid.Set{}, err
		}
		set, err := gtid.ParseSet(text)
		if err != nil {
			return gtid.Set{}, err
		}
		all.AddSet(set)
	}
	return all, nil
}

// HoldingsFor answers ReqHoldings.
func (e *End) HoldingsFor(ctx context.Context, _ uint64, r leadership.Applied) (string, error) {
	if err := e.Lives.AwaitApplied(ctx, r.Index, min(r.Patience, leadership.TargetPatience)); err != nil {
		return "", err
	}
	l := e.Lives.Life()
	if l == nil {
		return "", lifecycle.ErrDead
	}
	if _, err := l.ReadExecuted(ctx); err != nil {
		return "", err
	}
	// What another leader has committed meanwhile would be plugged where it is not applied yet.
	if err := e.stillTerm(r.Term); err != nil {
		return "", err
	}
	return l.Executed().String(), nil
}

// stillTerm refuses what was begun in an older term (S7).
func (e *End) stillTerm(term uint64) error {
	if now := e.Host.Term(); now != term {
		return fmt.Errorf("leadership has moved meanwhile: it is term %d, not %d", now, term)
	}
	return nil
}

// PlainHere answers ReqPlain: this follower's mysqld is made ready. When the end does not come, or the leader is lost,
// it is judged, and fed, again.
func (e *End) PlainHere(ctx context.Context, _ uint64, o Order) error {
	e.Mu.Lock()
	s := e.Lives.Status()
	l := s.Life()
	if l == nil || o.Confirm && !s.HasLeft() || !o.Confirm && !s.Follows() {
		e.Mu.Unlock()
		return fmt.Errorf("its mysqld is %s", s.State())
	}
	e.Lives.Change(func(s *lifecycle.Status) { s.Leave(plainLimit) })
	e.Gossip.Publish()
	e.Mu.Unlock()
	if o.Confirm {
		return nil
	}
	err := l.LeaveFeed(ctx, mysqld.Channel{Host: o.Host, Port: o.Port, Account: o.Account})
	if err == nil {
		err = e.becomePlain(ctx, l, o)
	}
	if err == nil {
		err = awaitSaved(ctx, l)
	}
	if err != nil {
		e.stay()
	}
	return err
}

// CancelHere answers ReqCancel.
func (e *End) CancelHere(context.Context, uint64, transport.None) error {
	e.stay()
	return nil
}

// stay takes a follower's preparation back. If the end is committed all the same, the judgement learns of it, and the
// feed does not begin.
func (e *End) stay() {
	e.Control.LeaderHost().Change((*lifecycle.Status).Stay)
	e.Host.WakeLoop()
}

// awaitSaved waits until a restart will find executed all that is. XA PREPAREs of the applier are not found, however
// long ago they were ended: here the next start plugs them (S5), but a plain replica would ask its source for them,
// which does not have them any more.
func awaitSaved(ctx context.Context, l *lifecycle.Life) error {
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
func (e *End) becomePlain(ctx context.Context, l *lifecycle.Life, o Order) error {
	all, err := gtid.ParseSet(o.Executed)
	if err != nil {
		return err
	}
	if _, err := l.ReadExecuted(ctx); err != nil {
		return err
	}
	if holes := all.Subtract(l.Executed()); !holes.Empty() {
		// If the cluster goes on, they are no business of Raft's here either (S5).
		err := e.Memory.Remember(func(s *lifecycle.State) {
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
	return e.Host.MySQL().WritePlain(o.Source == e.ID.Name)
}
