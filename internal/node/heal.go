package node

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"trireme/internal/api"
	"trireme/internal/binlog"
	"trireme/internal/config"
	"trireme/internal/consensus"
	"trireme/internal/gtid"
	"trireme/internal/ha"
	"trireme/internal/ledger"
	"trireme/internal/mysqld"
	"trireme/internal/node/lifecycle"
	"trireme/internal/raftlog"
)

// A mysqld may write what no replica can apply (docs/mysql.md). A follower whose applier stops with an error of the
// data tries once more, then has its data replaced by a copy of a node that has applied the entry. The leader lets one
// node at a time do so. A follower on which a session has ended a prepared XA transaction is seeded in the same way. It
// is not repaired in place: whether the session has committed or rolled back is not known, and preparing again what was
// committed may hide the difference.

const (
	healAgain   = 30 * time.Second // between two attempts to apply what failed twice, while it cannot be healed
	healMemory  = 6 * time.Hour    // for which a node remembers that it was seeded for this
	healLongest = 30 * time.Minute // the longest pause between two seedings
	grantLife   = time.Minute      // of the leader's permission, until the node shows that it is seeded
	healTimeout = 5 * time.Second  // of the question
	keepOldRoom = 1 << 30          // bytes that must be left when old and new data are both there
)

// reqHeal: body healRequest; answered when the asking node may throw its data away.
const reqHeal uint8 = 56

// healRequest is what a node asks the leader when it has to be seeded.
type healRequest struct {
	Index uint64 `json:"index"`
	Keeps bool   `json:"keeps"` // it keeps its data until the copy is complete
	// Diverged: its data is no good, so nothing is lost with it.
	Diverged bool `json:"diverged,omitempty"`
}

// applyFailure is what this node's applier has stopped at, or the XA transaction that a session has ended here. It is
// not changed once it is shown; nil: nothing.
type applyFailure struct {
	view    api.ApplyErrorView
	retried bool          // START REPLICA did not help
	again   time.Duration // when it is tried again, while healing is refused
	keeps   bool          // of the seeding: the old data stays until the copy is complete
}

