package node

import (
	"context"
	"fmt"
	"time"

	"trireme/internal/api"
	"trireme/internal/base/config"
	"trireme/internal/core/ha"
	"trireme/internal/core/ledger"
	"trireme/internal/core/raftlog"
	"trireme/internal/mysql/mysqld"
	"trireme/internal/node/history"
	"trireme/internal/node/lifecycle"
)

// How one writer delays all others: every follower applies a transaction of many log entries, or DDL, in one piece
// after its commit, and a failover waits for it. The leader reports both while they are under way. Followers report
// how much of both they have still to apply.

const (
	governInterval = 2 * time.Second
	// measuredFor is the least time that says how fast a large transaction is applied: looks are appliedInterval apart.
	measuredFor = 5 * appliedInterval
	// knownFrom is the least part of a statement's work from which the rest is estimated.
	knownFrom = 0.02
)

// heavyMeter estimates how long mysqld needs for the heavy part of its backlog. Only followApplied uses it.
type heavyMeter struct {
	applied uint64
	next    ledger.Heavy  // what stands first
	since   time.Duration // since when it does
	rate    float64       // bytes per second of large transactions as the last ones were applied; 0: not known
}

// take looks at a backlog. Work that takes longer than estimated is assumed to need another tenth of the estimate.
func (m *heavyMeter) take(at time.Duration, b ledger.Backlog) (left time.Duration) {
	if b.Applied != m.applied || b.Next != m.next {
		if took := at - m.since; m.next.Bytes > 0 && m.next.DDL == 0 && took >= measuredFor {
			rate := float64(m.next.Bytes) / took.Seconds()
			if m.rate > 0 {
				rate = (m.rate + rate) / 2
			}
			m.rate = rate
		}
		m.applied, m.next, m.since = b.Applied, b.Next, at
	}
	first := m.next.Time(m.rate)
	return b.Heavy.Time(m.rate) - min(at-m.since, first*9/10)
}

// updateHeavy takes a look at what this follower has still to apply.
func (n *Node) updateHeavy(m *heavyMeter) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if s := n.lives.Status(); s.Phase() != ha.PhaseNone && s.Phase() != ha.PhasePromoting {
		n.srv.heavy = 0
		return
	}
	n.srv.heavy, n.srv.largeRate = m.take(now(), n.srv.backlog), m.rate
}

// noteLarge tells of a transaction that has begun to be committed, if it is as large as transaction_warn: on its
// leader, while that serves. Entries that a restarted daemon reads again belong to a dead incarnation.
func (n *Node) noteLarge(index uint64, m *raftlog.Meta) {
	if m.Flags&raftlog.FlagContinues != 0 || uint64(m.Node) != n.id.ID {
		return
	}
	warn, l := uint64(n.Settings().TransactionWarn), n.lives.Life()
	if l == nil || l.Incarnation != m.Incarnation || warn == 0 {
		return
	}
	x := n.load.Large(n.replayRate())
	if x == nil || x.Total < warn {
		return
	}
	n.load.CountWarned()
	text := fmt.Sprintf("transaction %s has %s (transaction_warn is %v): a follower will apply it for about %v, and a "+
		"failover until then takes as much longer", x.GTID, sizeText(x.Total), config.Bytes(warn),
		roughly(secondsOf(x.ReplayS)))
	e := n.history.Event(history.EventLarge, index, text)
	e.GTIDs = x.GTID
	n.task(func(context.Context) { // the apply goroutine does not wait for a file
		n.log.Warn(text, "index", index)
		n.history.Add(e)
	})
}

// replayRate is what the slowest voter that is heard of applies of a large transaction, in bytes per second; 0: it is
// not known.
func (n *Node) replayRate() (rate float64) {
	for _, m := range n.Settings().Members {
		p := n.gossip.Peers()[m.ID]
		if m.Role != config.RoleVoter || !p.Fresh() || p.LargeRate == 0 {
			continue
		}
		if rate == 0 || p.LargeRate < rate {
			rate = p.LargeRate
		}
	}
	return rate
}

