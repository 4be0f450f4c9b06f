package leave

import (
	"context"
	"time"

	"trireme/internal/api"
	"trireme/internal/base/config"
	"trireme/internal/core/transport"
	"trireme/internal/mysql/mysqld"
	"trireme/internal/node/leadership"
	"trireme/internal/node/lifecycle"
)

const disbandLimit = 60 * time.Second // of an attempt, but for open transactions

// attempt is an end of the cluster that has begun, on its leader.
type attempt struct {
	*End
	life  *lifecycle.Life // that takes writes
	term  uint64          // in which it does
	peers []config.Member // data nodes but this one
	order Order           // to each of them
	wait  time.Duration   // for open transactions
}

// carryOut has the cluster end. Unless the end is committed, or may be, writes open again.
func (a *attempt) carryOut(ctx context.Context) (m leadership.Moved) {
	limited, cancel := context.WithTimeout(ctx, disbandLimit+a.wait)
	defer cancel()
	mc := a.Host.MySQL()
	a.order = Order{Source: a.ID.Name, Host: mc.ReportHost, Port: mc.Port,
		Account: mysqld.Account{User: plainAccount, Password: config.NewToken()}}
	a.Log.Warn("the cluster is left, on an operator's request", "term", a.term)
	if m.Err = a.life.Admin().MakeReplAccount(limited, a.order.Account); m.Err == nil {
		m = a.prepareAll(limited)
	}
	if m.Err == nil {
		var unsure bool
		if unsure, m.Err = a.commit(limited, a.term); m.Err == nil {
			a.Host.Record("leave", api.WhoAsked(ctx),
				"the cluster is left: "+a.ID.Name+"'s server is the source of the others")
			return m
		}
		// It may come into force still: then nothing may have been written after it.
		if unsure {
			a.Control.LeaderHost().Fence("whether the cluster has ended is not known: "+m.Err.Error(),
				func(s *lifecycle.Status) bool { return s.HandsOver(a.life) })
			return m
		}
	}
	a.Log.Warn("the cluster is not left", "term", a.term, "err", m.Err)
	a.Host.Record("no-leave", api.WhoAsked(ctx), "the cluster was not left: "+m.Err.Error())
	for _, p := range a.peers {
		a.Host.Go(func(ctx context.Context) {
			_, _ = ask(ctx, a.Host, ReqCancel, p, transport.None{}) // one that does not hear it goes back by itself
		})
	}
	// If that fails this node is fenced, and the cluster goes on with another leader.
	_ = a.Control.Leader(a.life, a.term).Reopen(ctx)
	a.Host.Go(func(ctx context.Context) {
		if err := a.life.Admin().DropReplAccount(ctx, plainAccount); err != nil {
			a.Log.Warn("the account of plain replicas is left", "user", plainAccount, "err", err)
		}
	})
	return m
}

// commit makes the end the last entry of the log, in the term in which writes were closed: in a later one somebody else
// may have taken some between, which this node's server does not hold. After an error, unsure says whether it may come
// into force still.
func (e *End) commit(ctx context.Context, term uint64) (unsure bool, err error) {
	_, err = e.Members.Change(ctx, term, func(c *config.Cluster) error {
		c.Disbanded = &config.Disbanded{At: time.Now(), Source: e.ID.Name}
		unsure = true // from here on it may be proposed
		return nil
	})
	return unsure && err != nil && api.KindOf(err) != api.KindNoLeader, err
}
