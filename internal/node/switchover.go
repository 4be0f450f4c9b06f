package node

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"trireme/internal/api"
	"trireme/internal/base/failpoint"
	"trireme/internal/core/ha"
	"trireme/internal/mysql/mysqld"
	"trireme/internal/node/gossip"
	"trireme/internal/node/leadership"
	"trireme/internal/node/lifecycle"
)

// Patience of the parts of a switchover.
const (
	// for the target to apply what it has before writes close, and the rest after it
	targetPatience   = 3 * time.Second
	closeBehind      = 20 * time.Millisecond  // in which the target applies the rest, before writes close
	approachPatience = time.Second            // for it to come so close
	trxInterval      = 25 * time.Millisecond  // between two looks at open transactions
	quietPatience    = 500 * time.Millisecond // for the transactions of sessions that the routers hold
	electPatience    = 2 * time.Second        // for the target to be elected
)

// switchover moves leadership on purpose (DESIGN.md §8): make sure of the target, let open transactions end, close
// writes, drain, wait until the target has applied everything, transfer. If a step fails before the transfer, writes
// open again in the same term.
func (n *Node) switchover(ctx context.Context, l *lifecycle.Life, a ha.Action, req *leadership.Request,
	wait time.Duration) {
	m := n.moveLeadership(ctx, l, a, req, wait)
	if req != nil {
		n.leadership.End(req, m)
	}
	stopping := n.isStopping()
	if len(m.Open) > 0 {
		n.log.Warn("open transactions were rolled back by a switchover", "count", len(m.Open), "first", trxText(m.Open[0]))
	}
	err := m.Err
	if err == nil {
		err = n.stepAside(ctx, l)
		if err == nil {
			return
		}
	}
	n.leadership.Failed()
	n.log.Warn("switchover failed", "to", n.memberName(a.To), "term", a.Term, "err", err)
	e := n.event("no-switchover", 0, fmt.Sprintf("the switchover to %s failed: %v", n.memberName(a.To), err))
	n.history.add(e)
	n.reopen(l, a.Term, stopping)
}