// heavyLocked is what is under way on this leader.
func (n *Node) heavyLocked() (out []api.HeavyView) {
	if s := n.lives.Status(); s.Phase() != ha.PhaseOpen {
		return nil
	}
	if v := n.load.Large(n.replayRate()); v != nil {
		h := api.HeavyView{Kind: api.HeavyTransaction, Text: v.GTID, Bytes: max(v.Total, v.Bytes), AgeSeconds: v.AgeS,
			ReplaySeconds: v.ReplayS}
		h.Done = float64(v.Bytes) / float64(h.Bytes)
		out = append(out, h)
	}
	for _, d := range n.srv.ddl {
		out = append(out, ddlView(d))
	}
	return out
}

// ddlView: a follower will need about as long as the statement takes here in all.
func ddlView(d mysqld.DDL) api.HeavyView {
	v := api.HeavyView{Kind: api.HeavyDDL, Text: d.Statement, AgeSeconds: d.Seconds, Done: d.Done,
		ReplaySeconds: d.Seconds}
	if d.Done >= knownFrom {
		v.ReplaySeconds = d.Seconds / d.Done
	}
	return v
}

// govern keeps the leader's limit of transactions, and looks for what will be heavy before it is committed.
func (n *Node) govern(ctx context.Context) {
	n.mu.Lock()
	s, refuse := n.lives.Status(), n.Settings().TransactionRefuse
	l := s.Life()
	if !s.Opens(l) {
		n.srv.ddl = nil
	}
	n.mu.Unlock()
	if l == nil || !s.Opens(l) {
		return
	}
	foreign, err := l.Admin().EndForeignDumps(ctx)
	if n.warnings.isNew("foreign dumps", err) {
		n.log.Warn("readers of mysqld's own binary log cannot be ended", "err", err)
	}
	for _, s := range foreign {
		n.log.Warn("somebody read this leader's own binary log and was cut off: it holds what no majority has; read the change stream (router.stream_port)",
			"account", s.User, "host", s.Host)
	}
	still := func() bool { // else what retire has taken back would be put in force again
		s := n.lives.Status()
		return s.Opens(l)
	}
	err = l.LimitTransactions(ctx, refuse, still)
	if n.warnings.isNew("transaction_refuse", err) {
		n.log.Warn("transaction_refuse is not in force", "err", err)
	}
	if err == nil && refuse > 0 {
		n.countRefused(ctx, l, refuse)
	}
	ddl, err := l.Admin().RunningDDL(ctx)
	if err != nil {
		n.log.Debug("looking for running DDL", "err", err)
	}
	n.mu.Lock()
	if s := n.lives.Status(); s.Opens(l) {
		n.srv.ddl = ddl
	}
	n.mu.Unlock()
}

// countRefused records what was refused since it last looked.
func (n *Node) countRefused(ctx context.Context, l *lifecycle.Life, refuse config.Bytes) {
	more, err := l.Refused(ctx)
	if err != nil || more == 0 {
		return
	}
	n.load.CountRefused(more)
	text := fmt.Sprintf("mysqld refused a statement (error 1197): its transaction is larger than transaction_refuse = %v",
		refuse)
	if more > 1 {
		text =
			fmt.Sprintf("mysqld refused %d statements (error 1197): their transactions are larger than transaction_refuse = %v",
				more, refuse)
	}
	n.log.Warn(text)
	n.history.Record(history.EventRefused, "", text)
}

// sizeText is a size for people.
func sizeText(b uint64) string {
	switch {
	case b >= 10<<30:
		return fmt.Sprintf("%d GiB", b>>30)
	case b >= 10<<20:
		return fmt.Sprintf("%d MiB", b>>20)
	}
	return fmt.Sprintf("%.1f MiB", float64(b)/(1<<20))
}

// roughly rounds an estimate.
func roughly(d time.Duration) time.Duration {
	if d < 10*time.Second {
		return d.Round(100 * time.Millisecond)
	}
	return d.Round(time.Second)
}