// mendApplier deals with an applier that has stopped with an error, and returns why, in words.
func (n *Node) mendApplier(ctx context.Context, l *lifecycle.Life, st mysqld.ReplicaStatus) string {
	e, err := l.Admin().ApplyError(ctx, st)
	if err != nil {
		n.log.Debug("the applier's error was not read", "err", err)
	}
	n.mu.Lock()
	known := n.srv.failure
	n.mu.Unlock()
	next := applyFailure{}
	switch {
	case known != nil && known.view.Number == e.Number && known.view.Trx == e.GTID:
		next = *known
	default:
		next.view = n.explain(ctx, l, e)
		n.log.Error("the applier has stopped", "errno", e.Number, "err", e.Text, "gtid", next.view.GTID,
			"index", next.view.Index,
			"entry", next.view.Entry, "of_resources", next.view.Resources)
	}
	switch {
	case next.view.Resources:
		next.view.Next = "it is tried again every 2 s until what lacks is there"
		n.startReplica(ctx, l)
	case !next.retried:
		next.retried = true
		next.view.Next = "it is tried once more, and then the node is seeded from one that has applied the entry"
		n.startReplica(ctx, l)
	default:
		n.heal(ctx, l, &next)
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.lives.Life() == l {
		n.srv.failure = &next
	}
	return next.text()
}

// text is for status and why-not.
func (f *applyFailure) text() string {
	v := &f.view
	what := "the applier has stopped"
	switch {
	case v.Resources:
		what = "the applier waits for resources"
	case v.Diverged:
		what = "the data differs"
	}
	if v.Entry != "" {
		what += fmt.Sprintf(" at entry %d (%s: %s)", v.Index, v.GTID, v.Entry)
	}
	if v.Number == 0 { // mysqld has said nothing
		return fmt.Sprintf("%s: %s; %s", what, v.Error, v.Next)
	}
	return fmt.Sprintf("%s: error %d: %s; %s", what, v.Number, v.Error, v.Next)
}

func (n *Node) startReplica(ctx context.Context, l *lifecycle.Life) {
	if err := l.RestartFeed(ctx); err != nil {
		n.log.Debug("replication did not start", "err", err)
	}
}

// explain decodes what could not be applied.
func (n *Node) explain(ctx context.Context, l *lifecycle.Life, e mysqld.ApplyError) api.ApplyErrorView {
	v := api.ApplyErrorView{Number: e.Number, Error: e.Text, Trx: e.GTID, Resources: e.OfResources(), Since: time.Now()}
	if _, err := l.ReadExecuted(ctx); err != nil {
		return v
	}
	if err := n.findEntry(&v, l.Executed()); err != nil {
		n.log.Warn("what the applier stopped at could not be read from the log", "gtid", e.GTID, "err", err)
	}
	return v
}

// errFound ends a scan.
var errFound = errors.New("found")

// findEntry finds the transaction that v.Trx names in the log, or else the first that is not executed, and says what it
// does.
func (n *Node) findEntry(v *api.ApplyErrorView, executed gtid.Set) error {
	upTo, _ := n.led.At()
	from, _, err := n.rlog.SeekGTID(executed, upTo)
	if err != nil || from > upTo {
		return err
	}
	wanted, err := gtid.ParseGTID(v.Trx)
	named := err == nil
	var (
		w   = ledger.Walker{Plain: true}
		sum binlog.Summary
		is  bool // the transaction under way is the one
	)
	err = n.rlog.Scan(from, upTo, func(m *raftlog.Meta, index, _ uint64, events []byte) error {
		return w.Walk(m, index, events, func(b binlog.Boundary, h binlog.Header, ev []byte) error {
			if h.Type.StartsTransaction() {
				g := w.Asm.Trx().GTID
				is = named && g == wanted || !named && !executed.Contains(g)
			}
			if !is {
				return nil
			}
			if err := sum.Add(ev); err != nil {
				return err
			}
			if b == binlog.End {
				trx := w.Asm.Trx()
				v.GTID, v.Index, v.Node = trx.GTID.String(), index, n.memberName(uint64(m.Node))
				v.XA = (trx.Kind == binlog.XAPrepare || trx.Kind == binlog.XACommit || trx.Kind == binlog.XARollback) &&
					!trx.OnePhase
				return errFound
			}
			return nil
		})
	})
	if !errors.Is(err, errFound) {
		return err
	}
	v.Entry, v.Statement = sum.String(), sum.Statement
	for _, c := range sum.Changes() {
		v.Changes = append(v.Changes, api.ChangeView{Table: c.Table, Operation: c.Op, Events: c.Events})
	}
	return nil
}

// heal has this node's data replaced, if the leader agrees and it was not done too often; next says what holds it up
// otherwise.
func (n *Node) heal(ctx context.Context, l *lifecycle.Life, next *applyFailure) {
	why := n.mayHealNow(ctx, next)
	if why == nil {
		why = n.giveUpData(l, next)
	}
	if why == nil {
		return
	}
	next.view.Next = "not healed yet: " + why.Error()
	if !next.view.Diverged && now() >= next.again {
		next.again = now() + healAgain
		n.startReplica(ctx, l)
	}
}

// unknownXID is mysqld's error XAER_NOTA: no transaction of that xid is prepared.
const unknownXID = 1397

// explainLostXA says what a session on this node has ended.
func (n *Node) explainLostXA(lost lifecycle.LostXA, applied uint64, executed gtid.Set) api.ApplyErrorView {
	v := api.ApplyErrorView{Number: unknownXID, Diverged: true, Index: applied, Since: time.Now(),
		Error: "a session on this node, and not on the leader, has committed or rolled back the prepared XA transaction " +
			lost.XID}
	if lost.Prepare.First == 0 {
		return v // it was prepared before this life of mysqld
	}
	v.Trx = gtid.GTID{SID: lost.Prepare.SID, GNO: lost.Prepare.First}.String()
	var prepare gtid.Set
	prepare.AddRange(lost.Prepare)
	if err := n.findEntry(&v, executed.Subtract(prepare)); err != nil {
		n.log.Warn("an XA transaction that was ended here could not be read from the log", "gtid", v.Trx, "err", err)
	}
	return v
}

// explainLeftOut says what is missing.
func (n *Node) explainLeftOut(what gtid.GTID, index uint64, executed gtid.Set) api.ApplyErrorView {
	v := api.ApplyErrorView{Trx: what.String(), GTID: what.String(), Index: index, Diverged: true, Since: time.Now(),
		Error: "mysqld's applier has left a transaction out: it is not executed, later ones are, and no worker applies it"}
	if err := n.findEntry(&v, executed); err != nil {
		n.log.Warn("what the applier has left out could not be read from the log", "gtid", v.Trx, "err", err)
	}
	return v
}

// fenceDiverged takes a follower's mysqld out of service: its data does not match what is committed. healDiverged has
// the node seeded.
func (n *Node) fenceDiverged(l *lifecycle.Life, v api.ApplyErrorView) {
	v.Next = "the node is seeded from another one"
	f := &applyFailure{view: v}
	n.mu.Lock()
	s := n.lives.Status()
	judged := s.State() == ha.ServerReady || s.State() == ha.ServerJudging
	if s.Life() != l || !judged || s.Phase() != ha.PhaseNone && s.Phase() != ha.PhasePromoting {
		n.mu.Unlock()
		return // it leads, or is dead: what was seen says nothing any more
	}
	n.srv.failure = f
	n.lives.Change(func(s *lifecycle.Status) { s.Broken(f.text()) })
	n.gossip.Publish()
	n.mu.Unlock()
	n.feed.SetPaused(true)
	if err := n.local.update(func(s *localState) { s.Diverged = &v }); err != nil {
		n.log.Error("that this node's data differs was not written down; a restart of mysqld may hide it", "err", err)
	}
	attrs := []any{"problem", f.text()}
	if v.Number != 0 { // what mysqld leaves out by itself is no broken rule of ours
		attrs = append(attrs, "rule", "S5")
	}
	n.log.Error("mysqld's data does not match the committed log; this node must be seeded again", attrs...)
	e := n.event(api.EventDivergent, v.Index, f.text())
	e.GTIDs = v.GTID
	n.history.add(e)
	n.poke()
}

// healDiverged has a node seeded whose mysqld is out of service.
func (n *Node) healDiverged(ctx context.Context, l *lifecycle.Life, next applyFailure) {
	n.heal(ctx, l, &next)
	n.mu.Lock()
	defer n.mu.Unlock()
	if s := n.lives.Status(); s.Life() == l && s.State() == ha.ServerBroken {
		if s.Problem() != next.text() {
			n.gossip.Publish()
		}
		n.srv.failure = &next
		n.lives.Change(func(s *lifecycle.Status) { s.Broken(next.text()) })
	}
}

// mayHealNow says why this node cannot be seeded now; nil: it can.
func (n *Node) mayHealNow(ctx context.Context, f *applyFailure) error {
	if f.view.Index == 0 {
		return errors.New("it is not known at which entry, so neither who has applied it")
	}
	if at := nextHeal(n.local.get().Heals, time.Now()); time.Now().Before(at) {
		return fmt.Errorf(
			"it was seeded for such an error a while ago, and waits until %s; `trireme reinit %s` does it at once",
			at.Format(time.TimeOnly), n.id.Name)
	}
	f.keeps = n.roomForBoth()
	leader := n.cons.Status().Leader
	switch leader {
	case 0:
		return errors.New("there is no leader to ask")
	case n.id.ID:
		return errors.New("it is raft's leader, and hands over to a node that has applied the entry as soon as there is one")
	}
	body, err := json.Marshal(healRequest{Index: f.view.Index, Keeps: f.keeps, Diverged: f.view.Diverged})
	if err != nil {
		return err
	}
	rctx, cancel := context.WithTimeout(ctx, healTimeout)
	defer cancel()
	_, err = n.tr.Request(rctx, leader, reqHeal, body)
	return err
}

// recentHeals are those that count. A clock that was ahead for a while must not hold healing up: what is to come does
// not count.
func recentHeals(heals []time.Time, at time.Time) []time.Time {
	return slices.DeleteFunc(slices.Clone(heals), func(t time.Time) bool { return t.After(at) || at.Sub(t) > healMemory })
}

// nextHeal is when a node may be seeded for this the next time: at once, then after pauses that double.
func nextHeal(heals []time.Time, at time.Time) time.Time {
	recent := recentHeals(heals, at)
	if len(recent) == 0 {
		return at
	}
	pause := min(time.Minute<<min(len(recent)-1, 10), healLongest)
	return recent[len(recent)-1].Add(pause)
}

// roomForBoth says whether old and new data have room side by side, if the new is a quarter larger.
func (n *Node) roomForBoth() bool {
	free, err := freeSpace(n.cfg.MySQLDir())
	return err == nil && free > mysqld.TreeBytes(n.mysqldConfig().DataDir())*5/4+keepOldRoom
}

// giveUpData makes this node one that has to be seeded. Decide does the rest.
func (n *Node) giveUpData(l *lifecycle.Life, f *applyFailure) error {
	if err := n.local.update(func(s *localState) {
		at := time.Now()
		s.Heals = append(recentHeals(s.Heals, at), at.UTC().Truncate(time.Second))
	}); err != nil {
		return err
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	s := n.lives.Status()
	may := s.State() == ha.ServerReady || f.view.Diverged && s.State() == ha.ServerBroken
	if s.Life() != l || !may || s.Phase() != ha.PhaseNone {
		return errors.New("its mysqld is not what it was a moment ago")
	}
	f.view.Next = "it is seeded from a node that has applied the entry"
	n.srv.failure = f
	n.replaceDataLocked(f.text())
	n.heals.Add(1)
	e := n.event(api.EventApplyError, f.view.Index, f.text())
	e.GTIDs = f.view.GTID
	n.history.add(e)
	n.log.Warn("this node is seeded again", "why", f.view.Error, "gtid", f.view.GTID, "index", f.view.Index,
		"entry", f.view.Entry,
		"errno", f.view.Number, "keeps_old_data", f.keeps)
	n.poke()
	return nil
}

// healGrant is the leader's permission that was given last.
type healGrant struct {
	to uint64
	at time.Duration
}

// letHeal answers a node that wants to be seeded (raft's leader only).
func (n *Node) letHeal(from uint64, r healRequest) error {
	st := n.cons.Status()
	if st.Role != consensus.Leader {
		return errors.New("the node that was asked does not lead")
	}
	c, settings := n.members.Census(), n.Settings()
	n.mu.Lock()
	defer n.mu.Unlock()
	if _, member := settings.MemberByID(from); !member {
		return errors.New("it is not a member")
	}
	if settings.PausedAt(time.Now()) {
		return errors.New("automatic actions are paused")
	}
	s := n.lives.Status()
	holder := s.State() == ha.ServerReady && n.srv.backlog.Applied >= r.Index
	for _, m := range settings.Members {
		p := n.gossip.Peers()[m.ID]
		if m.ID == from || !p.Fresh() {
			continue
		}
		switch {
		case p.Member.Seed != nil:
			return fmt.Errorf("%s is being seeded, and it is one node at a time", m.Name)
		case m.ID == n.grant.to && now() < n.grant.at+grantLife && !p.Ready:
			return fmt.Errorf("%s is about to be seeded, and it is one node at a time", m.Name)
		case m.Role != config.RoleLogger && p.Ready && p.Member.Raft.Applied >= r.Index:
			holder = true
		}
		if f := p.Member.ApplyError; f != nil && !f.Diverged {
			s := c.Nodes[m.ID]
			s.Ready = true // what it holds up to the entry is good, and the log has the rest
			c.Nodes[m.ID] = s
		}
	}
	switch {
	case !holder:
		return errNoHolder
	case !r.Keeps && !r.Diverged && !c.KeptWithout(from):
		return fmt.Errorf("there is no room to keep its data until the copy is complete, and it is needed: without it %s",
			c.WhyNotKept(from))
	}
	n.grant = healGrant{from, now()}
	return nil
}

// errNoHolder: no node has what an entry did.
var errNoHolder = errors.New("no node that answers has applied the entry, so no node can be copied from")