// reopen takes back a switchover that failed while this node is still leader of the same term.
func (n *Node) reopen(l *lifecycle.Life, term uint64, stopping bool) {
	err := errors.New("the daemon is stopping")
	n.mu.Lock()
	n.lives.Change((*lifecycle.Status).TakeBack)
	n.mu.Unlock()
	if !stopping {
		if err = n.openWrites(n.ctx, l, term, ha.PhaseHandover); err == nil {
			return
		}
		err = fmt.Errorf("opening writes again: %w", err)
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if s := n.lives.Status(); s.HandsOver(l) {
		n.fenceLocked("the switchover failed half-way: " + err.Error())
	}
}

// stepAside makes the drained mysqld of the old leader a follower.
func (n *Node) stepAside(ctx context.Context, l *lifecycle.Life) error {
	if err := l.Retire(ctx); err != nil {
		return fmt.Errorf("becoming a follower: %w", err)
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if s := n.lives.Status(); s.HandsOver(l) {
		n.lives.Change((*lifecycle.Status).End)
		n.gossip.Publish()
	}
	return nil
}

func (n *Node) moveLeadership(ctx context.Context, l *lifecycle.Life, a ha.Action, req *leadership.Request,
	wait time.Duration) (m leadership.Moved) {
	// The target first, while writes go on: it must be alive and nearly there. Again after the waits, in which it may have
	// died.
	if m.Err = n.askReady(ctx, a.To, "is not ready"); m.Err != nil {
		return m
	}
	failpoint.Hit("switchover.begin")
	if wait > 0 {
		n.awaitTransactions(ctx, l, wait)
	}
	if m.Err = n.awaitRules(ctx, targetPatience); m.Err != nil {
		return m
	}
	if m.Err = n.approach(ctx, a.To); m.Err != nil {
		return m
	}
	n.beginClosing(func() gossip.Leave { return n.switchoverCauseLocked(a, req) })
	n.routes() // holds new connections
	n.gossip.Broadcast()
	if n.sessionsFollowed() {
		n.awaitQuiet(ctx, a.Term, min(wait, quietPatience))
	}
	failpoint.Hit("switchover.before-close")
	m.Carried = n.followedSessions()
	if m.Err = n.closeWrites(ctx, l, a.Term, &m); m.Err != nil {
		return m
	}
	n.dropVIP() // all who wrote here have got their answers
	if m.Err = failpoint.Err("switchover.drained"); m.Err != nil {
		return m
	}
	if m.Err = n.askReady(ctx, a.To, "did not apply the last entries"); m.Err != nil {
		return m
	}
	tctx, cancel := context.WithTimeout(ctx, electPatience)
	defer cancel()
	failpoint.Hit("switchover.before-transfer")
	m.Err = n.cons.TransferLeadership(tctx, a.To)
	failpoint.Hit("switchover.after-transfer")
	return m
}

// beginClosing notes that writes are about to be closed, and why; causeLocked is asked with n.mu held. No client's OK
// is held back from here on: a session that waits for one is not quiet, and read-only waits for it.
func (n *Node) beginClosing(causeLocked func() gossip.Leave) {
	n.mu.Lock()
	n.hold++
	var closes bool
	n.lives.Change(func(s *lifecycle.Status) { closes = s.BeginClosing() })
	if closes {
		s, l := n.lives.Status(), causeLocked()
		l.Planned = true
		n.gossip.Leave(s.Term(), l)
	}
	n.mu.Unlock()
	n.acks.ReleaseSlowed()
}

// askReady waits until another node has applied all that is committed; otherwise is what to say of it when it does not.
func (n *Node) askReady(ctx context.Context, to uint64, otherwise string) error {
	index, _ := n.led.At()
	if err := n.askApplied(ctx, to, index, targetPatience); err != nil {
		return fmt.Errorf("%s %s: %w", n.memberName(to), otherwise, err)
	}
	return nil
}

// approach waits, while writes go on, until the target lags so little that it applies the rest in a moment: each
// time it has applied all that was committed, what came meanwhile is less, as long as it applies faster than clients
// write. If it does not, waiting longer does not help.
func (n *Node) approach(ctx context.Context, to uint64) error {
	for began := now(); ; {
		asked := now()
		if err := n.askReady(ctx, to, "is not ready"); err != nil {
			return err
		}
		if now() < asked+closeBehind || now() > began+approachPatience || n.isStopping() {
			return nil
		}
	}
}

// awaitQuiet waits until no router has anything under way that it could hold: what goes on longer is rolled back, or
// gets an error.
func (n *Node) awaitQuiet(ctx context.Context, term uint64, patience time.Duration) {
	for end := now() + patience; now() < end; {
		n.mu.Lock()
		all := n.router.Quiet() && n.routers.AllQuiet(n.hold)
		for _, p := range n.gossip.Peers() {
			all = all && (!p.Fresh() || p.Quiet == term)
		}
		n.mu.Unlock()
		if all {
			return
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(time.Millisecond):
		}
	}
}

// switchoverCauseLocked says who wanted it.
func (n *Node) switchoverCauseLocked(a ha.Action, req *leadership.Request) gossip.Leave {
	switch {
	case req != nil:
		return gossip.Leave{Cause: "an operator asked for it", By: req.By}
	case n.stopping:
		return gossip.Leave{Cause: "its daemon is stopping"}
	}
	return gossip.Leave{Cause: a.Reason}
}

// awaitTransactions lets the transactions that are open now end by themselves, for a time. Those that begin meanwhile
// are not waited for.
func (n *Node) awaitTransactions(ctx context.Context, l *lifecycle.Life, wait time.Duration) {
	// The end of the wait must not cut a query short: its connection would have to log in again, while writes are being
	// closed.
	end := now() + wait
	look := func() ([]mysqld.OpenTransaction, error) {
		ctx, cancel := context.WithTimeout(ctx, lifecycle.AnswerPatience)
		defer cancel()
		return l.Admin().OpenTransactions(ctx, false)
	}
	first, err := look()
	for err == nil && len(first) > 0 {
		left := end - now()
		if left <= 0 || n.isStopping() { // a daemon that is asked to stop has no time for that
			return
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(min(trxInterval, left)):
		}
		var later []mysqld.OpenTransaction
		later, err = look()
		first = slices.DeleteFunc(first, func(t mysqld.OpenTransaction) bool { return !slices.ContainsFunc(later, t.Same) })
	}
	if err != nil && ctx.Err() == nil {
		n.log.Warn("open transactions were not waited for", "err", err)
	}
}

// isStopping says whether this daemon was asked to stop.
func (n *Node) isStopping() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.stopping
}

// closeWrites ends writing without losing anything that is under way, and notes in m what that has cut off.
func (n *Node) closeWrites(ctx context.Context, l *lifecycle.Life, term uint64, m *leadership.Moved) error {
	m.Closing = now()
	cut, err := l.CloseGently(ctx)
	m.Cut, m.Open = cut.Connections, cut.Rolled
	if err == nil {
		n.mu.Lock()
		n.lives.Change(func(s *lifecycle.Status) { s.NoteDrained(term) })
		n.mu.Unlock()
	}
	return err
}

// trxText describes a transaction in a line.
func trxText(t mysqld.OpenTransaction) string {
	return fmt.Sprintf("%s@%s, open for %d s, %d rows changed", t.User, t.Host, t.AgeS, t.Rows)
}

// openTransactions is a list for an operator.
func openTransactions(list []mysqld.OpenTransaction) []api.OpenTransaction {
	out := []api.OpenTransaction{}
	for _, t := range list[:min(len(list), api.MaxOpenTrx)] {
		out = append(out, api.OpenTransaction{User: t.User, Host: t.Host, AgeS: t.AgeS, Rows: t.Rows, Statement: t.Statement})
	}
	return out
}

type awaitApplied struct {
	Index    uint64        `json:"index"`
	Patience time.Duration `json:"patience_ns"`
	Term     uint64        `json:"term,omitempty"` // of reqHoldings: nothing of a later one counts
}

// askApplied waits until another node's mysqld has applied everything up to index.
func (n *Node) askApplied(ctx context.Context, to, index uint64, patience time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	_, err := reqAwaitApplied.Ask(ctx, n.tr, to, awaitApplied{Index: index, Patience: patience})
	return err
}

// awaitAppliedHere waits until this node's mysqld holds everything up to an index.
func (n *Node) awaitAppliedHere(ctx context.Context, _ uint64, r awaitApplied) error {
	ctx, cancel := context.WithTimeout(ctx, min(r.Patience, targetPatience))
	defer cancel()
	s := n.lives.Status()
	l := s.Life()
	if l == nil || s.State() != ha.ServerReady {
		return fmt.Errorf("its mysqld is %s", s.State())
	}
	if err := n.led.Await(ctx, r.Index); err != nil {
		return fmt.Errorf("entry %d did not arrive in time", r.Index)
	}
	_, committed := n.led.Snapshot()
	// What was committed after r.Index is waited for too: it would have to be applied before writes open anyway.
	left := committed.Subtract(l.Executed())
	if left.Empty() {
		return nil
	}
	done, err := l.Admin().WaitExecuted(ctx, left.String(), r.Patience)
	if err != nil {
		return err
	}
	if !done {
		return fmt.Errorf("entry %d was not applied in time", r.Index)
	}
	return nil
}

// Switchover implements api.Backend.
func (n *Node) Switchover(ctx context.Context, req api.SwitchoverRequest) (api.SwitchoverResult, error) {
	v := n.view()
	res := api.SwitchoverResult{From: n.id.Name, Term: v.Raft.Term, DryRun: req.DryRun, Candidates: n.candidates(v),
		OpenTransactions: []api.OpenTransaction{}}
	wait := api.DefaultTrxWait
	if req.OpenTrxWait != nil {
		wait = *req.OpenTrxWait
	}
	if wait < 0 || wait > api.MaxTrxWait {
		return res, api.Errorf(api.KindInvalid, "open transactions are waited for up to %v, not %v", api.MaxTrxWait, wait)
	}
	if req.IfTerm != 0 && req.IfTerm != v.Raft.Term {
		return res, api.Errorf(api.KindChanged, "it is term %d, not %d: leadership has moved meanwhile", v.Raft.Term,
			req.IfTerm).
			With("see `trireme status`; nothing is changed")
	}
	to, err := n.chooseTarget(v, req.To)
	if req.DryRun {
		return n.dryRun(ctx, v, to, err, res)
	}
	if err != nil {
		return res, err
	}
	res.To = n.memberName(to)
	var r *leadership.Request
	n.mu.Lock()
	if s := n.lives.Status(); s.Phase() != ha.PhaseHandover {
		r = n.leadership.Ask(to, v.Raft.Term, shorten(api.WhoAsked(ctx)), wait)
	}
	n.mu.Unlock()
	if r == nil {
		return res, leadership.UnderWay()
	}
	n.poke()
	m, err := n.leadership.Await(ctx, r, switchoverPatience+time.Second)
	if err != nil {
		return res, err
	}
	res.OpenTransactions, res.OpenCount, res.ConnectionsCut = openTransactions(m.Open), len(m.Open), m.Cut
	res.SessionsMoved = m.Carried
	if m.Err != nil {
		text := fmt.Sprintf("switchover to %s did not happen: %v", res.To, m.Err)
		if m.Cut > 0 {
			text += fmt.Sprintf("; %d connections had been cut and %d open transactions rolled back", m.Cut, len(m.Open))
		}
		return res, api.Errorf(api.KindCannotLead, "%s", text).With("the old leader continues; see `trireme status`")
	}
	term, opened, err := n.awaitOpen(ctx, to)
	res.Term, res.WriteGapMS = term, ms(opened-m.Closing)
	return res, err
}

// dryRun says what a switchover would do. refusal is why it would not be tried.
func (n *Node) dryRun(ctx context.Context, v ha.View, to uint64, refusal error,
	res api.SwitchoverResult) (api.SwitchoverResult, error) {
	if refusal != nil {
		e, ok := errors.AsType[*api.Error](refusal)
		if !ok || !e.Kind.Refused() {
			return res, refusal // a question that makes no sense has no answer
		}
		res.Problem, res.ProblemKind = e.Message, e.Kind
		return res, nil
	}
	if err := n.waitsForRule(); err != nil {
		res.Problem, res.ProblemKind = err.Error(), api.KindNotReady
		return res, nil
	}
	res.To = n.memberName(to)
	res.WriteGapMS = ms(n.usualGap() + ha.ApplyTime(v, to))
	res.TiedSessions = n.tiedSessions()
	l := n.lives.Life()
	if l == nil {
		return res, nil
	}
	open, err := l.Admin().OpenTransactions(ctx, true)
	if err != nil {
		return res, err
	}
	res.OpenTransactions, res.OpenCount = openTransactions(open), len(open)
	return res, nil
}

// firstGap is expected of a switchover before there was any.
const firstGap = 50 * time.Millisecond

// usualGap is the median of the last switchovers' gaps.
func (n *Node) usualGap() time.Duration {
	gap, ok := usual(n.history.all(),
		func(e api.Event) (float64, bool) { return e.GapMS, e.Kind == eventSwitchover && e.Phases != nil })
	if !ok {
		return firstGap
	}
	return time.Duration(gap * float64(time.Millisecond))
}

// chooseTarget checks an operator's wish before anything happens.
func (n *Node) chooseTarget(v ha.View, name string) (uint64, error) {
	if v.Serving.Phase == ha.PhaseHandover {
		return 0, leadership.UnderWay()
	}
	if v.Serving.Phase != ha.PhaseOpen {
		return 0, api.Errorf(api.KindNoLeader, "%s is not a leader with open writes", n.id.Name).
			With("wait until `trireme status` shows a healthy leader")
	}
	if name == "" {
		for _, p := range ha.Candidates(v) {
			if len(ha.WhyNotSwitchover(v, p.ID)) == 0 {
				return p.ID, nil
			}
		}
		return 0, api.Errorf(api.KindCannotLead, "no other node can take over: %s", n.allReasons(v)).
			With("`trireme why-not NODE` shows it as it is now")
	}
	m, err := n.findMember(name)
	if err != nil {
		return 0, err
	}
	if m.ID == n.id.ID {
		return 0, api.Errorf(api.KindAlready, "%s is the leader already", name)
	}
	if rs := ha.WhyNotSwitchover(v, m.ID); len(rs) > 0 {
		return 0, api.Errorf(api.KindCannotLead, "%s cannot take over: %s", name, reasonsText(rs)).
			With("`trireme why-not %s` shows it as it is now", name)
	}
	return m.ID, nil
}

// allReasons says of every other member why it cannot take over.
func (n *Node) allReasons(v ha.View) string {
	var texts []string
	for _, p := range v.Peers {
		texts = append(texts, p.Name+": "+reasonsText(ha.WhyNotSwitchover(v, p.ID)))
	}
	if len(texts) == 0 {
		return "there is none"
	}
	return strings.Join(texts, "; ")
}

// candidates weighs every other member, for people.
func (n *Node) candidates(v ha.View) []api.Candidate {
	var out []api.Candidate
	for _, p := range v.Peers {
		why := reasonsText(ha.WhyNotSwitchover(v, p.ID))
		c := api.Candidate{Name: p.Name, Eligible: why == "", Reason: why}
		if why == "" {
			c.Reason = fmt.Sprintf("weight %d, %d entries to apply", p.Weight, v.Raft.Commit-min(p.Applied, v.Raft.Commit))
		}
		out = append(out, c)
	}
	return out
}

// awaitOpen waits until another node says that its writes are open; it returns its term and when that was known here.
func (n *Node) awaitOpen(ctx context.Context, id uint64) (uint64, time.Duration, error) {
	deadline := now() + switchoverPatience
	for now() < deadline && ctx.Err() == nil {
		if p := n.gossip.Peers()[id]; p.Fresh() && p.OpenTerm != 0 {
			return p.OpenTerm, p.OpenAt, nil
		}
		select {
		case <-ctx.Done():
		case <-time.After(2 * time.Millisecond):
		}
	}
	return 0, now(), api.Errorf(api.KindTimeout, "%s was elected but has not opened writes yet", n.memberName(id)).
		With("see `trireme status`")
}
