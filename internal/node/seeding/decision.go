package seeding

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"trireme/internal/api"
	"trireme/internal/base/config"
	"trireme/internal/core/dump"
	"trireme/internal/core/ha"
	"trireme/internal/mysql/gtid"
	"trireme/internal/node/lifecycle"
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

// errNewVoids: mysqld is fed as it was before a decision.
var errNewVoids = errors.New("an operator has decided about an entry since its mysqld was started")

// ErrHoldsVoid: the data cannot follow a decision, and has to be replaced by a copy.
var ErrHoldsVoid = errors.New("this data has an entry that an operator has decided about since")

// Void implements api.Backend (leader only).
func (s *Seeding) Void(ctx context.Context, req api.VoidRequest) (api.VoidReport, error) {
	return s.decide(ctx, req, false)
}

// ForceApply implements api.Backend (leader only).
func (s *Seeding) ForceApply(ctx context.Context, req api.VoidRequest) (api.VoidReport, error) {
	return s.decide(ctx, req, true)
}

// decide has a decision committed, or without a GTID reports what it would mean.
func (s *Seeding) decide(ctx context.Context, req api.VoidRequest, tolerant bool) (api.VoidReport, error) {
	verb, done := eventVoid, "declared entry %d void"
	if tolerant {
		verb, done = eventForceApply, "had entry %d applied tolerantly"
	}
	term := s.host.Raft().Status().Term
	rep, err := s.planVoid(ctx, req, tolerant)
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
		At: s.time.Wall().UTC(), By: recovery.CleanBy(req.By), Tolerant: tolerant}
	_, err = s.cluster.Change(ctx, term, func(c *config.Cluster) error {
		c.DeclareVoid(v)
		return nil
	})
	if err != nil {
		return rep, err
	}
	rep.Done = true
	text := fmt.Sprintf("%s "+done+" (%s); error %s", v.By, v.Index, v.Entry, v.Error)
	s.host.Record(api.Event{Kind: verb, Index: b.Index, Message: text, GTIDs: v.GTID, By: api.WhoAsked(ctx)})
	s.log.Warn("an operator has decided about an entry", "verb", verb, "gtid", v.GTID, "index", v.Index,
		"entry", v.Entry, "err", v.Error, "by", v.By)
	return rep, nil
}

// planVoid says what would be lost, and why it must not be done.
func (s *Seeding) planVoid(ctx context.Context, req api.VoidRequest, tolerant bool) (api.VoidReport, error) {
	b := s.cluster.Blocked(ctx)
	if b == nil {
		return api.VoidReport{}, api.Errorf(api.KindAlready, "not needed: no entry blocks this cluster").
			With("see `trireme status`")
	}
	rep := api.VoidReport{Entry: *b, Loss: lossOf(b, req.Without, tolerant)}
	// What could not be applied tolerantly either may still be declared void, not the other way round.
	done := slices.ContainsFunc(s.cluster.Settings().Voids, func(v config.Void) bool {
		return v.GTID == b.GTID && (tolerant || !v.Tolerant)
	})
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

// DeclaredVoid says whether an operator has declared a transaction void.
func (s *Seeding) DeclaredVoid(g gtid.GTID) bool {
	voids := s.cluster.Settings().Voids
	if len(voids) == 0 {
		return false
	}
	return slices.ContainsFunc(voids, func(v config.Void) bool { return v.GTID == g.String() && !v.Tolerant })
}

// FollowsVoid says whether this node's data has, or will have, nothing of a transaction; it is for the feed.
func (s *Seeding) FollowsVoid(g gtid.GTID) bool { return s.marked(g, "") }

// followsTolerant says whether a transaction is applied tolerantly on this node; it is for the feed.
func (s *Seeding) followsTolerant(g gtid.GTID) bool {
	return s.marked(g, config.TolerantMark) && !s.FollowsVoid(g)
}

func (s *Seeding) marked(g gtid.GTID, kind string) bool {
	voids := s.memory.Notes().Voids
	return len(voids) > 0 && slices.Contains(voids, g.String()+kind)
}

// HasNewDecisions says whether an operator has decided about an entry, and this node's data does not follow that yet.
func (s *Seeding) HasNewDecisions() bool { return len(s.newDecisions()) > 0 }

// newDecisions are those that this node's data does not follow yet.
func (s *Seeding) newDecisions() (out []config.Void) {
	follows := s.memory.Notes().Voids
	for _, v := range s.cluster.Settings().Voids {
		if !slices.Contains(follows, v.Mark()) {
			out = append(out, v)
		}
	}
	return out
}

// Tolerance is for the feed: it lets transactions be applied tolerantly.
func (s *Seeding) Tolerance() *dump.Tolerance { return s.tolerance }

// CarryOutDecisions ends a mysqld that was started before a decision, and has another apply tolerantly what it should.
// A leader that serves has applied the entry, and is fenced by a decision about it.
func (s *Seeding) CarryOutDecisions(ctx context.Context) {
	st, _ := s.server.Now()
	l := st.Life()
	switch {
	case l == nil || st.State() != ha.ServerReady:
	case s.HasNewDecisions():
		s.server.Restart(errNewVoids.Error())
	default:
		err := s.tolerance.Tend(ctx, l.Admin().GTIDExecuted, func(ctx context.Context, tolerant bool) error {
			s.log.Warn("an entry is applied tolerantly, on an operator's decision", "begins", tolerant)
			return l.Admin().SetTolerant(ctx, tolerant)
		})
		if s.host.IsNew("tolerant", err) {
			s.log.Warn("an entry cannot be applied tolerantly yet", "err", err)
		}
	}
}

// FollowDecisions has this node's data follow all decisions from now on; has is what its mysqld has executed, and it is
// not fed yet. The error is ErrHoldsVoid if the data cannot follow.
func (s *Seeding) FollowDecisions(has gtid.Set) error {
	voids := s.newDecisions()
	if len(voids) == 0 {
		return nil
	}
	for _, v := range voids {
		g, err := gtid.ParseGTID(v.GTID)
		if err != nil {
			return fmt.Errorf("cluster settings: an entry that is void: %w", err)
		}
		if has.Contains(g) {
			return fmt.Errorf("%w: entry %d, %s (%s)", ErrHoldsVoid, v.Index, v.GTID, v.Entry)
		}
	}
	return s.memory.Note(func(n *Notes, _ *lifecycle.State) {
		n.Voids = slices.Clone(n.Voids)
		for _, v := range voids {
			n.Voids = append(n.Voids, v.Mark())
		}
	})
}
