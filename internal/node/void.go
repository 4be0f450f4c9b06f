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
)

// An entry that no node could apply, and whose effect no node has, may be declared void by an operator (`trireme
// void`). The decision is part of the cluster settings, so it is committed, and the same for all nodes: each node's
// feed hands out an empty transaction with that GTID. A plug ahead of a node that lags would be a hole, which S5
// takes for a lost transaction.
//
// A node takes a decision up when its mysqld is judged, which begins a new relay log: an old one may hold the
// transaction as it was. It writes down first that it does. Data that holds the transaction without that note has
// what the others have not: it is replaced by a copy.

const eventVoid = "void"

var (
	errNewVoids  = errors.New("an entry was declared void since its mysqld was started")
	errHoldsVoid = errors.New("this data holds what an operator has declared void")
)

// Void implements api.Backend (leader only).
func (n *Node) Void(ctx context.Context, req api.VoidRequest) (api.VoidReport, error) {
	term := n.cons.Status().Term
	rep, err := n.planVoid(ctx, req)
	if err != nil || req.GTID == "" {
		return rep, err
	}
	b := rep.Entry
	switch {
	case rep.Problem != "":
		return rep, api.Errorf(rep.ProblemKind, "nothing is changed: %s", rep.Problem).With("%s", rep.Advice)
	case req.GTID != b.GTID:
		return rep, api.Errorf(api.KindChanged, "nothing is changed: the entry that blocks this cluster is %s, not %s",
			b.GTID, req.GTID).With("read the report of this moment: trireme void --dry-run")
	}
	v := config.Void{GTID: b.GTID, Index: b.Index, Entry: b.Entry, Error: fmt.Sprintf("%d: %s", b.Number, b.Error),
		At: time.Now().UTC(), By: cleanBy(req.By)}
	_, err = n.changeClusterIn(ctx, term, func(c *config.Cluster) error {
		c.DeclareVoid(v)
		return nil
	})
	if err != nil {
		return rep, err
	}
	rep.Done = true
	text := fmt.Sprintf("%s declared entry %d void (%s); error %s", v.By, v.Index, v.Entry, v.Error)
	e := n.event(eventVoid, b.Index, text)
	e.GTIDs = v.GTID
	n.history.add(e)
	n.log.Warn("an entry is declared void", "gtid", v.GTID, "index", v.Index, "entry", v.Entry, "err", v.Error,
		"by", v.By)
	return rep, nil
}

// planVoid says what would be lost, and why it must not be done.
func (n *Node) planVoid(ctx context.Context, req api.VoidRequest) (api.VoidReport, error) {
	b := n.View(ctx).Blocked
	if b == nil {
		return api.VoidReport{}, api.Errorf(api.KindAlready, "not needed: no entry blocks this cluster").
			With("see `trireme status`")
	}
	rep := api.VoidReport{Entry: *b, Loss: lossOf(b, req.Without)}
	n.mu.Lock()
	done := slices.ContainsFunc(n.cluster.Voids, func(v config.Void) bool { return v.GTID == b.GTID })
	n.mu.Unlock()
	if p := whyNotVoid(b, req.Without, done); p != nil {
		rep.Problem, rep.ProblemKind, rep.Advice = p.Message, p.Kind, p.Advice
	}
	return rep, nil
}

// whyNotVoid says why an entry must not be declared void; nil: it may.
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

// lossOf says what is lost.
func lossOf(b *api.BlockedView, without []string) string {
	text := fmt.Sprintf("Lost: what entry %d would have done (%s). %s. ", b.Index, b.Entry,
		strings.ToUpper(b.Told[:1])+b.Told[1:])
	text += "Transactions after it may rest on it, and stop in the same way."
	if len(without) > 0 {
		text += fmt.Sprintf(" %s: if it has applied the entry, its data is thrown away when it comes back, "+
			"and copied from another node.", strings.Join(without, ", "))
	}
	return text
}

// declaredVoid says whether an operator has declared a transaction void.
func (n *Node) declaredVoid(g gtid.GTID) bool {
	n.mu.Lock()
	voids := n.cluster.Voids
	n.mu.Unlock()
	if len(voids) == 0 {
		return false
	}
	return slices.ContainsFunc(voids, func(v config.Void) bool { return v.GTID == g.String() })
}

// followsVoid says whether this node's data has, or will have, nothing of a transaction; it is for the feed.
func (n *Node) followsVoid(g gtid.GTID) bool {
	voids := n.local.get().Voids
	return len(voids) > 0 && slices.Contains(voids, g.String())
}

// newVoidsLocked are those that this node's data does not follow yet.
func (n *Node) newVoidsLocked() (out []config.Void) {
	for _, v := range n.cluster.Voids {
		if !slices.Contains(n.local.get().Voids, v.GTID) {
			out = append(out, v)
		}
	}
	return out
}

// tendVoids ends a mysqld that was started before a decision. A leader that serves has applied the entry, and is
// fenced by it.
func (n *Node) tendVoids(context.Context) {
	n.mu.Lock()
	old := n.srv.life != nil && n.srv.state == ha.ServerReady && len(n.newVoidsLocked()) > 0
	n.mu.Unlock()
	if old {
		n.restartServer("an entry was declared void since it was started")
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
			s.Voids = append(s.Voids, v.GTID)
		}
	})
}
