package node

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"trireme/internal/api"
	"trireme/internal/ha"
)

// transferRequest is an operator's switchover on its way. result gets exactly one value.
type transferRequest struct {
	to     uint64
	began  time.Duration
	result chan error
}

// finish answers the operator, once.
func (r *transferRequest) finish(err error) {
	select {
	case r.result <- err:
	default:
	}
}

// Patience of the parts of a switchover.
const (
	targetPatience = 3 * time.Second        // for the target to apply what it has before writes close, and the rest behind it
	closePatience  = 300 * time.Millisecond // for running statements to end by themselves when writes close
	drainPatience  = 2 * time.Second        // for commits under way to be acknowledged
	electPatience  = 2 * time.Second        // for the target to be elected
)

// switchover moves leadership on purpose (DESIGN.md §8): make sure of the target, close writes, drain, wait until the target has
// applied everything, transfer. If a step fails before the transfer, writes open again in the same term.
func (n *Node) switchover(ctx context.Context, l *life, a ha.Action) {
	err := n.moveLeadership(ctx, l, a)
	n.mu.Lock()
	req := n.request
	n.request = nil
	stopping := n.stopping
	n.mu.Unlock()
	if req != nil {
		req.finish(err)
	}
	if err == nil {
		err = n.stepAside(ctx, l)
		if err == nil {
			return
		}
	}
	n.log.Warn("switchover failed", "to", n.memberName(a.To), "term", a.Term, "err", err)
	n.reopen(l, a.Term, stopping)
}

// reopen takes back a switchover that failed while this node is still leader of the same term.
func (n *Node) reopen(l *life, term uint64, stopping bool) {
	err := errors.New("the daemon is stopping")
	n.mu.Lock()
	if n.serving.phase == ha.PhaseHandover {
		n.serving.drained = false
	}
	n.mu.Unlock()
	if !stopping {
		err = n.openWrites(n.ctx, l, term, ha.PhaseHandover)
	}
	if err == nil {
		return
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.serving.phase == ha.PhaseHandover && n.srv.life == l {
		n.fenceLocked("the switchover failed half-way: " + err.Error())
	}
}

// stepAside makes the drained mysqld of the old leader a follower.
func (n *Node) stepAside(ctx context.Context, l *life) error {
	if err := n.retire(ctx, l); err != nil {
		return fmt.Errorf("becoming a follower: %w", err)
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.serving.phase == ha.PhaseHandover && n.srv.life == l {
		n.serving = servingSlot{}
		n.publishNow = true
	}
	return nil
}

func (n *Node) moveLeadership(ctx context.Context, l *life, a ha.Action) error {
	// The target first, while writes go on: it must be alive and nearly there.
	index, _ := n.led.at()
	if err := n.askApplied(ctx, a.To, index, targetPatience); err != nil {
		return fmt.Errorf("%s is not ready: %w", n.memberName(a.To), err)
	}
	n.routes() // holds new connections
	n.broadcastStatus()
	closing := now()
	if err := n.closeWrites(ctx, l); err != nil {
		return err
	}
	n.mu.Lock()
	if n.serving.phase == ha.PhaseHandover && n.serving.term == a.Term {
		n.serving.drained = true
	}
	n.mu.Unlock()
	index, _ = n.led.at()
	if err := n.askApplied(ctx, a.To, index, targetPatience); err != nil {
		return fmt.Errorf("%s did not apply the last entries: %w", n.memberName(a.To), err)
	}
	tctx, cancel := context.WithTimeout(ctx, electPatience)
	defer cancel()
	if err := n.cons.TransferLeadership(tctx, a.To); err != nil {
		return err
	}
	e := n.event("switchover", index, fmt.Sprintf("leadership moved to %s; writes were closed here for %.0f ms until then", n.memberName(a.To), ms(now()-closing)))
	e.GapMS = ms(now() - closing)
	n.history.add(e)
	return nil
}

// closeWrites ends writing without losing anything that is under way: statements that run may end, then clients are cut.
func (n *Node) closeWrites(ctx context.Context, l *life) error {
	cctx, cancel := context.WithTimeout(ctx, closePatience)
	err := l.admin.SetSuperReadOnly(cctx, true)
	cancel()
	if err != nil {
		// Somebody holds a lock or a long statement runs: it is cut, the switchover does not wait for it.
		if _, kerr := l.admin.KillApplicationConnections(ctx); kerr != nil {
			return fmt.Errorf("closing writes: %w", errors.Join(err, kerr))
		}
	}
	dctx, cancel := context.WithTimeout(ctx, drainPatience)
	defer cancel()
	if err := n.drainGated(dctx, l); err != nil {
		return fmt.Errorf("closing writes: %w", err)
	}
	return nil
}

// Requests between daemons.
const reqAwaitApplied uint8 = 1 // body awaitApplied; answered when the node's mysqld has applied the index

type awaitApplied struct {
	Index    uint64        `json:"index"`
	Patience time.Duration `json:"patience_ns"`
}

// askApplied waits until another node's mysqld has applied everything up to index.
func (n *Node) askApplied(ctx context.Context, to, index uint64, patience time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	body, err := json.Marshal(awaitApplied{Index: index, Patience: patience})
	if err != nil {
		return err
	}
	_, err = n.tr.Request(ctx, to, reqAwaitApplied, body)
	return err
}

// HandleRequest answers another daemon.
func (n *Node) HandleRequest(ctx context.Context, from uint64, kind uint8, body []byte) ([]byte, error) {
	if !n.up() {
		return nil, errStopped
	}
	switch kind {
	case reqAwaitApplied:
		var r awaitApplied
		if err := json.Unmarshal(body, &r); err != nil {
			return nil, err
		}
		return nil, n.awaitAppliedHere(ctx, r)
	}
	return nil, fmt.Errorf("unknown request %d: upgrade this node", kind)
}

// awaitAppliedHere waits until this node's mysqld holds everything up to an index.
func (n *Node) awaitAppliedHere(ctx context.Context, r awaitApplied) error {
	ctx, cancel := context.WithTimeout(ctx, min(r.Patience, targetPatience))
	defer cancel()
	n.mu.Lock()
	l, state := n.srv.life, n.srv.state
	n.mu.Unlock()
	if l == nil || state != ha.ServerReady {
		return fmt.Errorf("its mysqld is %s", state)
	}
	if err := n.waitCommitted(ctx, r.Index); err != nil {
		return fmt.Errorf("entry %d did not arrive in time", r.Index)
	}
	_, committed := n.led.snapshot()
	// What was committed behind r.Index is waited for too: it would have to be applied before writes open anyway.
	left := committed.Subtract(l.executedSet())
	if left.Empty() {
		return nil
	}
	done, err := l.admin.WaitExecuted(ctx, left.String(), r.Patience)
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
	res := api.SwitchoverResult{From: n.id.Name, Term: v.Raft.Term, DryRun: req.DryRun, Candidates: n.candidates(v)}
	to, err := n.chooseTarget(v, req.To)
	if err != nil {
		return res, err
	}
	res.To = n.memberName(to)
	if req.DryRun {
		return res, nil
	}
	r := &transferRequest{to: to, began: now(), result: make(chan error, 1)}
	n.mu.Lock()
	if n.request != nil {
		n.mu.Unlock()
		return res, api.Errorf(api.KindConflict, "another switchover is under way").With("wait for it to end, then look at `trireme status`")
	}
	n.request = r
	n.mu.Unlock()
	n.poke()
	select {
	case err = <-r.result:
	case <-ctx.Done():
		err = ctx.Err()
	case <-time.After(switchoverPatience + time.Second):
		err = errors.New("no outcome in time")
	}
	n.mu.Lock()
	if n.request == r {
		n.request = nil
	}
	n.mu.Unlock()
	if err != nil {
		return res, api.Errorf(api.KindConflict, "switchover to %s did not happen: %v", res.To, err).With("the old leader goes on; see `trireme status`")
	}
	term, opened, err := n.awaitOpen(ctx, to)
	res.Term, res.WriteGapMS = term, ms(opened-r.began)
	return res, err
}

// chooseTarget checks an operator's wish before anything happens.
func (n *Node) chooseTarget(v ha.View, name string) (uint64, error) {
	if v.Serving.Phase != ha.PhaseOpen {
		return 0, api.Errorf(api.KindNoLeader, "%s is not a leader with open writes", n.id.Name).With("wait until `trireme status` shows a healthy leader")
	}
	good := ha.Candidates(v)
	if name == "" {
		if len(good) == 0 {
			return 0, api.Errorf(api.KindConflict, "no other node can take over").With("see `trireme status`: a healthy data node with weight above 0 is needed")
		}
		return good[0].ID, nil
	}
	n.mu.Lock()
	m, ok := n.cluster.Member(name)
	names := n.cluster.Names()
	n.mu.Unlock()
	if !ok {
		return 0, api.Errorf(api.KindNotFound, "no node %q; nodes are %s", name, strings.Join(names, " "))
	}
	if m.ID == n.id.ID {
		return 0, api.Errorf(api.KindConflict, "%s is the leader already", name)
	}
	if rs := ha.WhyNotSwitchover(v, m.ID); len(rs) > 0 {
		return 0, api.Errorf(api.KindConflict, "%s cannot take over: %s", name, reasonsText(rs)).With("`trireme why-not %s` shows it as it is now", name)
	}
	return m.ID, nil
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
		n.mu.Lock()
		p := n.peers[id]
		if p != nil && p.status.OpenTerm != 0 && p.fresh() {
			term, at := p.status.OpenTerm, p.openAt
			n.mu.Unlock()
			return term, at, nil
		}
		n.mu.Unlock()
		select {
		case <-ctx.Done():
		case <-time.After(2 * time.Millisecond):
		}
	}
	return 0, now(), api.Errorf(api.KindTimeout, "%s was elected but has not opened writes yet", n.memberName(id)).With("see `trireme status`")
}
