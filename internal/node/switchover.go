package node

import (
	"context"
	"errors"
	"fmt"
	"time"

	"trireme/internal/api"
	"trireme/internal/base/poll"
	"trireme/internal/core/ha"
	"trireme/internal/node/history"
	"trireme/internal/node/leadership"
)

// reopenPatience is for writes to open again after a switchover that failed: leadership has to be proven for that.
const reopenPatience = 7 * time.Second

// awaitAppliedHere answers leadership.ReqApplied.
func (n *Node) awaitAppliedHere(ctx context.Context, _ uint64, r leadership.Applied) error {
	return n.lives.AwaitApplied(ctx, r.Index, min(r.Patience, leadership.TargetPatience))
}

// Switchover implements api.Backend.
func (n *Node) Switchover(ctx context.Context, req api.SwitchoverRequest) (api.SwitchoverResult, error) {
	v := n.control.View()
	res := api.SwitchoverResult{From: n.id.Name, Term: v.Raft.Term, DryRun: req.DryRun,
		Candidates: leadership.Candidates(v), OpenTransactions: []api.OpenTransaction{}}
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
	to, err := n.leadership.ChooseTarget(v, req.To)
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
		r = n.leadership.Ask(to, v.Raft.Term, history.Shorten(api.WhoAsked(ctx)), wait)
	}
	n.mu.Unlock()
	if r == nil {
		return res, leadership.UnderWay()
	}
	n.wakeLoop()
	m, err := n.leadership.Await(ctx, r, leadership.Patience+reopenPatience)
	if err != nil {
		return res, err
	}
	res.OpenTransactions, res.OpenCount, res.ConnectionsCut = leadership.OpenTransactions(m.Open), len(m.Open), m.Cut
	res.SessionsMoved = m.Carried
	if m.Err != nil {
		text := fmt.Sprintf("switchover to %s did not happen: %v", res.To, m.Err)
		if m.Cut > 0 {
			text += fmt.Sprintf("; %d connections had been cut and %d open transactions rolled back", m.Cut, len(m.Open))
		}
		then := "see `trireme status`"
		if m.Continues {
			then = "the old leader continues; " + then
		}
		return res, api.Errorf(api.KindCannotLead, "%s", text).With("%s", then)
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
	if err := (clientsOf{n}).WaitForRule(); err != nil {
		res.Problem, res.ProblemKind = err.Error(), api.KindNotReady
		return res, nil
	}
	res.To = n.memberName(to)
	res.WriteGapMS = ms(n.history.UsualGap() + ha.ApplyTime(v, to))
	res.TiedSessions = n.routing.Tied()
	l := n.lives.Life()
	if l == nil {
		return res, nil
	}
	open, err := l.Admin().OpenTransactions(ctx, true)
	if err != nil {
		return res, err
	}
	res.OpenTransactions, res.OpenCount = leadership.OpenTransactions(open), len(open)
	return res, nil
}

// awaitOpen waits until another node says that its writes are open; it returns its term and when that was known here.
func (n *Node) awaitOpen(ctx context.Context, id uint64) (uint64, time.Duration, error) {
	deadline := now() + leadership.Patience
	for now() < deadline && ctx.Err() == nil {
		if p := n.gossip.Peers()[id]; p.Fresh() && p.OpenTerm != 0 {
			return p.OpenTerm, p.OpenAt, nil
		}
		_ = poll.Pause(ctx, 2*time.Millisecond)
	}
	return 0, now(), api.Errorf(api.KindTimeout, "%s was elected but has not opened writes yet", n.memberName(id)).
		With("see `trireme status`")
}

func ms(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }
