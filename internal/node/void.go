package node

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"trireme/internal/api"
	"trireme/internal/config"
	"trireme/internal/gtid"
	"trireme/internal/ha"
	"trireme/internal/node/recovery"
)

// An operator decides about an entry that no node could apply, and whose effect no node has: it is applied tolerantly
// (`trireme force-apply`), or it is void (`trireme void`). The decision is part of the cluster settings, so it is
// committed, and the same for all nodes. Each node's feed hands the transaction out without foreign key checks
// (dump.Tolerance), or an empty one with that GTID. A plug ahead of a node that lags would be a hole, which S5 takes
// for a lost transaction.
//
// A node takes a decision up when its mysqld is judged, which begins a new relay log: an old one may hold the
// transaction as it was. It writes down first that it does. Data that holds the transaction without that note has
// what the others have not: it is replaced by a copy.

const (
	eventVoid       = "void"
	eventForceApply = "force-apply"
)

var (
	errNewVoids  = errors.New("an operator has decided about an entry since its mysqld was started")
	errHoldsVoid = errors.New("this data has an entry that an operator has decided about since")
)

// Void implements api.Backend (leader only).
func (n *Node) Void(ctx context.Context, req api.VoidRequest) (api.VoidReport, error) {
	return n.decide(ctx, req, false)
}

// ForceApply implements api.Backend (leader only).
func (n *Node) ForceApply(ctx context.Context, req api.VoidRequest) (api.VoidReport, error) {
	return n.decide(ctx, req, true)
}

// decide has a decision committed, or without a GTID reports what it would mean.
func (n *Node) decide(ctx context.Context, req api.VoidRequest, tolerant bool) (api.VoidReport, error) {
	verb, done := eventVoid, "declared entry %d void"
	if tolerant {
		verb, done = eventForceApply, "had entry %d applied tolerantly"
	}
	term := n.cons.Status().Term
	rep, err := n.planVoid(ctx, req, tolerant)
	if err != nil || req.GTID == "" {
		return rep, err
	}
	b := rep.Entry
	switch {
	case rep.Problem != "":
		return rep, api.Errorf(rep.ProblemKind, "nothing is changed: %s", rep.Problem).With("%s", rep.Advice)
	case req.GTID != b.GTID:
		return rep, api.Errorf(api.KindChanged, "nothing is changed: the entry that blocks this cluster is %s, not %s",
			b.GTID, req.GTID).With("read the report of this moment: trireme %s --dry-run", verb)
	}
	v := config.Void{GTID: b.GTID, Index: b.Index, Entry: b.Entry, Error: fmt.Sprintf("%d: %s", b.Number, b.Error),
		At: time.Now().UTC(), By: recovery.CleanBy(req.By), Tolerant: tolerant}
	_, err = n.members.Change(ctx, term, func(c *config.Cluster) error {
		c.DeclareVoid(v)
		return nil
	})
	if err != nil {
		return rep, err
	}
	rep.Done = true
	text := fmt.Sprintf("%s "+done+" (%s); error %s", v.By, v.Index, v.Entry, v.Error)
	e := n.askedEvent(ctx, verb, b.Index, text)
	e.GTIDs = v.GTID
	n.history.add(e)
	n.log.Warn("an operator has decided about an entry", "verb", verb, "gtid", v.GTID, "index", v.Index,
		"entry", v.Entry, "err", v.Error, "by", v.By)
	return rep, nil
}

// planVoid says what would be lost, and why it must not be done.
func (n *Node) planVoid(ctx context.Context, req api.VoidRequest, tolerant bool) (api.VoidReport, error) {
	b := n.View(ctx).Blocked
	if b == nil {
		return api.VoidReport{}, api.Errorf(api.KindAlready, "not needed: no entry blocks this cluster").
			With("see `trireme status`")
	}
	rep := api.VoidReport{Entry: *b, Loss: lossOf(b, req.Without, tolerant)}
	n.mu.Lock()
	// What could not be applied tolerantly either may still be declared void, not the other way round.
	done := slices.ContainsFunc(n.Settings().Voids, func(v config.Void) bool {
		return v.GTID == b.GTID && (tolerant || !v.Tolerant)
	})
	n.mu.Unlock()
	p := whyNotVoid(b, req.Without, done)
	if p == nil && tolerant {
		p = whyNotTolerant(b)
	}
	if p != nil {
		rep.Problem, rep.ProblemKind, rep.Advice = p.Message, p.Kind, p.Advice
	}
	return rep, nil
}

// tolerable are the errors of rows that are not there, keys that are taken, and foreign keys.
var tolerable = []int{1032, 1062, 1216, 1217, 1451, 1452, 1586, 1761, 1762}

// whyNotTolerant says why it would not help to apply an entry tolerantly; nil: it may help.
func whyNotTolerant(b *api.BlockedView) *api.Error {
	advice := "see docs/ops/failures.md: make it applicable; or see what `trireme void --dry-run` says"
	switch {
	case b.Statement != "":
		return api.Errorf(api.KindConflict, "entry %d is a statement, and only changes of rows can be applied tolerantly",
			b.Index).With("%s", advice)
	case !slices.Contains(tolerable, b.Number):
		return api.Errorf(api.KindConflict, "error %d is not one of rows that are not there, keys that are taken or "+
			"foreign keys: entry %d would fail again", b.Number, b.Index).With("%s", advice)
	}
	return nil
}

// whyNotVoid says why no decision about an entry may be taken; nil: it may.
func whyNotVoid(b *api.BlockedView, without []string, done bool) *api.Error {
	missing, other := except(b.Unknown, without), except(without, b.Unknown)
	switch {
	case done:
		return api.Errorf(api.KindAlready, "it is decided already").With("nodes take it up now; see `trireme status`")
	case b.XA:
		return api.Errorf(api.KindConflict,
			"entry %d prepares or ends an XA transaction, and what belongs to it would fail next", b.Index).
			With("see docs/ops/failures.md: make it applicable")
	case len(other) > 0:
		return api.Errorf(api.KindInvalid, "%s answers, or is no node with data", strings.Join(other, ", ")).
			With("leave it out of --without")
	case len(missing) > 0:
		return api.Errorf(api.KindNotReady, "%s does not answer, and may have what the entry did",
			strings.Join(missing, ", ")).
			With("start it: if it has the entry, nothing is lost. If it cannot be started: --without %s",
				strings.Join(b.Unknown, ","))
	}
	return nil
}

// except are the names that are not among others.
func except(names, others []string) []string {
	return slices.DeleteFunc(slices.Clone(names), func(name string) bool { return slices.Contains(others, name) })
}

// lossOf says what is lost, or may be.
func lossOf(b *api.BlockedView, without []string, tolerant bool) string {
	told := strings.ToUpper(b.Told[:1]) + b.Told[1:]
	text := fmt.Sprintf("Lost: what entry %d would have done (%s). %s. "+
		"Transactions after it may rest on it, and stop in the same way.", b.Index, b.Entry, told)
	if tolerant {
		text = fmt.Sprintf("Entry %d (%s) is applied on each node without foreign key checks. A row that it updates or "+
			"deletes and that is not there is passed over. A row that it inserts replaces rows with the same key. "+
			"Afterwards rows may refer to rows that are not there. %s.", b.Index, b.Entry, told)
	}
	if len(without) > 0 {
		text += fmt.Sprintf(" %s: if it has applied the entry, its data is thrown away when it comes back, "+
			"and copied from another node.", strings.Join(without, ", "))
	}
	return text
}

// declaredVoid says whether an operator has declared a transaction void.
func (n *Node) declaredVoid(g gtid.GTID) bool {
	voids := n.Settings().Voids
	if len(voids) == 0 {
		return false
	}
	return slices.ContainsFunc(voids, func(v config.Void) bool { return v.GTID == g.String() && !v.Tolerant })
}

// followsVoid says whether this node's data has, or will have, nothing of a transaction; it is for the feed.
func (n *Node) followsVoid(g gtid.GTID) bool { return n.marked(g, "") }

// followsTolerant says whether a transaction is applied tolerantly on this node; it is for the feed.
func (n *Node) followsTolerant(g gtid.GTID) bool {
	return n.marked(g, config.TolerantMark) && !n.followsVoid(g)
}

func (n *Node) marked(g gtid.GTID, kind string) bool {
	voids := n.local.get().Voids
	return len(voids) > 0 && slices.Contains(voids, g.String()+kind)
}

// newVoidsLocked are those that this node's data does not follow yet.
func (n *Node) newVoidsLocked() (out []config.Void) {
	for _, v := range n.Settings().Voids {
		if !slices.Contains(n.local.get().Voids, v.Mark()) {
			out = append(out, v)
		}
	}
	return out
}

// tendVoids ends a mysqld that was started before a decision, and has another apply tolerantly what it should. A leader
// that serves has applied the entry, and is fenced by a decision about it.
func (n *Node) tendVoids(ctx context.Context) {
	n.mu.Lock()
	s := n.lives.Status()
	decided := len(n.newVoidsLocked()) > 0
	n.mu.Unlock()
	l := s.Life()
	switch {
	case l == nil || s.State() != ha.ServerReady:
	case decided:
		n.restartServer(errNewVoids.Error())
	default:
		err := n.tolerance.Tend(ctx, l.Admin().GTIDExecuted, func(ctx context.Context, tolerant bool) error {
			n.log.Warn("an entry is applied tolerantly, on an operator's decision", "begins", tolerant)
			return l.Admin().SetTolerant(ctx, tolerant)
		})
		if n.warnings.isNew("tolerant", err) {
			n.log.Warn("an entry cannot be applied tolerantly yet", "err", err)
		}
	}
}

// takeVoids has this node's data follow all decisions from now on; has is what its mysqld has executed, and it is
// not fed yet. The error is errHoldsVoid if the data cannot follow.
func (n *Node) takeVoids(has gtid.Set) error {
	n.mu.Lock()
	voids := n.newVoidsLocked()
	n.mu.Unlock()
	if len(voids) == 0 {
		return nil
	}
	for _, v := range voids {
		g, err := gtid.ParseGTID(v.GTID)
		if err != nil {
			return fmt.Errorf("cluster settings: an entry that is void: %w", err)
		}
		if has.Contains(g) {
			return fmt.Errorf("%w: entry %d, %s (%s)", errHoldsVoid, v.Index, v.GTID, v.Entry)
		}
	}
	return n.local.update(func(s *localState) {
		s.Voids = slices.Clone(s.Voids)
		for _, v := range voids {
			s.Voids = append(s.Voids, v.Mark())
		}
	})
}
